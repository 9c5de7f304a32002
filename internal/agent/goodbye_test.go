package agent_test

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/agent"
)

// TestGoodbye: an agent that ends reports this in its last message. After the next agent's first
// message, the node counts as present again.
func TestGoodbye(t *testing.T) {
	l := newLab(t, applies)
	idle := make(chan struct{}, 100)
	wait := func() {
		t.Helper()
		select {
		case <-idle:
		case <-time.After(hang):
			t.Fatal("it does not ask for work")
		}
	}
	start := func() { l.start(func(o *agent.Options) { o.Idle = func() { idle <- struct{}{} } }) }
	start()
	wait()
	if l.view().Stopped {
		t.Error("it works, and is listed as stopped")
	}
	l.kill()
	if v := l.view(); !v.Stopped || v.Version != "test" {
		t.Errorf("it was told to end: %+v, want that it has stopped", v)
	}
	start()
	wait()
	if l.view().Stopped {
		t.Error("it works again, and is listed as stopped")
	}
}
