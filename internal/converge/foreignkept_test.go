package converge_test

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// TestALocalRunPushesNoFailureOut makes many local runs after a foreign run that failed. The list of foreign runs
// still contains the failed run.
func TestALocalRunPushesNoFailureOut(t *testing.T) {
	for reason, tc := range map[string]struct {
		theirs tutti.Foreign
		local  func(as tutti.RunID) tutti.Foreign
	}{
		"one that did not compile":           {others(uncompiled), func(as tutti.RunID) tutti.Foreign { return byItself(as, uncompiled) }},
		"one that did the same again":        {others(changed), func(as tutti.RunID) tutti.Foreign { return byItself(as, changed) }},
		"one that changed something, before": {byItself("", changed), func(as tutti.RunID) tutti.Foreign { return byItself(as, changed) }},
	} {
		s := daemons(t)
		as := s.engine.Last("a").Passed.Run
		s.tell("a", s.now, tc.theirs)
		s.needs(t, reason, converge.Apply)
		for range 8 {
			s.now = s.now.Add(time.Minute)
			s.tell("a", s.now, tc.local(as))
		}
		s.needs(t, reason+", eight times", converge.Apply)
	}
}

// TestALongForeignRunBesideOurs: short foreign runs begin and end during a long foreign run. When the long run
// has ended, the node must run again.
func TestALongForeignRunBesideOurs(t *testing.T) {
	s := daemons(t)
	began := s.now
	for range 7 {
		s.now = s.now.Add(time.Minute)
		s.tell("a", s.now, others(changed))
	}
	s.now = s.now.Add(time.Minute)
	id := s.passes()
	s.now = s.now.Add(time.Minute)
	s.concludes(id, func(r *tutti.Result) { r.Overlapped = true })
	s.needs(t, "ours came behind the short ones", converge.Nothing)
	s.now = s.now.Add(time.Minute)
	s.tellOf("a", began, s.now, others(changed))
	s.needs(t, "a long one has ended", converge.Apply)
}

// TestTheLastWordOfAForeignRun: the foreign run that was reported last counts, even if the node's clock was set back
// before it.
func TestTheLastWordOfAForeignRun(t *testing.T) {
	s := daemons(t)
	count := uint64(1)
	next := func() func(*tutti.Foreign) { count++; return counted(count) }
	for range 7 {
		s.tell("a", s.now.Add(30*time.Minute), others(changed, next()))
		s.now = s.now.Add(time.Second)
	}
	id := s.passes()
	count++
	s.concludes(id, func(r *tutti.Result) { r.Clock = onLine(1, count) })
	s.needs(t, "ours came behind them", converge.Nothing)
	s.now = s.now.Add(time.Minute)
	s.tell("a", s.now.Add(-time.Hour), others(changed, next()))
	s.needs(t, "one more, whose node's time was set back", converge.Apply)
}
