package converge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// View is what a decision needs in addition to the log.
type View struct {
	Now     time.Time
	Since   time.Time // when this server began to serve
	Seen    func(tutti.NodeName) time.Time
	Silence time.Duration // a node that is silent for this long is not connected
	Has     func(tutti.NodeName) Has
	Member  func(target string, n tutti.NodeName) bool // an empty target has all nodes as members
	// Unjoined returns the nodes that the fleet file lists in a target and that have not joined, sorted. An empty
	// target means the whole fleet. Unjoined is nil if the nodes are not known.
	Unjoined func(target string) []tutti.NodeName
	Paused   func(tutti.NodeName) string // the reason why no run may begin on the node; empty: runs may begin
	// Unnoted returns why a node could not note runs that Tutti did not start. The result is empty if the node could
	// note them. If Unnoted is nil, no node is known to have this problem.
	Unnoted func(tutti.NodeName) string
	Order   []Order  // of the fleet file
	Serial  []Serial // the serial groups of the fleet file, without nodes that have not joined
	// Reaction says how the fleet reacts by itself. Reaction is nil if the fleet does not
	// react. Environment is the environment of its code.
	Reaction    *tutti.Reaction
	Environment string
	Hold        bool // no run may begin
	InFlight    int  // how many runs the fleet may have at once; 0: no limit
	Compiles    int  // compiles at once, 0: no limit

	rollout *rollout // found by State
	halts   *halts   // found by State
}

// Has describes the Puppet, program, environment and grants with which a node would run.
type Has struct {
	Puppet  string        // the version that the node reports; empty: not known
	Program tutti.Program // by which it runs
	// Environment is the fleet's present environment. If Environment is empty, the
	// environment of the node's last run counts.
	Environment string
	// Groups are the node's groups, sorted.
	Groups []tutti.GroupName
	// Volatile are the names of facts that the fleet file calls volatile.
	Volatile []string
	// Meant reports whether the node is among the targets of a secret. If Meant is nil, the
	// node is among no targets.
	Meant func(targets []string) bool
	// MayRead reports whether a grant lets the node read a value. If MayRead is nil, the
	// node may read all values.
	MayRead func(key string) bool
	// Recorded is true if the node's Puppet Server also reports what a compile read.
	Recorded bool
	// TellsFacts is true if the node reports its facts after each run.
	TellsFacts bool
}

// Order is an edge of the fleet file. The nodes in `First` must be good before the nodes in
// `Then` run.
type Order struct{ First, Then []tutti.NodeName }

const (
	// holdFor is how long a compiled run is held at most. After that time the run ends.
	// The node compiles again when its turn comes.
	holdFor = time.Minute
	// discoverFor is how long a step waits for the compiles of a node before it lets other nodes run.
	discoverFor = 5 * time.Minute
	// recordedFor replaces discoverFor for a node that has a record of earlier code. Only the nodes that follow
	// this node in that record wait longer.
	recordedFor = holdFor
	// factsFor is how long a step waits for the facts of a node that the step has changed.
	factsFor = time.Minute
	// maxHeld bounds the Puppet processes that wait at their gates.
	maxHeld = 50
)

// connected reports whether a node is connected, as far as the server can know yet.
func (v View) connected(n tutti.NodeName) bool {
	return v.Now.Sub(later(v.Seen(n), v.Since)) < v.Silence
}

// from returns when a logged event happened. If the time is in the future, a clock that
// was ahead has written it. In that case, the method returns the start of this server.
// A wait from a time in the future would last too long.
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

// Decide returns the events that the server should append now, in order. As with
// engine.State.Decide, a second call returns the same events. When the events are
// appended, the decision is complete. The runs have no ids yet.
func (s *State) Decide(v View) []tutti.Body {
	var out []tutti.Body
	if v = s.survey(v); v.Reaction != nil {
		if released := s.release(v, v.rollout); released != nil {
			return []tutti.Body{released}
		}
	}
	s.engine.Converging(func(j *engine.Job, st *engine.Step) {
		if len(out) == 0 { // a decision in one step changes the other steps
			d := &decision{state: s, view: v, job: j, step: st, seats: s.seats(v, j, st)}
			out = d.decide()
		}
	})
	return out
}

// survey returns the view together with the data that State computes for one look.
func (s *State) survey(v View) View {
	v.rollout, v.halts = s.rollout(v), &halts{}
	return v
}

// InNeed returns how many nodes needed something at the last look. The cost of the next
// decision depends on this number.
func (s *State) InNeed() int { return len(s.needy) }

// decision is one look at one converge step.
type decision struct {
	state  *State
	view   View
	job    *engine.Job
	step   *engine.Step
	seats  map[tutti.NodeName]*seat
	before predecessors
	out    []tutti.Body

	phases  map[phase]int // how many nodes are in each phase, without the nodes that an exclusive job holds
	unknown bool          // the order is still unknown (see the method discovering), so no decision can end the step
	started int           // how many runs this decision has started
}

