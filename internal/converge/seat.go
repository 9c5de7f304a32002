package converge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// seat is the state of a node in a converge step, at one moment.
type seat struct {
	node     tutti.NodeName
	phase    phase
	standing Standing
	run      *engine.Run   // the present run
	runs     []*engine.Run // the runs of the step
	why      string        // the reason; if empty, the reason is in standing
	retryAt  time.Time     // in phase resting: when the node is tried again
	byFacts  bool          // the run failed, and since then only the facts of the node have changed
	cycle    []link        // only in phase diverging: the nodes that react to each other
	known    bool          // the order can rely on the known reads and exports of the node
	stops    string        // the reason why the node's serial group keeps it from running; empty: the node may run
	cause    phase         // the phase of the node at which this node's serial group stops
}

// phase is where a node is in a converge step.
type phase string

const (
	good      phase = "good"
	ready     phase = "ready"     // the node's run may begin
	compiling phase = "compiling" // the node's run was wanted but has not reached its gate
	held      phase = "held"      // the node's run waits at its gate
	applying  phase = "applying"  // the node's run has passed its gate, or another job has the node
	resting   phase = "resting"   // the node failed and will be tried again
	failed    phase = "failed"
	waiting   phase = "waiting" // the node waits for an answer that is missing
	diverging phase = "diverging"
	absent    phase = "absent" // the node is not connected
	paused    phase = "paused"
	barred    phase = "barred"   // the node does not run, because its serial group stops at another node
	deferred  phase = "deferred" // the node runs in a later reaction
	soon      phase = "soon"     // the node will be due soon, and the server still collects changes
	telling   phase = "telling"  // the node is good, but has not reported its facts after its run yet
	restless  phase = "restless" // the node's facts keep changing, without any effect
)

// The method `reason` explains why a node is in its phase.
func (st *seat) reason() string { return cmp.Or(st.why, st.standing.Why()) }

// toDo reports whether a node runs or can start.
func (st *seat) toDo() bool {
	switch st.phase {
	case ready, compiling, held, applying:
		return true
	default:
		return false
	}
}

// The constants are the bounds of a job for each node.
const (
	maxTries = 6  // runs that passed their gate or failed before it
	maxSame  = 3  // how often a run is tried with the same inputs
	maxStops = 12 // compiles that were stopped
	// restFor is the time after which a failed node is tried again with the same inputs.
	// If another node finishes a good run in the meantime, the node is tried earlier.
	// After each try the time doubles.
	restFor = 30 * time.Second
)

func sortedSeats(seats map[tutti.NodeName]*seat) []tutti.NodeName {
	return slices.Sorted(maps.Keys(seats))
}

// seats returns the nodes of a step that need something or have taken part.
func (s *State) seats(v View, j *engine.Job, st *engine.Step) map[tutti.NodeName]*seat {
	member := func(n tutti.NodeName) bool { return v.Member(st.Converge.Target, n) }
	out := map[tutti.NodeName]*seat{}
	candidates := s.Needy
	if st.Converge.Reaction && v.Reaction != nil {
		candidates = func(v View) []tutti.NodeName { return s.inReaction(v, j, s.due(v)) }
	}
	for _, n := range candidates(v) {
		if member(n) {
			out[n] = &seat{node: n}
		}
	}
	if st.Converge.Prove {
		for n := range s.nodes {
			if member(n) {
				out[n] = &seat{node: n}
			}
		}
	}
	var later []tutti.NodeName
	if st.Converge.Reaction && v.Reaction != nil {
		later = s.inReaction(v, j, s.soon(v))
	}
	for _, n := range st.Nodes {
		if s.nodes[n.Node] {
			out[n.Node] = &seat{node: n.Node, runs: s.ownRuns(n)}
		}
	}
	s.affected(v, j, st, out)
	lastGood := lastGoodEnd(st)
	for _, seat := range out {
		s.sit(v, j, st, seat, lastGood)
	}
	for _, n := range later {
		if out[n] == nil && member(n) {
			out[n] = &seat{node: n, phase: soon}
		}
	}
	return out
}

