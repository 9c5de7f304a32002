package server

import (
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

// registry is what the log says about who belongs to the fleet, which code and
// fleet file are current, and each node's latest run.
type registry struct {
	fleet       *tutti.Fleet
	fleetDigest tutti.Digest
	members     fleet.Membership
	code        map[string]tutti.CodePushed   // the current one, by environment
	signed      map[tutti.Digest]tutti.Digest // code that is current, or of a job → the blob of its signed manifest
	jobs        map[tutti.JobID]tutti.Digest  // their code
	tokens      map[tutti.TokenID]*token
	nodes       map[tutti.NodeName]*node
	keys        map[tutti.NodeKey]tutti.NodeName
	claims      map[tutti.RunID]*node // whose result is to come
	revoked     []tutti.NodeKey
	operators   operators
	pauses      map[string]pause // by target, also those that have ended
}

type token struct {
	tutti.TokenCreated
	boundTo tutti.NodeKey // empty until somebody presented it
	node    tutti.NodeName
	revoked bool
}

type node struct {
	tutti.NodeEnrolled
	joinedAt    time.Time
	replaceable bool
	lastClaimed tutti.RunID
	exports     tutti.Digest // the set that others read; empty: none
	catalog     tutti.Stored // of what catalog it is, if that is in PuppetDB
	unended     int          // claimed runs whose result is to come, also lost ones
	stored      int64        // bytes of blobs since the last result; not of the log
	changes     int          // of values since the last claim
	written     int64        // their bytes
}

func newRegistry() *registry {
	return &registry{
		code:   map[string]tutti.CodePushed{},
		signed: map[tutti.Digest]tutti.Digest{},
		jobs:   map[tutti.JobID]tutti.Digest{},
		tokens: map[tutti.TokenID]*token{},
		nodes:  map[tutti.NodeName]*node{},
		keys:   map[tutti.NodeKey]tutti.NodeName{},
		claims: map[tutti.RunID]*node{},

		operators: operators{},
		pauses:    map[string]pause{},
	}
}

func (r *registry) apply(e tutti.Event) {
	r.operators.apply(e)
	r.applyPause(e)
	switch b := e.Body.(type) {
	case *tutti.FleetSet:
		r.fleet, r.fleetDigest, r.members = &b.Fleet, b.Digest, fleet.NewMembership(b.Fleet)
	case *tutti.CodePushed:
		old := r.code[b.Environment].Code
		r.code[b.Environment], r.signed[b.Code] = *b, b.Signed
		r.dropCode(old)
	case *tutti.JobStarted:
		r.jobs[b.Job] = b.Code
	case *tutti.JobRetired:
		old := r.jobs[b.Job]
		delete(r.jobs, b.Job)
		r.dropCode(old)
	case *tutti.TokenCreated:
		r.tokens[b.Token] = &token{TokenCreated: *b}
	case *tutti.TokenRevoked:
		r.revoke(b.Token)
	case *tutti.NodeEnrolled:
		r.enrol(e, b)
	case *tutti.NodeReplaceable:
		if n := r.nodes[b.Node]; n != nil {
			n.replaceable = true
		}
	case *tutti.NodeRemoved:
		if n := r.nodes[b.Node]; n != nil {
			r.drop(n)
			delete(r.nodes, b.Node)
		}
	case *tutti.ExportsSet:
		if n := r.nodes[b.Node]; n != nil && !b.Overlay {
			n.exports, n.catalog = b.Set, tutti.Stored{Run: b.Run, CatalogUUID: b.CatalogUUID}
		}
	case *tutti.RunClaimed:
		if n := r.nodes[b.Node]; n != nil {
			n.lastClaimed, n.changes, n.written = b.Run, 0, 0
			n.unended++
			r.claims[b.Run] = n
		}
	case *tutti.ValueSet:
		r.wrote(b.Owner, len(b.Value))
	case *tutti.ValueUnset:
		r.wrote(b.Owner, 0)
	case *tutti.RunFinished:
		if n := r.claims[b.Result.Run]; n != nil {
			n.stored = 0
			r.unclaim(b.Result.Run)
		}
	}
}

// unclaim expects no results of these runs any more.
func (r *registry) unclaim(runs ...tutti.RunID) {
	for _, id := range runs {
		if n := r.claims[id]; n != nil {
			n.unended--
			delete(r.claims, id)
		}
	}
}

// dropCode forgets where the manifest of code is that nobody can ask for.
func (r *registry) dropCode(code tutti.Digest) {
	for _, current := range r.code {
		if current.Code == code {
			return
		}
	}
	for _, used := range r.jobs {
		if used == code {
			return
		}
	}
	delete(r.signed, code)
}

func (r *registry) enrol(e tutti.Event, b *tutti.NodeEnrolled) {
	if t := r.tokens[b.Token]; t != nil {
		t.boundTo, t.node = b.Key, b.Node
	}
	n := &node{NodeEnrolled: *b, joinedAt: e.At}
	switch old := r.nodes[b.Node]; {
	case old == nil:
	case old.Key == b.Key: // the machine has joined again
		if old.Token != b.Token {
			r.revoke(old.Token)
		}
		n = old
		n.NodeEnrolled, n.joinedAt, n.replaceable = *b, e.At, false
	default:
		r.drop(old)
		n.lastClaimed, n.exports, n.catalog = old.lastClaimed, old.exports, old.catalog
	}
	r.nodes[b.Node] = n
	r.keys[b.Key] = b.Node
	r.revoked = slices.DeleteFunc(r.revoked, func(k tutti.NodeKey) bool { return k == b.Key })
}

func (r *registry) wrote(owner tutti.NodeName, size int) {
	if n := r.nodes[owner]; n != nil {
		n.changes++
		n.written += int64(size)
	}
}

func (r *registry) revoke(id tutti.TokenID) {
	if t := r.tokens[id]; t != nil {
		t.revoked = true
	}
}

// drop ends a key, and the token that let it in: whoever is out does not come
// back by asking again.
func (r *registry) drop(n *node) {
	delete(r.keys, n.Key)
	r.revoked = append(r.revoked, n.Key)
	maps.DeleteFunc(r.claims, func(_ tutti.RunID, of *node) bool { return of == n })
	r.revoke(n.Token)
}

// byKey returns the node that owns a key, or nil.
func (r *registry) byKey(key tutti.NodeKey) *node { return r.nodes[r.keys[key]] }

// groups returns the groups of a node: those that list it, and those that its
// token fixed; sorted.
func (r *registry) groups(n *node) []tutti.GroupName {
	return r.members.GroupsOf(n.Node, n.Groups)
}

// enrolled returns the nodes of each group that a token fixed.
func (r *registry) enrolled() map[tutti.GroupName][]tutti.NodeName {
	out := map[tutti.GroupName][]tutti.NodeName{}
	for _, n := range r.nodes {
		for _, g := range n.Groups {
			out[g] = append(out[g], n.Node)
		}
	}
	return out
}