func (d *decision) decide() []tutti.Body {
	if d.job.Mode == tutti.ModeApply {
		d.state.stop(d.view, d.job.ID, d.seats)
	}
	d.before = d.state.precedence(d.view, d.job.ID, d.seats, d.turns())
	d.phases = map[phase]int{}
	for _, seat := range d.seats {
		if seat.phase != applying || seat.run != nil { // otherwise an exclusive job holds the node, and no run begins on the node
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
		if released := d.state.releasedBy(d.view, d.job, d.step, verdict); released != nil && d.count(barred) == 0 {
			d.out = append(d.out, released)
		}
	}
	return d.out
}

// spent reports whether so many nodes have failed that nothing more may begin. If the result is true,
// nodes that were waiting for another try have failed for good.
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

// broke reports whether a run ended badly. A run that ended because PuppetDB was too late
// does not count.
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

// move puts a node into another phase.
func (d *decision) move(seat *seat, to phase) {
	d.phases[seat.phase]--
	d.phases[to]++
	seat.phase = to
}

// start lets a node compile if its turn has come, or if nothing is known about the node
// yet.
func (d *decision) start(seat *seat) {
	busy := len(d.state.engine.Active) + d.started
	switch {
	case d.view.InFlight > 0 && busy >= d.view.InFlight,
		d.view.Compiles > 0 && d.count(compiling) >= d.view.Compiles:
		return
	case !seat.known:
	case d.unknown, !d.before.free(seat.node), !d.room(compiling, applying):
		return // otherwise the node's answers would change each time another node compiles
	}
	d.move(seat, compiling)
	order := d.job.Want(d.step, seat.node, len(seat.runs)+1, d.view.Has(seat.node).Program)
	order.Proof = seat.standing.Need == Proof && order.Mode == tutti.ModeApply && order.Program != tutti.ProgramAgent
	wanted := &tutti.RunWanted{Order: order, ByFacts: seat.standing.Facts || seat.byFacts}
	if d.step.Converge.Reaction {
		wanted.Changed = seat.standing.Changed[:min(len(seat.standing.Changed), tutti.MaxChanged)]
	}
	d.out = append(d.out, wanted)
	d.started++
}

// room reports whether the step's limit of runs at once leaves room for one more run.
func (d *decision) room(phases ...phase) bool {
	limit := d.step.Converge.Limit
	return limit == 0 || d.count(phases...) < limit
}

// gate decides about a run that is held at its gate.
func (d *decision) gate(seat *seat, spent bool) {
	r := seat.run
	stop := func(why string) {
		d.out = append(d.out, &tutti.RunGated{Run: r.Run, Verdict: tutti.GateStop, Reason: why})
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
		stop("the answer to " + outdated[0].String() + " has changed since it was read")
	case d.unknown || !d.before.free(seat.node) || !d.room(applying):
		if why := d.tooLong(seat); why != "" {
			stop(why)
		}
	default:
		d.out = append(d.out, &tutti.RunGated{Run: r.Run, Verdict: tutti.GateGo})
		d.move(seat, applying)
	}
}

// proveAll ends the held runs that prove their nodes good. Other held nodes may have
// waited only for these nodes, so proveAll then checks the other nodes again.
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

// prove ends a held run if the run shows that its node is good. The method does nothing if a
// node that feeds this node may still change its answers.
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

// proves reports whether a compile shows that its node is good in its present state.
func (d *decision) proves(r *engine.Run) bool {
	last := d.state.engine.Last(r.Node)
	if last.SetBack != nil {
		return false // the results of the earlier run may be gone
	}
	if slices.ContainsFunc(last.Foreign, func(f *engine.Run) bool { return f.Foreign.Disturbs() }) {
		return false // the catalogs do not show what the foreign run did to the node
	}
	return provable(last.Passed, r) && !d.state.changedSince(last.Passed, d.job.ID)
}

// tooLong returns the reason why a run is no longer held. The method returns an empty
// string if the run is still held.
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

// starved reports whether a node cannot begin its first compile because the fleet's limit
// of runs is reached, partly by held runs.
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

// discovering reports whether a node with unknown reads and exports is still compiling.
// Until all these compiles are done, the order is not known.
func (d *decision) discovering() bool {
	for _, seat := range d.seats {
		if seat.known {
			continue
		}
		switch seat.phase {
		case ready, compiling:
			// The limit counts from the node's first compile in the step, so a step waits only
			// once for each node.
			limit := discoverFor
			if d.state.recordedBefore(seat) {
				limit = recordedFor
			}
			if len(seat.runs) == 0 || d.view.Now.Sub(later(d.view.from(seat.runs[0].WantedAt), d.view.Since)) < limit {
				return true
			}
		default: // the node does not compile
		}
	}
	return false
}

// over reports whether nothing is running in the step, and nothing will begin by itself.
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
		case good, restless, failed, waiting, diverging, absent, paused, deferred, barred: // nothing more begins by itself
		}
	}
	return true
}

// list returns the first few names of nodes, and how many more there are.
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
