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

// Nodes knows which nodes are there: when each node was last heard of, which is never in
// the log, and which run it has. It follows the log outside the writer, so
// that the most frequent messages of nodes cost the writer nothing.
type Nodes struct {
	mu    *sync.RWMutex
	nodes map[tutti.NodeName]*seat
	keys  map[tutti.NodeKey]*seat
}

// seat is what is known of one node.
type seat struct {
	node tutti.NodeName
	key  tutti.NodeKey
	run  tutti.RunID // the run that it has claimed and not ended
	job  tutti.JobID // of that run
	seen time.Time
	beat wire.Beat

	lacks   []tutti.Capability // capabilities of this release that its agent does not know
	claimed bool               // lacks is known
	tickets fold.Tickets
	met     []tutti.Machine // machines that have said hello with its key, the latest last
	greeted time.Time       // the last hello
	turned  time.Time       // when a rival came back
	put     time.Time       // when another machine became the node
	trial   time.Time       // when a machine became the node while the one before was alive, see OnTrial
	before  tutti.Digest    // the ticket that was exchanged for the present one
	hellos  perMinute
	returns perMinute // of rivals, in an hour
	unknown perMinute // hellos with an unknown ticket, or none
	pins    perMinute // how often its trust changed
	leases  perMinute // how often its state in an exclusive job changed
	refused perMinute // how often its runs were refused something new
	tells   perMinute // how often it sent the report of a foreign run
	told    perHour   // bytes of its foreign runs in the log
	reports perHour   // bytes of their reports
	boxes   perHour   // how often it took another key for its secrets
}

// New returns Nodes without any node. Load adds the nodes.
func New() Nodes {
	return Nodes{mu: &sync.RWMutex{}, nodes: map[tutti.NodeName]*seat{}, keys: map[tutti.NodeKey]*seat{}}
}

// Load takes over what the log says at the start.
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

// Apply takes events that are on disk, before any caller is told of them.
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

// admit takes over which machine is the node.
func (p Nodes) admit(s *fold.State, node tutti.NodeName) {
	if place, n := p.nodes[node], s.Registry.Nodes[node]; place != nil && n != nil {
		place.tickets = n.Tickets
	}
}

// Fits reports whether a message came from the machine that is the node, or whether the key is unknown: the writer
// answers that.
func (p Nodes) Fits(key tutti.NodeKey, ticket tutti.Digest) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.keys[key]
	return place == nil || place.tickets.Fits(ticket)
}

// maxMet bounds the machines that are kept of one node.
const maxMet = 8

// Met notes a machine that has said hello. It had one ticket and now has another, or the same if it
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

// turnsWithin is how soon after each other two live machines speak: each beats every few seconds.
const turnsWithin = time.Minute

// Displaced notes that a machine came back after another one had become the node.
func (p Nodes) Displaced(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.turned = time.Now()
	}
}

// TrialFor is how long a machine gets no order after it has replaced another one as the node. In this time the other
// machine, if it is alive, has to say so. It beats when it is asked to.
const TrialFor = 10 * time.Second

// Replaced notes that a machine with a ticket replaces another one as the node. OnTrial: it gets no order for a
// while, because the other one was heard of lately, and it is not the one that was the node just before.
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

// OnTrial reports whether a node gets no order yet.
func (p Nodes) OnTrial(n tutti.NodeName) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && !place.trial.IsZero() && time.Since(place.trial) < TrialFor
}

// Exchanged notes the ticket that was exchanged for the present one. A node that cannot store its new ticket comes with the
// old one again.
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

// TakesTurns reports whether a displaced machine came back lately.
func (p Nodes) TakesTurns(n tutti.NodeName) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && !place.turned.IsZero() && time.Since(place.turned) < turnsWithin
}

// Greeted reports whether a node has said hello lately: its earlier messages may arrive after that.
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

// settle gives a node its seat, with its present key.
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

// follow notes whether a run is its node's present one. The run may be retired.
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

// Beat notes a sign of life and its content; false: no node has that key. A goodbye is
// no sign of life. A beat that arrives after a later goodbye does not count.
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

// Claims notes what a node's agent lacks. A claim says the agent's version before its first beat.
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

// Who notes a sign of life and returns the node of a key; empty: no node has it.
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

// Named returns the node of a key; empty: no node has it.
func (p Nodes) Named(key tutti.NodeKey) tutti.NodeName {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if place := p.keys[key]; place != nil {
		return place.node
	}
	return ""
}

// Running notes a sign of life and returns the node of a key and the job of its
// run; false: this is not the node's present run.
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

// Forget forgets a node whose name another machine may take.
func (p Nodes) Forget(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.seen, place.beat, place.lacks, place.claimed = time.Time{}, wire.Beat{}, nil, false
	}
}

// Seen returns when a node was last heard of; zero: never.
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

// TellsFacts reports whether a node's agent tells the node's facts. Until the agent says with a claim what it
// knows, the answer is yes.
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
