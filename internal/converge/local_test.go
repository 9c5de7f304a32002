package converge_test

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// The function `byItself` returns a run that a node's agent makes while its server is away.
func byItself(as tutti.RunID, change ...func(*tutti.Foreign)) tutti.Foreign {
	f := others(change...)
	f.Local = &tutti.Local{Safety: true, Away: true, As: as}
	return f
}

// cutOff makes a run that was interrupted in a phase.
func cutOff(phase string) func(*tutti.Foreign) {
	return func(f *tutti.Foreign) { f.Result.Outcome, f.Result.Phase = tutti.Interrupted, phase }
}

// The function `unpublished` notes in a local run two values that the run could not publish.
func unpublished(f tutti.Foreign) tutti.Foreign {
	f.Local.Unpublished = []string{"db/x", "db/y"}
	return f
}

// TestLocalRuns checks what a local run means for its node, according to ADR 0023. A local run is a run that the
// node's agent began by itself.
func TestLocalRuns(t *testing.T) {
	atHand := func(f tutti.Foreign) tutti.Foreign { f.Local = &tutti.Local{}; return f }
	for _, tc := range []struct {
		reason  string
		told    func(last tutti.RunID) tutti.Foreign
		need    converge.Need
		foreign bool // true if the fleet does not react to the need
	}{
		{"the same again, which set something right", func(as tutti.RunID) tutti.Foreign { return byItself(as, changed) }, converge.Nothing, false},
		{"the same again, which left a refresh out", func(as tutti.RunID) tutti.Foreign {
			return byItself(as, changed, func(f *tutti.Foreign) { owes(&f.Result) })
		}, converge.Apply, false},
		{"the same again, and it failed", func(as tutti.RunID) tutti.Foreign { return byItself(as, failed) }, converge.Apply, false},
		{"it did not compile", func(as tutti.RunID) tutti.Foreign { return byItself(as, uncompiled) }, converge.Nothing, false},
		{"it ended while it applied, without a report", func(tutti.RunID) tutti.Foreign { return byItself("", cutOff("apply")) }, converge.Apply, false},
		{"it ended while it compiled", func(tutti.RunID) tutti.Foreign { return byItself("", cutOff("compile")) }, converge.Nothing, false},
		{"with other answers, and nothing changed", func(tutti.RunID) tutti.Foreign { return byItself("") }, converge.Nothing, false},
		{"with other answers", func(tutti.RunID) tutti.Foreign { return byItself("", changed) }, converge.Apply, false},
		{"as a run that nobody knows", func(tutti.RunID) tutti.Foreign {
			return byItself("f0000000-0000-4000-8000-000000000000", changed)
		}, converge.Apply, false},
		{"a noop run that found something", func(tutti.RunID) tutti.Foreign {
			return byItself("", noop, func(f *tutti.Foreign) { f.Result.Outcome, f.Result.Counts.OutOfSync = tutti.Changed, 3 })
		}, converge.Nothing, false},
		{"a noop run that was cut off", func(tutti.RunID) tutti.Foreign { return byItself("", noop, cutOff("apply")) }, converge.Nothing, false},
		{"a noop run of an older agent, which changed what is noop => false", func(tutti.RunID) tutti.Foreign { return byItself("", changed, noop) }, converge.Apply, false},
		{"it changed nothing, and has another value than the published one", func(tutti.RunID) tutti.Foreign { return unpublished(byItself("")) }, converge.Apply, false},
		{"by a person, with another value than the published one", func(tutti.RunID) tutti.Foreign { return unpublished(atHand(others())) }, converge.Apply, true},
		{"by a person while the server was there", func(tutti.RunID) tutti.Foreign { return atHand(others(changed)) }, converge.Apply, true},
	} {
		for _, program := range []tutti.Program{tutti.ProgramApply, tutti.ProgramAgent} {
			s := newSim(t, map[tutti.NodeName]*manifest{"a": reads("x")})
			s.by(program)
			s.all(first)
			s.now = s.now.Add(time.Hour)
			s.tell("a", s.now, tc.told(s.engine.Last("a").Passed.Run))
			check := func(when string) {
				t.Helper()
				if got := s.standing("a"); got.Need != tc.need || got.Foreign != tc.foreign {
					t.Errorf("%s, %s, %s: it needs %s, only for that: %t, because %q; want %s, %t",
						tc.reason, program, when, got.Need, got.Foreign, got.Why(), tc.need, tc.foreign)
				}
			}
			check("told")
			s.fold()
			check("after a start")
			s.write("x", "1") // after every local run, a change of data makes the node stale
			if got := s.standing("a"); got.Need != converge.Apply {
				t.Errorf("%s, %s: after a change it needs %s", tc.reason, program, got.Need)
			}
		}
	}
}

// TestALocalRunAfterAProof: a local run repeats the run on which the last proof rests.
func TestALocalRunAfterAProof(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
	s.all(first)
	as := s.engine.Last("a").Passed.Run
	s.now = s.now.Add(time.Hour)
	s.push("code of b", s.nodes)
	s.all(first)
	if last := s.engine.Last("a").Passed; !last.Proved || last.Run == as {
		t.Fatalf("the last run that passed is %s, proved: %t; this test sees nothing", last.Run, last.Proved)
	}
	s.now = s.now.Add(time.Hour)
	s.tell("a", s.now, byItself(as, changed))
	if got := s.standing("a"); got.Need != converge.Nothing {
		t.Errorf("it needs %s: %s", got.Need, got.Why())
	}
}

// TestALocalRunReacts: when the server is back, it judges what a node did alone, and the
// node runs once.
func TestALocalRunReacts(t *testing.T) {
	s := living(t, map[tutti.NodeName]*manifest{"a": reads("x")})
	s.reaction.Safety = 0
	before := s.runs()["a"]
	s.tell("a", s.now, byItself("", changed))
	s.live(30 * time.Minute)
	if got := s.runs()["a"] - before; got != 1 {
		t.Errorf("%d runs after a local run with other answers, want 1\n%s", got, s.tail())
	}
	if got := s.standing("a"); got.Need != converge.Nothing {
		t.Errorf("it needs %s: %s", got.Need, got.Why())
	}
}