// inReaction returns the given nodes that may run by themselves in a job. A job has one code of each environment. While
// other code is held, inReaction returns the nodes that run with the job's code.
func (s *State) inReaction(v View, j *engine.Job, nodes []tutti.NodeName) []tutti.NodeName {
	return slices.DeleteFunc(nodes, func(n tutti.NodeName) bool {
		_, code := v.in(j, n)
		is, known := s.codeOf(v, n)
		return !known || len(v.rollouts) > 0 && is != code
	})
}

// ownRuns returns a node's runs in a step, without the runs of an earlier machine of that
// name.
func (s *State) ownRuns(n *engine.StepNode) []*engine.Run {
	i := slices.IndexFunc(n.Runs, func(r *engine.Run) bool { return r.Seq > s.since[n.Node] })
	if i < 0 {
		return nil
	}
	return n.Runs[i:]
}

// The method `in` returns the Puppet, program, environment, grants and code with which a node would run in a job. A job
// keeps the code that it had when it began. The code is empty if the node runs with the code of a Puppet Server, or if the
// job has no code of the node's environment.
func (v View) in(j *engine.Job, n tutti.NodeName) (has Has, code tutti.Digest) {
	has = v.Has(n)
	switch {
	case has.Program == tutti.ProgramAgent:
	case !has.Named && has.Environment == v.Environment:
		has.Environment, code = j.Env, j.Code
	default:
		has.Environment, code = j.CodeOf(has.Environment)
	}
	return has, code
}

// Some nodes are good in the public view, but will not be good after other nodes of the job publish their results.
// The method `affected` adds these nodes. Other nodes may read the values of the added nodes. Because the added nodes
// are found early, each of these readers needs one run less.
func (s *State) affected(v View, j *engine.Job, st *engine.Step, out map[tutti.NodeName]*seat) {
	affected := s.data.AffectedBy(j.ID)
	if st.Converge.Reaction {
		affected = s.inReaction(v, j, affected)
	}
	for _, n := range affected {
		if out[n] != nil || !s.nodes[n] || !v.Member(st.Converge.Target, n) || s.letAlone(n) {
			continue
		}
		has, code := v.in(j, n)
		standing := s.standing(n, j.ID, code, has)
		if standing.Need == Nothing {
			continue
		}
		if s.urgent(v, st, standing) {
			out[n] = &seat{node: n}
		}
	}
}

// lastGoodEnd returns, for each node, the sequence of the end of its last good run in a
// step.
func lastGoodEnd(st *engine.Step) map[tutti.NodeName]uint64 {
	out := map[tutti.NodeName]uint64{}
	for _, n := range st.Nodes {
		for _, r := range n.Runs {
			if r.Ended() && r.Outcome().Good() {
				out[n.Node] = r.EndedSeq
			}
		}
	}
	return out
}

// The method `sit` finds the phase of a node.
func (s *State) sit(v View, j *engine.Job, st *engine.Step, seat *seat, lastGood map[tutti.NodeName]uint64) {
	has, code := v.in(j, seat.node)
	seat.standing = s.standing(seat.node, j.ID, code, has)
	// If a node runs with Puppet's agent, a compile tells nothing new about the node's reads and exports. Only a
	// Puppet Server with the module reports what the compile read.
	seat.known = has.Program == tutti.ProgramAgent && !has.Recorded || s.usable(code, seat)
	if r := s.engine.Runs[s.engine.Active[seat.node]]; r != nil {
		seat.run = r
		switch {
		case r.Job != j.ID || r.Step != st.Name || r.Passed():
			seat.phase = applying
		case r.Held():
			seat.phase = held
		default: // the run was stopped and is about to end
			seat.phase = compiling
		}
		return
	}
	if j := s.engine.ExclusiveOn(seat.node); j != nil && seat.standing.Need != Nothing {
		seat.phase, seat.why = applying, "held by job "+string(j.ID)
		return
	}
	last := lastOf(seat.runs)
	if last == nil && s.scheduled[seat.node] && seat.standing.Need == Nothing {
		seat.standing.Need, seat.why = Apply, "nothing has changed; this is its regular safety run"
	}
	if st.Converge.Prove && seat.standing.Need == Nothing && !slices.ContainsFunc(seat.runs, shows) {
		seat.standing.Need, seat.why = Proof, "a proof was asked for"
	}
	switch {
	case j.Mode != tutti.ModeApply && last != nil && (last.Passed() || j.Mode == tutti.ModeCompile && last.Gate == tutti.GateStop):
		seat.phase = good // good enough for a job that changes nothing
	case j.Mode == tutti.ModeCompile && v.Has(seat.node).Program == tutti.ProgramAgent:
		seat.phase = good // do not compile, because a Puppet Server would store the catalog
	case seat.standing.Need == Nothing && s.tells(v, seat, last):
		seat.phase = telling
	case seat.standing.Need == Nothing:
		seat.phase = good
	case code == "" && has.Program != tutti.ProgramAgent:
		seat.phase, seat.why = failed, fmt.Sprintf("environment %s had no code when the job began", has.Environment)
	case v.Paused(seat.node) != "":
		seat.phase, seat.why = paused, v.Paused(seat.node)
	case !v.connected(seat.node):
		seat.phase = absent
	case st.Converge.Reaction && v.Reaction != nil && s.tooOften(v, seat):
	case last == nil:
		s.begin(v, code, st, seat)
	case seat.standing.Facts && byFacts(seat.runs) >= maxByFacts:
		seat.phase = diverging
		if s.engine.Facts(seat.node).Harmless() {
			seat.phase = restless
		}
	case last.Outcome().Good() && !s.urgent(v, st, seat.standing):
		seat.phase = deferred
	default:
		s.again(v, seat, last, lastGood)
	}
}

