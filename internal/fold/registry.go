package fold

import (
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/wire"
)

// Registry is what the log says about who belongs to the fleet, about the current code and
// fleet file, and about each node's latest run.
type Registry struct {
	Fleet       *tutti.Fleet // nil: the server has no fleet file yet
	FleetDigest tutti.Digest
	Plans       *tutti.Statement // the statement about the fleet file; nil: it is not signed
	// PlansCounter is the highest counter of a signed fleet file.
	PlansCounter uint64
	Code         map[string]tutti.CodePushed   // the latest push of each environment; its release ends Held
	Signed       map[tutti.Digest]tutti.Digest // code that is current or that a job has → the blob of its signed manifest
	// Statements are the statements about the code in Signed. Code that an older release has pushed has no statement.
	Statements map[tutti.Digest]tutti.Statement
	Trust      []tutti.Statement       // all statements about code keys, in order
	Acting     *tutti.OperatorsTrusted // who signs actions, nil: no statement says it
	Tokens     map[tutti.TokenID]*Token
	Nodes      map[tutti.NodeName]*Node
	Keys       map[tutti.NodeKey]tutti.NodeName
	Claims     map[tutti.RunID]*Node // claimed runs whose result has not come
	Revoked    []tutti.NodeKey
	Operators  Operators
	Pauses     map[string]Pause // by target, also those that have ended
	Rotation   Rotation

	epoch   uint64 // the present epoch
	EpochAt uint64 // the sequence at which the present epoch began; 0: with the log
	members fleet.Membership
	jobs    map[tutti.JobID]tutti.Digest // the code of each job
}

// Token lets one machine join.
type Token struct {
	tutti.TokenCreated
	BoundTo tutti.NodeKey // empty until a machine has presented the token
	Node    tutti.NodeName
	Revoked bool
}

// Node is a node that has joined.
type Node struct {
	tutti.NodeEnrolled
	JoinedAt    time.Time
	Since       tutti.Fence // when this machine got the name
	Replaceable bool
	LastClaimed tutti.RunID
	Exports     tutti.Digest // the set that others read; empty: no exports
	Catalog     wire.Stored  // the catalog of Exports, if that catalog is in PuppetDB
	Unended     int          // claimed runs whose result has not come, also lost ones
	Changes     int          // changes of values since the last claim
	Written     int64        // their bytes
	Tickets     Tickets
	Pinned      tutti.Pinned // what the node says that it is pinned to, since it joined; zero: it has not said
	Trusts      uint64       // the last statement about code keys that the node follows

	replaced, keeps bool // as in the NodeRemoved before its next NodeEnrolled
}

func newRegistry() *Registry {
	return &Registry{
		Code:       map[string]tutti.CodePushed{},
		Signed:     map[tutti.Digest]tutti.Digest{},
		Statements: map[tutti.Digest]tutti.Statement{},
		Tokens:     map[tutti.TokenID]*Token{},
		Nodes:      map[tutti.NodeName]*Node{},
		Keys:       map[tutti.NodeKey]tutti.NodeName{},
		Claims:     map[tutti.RunID]*Node{},
		Operators:  Operators{},
		Pauses:     map[string]Pause{},

		epoch: 1,
		jobs:  map[tutti.JobID]tutti.Digest{},
	}
}

