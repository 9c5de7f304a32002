package presence

import (
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

// Nodes is who is there: when each node was last heard of, which is never in
// the log, and which run it has. It follows the log from outside the writer, so
// that what nodes say most often costs the writer nothing.
type Nodes struct {
	mu    *sync.RWMutex
	nodes map[tutti.NodeName]*seat
	keys  map[tutti.NodeKey]*seat
}

// seat is a node's place.
type seat struct {
	node tutti.NodeName
	key  tutti.NodeKey
	run  tutti.RunID // that it has claimed and not ended
	job  tutti.JobID // of that run
	seen time.Time
	beat wire.Beat

	lacks   []tutti.Capability // what this release may ask and its agent does not know
	claimed bool               // lacks is known
	tickets fold.Tickets
	met     []tutti.Machine // that have said hello with its key, the latest last
	greeted time.Time       // when the last one did
	turned  time.Time       // when a rival came back
	put     time.Time       // when another machine became the node
	trial   time.Time       // when one did while that before it lived: see OnTrial
	before  tutti.Digest    // the ticket that was exchanged for the present one
	hellos  perMinute
	returns perMinute // of rivals, in an hour
	unknown perMinute // hellos with a ticket that nobody has given, or none
	pins    perMinute // how often it said that it stands on something else
	leases  perMinute // how often it changed how it stands in an exclusive job
	refused perMinute // how often its runs were refused something new
	tells   perMinute // how often it sent the report of a foreign run
	told    perHour   // bytes of its foreign runs in the log
	reports perHour   // bytes of their reports
	boxes   perHour   // how often it took another key for its secrets
}

// New knows nobody yet: Load tells it who is a node.
func New() Nodes {
	return Nodes{mu: &sync.RWMutex{}, nodes: map[tutti.NodeName]*seat{}, keys: map[tutti.NodeKey]*seat{}}
}

// Load takes what the log says at the start.
func (p Nodes) Load(s *fold.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, n := range s.Registry.Nodes {
		p.settle(name, n.Key)
		p.nodes[name].tickets = n.Tickets
		if r := s.Engine.Runs[s.Engine.Active[name]]; r != nil && !r.ClaimedAt.IsZero() {
			p.nodes[name].run, p.nodes[name].job = r.Run, r.Job
		}
	}
}

// Apply takes events that are on disk, before anybody is told of them.
func (p Nodes) Apply(s *fold.State, events []tutti.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		switch b := e.Body.(type) {
		case *tutti.NodeEnrolled:
			p.settle(b.Node, b.Key)
			p.admit(s, b.Node)
		case *tutti.NodeRemoved:
			if seat := p.nodes[b.Node]; seat != nil {
				delete(p.nodes, b.Node)
				delete(p.keys, seat.key)
			}
		case *tutti.RunClaimed, *tutti.RunFinished, *tutti.RunLost:
			p.follow(s.Engine.Runs[tutti.RunID(b.ID())])
		case *tutti.NodeConnected, *tutti.NodeConflicted, *tutti.NodeKept:
			p.admit(s, tutti.NodeName(b.ID()))
		}
	}
}

// admit takes over which machine is a node.
func (p Nodes) admit(s *fold.State, node tutti.NodeName) {
	if place, n := p.nodes[node], s.Registry.Nodes[node]; place != nil && n != nil {
		place.tickets = n.Tickets
	}
}

// Fits reports whether a message came from the machine that is the node, or from nobody: that is
// for the writer to say.
func (p Nodes) Fits(key tutti.NodeKey, ticket tutti.Digest) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.keys[key]
	return place == nil || place.tickets.Fits(ticket)
}

// maxMet bounds the machines that are told of one node.
const maxMet = 8

// Met notes a machine that has said hello: it had a ticket, and has another one, or the same if it
// was refused.
func (p Nodes) Met(n tutti.NodeName, had, has tutti.Digest, h wire.Hello) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.nodes[n]
	if place == nil {
		return
	}
	place.met = slices.DeleteFunc(place.met, func(m tutti.Machine) bool { return m.Ticket == had || m.Ticket == has })
	place.met = append(place.met, tutti.Machine{Boot: h.Boot, Host: h.Host, Ticket: has, SeenAt: time.Now().UTC()})
	place.met = place.met[max(0, len(place.met)-maxMet):]
	place.greeted = time.Now()
	place.beat.Stopping = false
}

// turnsWithin is how soon after each other two machines speak that live: each beats every few seconds.
const turnsWithin = time.Minute

// Displaced notes that a machine came back that another one had taken the node from.
func (p Nodes) Displaced(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.turned = time.Now()
	}
}

// TrialFor is how long a machine is given no order that has become a node which another one was: so long, whoever was it
// and lives has to say so. It beats when it is asked to.
const TrialFor = 10 * time.Second

// Replaced notes that a machine with a ticket becomes a node which another one was. OnTrial: it is given no order for a
// while, because the other one was heard of late, and it is not the one that was the node just before.
func (p Nodes) Replaced(n tutti.NodeName, ticket tutti.Digest, rival bool, silence time.Duration) (onTrial bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.nodes[n]
	if place == nil {
		return false
	}
	now := time.Now()
	back := rival && !place.put.IsZero() && now.Sub(place.put) < silence
	if onTrial = now.Sub(place.seen) < silence && !back; onTrial {
		place.trial = now
	}
	place.put, place.before = now, ticket
	return onTrial
}

