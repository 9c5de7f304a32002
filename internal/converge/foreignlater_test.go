package converge_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// daemons is a fleet of one node, an hour after Tutti's last run on it. Puppet's daemon also runs
// on the node.
func daemons(t *testing.T) *sim {
	t.Helper()
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
	s.by(tutti.ProgramAgent)
	s.all(first)
	s.now = s.now.Add(time.Hour)
	return s
}

// The method `needs` checks what node a needs, now and after a restart of the server.
func (s *sim) needs(t *testing.T, reason string, want converge.Need) {
	t.Helper()
	for _, when := range []string{"told", "after a start"} {
		if got := s.standing("a"); got.Need != want {
			t.Errorf("%s, %s: it needs %s because %q, want %s", reason, when, got.Need, got.Why(), want)
		}
		s.fold()
	}
}

// The method `passes` begins a run of Tutti on node a, and makes the run pass its gate.
func (s *sim) passes() tutti.RunID {
	s.ids++
	id := tutti.RunID(fmt.Sprintf("00000000-0000-0000-0001-%012d", s.ids))
	return s.orders(tutti.Order{Run: id, Node: "a", Mode: tutti.ModeApply, Program: s.program})
}

// The method `orders` begins the run of an order, and makes the run pass its gate.
func (s *sim) orders(o tutti.Order) tutti.RunID {
	s.append(&tutti.RunWanted{Order: o})
	s.append(&tutti.RunClaimed{Run: o.Run, Node: o.Node})
	s.append(&tutti.RunCompiled{Run: o.Run, Reads: &tutti.Questions{}})
	s.append(&tutti.RunGated{Run: o.Run, Verdict: tutti.GateGo})
	return o.Run
}

// The method `concludes` ends a run now. The run began when it was claimed.
func (s *sim) concludes(id tutti.RunID, change ...func(*tutti.Result)) {
	r := tutti.Result{Run: id, Outcome: tutti.Unchanged, StartedAt: s.engine.Runs[id].ClaimedAt, EndedAt: s.now}
	for _, c := range change {
		c(&r)
	}
	s.append(&tutti.RunFinished{Result: r})
}

func broken(r *tutti.Result) {
	r.Outcome, r.Reason, r.Message = tutti.Failed, tutti.BecauseResources, "1 resource failed"
}

func mended(r *tutti.Result) { r.Outcome, r.Counts.Changed = tutti.Changed, 1 }

// TestADaemonThatHadTheLockFirst: a daemon's run ended before our run got Puppet's lock, and is reported after our
// gate. The daemon's run does not repair what our run has left.
func TestADaemonThatHadTheLockFirst(t *testing.T) {
	for _, tc := range []struct {
		reason string
		ours   func(*tutti.Result)
		after  time.Duration // how long after the end of our run the daemon's run is reported
		want   converge.Need
	}{
		{"ours failed", broken, -time.Second, converge.Apply},
		{"ours failed, told after its end", broken, time.Second, converge.Apply},
		{"ours was good", func(*tutti.Result) {}, -time.Second, converge.Nothing},
	} {
		s := daemons(t)
		began := s.now
		id := s.passes()
		s.now = s.now.Add(20 * time.Second)
		if tc.after < 0 {
			s.tellOf("a", began.Add(time.Second), began.Add(3*time.Second), others(whole))
		}
		s.concludes(id, tc.ours)
		if tc.after > 0 {
			s.now = s.now.Add(tc.after)
			s.tellOf("a", began.Add(time.Second), began.Add(3*time.Second), others(whole))
		}
		s.needs(t, tc.reason, tc.want)
		s.now = s.now.Add(time.Minute)
		s.tell("a", s.now, others(whole))
		s.needs(t, tc.reason+", and the next one of the daemon", converge.Nothing)
	}
}