// tooOften defers a node that has reacted as often as the fleet file allows.
func (s *State) tooOften(v View, seat *seat) bool {
	q, from := s.bounded(v, seat.node, seat.standing)
	if !v.Now.Before(from) {
		return false
	}
	seat.phase = deferred
	if seat.cycle = s.cycle(v, seat.node, q); seat.cycle != nil {
		seat.phase = diverging
	}
	return true
}

// The function `shows` reports whether the node's state is as the code describes after a run. This is true if the run
// has applied the code, or has proved that nothing changes.
func shows(r *engine.Run) bool { return r.Proved || r.Passed() && r.Ended() && r.Outcome().Good() }

// The method `tells` reports whether a node must still report its facts after its last run in the step. A node need
// not do this if it is away, or if its agent does not report facts.
func (s *State) tells(v View, seat *seat, last *engine.Run) bool {
	return last != nil && s.engine.Facts(seat.node).ToTell(last) && v.Has(seat.node).TellsFacts && v.connected(seat.node) &&
		v.Now.Sub(later(v.from(last.EndedAt), v.Since)) < factsFor
}

// byFacts returns how many runs of a step were caused only by facts.
func byFacts(runs []*engine.Run) int {
	n := 0
	for _, r := range runs {
		if r.ByFacts {
			n++
		}
	}
	return n
}

// usable reports whether the order can rely on what is known about a node. This is true if
// the node has compiled in this job, or if its record was made with this code.
func (s *State) usable(code tutti.Digest, seat *seat) bool {
	for _, r := range seat.runs {
		if r.Compiled != nil {
			return true
		}
	}
	basis := s.Basis(seat.node)
	if basis == nil || basis.Asked == nil || seat.standing.Need != Apply {
		return false
	}
	return basis.Served != nil || basis.Program != tutti.ProgramAgent && basis.Code == code
}

// recordedBefore reports whether there is a record of what a node asked and published with other code.
func (s *State) recordedBefore(seat *seat) bool {
	basis := s.Basis(seat.node)
	return basis != nil && basis.Asked != nil
}

// The method `begin` finds the phase of a node that has not run in this step. A node that failed before is tried
// again if a person started the job, if something has changed, or if the safety schedule wants it.
func (s *State) begin(v View, code tutti.Digest, st *engine.Step, seat *seat) {
	seat.phase = ready
	if !st.Converge.Reaction || s.turn(v, seat.node) || !s.same(seat.node, seat.standing, code) {
		return
	}
	if seat.byFacts = s.otherFacts(seat.node); seat.byFacts {
		return
	}
	seat.phase = failed
	if s.engine.Last(seat.node).Applied.Result.Outcome == tutti.Waiting {
		seat.phase = waiting
	}
}

// The method `urgent` reports whether a node's reasons let it run at once in a step. In a job that a person
// started, every reason lets the node run at once.
func (s *State) urgent(v View, st *engine.Step, standing Standing) bool {
	if !st.Converge.Reaction || v.Reaction == nil {
		return true
	}
	now, _ := s.urgency(v, standing)
	return now
}

