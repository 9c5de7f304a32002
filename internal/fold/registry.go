package fold

import (
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/wire"
)

// Registry has the members of the fleet, the current code and fleet file, and the latest
// run of each node, according to the log.
type Registry struct {
	Fleet       *tutti.Fleet // nil if the server has no fleet file yet
	FleetDigest tutti.Digest
	Plans       *tutti.Statement // the statement about the fleet file; nil if the file is not signed
	// PlansCounter is the highest counter of a signed fleet file.
	PlansCounter uint64
	Pushes       map[string]Push             // who made the latest push of each environment, and when
	Code         map[string]tutti.CodePushed // the latest push of each environment; a released push is no longer held
	// Digest of code that is current or belongs to a job → the blob of its signed manifest.
	Signed map[tutti.Digest]tutti.Digest
	// Sources says where the code in Signed comes from, if the pusher has said it.
	Sources map[tutti.Digest]tutti.CodeSource
	// Statements are the statements about the code in Signed. Code that an older release of Tutti has pushed has no
	// statement.
	Statements map[tutti.Digest]tutti.Statement
	Trust      []tutti.Statement       // all statements about code keys, in order
	Acting     *tutti.OperatorsTrusted // the operators who sign actions; nil if no statement names operators
	Tokens     map[tutti.TokenID]*Token
	Nodes      map[tutti.NodeName]*Node
	Keys       map[tutti.NodeKey]tutti.NodeName
	Claims     map[tutti.RunID]*Node // claimed runs that have no result yet
	Revoked    []tutti.NodeKey
	Operators  Operators
	Pauses     map[string]Pause // by target; pauses that have ended are included
	Rotation   Rotation
	JoinCA     tutti.JoinCASet // the Puppet CA of the site
	// Gone has the environments that were removed and have no code again, by name.
	Gone map[string]tutti.CodeRetired
	// Asking has the machines that have asked to join with their Puppet certificate, by name and public key.
	Asking map[tutti.NodeName]map[tutti.Digest]*Asking

	// Inventories is how many bytes the inventories of all nodes have.
	Inventories int64

	epoch   uint64 // the present epoch
	EpochAt uint64 // the sequence at which the present epoch began; 0 if it began with the log
	members fleet.Membership
	// Where and Conditions are about the groups with `where`, see FleetSet.Where. Conditions is nil if there are none.
	Where      tutti.Digest
	Conditions *fleet.Conditions
	jobs       map[tutti.JobID][]tutti.Digest // the code of each job
	removed    map[tutti.NodeName]bool        // names of nodes that are no longer in the fleet
}

// Token lets one machine join, or several machines.
type Token struct {
	tutti.TokenCreated
	Used    map[tutti.NodeKey]tutti.NodeName // the machines that have used the token, including removed machines
	Ended   map[tutti.NodeKey]bool           // the machines in Used that may not use the token again
	Revoked bool
}

// Left returns how many more machines may join with the token, if it has not expired.
func (t *Token) Left() int {
	if t.Revoked {
		return 0
	}
	return max(0, max(1, t.Uses)-len(t.Used))
}

// Node is a node that has joined.
type Node struct {
	tutti.NodeEnrolled
	JoinedAt    time.Time
	Since       tutti.Fence // when this machine got the name
	Replaceable bool
	LastClaimed tutti.RunID
	Exports     tutti.Digest // the set of exports that other nodes read; empty if there are no exports
	Catalog     wire.Stored  // the catalog that has these exports, if the catalog goes to PuppetDB
	Unended     int          // number of claimed runs that have no result yet, including lost runs
	Changes     int          // number of changes of values since the last claim
	Written     int64        // number of bytes in these changes
	Tickets     Tickets
	// The CAs and the issuer that the node trusts. The node reports them after it has joined. Before this report,
	// Pinned is zero.
	Pinned    tutti.Pinned
	Inventory *tutti.NodeInventory // what the server holds for queries; nil if it holds nothing
	// trusted has the groups whose condition fits the node's certificate.
	trusted []tutti.GroupName
	matched *tutti.NodeMatched // the groups with `where`, or nil if nothing was found yet
	// Classified is the last answer of the ENC about the node, or nil.
	Classified   *tutti.Classification
	ClassifiedAt time.Time
	FirstAnswer  uint64 // the sequence of the first answer since there was none
	Trusts       uint64 // the last statement about code keys that the node follows

	replaced, keeps bool // copied from a NodeRemoved, until the next NodeEnrolled of this name
}