// TestAWholeRunBehindOneThatWasGivenUp: if a run was given up after its gate, nobody knows how long it goes
// on.
func TestAWholeRunBehindOneThatWasGivenUp(t *testing.T) {
	s := daemons(t)
	id := s.passes()
	s.append(&tutti.RunLost{Run: id, Reason: "nothing is heard of its node"})
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now, others(whole))
	s.needs(t, "given up", converge.Apply)
	s.now = s.now.Add(time.Minute)
	s.concludes(id, broken)
	s.needs(t, "it has failed", converge.Apply)
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now, others(whole))
	s.needs(t, "a whole one behind its end", converge.Nothing)
}

// The method `tagged` returns a new run of ours with tags on node a. The run has passed its gate.
func (s *sim) tagged() tutti.RunID {
	s.ids++
	id := tutti.RunID(fmt.Sprintf("00000000-0000-0000-0002-%012d", s.ids))
	return s.orders(tutti.Order{Run: id, Node: "a", Mode: tutti.ModeApply, Program: s.program, Tags: []string{"web"}})
}

// TestARunWithTagsBehindAWholeRun: an earlier whole run does not repair what a run with
// tags has left.
func TestARunWithTagsBehindAWholeRun(t *testing.T) {
	for reason, ends := range map[string]func(*tutti.Result){"it failed": broken, "it changed something": mended} {
		s := daemons(t)
		s.tell("a", s.now, others(whole))
		s.now = s.now.Add(time.Minute)
		id := s.tagged()
		s.now = s.now.Add(time.Minute)
		s.concludes(id, ends)
		s.needs(t, reason, converge.Apply)
		s.now = s.now.Add(time.Minute)
		s.tell("a", s.now, others(whole))
		s.needs(t, reason+", and a whole one came behind it", converge.Nothing)
		for range 12 { // more runs with tags than the server keeps
			s.now = s.now.Add(time.Minute)
			s.concludes(s.tagged())
		}
		s.needs(t, reason+", and many came behind that", converge.Apply)
		s.now = s.now.Add(time.Minute)
		s.tell("a", s.now, others(whole))
		s.needs(t, reason+", and a whole one behind them", converge.Nothing)
		s.concludes(s.tagged(), ends)
		s.needs(t, reason+", one more", converge.Apply)
	}
}

// TestARunWithTagsThatGoesOn: while the run goes on, nobody knows in which state it will
// leave the node.
func TestARunWithTagsThatGoesOn(t *testing.T) {
	for _, program := range []tutti.Program{tutti.ProgramAgent, tutti.ProgramApply} {
		s := daemons(t)
		s.program = program
		s.all(first)
		s.now = s.now.Add(time.Minute)
		s.tell("a", s.now, others(whole))
		s.now = s.now.Add(time.Minute)
		id := s.tagged()
		s.now = s.now.Add(time.Minute)
		s.tell("a", s.now, others(whole)) // the daemon's run may have begun before our run took the lock
		s.needs(t, string(program), converge.Apply)
		s.now = s.now.Add(time.Minute)
		s.concludes(id)
		s.needs(t, string(program)+", ended", converge.Nothing)
	}
}

// TestWhatIsWorseBehindAWholeRun: a whole run repairs only problems that were there when it
// began.
func TestWhatIsWorseBehindAWholeRun(t *testing.T) {
	s := daemons(t)
	s.concludes(s.passes(), broken)
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now, others(whole))
	s.needs(t, "a whole one behind ours, which failed", converge.Nothing)
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now, others(changed))
	s.needs(t, "another one changed something behind it", converge.Apply)
	s.now = s.now.Add(time.Hour)
	s.tell("a", s.now.Add(-30*time.Minute), others(changed)) // this run ended half an hour before its report
	s.tell("a", s.now, others(whole))
	s.needs(t, "it began when the one before was told", converge.Apply)
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now, others(whole))
	s.needs(t, "the next one", converge.Nothing)
}

