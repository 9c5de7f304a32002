package converge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// The function `others` returns a foreign run that ended well and changed nothing. The functions in
// `change` then change the run.
func others(change ...func(*tutti.Foreign)) tutti.Foreign {
	f := tutti.Foreign{Environment: "production", Result: tutti.Result{Outcome: tutti.Unchanged, Counts: tutti.Counts{Total: 9}}}
	for _, c := range change {
		c(&f)
	}
	return f
}

func changed(f *tutti.Foreign) { f.Result.Outcome, f.Result.Counts.Changed = tutti.Changed, 3 }

func failed(f *tutti.Foreign) {
	f.Result.Outcome, f.Result.Reason, f.Result.Message, f.Result.Counts.Failed = tutti.Failed, tutti.BecauseResources, "1 resource failed", 1
}

func uncompiled(f *tutti.Foreign) {
	f.Result.Outcome, f.Result.Reason, f.Result.Message = tutti.Failed, tutti.BecauseCompile, "no such class"
}

func whole(f *tutti.Foreign) { f.Whole = true }

func unwatched(f *tutti.Foreign) { f.Unwatched = true }

func noop(f *tutti.Foreign) { f.Noop = true }

// The method `tell` makes node n report a foreign run now. The run began at the given time and took a
// second.
func (s *sim) tell(n tutti.NodeName, began time.Time, f tutti.Foreign) {
	s.tellOf(n, began, began.Add(time.Second), f)
}

func (s *sim) tellOf(n tutti.NodeName, began, ended time.Time, f tutti.Foreign) {
	s.ids++ // ids do not come from the length of the log, because a restore shortens the log
	f.Result.Run = tutti.RunID(fmt.Sprintf("f%08d-0000-4000-8000-000000000000", s.ids))
	f.Result.StartedAt, f.Result.EndedAt = began, ended
	if f.Whole {
		f.Ago = max(s.now.Sub(began), 1)
	}
	s.append(&tutti.RunForeign{Node: n, Foreign: f})
}

// The method `by` makes all nodes run with this program. If the program is `agent`, the code has no
// digest.
func (s *sim) by(program tutti.Program) {
	s.program, s.manifests[""] = program, s.nodes
}

func (s *sim) standing(n tutti.NodeName) converge.Standing {
	return s.converge.Standing(n, s.view().Has(n))
}

// TestForeignRuns checks the table of ADR 0011: what a node needs after a foreign run.
func TestForeignRuns(t *testing.T) {
	const unseen = "ended while the agent was off: what ran before it in that time is not known"
	const disturbed, broken = "has changed what Tutti's last run left", "failed:resources: 1 resource failed"
	type told []tutti.Foreign
	for _, tc := range []struct {
		reason       string
		told         told // these runs are reported one after the other
		apply, agent string
	}{
		{"unchanged", told{others()}, "nothing", "nothing"},
		{"changed", told{others(changed)}, "apply " + disturbed, "apply " + disturbed},
		{"whole and unchanged", told{others(whole)}, "nothing", "nothing by it"},
		{"whole and changed", told{others(whole, changed)}, "apply " + disturbed, "nothing by it"},
		{"failed", told{others(failed)}, "apply " + broken, "apply " + broken},
		{"not compiled", told{others(uncompiled)}, "nothing", "apply failed:compile: no such class"},
		{"a noop run changed what is noop => false", told{others(noop, changed)}, "apply " + disturbed, "apply " + disturbed},
		{"a noop run failed", told{others(noop, failed)}, "nothing", "nothing"},
		{"what failed was mended", told{others(failed), others(whole)}, "apply " + broken, "nothing by it"},
		{"what failed is not mended by a part", told{others(failed), others()}, "apply " + broken, "apply " + broken},
		{"nor by an old catalog", told{others(changed), others(uncompiled)}, "apply " + disturbed, "apply failed:compile: no such class"},
		{"what changed something is not forgotten for what did not", told{others(changed), others(), others(), others(), others(), others(), others(), others()},
			"apply " + disturbed, "apply " + disturbed},
		{"nor what failed", told{others(failed), others(), others(), others(), others(), others(), others(), others(noop)}, "apply " + broken, "apply " + broken},
		{"the last one of those that nobody saw", told{others(unwatched)}, "apply " + unseen, "apply " + unseen},
		{"it was a noop run", told{others(unwatched, noop, failed)}, "apply " + unseen, "apply " + unseen},
		{"it was whole", told{others(unwatched, whole)}, "apply " + unseen, "apply " + unseen},
		{"it was whole, and a whole one came behind it", told{others(unwatched, whole), others(whole)}, "apply " + unseen, "nothing by it"},
		{"it failed", told{others(unwatched, failed)}, "apply " + broken, "apply " + broken},
		{"what came behind it was seen", told{others(unwatched), others()}, "apply " + unseen, "apply " + unseen},
		{"nor by a noop run", told{others(failed), others(noop, whole)}, "apply " + broken, "apply " + broken},
	} {
		for _, program := range []tutti.Program{tutti.ProgramApply, tutti.ProgramAgent} {
			s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
			s.by(program)
			s.all(first)
			for _, f := range tc.told {
				s.now = s.now.Add(time.Minute)
				s.tell("a", s.now, f)
			}
			want := tc.apply
			if program == tutti.ProgramAgent {
				want = tc.agent
			}
			st := s.standing("a")
			got := string(st.Need)
			if st.Need == converge.Nothing && st.Run.Foreign != nil {
				got += " by it"
			}
			need, why, _ := strings.Cut(want, " ")
			if got != want && (string(st.Need) != need || why == "by it" || !strings.Contains(st.Why(), why) || why == "" || !st.Foreign) {
				t.Errorf("%s, %s: %s, because %q (only for that: %t), want %s", tc.reason, program, got, st.Why(), st.Foreign, want)
			}
		}
	}
}

