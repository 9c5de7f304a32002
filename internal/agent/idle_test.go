package agent_test

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/agent"
)

// TestIdle: once after its start and once after each run, an agent reports that it has nothing to
// do. The agent does not report this at each claim.
func TestIdle(t *testing.T) {
	l := newLab(t, applies)
	idle := make(chan struct{}, 100)
	l.start(func(o *agent.Options) { o.Idle = func() { idle <- struct{}{} } })
	for _, when := range []string{"after the start", "after a run"} {
		select {
		case <-idle:
		case <-time.After(hang):
			t.Fatalf("%s: it does not say that it is idle", when)
		}
		for range 3 { // wait until the agent has handled more claims
			l.line.settle()
		}
		if n := len(idle); n != 0 {
			t.Errorf("%s: it said it %d times more", when, n)
		}
		if when == "after the start" {
			l.end(l.job())
		}
	}
}