// TestAWholeRunIsNews: if the server learns of a change after a whole run began, the run does not make its node good.
func TestAWholeRunIsNews(t *testing.T) {
	facts := func(s *sim) {
		s.append(&tutti.NodeFacts{Node: "a", FactsSeen: tutti.FactsSeen{Run: s.engine.Last("a").Claimed.Run, Facts: tutti.DigestOf([]byte("other"))}})
	}
	moved := func(s *sim) {
		s.append(&tutti.NodeSetBack{Node: "a", Run: s.engine.Last("a").Claimed.Run, Moved: true})
	}
	for reason, happens := range map[string]func(*sim){"facts have changed": facts, "it is another machine": moved} {
		s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
		s.by(tutti.ProgramAgent)
		s.compiled = func(c *tutti.CatalogReport) { c.Facts = tutti.DigestOf([]byte("fact")) }
		s.all(first)
		s.now = s.now.Add(time.Hour)
		began := s.now
		s.now = s.now.Add(20 * time.Second)
		happens(s)
		stale := s.standing("a").Need
		if stale == converge.Nothing {
			t.Fatalf("%s, and it needs nothing: this test sees nothing", reason)
		}
		s.now = s.now.Add(10 * time.Second)
		s.tellOf("a", began, began.Add(15*time.Second), others(whole))
		s.needs(t, reason+" while it ran", stale)
		s.now = s.now.Add(time.Minute)
		s.tell("a", s.now, others(whole))
		s.needs(t, reason+" before it", converge.Nothing)
	}
	s := daemons(t)
	s.concludes(s.passes(), broken)
	s.now = s.now.Add(time.Minute)
	late := others(whole, changed)
	late.Ago = 0
	late.Result.Run, late.Result.StartedAt, late.Result.EndedAt = "f1111111-0000-4000-8000-000000000000", s.now, s.now
	s.append(&tutti.RunForeign{Node: "a", Foreign: late})
	s.needs(t, "an agent that does not say when it began", converge.Apply)
}

// TestFactsThatGoBackBehindAForeignRun: the daemon has applied a catalog for changed facts, and then
// the facts change back.
func TestFactsThatGoBackBehindAForeignRun(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
	s.by(tutti.ProgramAgent)
	now := func(facts string) tutti.Digest { return tutti.DigestOf([]byte(facts)) }
	s.compiled = func(c *tutti.CatalogReport) { c.Facts = now("A") }
	s.all(first)
	run := s.engine.Last("a").Claimed.Run
	tell := func(facts string) {
		s.now = s.now.Add(time.Minute)
		s.append(&tutti.NodeFacts{Node: "a", FactsSeen: tutti.FactsSeen{Run: run, Facts: now(facts)}})
		s.now = s.now.Add(time.Minute)
	}
	tell("B")
	s.tell("a", s.now, others(whole, changed))
	s.needs(t, "applied with the facts of now", converge.Nothing)
	tell("A")
	s.needs(t, "applied with the facts of before", converge.Apply)
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now, others(whole, changed))
	s.needs(t, "applied again", converge.Nothing)
}

// The function `counted` returns an option, which sets the count of the agent's clock in a foreign run.
func counted(count uint64) func(*tutti.Foreign) {
	return func(f *tutti.Foreign) { f.Result.Clock = onLine(1, count) }
}

func onLine(line int, count uint64) tutti.Clock {
	return tutti.Clock{Line: fmt.Sprintf("c%07d-0000-4000-8000-000000000000", line), Count: count}
}