// TestWhichRunIsLater: a foreign run that was before a run of ours does not count, even if the node
// reports it after that run. A foreign run also no longer counts when a run of ours follows it.
func TestWhichRunIsLater(t *testing.T) {
	begin := func(t *testing.T) *sim {
		s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
		s.by(tutti.ProgramAgent)
		s.all(first)
		s.now = s.now.Add(time.Hour)
		return s
	}
	run := func(s *sim) {
		s.begin(tutti.ModeApply, tutti.ConvergeStep{})
		s.live(time.Minute)
	}
	for _, tc := range []struct {
		reason string
		then   func(s *sim)
		want   converge.Need
	}{
		{"told late, it began before ours", func(s *sim) { s.tell("a", s.now.Add(-48*time.Hour), others(failed)) }, converge.Nothing},
		{"it began with ours", func(s *sim) { s.tell("a", s.engine.Last("a").Applied.Result.StartedAt, others(failed)) }, converge.Nothing},
		{"it began after ours", func(s *sim) { s.tell("a", s.now, others(failed)) }, converge.Apply},
		{"an older one comes after a newer one", func(s *sim) {
			s.tell("a", s.now, others(failed))
			s.tell("a", s.now.Add(-time.Minute), others())
		}, converge.Apply},
		{"and a newer one is told first: when the other one ended is not known", func(s *sim) {
			s.tell("a", s.now, others(whole))
			s.tell("a", s.now.Add(-time.Minute), others(failed))
		}, converge.Apply},
		{"ours came behind it", func(s *sim) { s.tell("a", s.now, others(changed)); s.now = s.now.Add(time.Minute); run(s) }, converge.Nothing},
		{"ours came behind it, whose clock was wrong", func(s *sim) {
			s.tell("a", s.now.Add(1000*time.Hour), others(changed))
			s.now = s.now.Add(time.Minute)
			run(s)
		}, converge.Nothing},
		{"a noop run of ours undoes nothing", func(s *sim) {
			s.tell("a", s.now, others(changed))
			s.now = s.now.Add(time.Minute)
			s.begin(tutti.ModeNoop, tutti.ConvergeStep{})
			s.live(time.Minute)
		}, converge.Apply},
		{"told again", func(s *sim) {
			s.tell("a", s.now, others(failed))
			s.now = s.now.Add(time.Second)
			s.tell("a", s.now, others(whole))
			s.append(s.log[len(s.log)-2].Body)
		}, converge.Nothing},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := begin(t)
			tc.then(s)
			if got := s.standing("a"); got.Need != tc.want {
				t.Errorf("it needs %s: %s, want %s", got.Need, got.Why(), tc.want)
			}
			before := s.standing("a")
			s.fold()
			if again := s.standing("a"); again.Need != before.Need || again.Why() != before.Why() {
				t.Errorf("after a start: %s: %s, before %s: %s", again.Need, again.Why(), before.Need, before.Why())
			}
		})
	}
}