// OnTrial reports whether a node is given no order yet.
func (p Nodes) OnTrial(n tutti.NodeName) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && !place.trial.IsZero() && time.Since(place.trial) < TrialFor
}

// Exchanged notes the ticket that was exchanged for the present one. A node that cannot keep what it is given comes with it
// again.
func (p Nodes) Exchanged(n tutti.NodeName, ticket tutti.Digest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.before = ticket
	}
}

// CameBefore reports whether a ticket is the one that was exchanged for the present one.
func (p Nodes) CameBefore(n tutti.NodeName, ticket tutti.Digest) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && ticket != "" && place.before == ticket
}

// TakesTurns reports whether that happened of late.
func (p Nodes) TakesTurns(n tutti.NodeName) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && !place.turned.IsZero() && time.Since(place.turned) < turnsWithin
}

// Greeted reports whether a node has said hello of late: what it said before that may come later.
func (p Nodes) Greeted(n tutti.NodeName, within time.Duration) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && !place.greeted.IsZero() && time.Since(place.greeted) < within
}

// Machines implements explain.Present.
func (p Nodes) Machines(n tutti.NodeName) []tutti.Machine {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	if place == nil {
		return nil
	}
	out := slices.Clone(place.met)
	for i := range out {
		out[i].IsNode = place.tickets.Fits(out[i].Ticket)
	}
	return out
}

// settle gives a node its place, with the key that it has now.
func (p Nodes) settle(node tutti.NodeName, key tutti.NodeKey) {
	place := p.nodes[node]
	if place == nil {
		place = &seat{node: node}
		p.nodes[node] = place
	}
	delete(p.keys, place.key)
	place.key = key
	p.keys[key] = place
}

// follow notes whether a run is the one that its node has. It may be retired.
func (p Nodes) follow(r *engine.Run) {
	if r == nil {
		return
	}
	switch place := p.nodes[r.Node]; {
	case place == nil:
	case !r.Ended():
		place.run, place.job = r.Run, r.Job
	case place.run == r.Run:
		place.run, place.job = "", ""
	}
}

// Hear notes a sign of life.
func (p Nodes) Hear(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.seen = time.Now()
	}
}

// Beat notes a sign of life with what it says; false if nobody has that key. A goodbye is
// no sign of life, and a beat that it has overtaken is not one of later.
func (p Nodes) Beat(key tutti.NodeKey, b wire.Beat) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.keys[key]
	if place == nil {
		return false
	}
	switch {
	case place.beat.Stopping && b.At.Before(place.beat.At):
	case b.Stopping:
		place.beat = b
	default:
		place.seen, place.beat = time.Now(), b
	}
	return true
}

// Claims notes what a node's agent lacks. It says its version before its first beat.
func (p Nodes) Claims(n tutti.NodeName, version string, lacks []tutti.Capability) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.lacks, place.claimed = lacks, true
		if version != "" {
			place.beat.Version = version
		}
	}
}

// Who notes a sign of life and returns the node of a key; empty: nobody has it.
func (p Nodes) Who(key tutti.NodeKey) tutti.NodeName {
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.keys[key]
	if place == nil {
		return ""
	}
	place.seen = time.Now()
	return place.node
}

// Named returns the node of a key; empty: nobody has it.
func (p Nodes) Named(key tutti.NodeKey) tutti.NodeName {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if place := p.keys[key]; place != nil {
		return place.node
	}
	return ""
}

// Running notes a sign of life and returns the node of a key and the job of its
// run; false if that is not its run now.
func (p Nodes) Running(key tutti.NodeKey, run tutti.RunID) (tutti.NodeName, tutti.JobID, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.keys[key]
	if place == nil || place.run != run || run == "" {
		return "", "", false
	}
	place.seen = time.Now()
	return place.node, place.job, true
}

// Forget is for a name that another machine may take.
func (p Nodes) Forget(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.seen, place.beat, place.lacks, place.claimed = time.Time{}, wire.Beat{}, nil, false
	}
}

// Seen returns when a node was last heard of, the zero time if it was not.
func (p Nodes) Seen(n tutti.NodeName) time.Time {
	seen, _ := p.Last(n)
	return seen
}

// Last implements explain.Present.
func (p Nodes) Last(n tutti.NodeName) (time.Time, wire.Beat) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if place := p.nodes[n]; place != nil {
		return place.seen, place.beat
	}
	return time.Time{}, wire.Beat{}
}

// TellsFacts reports whether a node's agent tells which facts the node has, as far as it has said
// what it knows: it does with its next claim.
func (p Nodes) TellsFacts(n tutti.NodeName) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && (!place.claimed || !slices.Contains(place.lacks, tutti.CapabilityFacts))
}

// Lacks implements explain.Present.
func (p Nodes) Lacks(n tutti.NodeName) []tutti.Capability {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if place := p.nodes[n]; place != nil {
		return place.lacks
	}
	return nil
}
