package agent_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The type `listener` acts as if it had loaded Puppet.
type listener chan wire.Expectation

func (l listener) Expect(e wire.Expectation) { l <- e }
func (l listener) Memory() int64             { return 42 << 20 }

// TestExpectations: after each claim without a run, the agent tells the warm runner
// which run may follow. The server knows how much memory the loaded Puppet needs.
func TestExpectations(t *testing.T) {
	l := newLab(t, applies)
	if _, err := l.fleet.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(onePlan + "reactive: true\n")}); err != nil {
		t.Fatal(err)
	}
	heard := make(listener, 100)
	l.start(func(o *agent.Options) { o.Warm, o.Beat = heard, 10*time.Millisecond })
	deadline := time.After(time.Minute)
	for l.view().Warm == 0 {
		select {
		case <-deadline:
			t.Fatal("nobody was told of the memory")
		case <-time.After(time.Millisecond):
		}
	}
	var first wire.Expectation
	select {
	case first = <-heard:
	case <-deadline:
		t.Fatal("nothing was heard")
	}
	view := l.view()
	if diff := cmp.Diff([]any{wire.ExpectChange, int64(42 << 20)}, []any{first, view.Warm}); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