func (r *Registry) apply(e tutti.Event) {
	r.Operators.Apply(e)
	r.applyPause(e)
	switch b := e.Body.(type) {
	case *tutti.EpochBegun:
		r.epoch, r.EpochAt = b.Number, e.Seq
	case *tutti.FleetSet:
		r.Fleet, r.FleetDigest, r.members = &b.Fleet, b.Digest, fleet.NewMembership(b.Fleet)
		r.Plans, r.PlansCounter = b.Statement, b.Counter
	case *tutti.CodePushed:
		old := r.Code[b.Environment]
		r.Code[b.Environment], r.Signed[b.Code] = *b, b.Signed
		if delete(r.Statements, b.Code); b.Statement != nil {
			r.Statements[b.Code] = *b.Statement
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
	case *tutti.CodeResigned:
		r.resigned(b)
	case *tutti.KeysTrusted:
		r.Trust = append(r.Trust, b.Statement)
	case *tutti.OperatorsTrusted:
		r.Acting = b
	case *tutti.NodeTrusts:
		if n := r.Nodes[b.Node]; n != nil {
			n.Trusts = b.Counter
		}
	case *tutti.JobStarted:
		r.jobs[b.Job] = b.Code
	case *tutti.JobRetired:
		old := r.jobs[b.Job]
		delete(r.jobs, b.Job)
		r.dropCode(old)
	case *tutti.TokenCreated:
		r.Tokens[b.Token] = &Token{TokenCreated: *b}
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
		case b.Replaced: // the next event ends it
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
			if r.Claims[b.Run] == nil { // otherwise an upgraded agent claims the run again
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

// unclaim notes that no results of these runs are expected any more.
func (r *Registry) unclaim(runs ...tutti.RunID) {
	for _, id := range runs {
		if n := r.Claims[id]; n != nil {
			n.Unended--
			delete(r.Claims, id)
		}
	}
}

// dropCode forgets where the manifest of code is if no node can ask for that code any more.
func (r *Registry) dropCode(code tutti.Digest) {
	for _, current := range r.Code {
		if current.Code == code || current.Goes() == code {
			return
		}
	}
	for _, used := range r.jobs {
		if used == code {
			return
		}
	}
	delete(r.Signed, code)
	delete(r.Statements, code)
}

// resigned notes another statement about code that may be ordered. The code may be the latest push.
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
		t.BoundTo, t.Node = b.Key, b.Node
	}
	n := &Node{NodeEnrolled: *b, JoinedAt: e.At, Since: tutti.Fence{Epoch: r.epoch, Seq: e.Seq}}
	switch old := r.Nodes[b.Node]; {
	case old == nil:
	case old.Key == b.Key: // the machine has joined again
		if old.Token != b.Token {
			r.revoke(old.Token)
		}
		n = old
		n.NodeEnrolled, n.JoinedAt, n.Replaceable, n.Tickets, n.Pinned = *b, e.At, false, Tickets{}, tutti.Pinned{}
	default:
		r.drop(old)
		if old.keeps {
			n.Exports, n.Catalog = old.Exports, old.Catalog
		}
	}
	r.Nodes[b.Node] = n
	r.Keys[b.Key] = b.Node
	r.Revoked = slices.DeleteFunc(r.Revoked, func(k tutti.NodeKey) bool { return k == b.Key })
}

// replaces reports whether an enrolment gives a name to another machine without a
// NodeRemoved before it.
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

// drop ends a node's key and the token with which the node joined. So a removed machine cannot
// come back with the same token.
func (r *Registry) drop(n *Node) {
	delete(r.Keys, n.Key)
	r.Revoked = append(r.Revoked, n.Key)
	maps.DeleteFunc(r.Claims, func(_ tutti.RunID, of *Node) bool { return of == n })
	r.revoke(n.Token)
}

// ByKey returns the node that owns a key, or nil.
func (r *Registry) ByKey(key tutti.NodeKey) *Node { return r.Nodes[r.Keys[key]] }

// Groups returns the groups of a node, sorted: the groups that list the node, and the groups that its
// token fixed.
func (r *Registry) Groups(n *Node) []tutti.GroupName {
	return r.members.GroupsOf(n.Node, n.Groups)
}

// GroupsOf is Groups for a name. The node need not have joined.
func (r *Registry) GroupsOf(node tutti.NodeName) []tutti.GroupName {
	if n := r.Nodes[node]; n != nil {
		return r.Groups(n)
	}
	return r.members.GroupsOf(node, nil)
}

// Enrolled returns the nodes of each group that a token fixed.
func (r *Registry) Enrolled() map[tutti.GroupName][]tutti.NodeName {
	out := map[tutti.GroupName][]tutti.NodeName{}
	for _, n := range r.Nodes {
		for _, g := range n.Groups {
			out[g] = append(out[g], n.Node)
		}
	}
	return out
}