// TestAForeignRunMakesNothingGoodThatIsStale: a foreign run does not make a stale node
// good, because there is no record of what the run read.
func TestAForeignRunMakesNothingGoodThatIsStale(t *testing.T) {
	for _, program := range []tutti.Program{tutti.ProgramApply, tutti.ProgramAgent} {
		s := newSim(t, map[tutti.NodeName]*manifest{"a": reads("x")})
		s.by(program)
		s.all(first)
		s.write("x", "1")
		s.now = s.now.Add(time.Minute)
		s.tell("a", s.now, others(whole, changed))
		if got := s.standing("a"); got.Need != converge.Apply || len(got.Changed) != 1 || got.Foreign {
			t.Errorf("%s: it needs %s, %+v", program, got.Need, got)
		}
	}
}

// TestAForeignRunOfANodeThatNeverRan: a node has had no run of ours, only a foreign run. With the
// program agent this run can make the node good, because Tutti then needs no record of what a run
// read.
func TestAForeignRunOfANodeThatNeverRan(t *testing.T) {
	for program, want := range map[tutti.Program]converge.Need{tutti.ProgramApply: converge.Apply, tutti.ProgramAgent: converge.Nothing} {
		s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
		s.by(program)
		s.tell("a", s.now, others(whole))
		if got := s.standing("a"); got.Need != want {
			t.Errorf("%s: it needs %s, want %s", program, got.Need, want)
		}
	}
}

// TestAFailedForeignRunHoldsNobodyBack: a foreign run on a node has failed. If the node needs a run
// of ours anyway, it gets this run.
func TestAFailedForeignRunHoldsNobodyBack(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
	s.by(tutti.ProgramAgent)
	s.tell("a", s.now, others(failed)) // the first run of the node is a run of its daemon
	if got := s.standing("a"); got.Need != converge.Apply || got.Foreign {
		t.Errorf("it needs %s, foreign %t", got.Need, got.Foreign)
	}
	s.reaction = reactive()
	s.live(5 * time.Minute)
	if got := s.runs()["a"]; got != 1 {
		t.Errorf("%d runs, want 1\n%s", got, s.tail())
	}
}

// TestAForeignRunWhereTheModuleIsOnThePuppetServer: if the module is on the Puppet Server, a foreign
// run has no record, and its exports are not published. So it makes no node good.
func TestAForeignRunWhereTheModuleIsOnThePuppetServer(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
	s.by(tutti.ProgramAgent)
	s.tell("a", s.now, others(whole))
	for recorded, want := range map[bool]converge.Need{false: converge.Nothing, true: converge.Apply} {
		has := s.view().Has("a")
		has.Recorded = recorded
		if got := s.converge.Standing("a", has); got.Need != want {
			t.Errorf("recorded %t: it needs %s, want %s", recorded, got.Need, want)
		}
	}
}

// TestAForeignRunStartsNothing: a daemon changes a node of a reactive fleet again and again. The
// fleet does not react to these foreign runs. Only its safety runs undo the changes.
func TestAForeignRunStartsNothing(t *testing.T) {
	for _, tc := range []struct {
		reason string
		safety time.Duration
		runs   int
	}{
		{"no safety runs", 0, 0},
		{"one in six hours", 6 * time.Hour, 4},
	} {
		s := living(t, map[tutti.NodeName]*manifest{"a": reads("x")})
		s.reaction.Safety = tc.safety
		before := s.runs()
		for range 48 { // for a day, the daemon applies another catalog every half hour
			s.tell("a", s.now, others(changed))
			if got := s.standing("a"); got.Need != converge.Apply {
				t.Fatalf("%s: it needs %s", tc.reason, got.Need)
			}
			s.live(30 * time.Minute)
		}
		if got := s.runs()["a"] - before["a"]; got != tc.runs {
			t.Errorf("%s: %d runs, want %d", tc.reason, got, tc.runs)
		}
		s.set("x", "1") // a changed value still causes a run
		s.live(5 * time.Minute)
		if got := s.runs()["a"] - before["a"]; got != tc.runs+1 {
			t.Errorf("%s: %d runs after a change, want one more than %d", tc.reason, got, tc.runs)
		}
	}
}