// The method `again` finds the phase of a node that has run in this step but is not good.
func (s *State) again(v View, seat *seat, last *engine.Run, lastGood map[tutti.NodeName]uint64) {
	tries, same, stops := count(seat.runs)
	changed := len(seat.standing.Changed) > 0
	outcome := last.Outcome()
	again, over := engine.Lagging(seat.runs, v.from)
	seat.byFacts = last.ByFacts && !changed && !outcome.Good() // another try of a run that only facts caused
	switch {
	case over:
		seat.phase, seat.why = failed, last.Result.Message
	case tries >= maxTries || stops >= maxStops:
		seat.phase = failed
		if changed || stops >= maxStops {
			seat.phase = diverging
		}
	case !again.IsZero():
		seat.phase, seat.retryAt = resting, again
		if !v.Now.Before(again) {
			seat.phase = ready
		}
	case outcome == tutti.Skipped: // Puppet is disabled on the node, and only a person can enable it
		seat.phase = failed
	case owesAfterGood(last) && !changed: // another run would leave the refresh out again
		seat.phase, seat.why = failed, seat.standing.Why()
	case last.Result != nil && last.Result.Stopped, outcome.Good(), changed:
		seat.phase = ready
	case outcome == tutti.Waiting:
		seat.phase = waiting
	case final(last), same >= maxSame:
		seat.phase = failed
	default:
		seat.phase, seat.retryAt = resting, v.from(last.EndedAt).Add(restFor<<(same-1))
		helped := false
		for node, at := range lastGood {
			helped = helped || node != seat.node && at > last.EndedSeq
		}
		if helped || !v.Now.Before(seat.retryAt) {
			seat.phase = ready
		}
	}
}

// owesAfterGood reports whether a run was good but left a refresh out, for example because of the resource's schedule.
func owesAfterGood(r *engine.Run) bool {
	return r.Outcome().Good() && r.Result != nil && !r.Result.Stopped && len(r.Result.Owed) > 0
}

// The function `final` reports whether a run failed because of its code, its answers or its grants. With the same
// inputs, the run would fail again. If a Puppet Server returned the error, the result is false, because the error may
// come from the server's machine.
func final(r *engine.Run) bool {
	if r.Outcome() != tutti.Failed {
		return false
	}
	switch r.Result.Reason {
	case tutti.BecauseRefused:
		return true
	case tutti.BecauseCompile, tutti.BecauseCatalog:
		return r.Program != tutti.ProgramAgent
	case tutti.BecauseResources, tutti.BecauseFacts, tutti.BecauseMachinery, tutti.BecauseTimeout:
	}
	return false
}

// The function `count` returns how often a node was tried, how many of the latest tries had the same inputs, and how
// often its compile was stopped. The function leaves out runs for which PuppetDB was too late.
func count(runs []*engine.Run) (tries, same, stops int) {
	for _, r := range runs {
		switch {
		case !r.Ended(), r.Lagged():
		case r.Result != nil && r.Result.Stopped:
			stops++
		case r.Outcome() != tutti.Skipped:
			tries++
			if before := lastTry(runs, r); before == nil || !sameInputs(before, r) {
				same = 0
			}
			same++
		}
	}
	return tries, same, stops
}

// lastTry returns the last try before a run.
func lastTry(runs []*engine.Run, r *engine.Run) *engine.Run {
	var before *engine.Run
	for _, other := range runs {
		if other == r {
			break
		}
		if other.Ended() && (other.Result == nil || !other.Result.Stopped) {
			before = other
		}
	}
	return before
}

// sameInputs reports whether two runs had the same code and the same answers.
func sameInputs(a, b *engine.Run) bool {
	if a.Code != b.Code || (a.Asked == nil) != (b.Asked == nil) {
		return false
	}
	if a.Asked == nil {
		return true
	}
	return a.Asked.Absent == b.Asked.Absent && slices.EqualFunc(a.Asked.Reads, b.Asked.Reads, func(x, y tutti.Read) bool {
		return x.Found == y.Found && x.Digest == y.Digest && x.Query.Equal(y.Query)
	})
}

func lastOf(runs []*engine.Run) *engine.Run {
	if len(runs) == 0 {
		return nil
	}
	return runs[len(runs)-1]
}