// Push is the event of a push.
type Push struct {
	By  string
	At  time.Time
	Seq uint64
}

func newRegistry() *Registry {
	return &Registry{
		Pushes:     map[string]Push{},
		Code:       map[string]tutti.CodePushed{},
		Signed:     map[tutti.Digest]tutti.Digest{},
		Statements: map[tutti.Digest]tutti.Statement{},
		Sources:    map[tutti.Digest]tutti.CodeSource{},
		Tokens:     map[tutti.TokenID]*Token{},
		Nodes:      map[tutti.NodeName]*Node{},
		Keys:       map[tutti.NodeKey]tutti.NodeName{},
		Claims:     map[tutti.RunID]*Node{},
		Operators:  Operators{},
		Pauses:     map[string]Pause{},
		Asking:     map[tutti.NodeName]map[tutti.Digest]*Asking{},
		Gone:       map[string]tutti.CodeRetired{},

		epoch:   1,
		jobs:    map[tutti.JobID][]tutti.Digest{},
		removed: map[tutti.NodeName]bool{},
	}
}

func (r *Registry) apply(e tutti.Event) {
	r.Operators.Apply(e)
	r.applyPause(e)
	r.applyJoin(e)
	r.applyInventory(e)
	switch b := e.Body.(type) {
	case *tutti.EpochBegun:
		r.epoch, r.EpochAt = b.Number, e.Seq
	case *tutti.FleetSet:
		r.Fleet, r.FleetDigest, r.members = &b.Fleet, b.Digest, fleet.NewMembership(b.Fleet)
		r.Plans, r.PlansCounter = b.Statement, b.Counter
		r.Where, r.Conditions = b.Where, fleet.NewConditions(b.Fleet, b.Where)
		for _, n := range r.Nodes {
			n.trusted = r.members.Trusted(n.Node, n.Certificate)
		}
	case *tutti.CodePushed:
		delete(r.Gone, b.Environment)
		old := r.Code[b.Environment]
		r.Code[b.Environment], r.Signed[b.Code] = *b, b.Signed
		r.Pushes[b.Environment] = Push{By: e.By, At: e.At, Seq: e.Seq}
		if delete(r.Statements, b.Code); b.Statement != nil {
			r.Statements[b.Code] = *b.Statement
		}
		if delete(r.Sources, b.Code); b.Source != nil {
			r.Sources[b.Code] = *b.Source
		}
		r.dropCode(old.Code)
		r.dropCode(old.Goes())
	case *tutti.CodeReleased:
		if c := r.Code[b.Environment]; c.Held && c.Code == b.Code {
			old := c.Goes()
			c.Held = false
			r.Code[b.Environment] = c
			r.dropCode(old)
		}
	case *tutti.CodeRetired:
		if old := r.Code[b.Environment]; b.Gone {
			delete(r.Code, b.Environment)
			delete(r.Pushes, b.Environment)
			r.Gone[b.Environment] = *b
			r.dropCode(old.Code)
			r.dropCode(old.Goes())
		}
	case *tutti.CodeResigned:
		r.resigned(b)
	case *tutti.KeysTrusted:
		r.Trust = append(r.Trust, b.Statement)
	case *tutti.OperatorsTrusted:
		r.Acting = b
	case *tutti.NodeClassified:
		if n := r.Nodes[b.Node]; n != nil {
			switch {
			case b.Classification == nil:
				n.FirstAnswer = 0
			case n.Classified == nil:
				n.FirstAnswer = e.Seq
			}
			if n.Classified, n.ClassifiedAt = b.Classification, e.At; b.Classification == nil {
				n.matched = nil // it may rest on the answer that is gone
			}
		}
	case *tutti.NodeMatched:
		if n := r.Nodes[b.Node]; n != nil {
			n.matched = b
		}
	case *tutti.NodeTrusts:
		if n := r.Nodes[b.Node]; n != nil {
			n.Trusts = b.Counter
		}
	case *tutti.JobStarted:
		r.jobs[b.Job] = b.Uses()
	case *tutti.JobRetired:
		old := r.jobs[b.Job]
		delete(r.jobs, b.Job)
		for _, code := range old {
			r.dropCode(code)
		}
	case *tutti.TokenCreated:
		r.Tokens[b.Token] = &Token{TokenCreated: *b, Used: map[tutti.NodeKey]tutti.NodeName{}, Ended: map[tutti.NodeKey]bool{}}
	case *tutti.TokenRevoked:
		r.revoke(b.Token)
	case *tutti.NodeEnrolled:
		r.enrol(e, b)
	case *tutti.NodeBoxed:
		if n := r.Nodes[b.Node]; n != nil {
			n.BoxKey = b.BoxKey
		}
	case *tutti.NodeReplaceable:
		if n := r.Nodes[b.Node]; n != nil {
			n.Replaceable = true
		}
	case *tutti.NodeRemoved:
		switch n := r.Nodes[b.Node]; {
		case n == nil:
		case b.Replaced: // the NodeEnrolled that follows uses these fields, and makes a new Node
			n.replaced, n.keeps = true, b.Keeps
		default:
			r.drop(n)
			delete(r.Nodes, b.Node)
		}
	case *tutti.CARotated:
		r.Rotation.apply(e, b)
	case *tutti.NodePinned:
		if n := r.Nodes[b.Node]; n != nil {
			n.Pinned = b.Pinned
		}
	case *tutti.NodeConnected, *tutti.NodeConflicted, *tutti.NodeKept:
		if n := r.Nodes[tutti.NodeName(b.ID())]; n != nil {
			n.Tickets.apply(b)
		}
	case *tutti.ExportsSet:
		if n := r.Nodes[b.Node]; n != nil && !b.Overlay {
			n.Exports, n.Catalog = b.Set, wire.Stored{Run: b.Run, CatalogUUID: b.CatalogUUID}
		}
	case *tutti.RunClaimed:
		if n := r.Nodes[b.Node]; n != nil {
			n.LastClaimed, n.Changes, n.Written = b.Run, 0, 0
			if r.Claims[b.Run] == nil { // if the run has a claim already, an upgraded agent claims it again
				n.Unended++
			}
			r.Claims[b.Run] = n
		}
	case *tutti.ValueSet:
		r.wrote(b.Owner, len(b.Value))
	case *tutti.ValueUnset:
		r.wrote(b.Owner, 0)
	case *tutti.SecretSealed:
		r.wrote(b.Owner, b.Size())
	case *tutti.RunFinished:
		r.unclaim(b.Result.Run)
	}
}

