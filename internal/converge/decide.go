package converge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// View contains the data that a decision needs and that is not in the log.
type View struct {
	// Decided is the last event at the last decision that had no result, or 0. Only RunGated.After and RunWanted.After
	// depend on it.
	Decided uint64

	Now     time.Time
	Since   time.Time // when this server began to serve
	Seen    func(tutti.NodeName) time.Time
	Silence time.Duration // a node that is silent for this long is not connected
	Has     func(tutti.NodeName) Has
	Member  func(target string, n tutti.NodeName) bool // whether a target contains the node; an empty target contains all nodes
	// Unjoined returns the nodes that the fleet file lists in the target, but that have not joined. The nodes are
	// sorted. An empty target means the whole fleet. If nobody knows these nodes, Unjoined is nil.
	Unjoined func(target string) []tutti.NodeName
	// Undecided returns a line for each node of which nobody knows whether it belongs to the target. If Undecided is nil,
	// there is no such node.
	Undecided func(target string) []string
	Paused    func(tutti.NodeName) string // the reason why no run may begin on the node; empty: runs may begin
	// Unnoted returns the reason why a node's agent cannot record the runs that Tutti did not start. The result is
	// empty if the agent can record them. If Unnoted is nil, no node is known to have this problem.
	Unnoted func(tutti.NodeName) string
	Order   []Order  // of the fleet file
	Serial  []Serial // the serial groups of the fleet file, without nodes that have not joined
	// Reaction says how the fleet reacts by itself. Reaction is nil if the fleet does not react.
	Reaction *tutti.Reaction
	// Environment is the fleet's present environment. A running job keeps the one that the fleet had when it began.
	Environment string
	Hold        bool // no run may begin
	InFlight    int  // how many runs may go on at once in the fleet; 0: no limit
	Compiles    int  // how many nodes may compile at once; 0: no limit

	rollouts map[string]*rollout // by environment, only environments whose code is held; found by State
	halts    *halts              // found by State
}

// A Has value says with which Puppet, program, environment and grants a node would run.
type Has struct {
	Puppet  string        // the version that the node reports; empty: not known
	Program tutti.Program // how the node runs Puppet
	// Environment is the node's present environment. If Environment is empty, the node or its Puppet Server chooses the
	// environment.
	Environment string
	// Named is true if a group of the node sets the environment. Then the environment of a running job does not count.
	Named bool
	// Groups are the node's groups, sorted.
	Groups []tutti.GroupName
	// Classified is true if the ENC has an answer about the node, and the node's runs must ask for it.
	Classified bool
	// Volatile are the names of facts that the fleet file calls volatile.
	Volatile []string
	// Meant reports whether the node is among the targets of a secret. If Meant is nil, the
	// node is among no targets.
	Meant func(targets []string) bool
	// MayRead reports whether a grant lets the node read a value. If MayRead is nil, the
	// node may read all values.
	MayRead func(key string) bool
	// Recorded is true if the node's Puppet Server reports to Tutti what each compile has read.
	Recorded bool
	// TellsFacts is true if the node reports its facts after each run.
	TellsFacts bool
}

// Order is one rule of the fleet file about the order of nodes: all nodes in `First` must be good before the nodes
// in `Then` run.
type Order struct{ First, Then []tutti.NodeName }

const (
	// After its compile, a run is held at its gate for at most holdFor. Then the run is stopped, and the node
	// compiles again when its turn comes.
	holdFor = time.Minute
	// If it is not known what a node reads and exports, the step first waits for the node's compile. After
	// discoverFor it lets other nodes run.
	discoverFor = 5 * time.Minute
	// If the node has a record of earlier code, all nodes of the step wait only recordedFor. After that, only
	// the nodes that follow this node in the order of the record still wait for it.
	recordedFor = holdFor
	// If a run of the step has changed a node, the step waits for the node's new facts, but no longer than
	// factsFor.
	factsFor = time.Minute
	// At most maxHeld Puppet processes wait at their gates.
	maxHeld = 50
)

// The method `connected` reports whether a node is connected. For the time Silence after its start, the server
// cannot know this, and counts every node as connected.
func (v View) connected(n tutti.NodeName) bool {
	return v.Now.Sub(later(v.Seen(n), v.Since)) < v.Silence
}