// TestTheCountOfTheNode: the count of the node's agent shows which run is later, even if the node's clock is
// wrong.
func TestTheCountOfTheNode(t *testing.T) {
	for _, tc := range []struct {
		reason string
		ours   tutti.Clock
		told   tutti.Foreign
		ended  time.Duration // the end of the foreign run, counted from the beginning of our run by the node's clock
		want   converge.Need
	}{
		{"seen behind ours, and the time was set back", onLine(1, 5), others(changed, counted(6)), -time.Hour, converge.Apply},
		{"seen before ours, and the time was set back since", onLine(1, 5), others(changed, counted(4)), time.Hour, converge.Nothing},
		{"the count was lost", onLine(2, 5), others(changed, counted(4)), -time.Hour, converge.Apply},
		{"it is not counted", onLine(1, 5), others(changed), -time.Hour, converge.Apply},
		{"ours is not counted", tutti.Clock{}, others(changed, counted(1)), -time.Hour, converge.Apply},
		{"nothing is counted", tutti.Clock{}, others(changed), -time.Hour, converge.Nothing},
		{"nothing is counted, and ours waited for its end", tutti.Clock{}, others(changed), time.Second, converge.Nothing},
	} {
		s := daemons(t)
		id := s.passes()
		began := s.now
		s.now = s.now.Add(time.Minute)
		s.concludes(id, func(r *tutti.Result) { r.Clock = tc.ours })
		s.now = s.now.Add(time.Minute)
		s.tellOf("a", began.Add(tc.ended-2*time.Hour), began.Add(tc.ended), tc.told)
		s.needs(t, tc.reason, tc.want)
	}
}

// TestACountThatWasSetBack: a machine that was set back counts from an earlier number. A lower count therefore does not
// mean that the machine's new runs happened earlier.
func TestACountThatWasSetBack(t *testing.T) {
	s := daemons(t)
	s.concludes(s.passes(), func(r *tutti.Result) { r.Clock = onLine(1, 100) })
	s.now = s.now.Add(time.Minute)
	s.append(&tutti.NodeSetBack{Node: "a", Run: s.engine.Last("a").Claimed.Run})
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now, others(failed, counted(51)))
	if n := len(s.engine.Last("a").Foreign); n != 1 {
		t.Errorf("%d foreign runs are known behind the last one of ours, want 1", n)
	}
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now, others(whole, counted(52)))
	s.needs(t, "a whole run behind it", converge.Nothing)
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now, others(changed, counted(53)))
	s.needs(t, "one that changed something behind that", converge.Apply)
}

// TestAnAgentThatCountsNoClocks: an agent of an earlier release runs after an agent that counts. The server must not
// take the runs of the earlier agent for the earliest runs.
func TestAnAgentThatCountsNoClocks(t *testing.T) {
	s := daemons(t)
	s.concludes(s.passes(), func(r *tutti.Result) { r.Clock = onLine(1, 3) })
	s.now = s.now.Add(time.Minute)
	s.concludes(s.passes(), broken) // the agent of the earlier release ended this run
	s.now = s.now.Add(time.Second)
	s.tell("a", s.now.Add(-30*time.Second), others(whole, counted(4)))
	s.needs(t, "it began before ours was told", converge.Apply)
	s.now = s.now.Add(time.Minute)
	s.concludes(s.passes())
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now.Add(-time.Hour), others(failed, counted(5)))
	s.needs(t, "told behind ours, and nothing shows that it was before", converge.Apply)
}

// TestTheCountBehindAProof: a proof rests on an earlier run. In the order of runs, the proof has the place of this
// earlier run.
func TestTheCountBehindAProof(t *testing.T) {
	for _, tc := range []struct {
		count uint64
		want  converge.Need
	}{{4, converge.Nothing}, {6, converge.Apply}} {
		nodes := map[tutti.NodeName]*manifest{"a": reads()}
		s := newSim(t, nodes)
		s.clock = onLine(1, 5)
		s.all(first)
		s.clock = onLine(1, 7)
		s.push("two", nodes)
		s.now = s.now.Add(time.Hour)
		s.all(first)
		if !s.engine.Last("a").Passed.Proved {
			t.Fatal("nothing was proved: this test sees nothing")
		}
		s.now = s.now.Add(time.Minute)
		s.tell("a", epoch.Add(-time.Hour), others(changed, counted(tc.count)))
		s.needs(t, fmt.Sprintf("count %d", tc.count), tc.want)
	}
}