// TestAJobIsBoundedWhateverOthersDo: after each run of a node, a foreign run changes the node. A job
// that a person started runs the node at most six times, and then ends.
func TestAJobIsBoundedWhateverOthersDo(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
	s.tell("a", s.now, others(changed))
	id := s.begin(tutti.ModeApply, tutti.ConvergeStep{})
	for range 100 {
		ended := s.runs()["a"]
		for _, act := range s.actions() {
			s.now = s.now.Add(time.Minute)
			act()
		}
		if r := s.engine.Last("a").Applied; s.runs()["a"] == ended && r != nil && r.Ended() && !s.engine.Jobs[id].Ended() {
			s.tell("a", s.now, others(changed))
		}
		s.now = s.now.Add(time.Minute)
		s.settle()
	}
	if j := s.engine.Jobs[id]; !j.Ended() || s.runs()["a"] > 6 || j.Verdict.Good() {
		t.Errorf("%d runs, verdict %q (%s)\n%s", s.runs()["a"], j.Verdict, j.Message, s.tail())
	}
}

// TestAProofDoesNotLetOffWhatOthersChanged: if a foreign run has changed a node, a proof does not
// make the node good. A proof compares catalogs, not machines.
func TestAProofDoesNotLetOffWhatOthersChanged(t *testing.T) {
	nodes := map[tutti.NodeName]*manifest{"a": reads()}
	for _, tc := range []struct {
		reason string
		told   func(s *sim, when string)
		runs   int
	}{
		{"nobody else ran", func(*sim, string) {}, 1},
		{"others changed it before", func(s *sim, when string) {
			if when == "before" {
				s.tell("a", s.now, others(changed))
			}
		}, 2},
		{"others changed it while it compiled", func(s *sim, when string) {
			if when == "compiling" {
				s.tell("a", s.now, others(changed))
			}
		}, 2},
		{"others changed nothing", func(s *sim, when string) { s.tell("a", s.now, others()) }, 1},
		{"others changed it before ours had", func(s *sim, when string) { s.tell("a", epoch.Add(-time.Hour), others(changed)) }, 1},
	} {
		s := newSim(t, nodes)
		s.all(first)
		s.push("two", nodes)
		s.now = s.now.Add(time.Minute)
		tc.told(s, "before")
		s.begin(tutti.ModeApply, tutti.ConvergeStep{})
		for acts := s.actions(); len(acts) > 0; acts = s.actions() {
			if r := s.engine.Runs[s.engine.Active["a"]]; s.memory[r.Run] != nil && r.Compiled == nil {
				tc.told(s, "compiling")
			}
			s.now = s.now.Add(time.Second)
			acts[0]()
			s.settle()
		}
		proved := slices.ContainsFunc(s.log, func(e tutti.Event) bool { return e.Body.Kind() == "run.proved" })
		if got := s.runs()["a"]; got != tc.runs || proved != (tc.runs == 1) {
			t.Errorf("%s: %d runs (a proof: %t), want %d\n%s", tc.reason, got, proved, tc.runs, s.tail())
		}
		if got := s.standing("a"); got.Need != converge.Nothing {
			t.Errorf("%s: it needs %s, %s", tc.reason, got.Need, got.Why())
		}
	}
}

// TestAForeignRunThatIsToldBehindAProof: a proof does not apply. So a foreign run counts if it began
// after our last run that applied, even if it began before a later proof.
func TestAForeignRunThatIsToldBehindAProof(t *testing.T) {
	nodes := map[tutti.NodeName]*manifest{"a": reads()}
	s := newSim(t, nodes)
	s.all(first)
	before := s.engine.Last("a").Applied.Result.StartedAt
	for _, code := range []string{"two", "three"} {
		s.push(code, nodes)
		s.now = s.now.Add(time.Hour)
		s.begin(tutti.ModeApply, tutti.ConvergeStep{})
		s.live(time.Minute)
	}
	if r := s.engine.Last("a").Applied; !r.Proved || s.runs()["a"] != 1 {
		t.Fatalf("%+v: want it proved", r)
	}
	s.tell("a", before.Add(-time.Minute), others(changed))
	if got := s.standing("a"); got.Need != converge.Nothing {
		t.Errorf("it began before the run that applied: it needs %s, %s", got.Need, got.Why())
	}
	s.tell("a", before.Add(time.Minute), others(changed))
	if got := s.standing("a"); got.Need != converge.Apply {
		t.Errorf("it began between that and the proof: it needs %s", got.Need)
	}
}
