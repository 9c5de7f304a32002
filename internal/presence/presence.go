package presence

import (
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

// Nodes has the state of nodes that is not in the log, for example when each node was last heard of. Nodes
// follows the log outside the writer, so that the most frequent messages of nodes do not use the writer.
type Nodes struct {
	mu    *sync.RWMutex
	nodes map[tutti.NodeName]*seat
	keys  map[tutti.NodeKey]*seat
	encs  *encs
}

// seat is the state of one node.
type seat struct {
	node tutti.NodeName
	key  tutti.NodeKey
	run  tutti.RunID // the run that the node has claimed and that has not ended
	job  tutti.JobID // the job of this run
	seen time.Time
	beat wire.Beat

	lacks   []tutti.Capability // capabilities of this release that the node's agent does not have
	claimed bool               // whether the field `lacks` is set
	tickets fold.Tickets
	met     []tutti.Machine // machines that have said hello with the node's key, the latest one last
	greeted time.Time       // time of the last hello
	turned  time.Time       // when a rival last came back
	put     time.Time       // when another machine became the node
	trial   time.Time       // when a machine became the node, if the machine before it may still be running; see OnTrial
	before  tutti.Digest    // the ticket before the present one
	hellos  perMinute
	returns perMinute // how often rivals came back, in an hour
	unknown perMinute // hellos with an unknown ticket, or without one
	pins    perMinute // how often the node's trust changed
	leases  perMinute // how often the node's state in an exclusive job changed
	refused perMinute // how often the server refused something to the node's runs for the first time
	tells   perMinute // how often the node sent a report of a foreign run
	told    perHour   // bytes of the node's foreign runs in the log
	reports perHour   // bytes of the reports of its foreign runs
	held    perHour   // bytes of its inventories
	holds   perMinute // its inventories
	boxes   perHour   // how often the node changed its key for secrets
}

// New returns Nodes without any node. Load adds the nodes.
func New() Nodes {
	return Nodes{mu: &sync.RWMutex{}, nodes: map[tutti.NodeName]*seat{}, keys: map[tutti.NodeKey]*seat{}, encs: &encs{now: map[tutti.NodeName]api.ENCCalls{}}}
}

// Load takes the nodes from the folded log when the server starts.
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

// Apply applies events that are on disk. The server calls Apply before it answers any caller.
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

// The method `admit` copies the tickets of a node, which show which machine is the node.
func (p Nodes) admit(s *fold.State, node tutti.NodeName) {
	if place, n := p.nodes[node], s.Registry.Nodes[node]; place != nil && n != nil {
		place.tickets = n.Tickets
	}
}

// Fits reports whether a message came from the machine that is the node. Fits also returns true if the key
// is unknown, because the writer refuses a message with an unknown key.
func (p Nodes) Fits(key tutti.NodeKey, ticket tutti.Digest) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.keys[key]
	return place == nil || place.tickets.Fits(ticket)
}

// maxMet is how many machines the server remembers per node.
const maxMet = 8

// Met records a machine that has said hello. The parameter `had` is the machine's ticket before the
// hello, and `has` is its ticket now. If the server refused the hello, `had` and `has` are equal.
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

// turnsWithin is so long that each of two running machines sends a message in this time: each machine beats every
// few seconds.
const turnsWithin = time.Minute

// Displaced records that a machine came back after another machine had become the node.
func (p Nodes) Displaced(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.turned = time.Now()
	}
}

// TrialFor is how long a machine gets no order after it has replaced another machine as the node. In this time
// the server asks for a beat. If the replaced machine is still running, it beats and then says hello.
const TrialFor = 10 * time.Second

// Replaced records that a machine with this ticket replaces another machine as the node. The result
// onTrial is true if the new machine gets no order for some time. The new machine must wait if the
// replaced machine was heard of recently. A machine that was the node a short time ago only comes
// back, so it need not wait.
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

// OnTrial returns true as long as a node gets no order because its machine is new (see TrialFor).
func (p Nodes) OnTrial(n tutti.NodeName) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && !place.trial.IsZero() && time.Since(place.trial) < TrialFor
}

// Exchanged records the ticket that the node had before its present ticket. A node that cannot store its new ticket
// uses the old ticket again.
func (p Nodes) Exchanged(n tutti.NodeName, ticket tutti.Digest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.before = ticket
	}
}

// CameBefore reports whether the ticket is the node's previous ticket.
func (p Nodes) CameBefore(n tutti.NodeName, ticket tutti.Digest) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && ticket != "" && place.before == ticket
}

// TakesTurns reports whether a displaced machine came back recently.
func (p Nodes) TakesTurns(n tutti.NodeName) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	place := p.nodes[n]
	return place != nil && !place.turned.IsZero() && time.Since(place.turned) < turnsWithin
}

// Greeted reports whether a node has said hello recently. Messages that a node sent before its hello may arrive after
// the hello.
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

// settle adds a node to the state, with its present key.
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

// The method `follow` records whether a run is the present run of its node. The run is nil
// if it has been retired.
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

// Hear records a sign of life.
func (p Nodes) Hear(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.seen = time.Now()
	}
}

// Beat records a sign of life and its content. Beat returns false if no node has the key. A goodbye
// is not a sign of life. If a goodbye overtakes an earlier beat, the beat does not count.
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

// Claims records which capabilities a node's agent lacks. The first claim comes before the first beat, so a
// claim also contains the agent's version.
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

// Who records a sign of life and returns the node of a key. The name is empty if no node has the key.
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

// Named returns the node of a key. The name is empty if no node has the key.
func (p Nodes) Named(key tutti.NodeKey) tutti.NodeName {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if place := p.keys[key]; place != nil {
		return place.node
	}
	return ""
}

// Running records a sign of life. Running returns the node of a key and the job of its run,
// or false if `run` is not the node's present run.
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

// Forget removes the state of a node, because another machine may take its name.
func (p Nodes) Forget(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.nodes[n]; place != nil {
		place.seen, place.beat, place.lacks, place.claimed = time.Time{}, wire.Beat{}, nil, false
	}
}

// Seen returns when a node was last heard of. Seen returns the zero time if the node was never heard of.
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

// TellsFacts reports whether the agent of a node can report the node's facts. Until the first claim
// says what the agent can do, TellsFacts returns true.
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