// The method `from` returns the time from which a wait after a logged event counts. This is the time of the event.
// If that time is in the future, the clock was ahead when the event was logged, and a wait would last too long.
// The method then returns the start of this server.
func (v View) from(logged time.Time) time.Time {
	if logged.After(v.Now) {
		return v.Since
	}
	return logged
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Decide returns the events that the server should append now, in order. Until the server appends the events, each
// call returns the same events, as with engine.State.Decide. The caller gives the new runs their ids.
func (s *State) Decide(v View) []tutti.Body {
	var out []tutti.Body
	if v = s.Survey(v); v.Reaction != nil {
		for _, r := range byEnvironment(v.rollouts) {
			if released := s.release(v, r); released != nil {
				return []tutti.Body{released}
			}
		}
	}
	s.engine.Converging(func(j *engine.Job, st *engine.Step) {
		switch { // one step at a time, because its events change what other steps decide
		case len(out) > 0:
		case j.Diff != nil:
			out = diff(s, v, j, st)
		default:
			d := &decision{state: s, view: v, job: j, step: st, seats: s.seats(v, j, st)}
			out = d.decide()
		}
	})
	return out
}

// Survey returns the view, with the data that is computed once for each decision.
func (s *State) Survey(v View) View {
	v.rollouts, v.halts = rolloutsOf(s, v), &halts{}
	return v
}

// InNeed returns how many nodes needed something at the last decision. The next decision takes longer if this
// number is larger.
func (s *State) InNeed() int { return len(s.needy) }

// The type `decision` contains the data of one decision about one converge step.
type decision struct {
	state  *State
	view   View
	job    *engine.Job
	step   *engine.Step
	seats  map[tutti.NodeName]*seat
	before predecessors
	out    []tutti.Body

	phases  map[phase]int // number of nodes in each phase, without the nodes that an exclusive job holds
	unknown bool          // the order of the nodes is not known yet (see the method `discovering`)
	started int           // number of runs that this decision has started
	latest  []happened    // see the method `after`; nil until it is needed
}

func (d *decision) decide() []tutti.Body {
	if d.job.Mode == tutti.ModeApply {
		d.state.stop(d.view, d.job.ID, d.seats)
	}
	d.before = d.state.precedence(d.view, d.job.ID, d.seats, d.turns())
	d.phases = map[phase]int{}
	for _, seat := range d.seats {
		if seat.phase != applying || seat.run != nil { // otherwise an exclusive job holds the node, so the node does not count
			d.phases[seat.phase]++
		}
	}
	d.unknown = d.discovering()
	spent := d.spent()
	names := sortedSeats(d.seats)
	d.proveAll(names)
	for _, n := range names {
		if seat := d.seats[n]; seat.phase == held {
			d.gate(seat, spent)
		}
	}
	if !spent && !d.view.Hold {
		for _, n := range names {
			if seat := d.seats[n]; seat.phase == ready {
				d.start(seat)
			}
		}
	}
	if len(d.out) == 0 && d.over(spent) {
		verdict, message := d.verdict(spent)
		end := &tutti.ConvergeFinished{Job: d.job.ID, Step: d.step.Name, Verdict: verdict, Message: message}
		for n, seat := range d.seats {
			if seat.phase == diverging {
				if end.Diverging == nil {
					end.Diverging = map[tutti.NodeName]tutti.Digest{}
				}
				if end.Diverging[n] = ""; seat.cycle == nil {
					end.Diverging[n] = d.state.fingerprint(n)
				}
			}
		}
		d.out = []tutti.Body{end}
		if d.count(barred) == 0 {
			d.out = append(d.out, d.state.releasedBy(d.job, d.step, verdict)...)
		}
	}
	return d.out
}

// The method `spent` reports whether so many nodes have failed that nothing more may begin. If so, nodes that have
// failed and would be tried again get the phase `failed`.
func (d *decision) spent() bool {
	most := d.step.Converge.MaxFailed
	if most == 0 {
		return false
	}
	var again []*seat
	for _, seat := range d.seats {
		if (seat.phase == resting || seat.phase == ready) && broke(lastOf(seat.runs)) {
			again = append(again, seat)
		}
	}
	if d.count(failed)+len(again) < most {
		return false
	}
	for _, seat := range again {
		d.move(seat, failed)
	}
	return true
}

// The function `broke` reports whether a run ended badly. It returns false if the reason was that PuppetDB was too
// late.
func broke(r *engine.Run) bool {
	return r != nil && r.Ended() && !r.Lagged() && (r.Lost != "" || r.Result != nil && !r.Result.Stopped && !r.Outcome().Good() && r.Outcome() != tutti.Waiting)
}

func (d *decision) count(phases ...phase) int {
	count := 0
	for _, p := range phases {
		count += d.phases[p]
	}
	return count
}

// The method `move` puts a node into another phase.
func (d *decision) move(seat *seat, to phase) {
	d.phases[seat.phase]--
	d.phases[to]++
	seat.phase = to
}

// The method `start` lets a node compile if its turn has come. A node whose reads and exports are not known need
// not wait for its turn.
func (d *decision) start(seat *seat) {
	busy := len(d.state.engine.Active) + d.started
	switch {
	case d.view.InFlight > 0 && busy >= d.view.InFlight,
		d.view.Compiles > 0 && d.count(compiling) >= d.view.Compiles:
		return
	case !seat.known:
	case d.unknown, !d.before.free(seat.node), !d.room(compiling, applying):
		return // its turn has not come: other nodes may still change its answers
	}
	d.move(seat, compiling)
	has, _ := d.view.in(d.job, seat.node)
	order := d.job.Want(d.step, seat.node, len(seat.runs)+1, engine.Usual{Program: has.Program, Environment: has.Environment})
	order.Proof = seat.standing.Need == Proof && order.Mode == tutti.ModeApply && order.Program != tutti.ProgramAgent
	wanted := &tutti.RunWanted{Order: order, ByFacts: seat.standing.Facts || seat.byFacts, After: d.after(seat)}
	if d.step.Converge.Reaction {
		wanted.Changed = seat.standing.Changed[:min(len(seat.standing.Changed), tutti.MaxChanged)]
	}
	d.out = append(d.out, wanted)
	d.started++
}

// The method `room` reports whether the step's limit of runs at once leaves room for one more run.
func (d *decision) room(phases ...phase) bool {
	limit := d.step.Converge.Limit
	return limit == 0 || d.count(phases...) < limit
}

// The method `gate` decides whether a held run stops, goes, or is held longer.
func (d *decision) gate(seat *seat, spent bool) {
	r := seat.run
	after := d.after
	stop := func(why string) {
		d.out = append(d.out, &tutti.RunGated{Run: r.Run, Verdict: tutti.GateStop, Reason: why, After: after(seat)})
		d.move(seat, compiling)
	}
	outdated := d.state.data.OutdatedOf(seat.node, d.job.ID, 1)
	switch {
	case r.Mode == tutti.ModeCompile:
		stop("asked only to compile")
	case spent:
		stop(fmt.Sprintf("%d nodes have failed: nothing more begins", d.step.Converge.MaxFailed))
	case d.view.Paused(seat.node) != "":
		stop(d.view.Paused(seat.node))
	case seat.stops != "":
		stop(seat.stops)
	case r.Behind() != "":
		stop(r.Behind())
	case len(outdated) > 0:
		after = d.publisher(outdated[0])
		stop("the answer to " + outdated[0].String() + " has changed since it was read")
	case d.unknown || !d.before.free(seat.node) || !d.room(applying):
		if why := d.tooLong(seat); why != "" {
			stop(why)
		}
	default:
		d.out = append(d.out, &tutti.RunGated{Run: r.Run, Verdict: tutti.GateGo, After: d.after(seat)})
		d.move(seat, applying)
	}
}

// proveAll stops the held runs that prove their nodes good. A held run that waited only for these nodes may then
// prove its node, too. So proveAll repeats the check until it finds no more runs.
func (d *decision) proveAll(names []tutti.NodeName) {
	for again := true; again; {
		again = false
		for _, n := range names {
			if seat := d.seats[n]; seat.phase == held && d.prove(seat) {
				d.before.gone[n] = true
				again = true
			}
		}
	}
}

// The method `prove` stops a held run if its compile shows that the node is good. It does not stop the run while
// other nodes may still change the answers of this node.
func (d *decision) prove(seat *seat) bool {
	r := seat.run
	if !r.Proof || r.Mode == tutti.ModeCompile || r.Behind() != "" || !d.before.free(seat.node) || d.view.Paused(seat.node) != "" ||
		len(d.state.data.OutdatedOf(seat.node, d.job.ID, 1)) > 0 || !d.proves(r) {
		return false
	}
	rests := d.state.engine.Last(seat.node).Passed
	d.out = append(d.out,
		&tutti.RunProved{Run: r.Run, Rests: rests.Began(), Clock: rests.Clock()},
		&tutti.RunGated{Run: r.Run, Verdict: tutti.GateStop, Reason: "nothing can have changed since its last run: it is good"})
	d.move(seat, compiling)
	return true
}

// The method `proves` reports whether the compile of a run shows that its node is good.
func (d *decision) proves(r *engine.Run) bool {
	last := d.state.engine.Last(r.Node)
	if last.SetBack != nil {
		return false // the node was set back, so the work of its last run may be gone
	}
	if slices.ContainsFunc(last.Foreign, func(f *engine.Run) bool { return f.Foreign.Disturbs() }) {
		return false // a foreign run may have changed the node, and catalogs do not show this
	}
	return provable(last.Passed, r) && !d.state.changedSince(last.Passed, d.job.ID)
}

// If a run must not be held any longer, tooLong returns the reason. If the run may be held, tooLong returns an
// empty string.
func (d *decision) tooLong(seat *seat) string {
	if d.starved() {
		return "other nodes must compile first: it compiles again when its turn comes"
	}
	if d.count(held) > maxHeld {
		return fmt.Sprintf("more than %d compiled nodes wait for their turn: it compiles again when its turn comes", maxHeld)
	}
	if since := later(d.view.from(seat.run.CompiledAt), d.view.Since); d.view.Now.Sub(since) >= holdFor {
		return d.whyHeld(seat) + " for " + holdFor.String() + ": it compiles again when its turn comes"
	}
	return ""
}

// The method `starved` reports whether the fleet has as many runs as it may have, while a node waits for its first
// compile. Some of these runs are held. So the node would wait for the held runs, and the held runs would wait for
// the node.
func (d *decision) starved() bool {
	if d.view.InFlight == 0 || len(d.state.engine.Active)+d.started < d.view.InFlight {
		return false
	}
	for _, seat := range d.seats {
		if seat.phase == ready && !seat.known {
			return true
		}
	}
	return false
}

func (d *decision) whyHeld(seat *seat) string {
	if names := d.before.of(seat.node); names != nil {
		return "it waited for " + list(names)
	}
	if d.unknown {
		return "it waited for the compiles of others"
	}
	return "it waited for its turn"
}

// The method `discovering` reports whether the step still waits for the compile of a node whose reads and exports
// are not known. Until all these compiles are done, the order of the nodes is not known.
func (d *decision) discovering() bool {
	for _, seat := range d.seats {
		if seat.known {
			continue
		}
		switch seat.phase {
		case ready, compiling:
			// The limit counts from the start of the node's first compile in this step. If the node compiles
			// again, the time does not begin again.
			limit := discoverFor
			if d.state.recordedBefore(seat) {
				limit = recordedFor
			}
			if len(seat.runs) == 0 || d.view.Now.Sub(later(d.view.from(seat.runs[0].WantedAt), d.view.Since)) < limit {
				return true
			}
		default: // the step does not wait for this node
		}
	}
	return false
}

// The method `over` reports whether the step has come to its end: nothing is running, and nothing will begin by
// itself.
func (d *decision) over(spent bool) bool {
	for _, seat := range d.seats {
		switch seat.phase {
		case compiling, held, soon, telling:
			return false
		case applying:
			if len(seat.runs) > 0 || seat.standing.Need != Nothing {
				return false
			}
		case ready, resting:
			if !spent {
				return false
			}
		case good, restless, failed, waiting, diverging, absent, paused, deferred, barred: // nothing begins on this node by itself
		}
	}
	return true
}

// The function `list` returns the first few names of nodes, and how many more there are.
func list(names []tutti.NodeName) string {
	const most = 5
	var parts []string
	for i, n := range names {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(names)-most))
			break
		}
		parts = append(parts, string(n))
	}
	return strings.Join(parts, ", ")
}