// The method `unclaim` notes that the server expects no more results of these runs.
func (r *Registry) unclaim(runs ...tutti.RunID) {
	for _, id := range runs {
		if n := r.Claims[id]; n != nil {
			n.Unended--
			delete(r.Claims, id)
		}
	}
}

// Codes returns the latest code of each environment.
func (r *Registry) Codes() map[string]tutti.Digest {
	out := make(map[string]tutti.Digest, len(r.Code))
	for environment, pushed := range r.Code {
		out[environment] = pushed.Code
	}
	return out
}

// dropCode forgets the manifest of code if no node can request this code any more.
func (r *Registry) dropCode(code tutti.Digest) {
	for _, current := range r.Code {
		if current.Code == code || current.Goes() == code {
			return
		}
	}
	for _, used := range r.jobs {
		if slices.Contains(used, code) {
			return
		}
	}
	delete(r.Signed, code)
	delete(r.Sources, code)
	delete(r.Statements, code)
}

// An operator has signed code again. The method `resigned` notes the new statement if an order may still name the
// code. It also updates the latest push if this push has the code.
func (r *Registry) resigned(b *tutti.CodeResigned) {
	if _, used := r.Signed[b.Code]; !used {
		return
	}
	r.Statements[b.Code] = b.Statement
	if c := r.Code[b.Environment]; c.Code == b.Code {
		c.Counter, c.Statement = b.Counter, &b.Statement
		r.Code[b.Environment] = c
	}
}

