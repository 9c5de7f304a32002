package converge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

func owes(r *tutti.Result) { r.Owed = []tutti.Owed{{Resource: "Service[x]", Run: r.Run}} }

// TestANodeThatOwesARefreshIsNotGood: the result of a node's last run reports an owed refresh. Neither a proof nor
// a run with other tags makes this node good.
func TestANodeThatOwesARefreshIsNotGood(t *testing.T) {
	for _, program := range []tutti.Program{tutti.ProgramAgent, tutti.ProgramApply} {
		s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
		s.by(program)
		s.all(first)
		s.needs(t, "it has run", converge.Nothing)
		s.concludes(s.tagged(), owes)
		s.needs(t, "a run with tags has left it out", converge.Apply)
		if why := s.standing("a").Why(); !strings.HasPrefix(why, "refresh of Service[x] is owed since run ") {
			t.Errorf("%q", why)
		}
		s.concludes(s.tagged())
		s.needs(t, "another one has done it", converge.Nothing)
		s.concludes(s.passes(), owes)
		s.needs(t, "a full run, which was good", converge.Apply)
		s.now = s.now.Add(time.Minute)
		s.all(first)
		s.needs(t, "converged", converge.Nothing)
		if last := s.engine.Last("a").Applied; !last.Passed() || last.Proof {
			t.Errorf("%s: run %s, proof %t: want one that applied", program, last.Run, last.Proof)
		}
	}
}

// TestARefreshThatStaysOwedCausesFewRuns: the schedule of a service leaves its refresh out of each run. A person's
// converge then runs the node once and says what is owed, and a reaction does not run the node again and again.
func TestARefreshThatStaysOwedCausesFewRuns(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads("x")})
	s.all(first)
	s.concludes(s.passes(), owes)
	s.owes = owes
	j := s.all(first)
	if done(j)["a"] != "run " || !strings.Contains(j.Message, "refresh of Service[x] is owed") {
		t.Errorf("runs %q, %s: %s; want one run, and what it owes", done(j), j.Verdict, j.Message)
	}

	l := living(t, map[tutti.NodeName]*manifest{"a": reads("x"), "b": reads("y")})
	before := l.runs()
	l.owes = owes
	l.set("x", "1")
	l.live(2 * time.Hour)
	if n := since(before, l.runs())["a"]; n < 2 || n > 6 {
		t.Errorf("a has run %d times in two hours, want 2 to 6", n)
	}
	l.owes = nil
	l.live(time.Hour)
	l.needs(t, "its schedule lets the service restart", converge.Nothing)
}
