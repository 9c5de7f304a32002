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

// listener has Puppet loaded, as it were.
type listener chan wire.Expectation

func (l listener) Expect(e wire.Expectation) { l <- e }
func (l listener) Memory() int64             { return 42 << 20 }

// TestExpectations: who has Puppet loaded hears of each claim without a run what may
// follow; what that costs is the server's knowledge.
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