func (r *Registry) enrol(e tutti.Event, b *tutti.NodeEnrolled) {
	if t := r.Tokens[b.Token]; t != nil {
		t.Used[b.Key] = b.Node
	}
	n := &Node{NodeEnrolled: *b, JoinedAt: e.At, Since: tutti.Fence{Epoch: r.epoch, Seq: e.Seq}}
	switch old := r.Nodes[b.Node]; {
	case old == nil:
	case old.Key == b.Key: // the same machine has joined again
		if old.Token != b.Token {
			r.endUse(old)
		}
		n = old
		n.NodeEnrolled, n.JoinedAt, n.Replaceable, n.Pinned = *b, e.At, false, tutti.Pinned{}
		n.Tickets = Tickets{Machine: n.Tickets.Machine} // this key may have been copied to another machine
		n.matched = nil                                 // the certificate may be another one
	default:
		r.drop(old)
		if old.keeps {
			n.Exports, n.Catalog = old.Exports, old.Catalog
		}
	}
	n.trusted = r.members.Trusted(n.Node, n.Certificate)
	r.Nodes[b.Node] = n
	r.Keys[b.Key] = b.Node
	r.Revoked = slices.DeleteFunc(r.Revoked, func(k tutti.NodeKey) bool { return k == b.Key })
}

// The method `replaces` reports whether an enrolment gives a name to another machine without a NodeRemoved event
// before it.
func (r *Registry) replaces(b *tutti.NodeEnrolled) bool {
	old := r.Nodes[b.Node]
	return old != nil && old.Key != b.Key && !old.replaced
}

func (r *Registry) wrote(owner tutti.NodeName, size int) {
	if n := r.Nodes[owner]; n != nil {
		n.Changes++
		n.Written += int64(size)
	}
}

func (r *Registry) revoke(id tutti.TokenID) {
	if t := r.Tokens[id]; t != nil {
		t.Revoked = true
	}
}

// The method `drop` makes the key of a node invalid, and the token with which the node joined. So a removed machine
// cannot come back with the same token.
func (r *Registry) drop(n *Node) {
	r.hold(n, nil)
	delete(r.Keys, n.Key)
	r.Revoked = append(r.Revoked, n.Key)
	maps.DeleteFunc(r.Claims, func(_ tutti.RunID, of *Node) bool { return of == n })
	r.endUse(n)
}

// The method `endUse` ends a node's use of its join token. A token for one machine is no longer valid then.
func (r *Registry) endUse(n *Node) {
	switch t := r.Tokens[n.Token]; {
	case t == nil:
	case t.Uses > 1:
		t.Ended[n.Key] = true
	default:
		t.Revoked = true
	}
}

// ByKey returns the node that owns a key, or nil.
func (r *Registry) ByKey(key tutti.NodeKey) *Node { return r.Nodes[r.Keys[key]] }

// Groups returns the sorted groups of a node in which the node cannot put itself: the groups that list it, the groups in
// its join token, and the groups whose condition fits its certificate. Groups with `where` are not among them, because they
// can only be targets (see Matches).
func (r *Registry) Groups(n *Node) []tutti.GroupName {
	return r.members.GroupsOf(n.Node, n.Groups, n.trusted)
}

// GroupsWith returns the groups that a node would have if it joined in this way.
func (r *Registry) GroupsWith(b *tutti.NodeEnrolled) []tutti.GroupName {
	return r.members.GroupsOf(b.Node, b.Groups, r.members.Trusted(b.Node, b.Certificate))
}

// GroupReasons says for each group of a node why the node is in the group.
func (r *Registry) GroupReasons(n *Node) map[tutti.GroupName]string {
	out := map[tutti.GroupName]string{}
	for _, g := range r.Groups(n) {
		out[g] = "listed"
	}
	for _, g := range r.members.Joined(n.Groups, nil) {
		if out[g] = "by its token"; n.Certificate != nil {
			out[g] = "by a rule or an approval"
		}
	}
	for _, g := range n.trusted {
		out[g] = "by its certificate"
	}
	return out
}

// GroupsOf is like Groups, but takes a name. The node need not have joined.
func (r *Registry) GroupsOf(node tutti.NodeName) []tutti.GroupName {
	if n := r.Nodes[node]; n != nil {
		return r.Groups(n)
	}
	return r.members.GroupsOf(node, nil, nil)
}

// Enrolled returns the nodes of each group that are in the group because of the way in which they joined.
func (r *Registry) Enrolled() map[tutti.GroupName][]tutti.NodeName {
	out := map[tutti.GroupName][]tutti.NodeName{}
	for _, n := range r.Nodes {
		for _, g := range r.members.Joined(n.Groups, n.trusted) {
			out[g] = append(out[g], n.Node)
		}
	}
	return out
}
