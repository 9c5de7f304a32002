package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

// TestAnObservedNodeStartsNothing: a node had runs, and is observed now. Its agent neither collects facts nor begins a
// local run, also after a restart. When the node is not observed any more, the agent collects facts again.
func TestAnObservedNodeStartsNothing(t *testing.T) {
	f := &facter{text: "of the run", watch: t.TempDir(), collect: make(chan struct{}, 100)}
	use := func(o *agent.Options) { o.Facts, o.Beat, o.ServeLocal = f, 10*time.Millisecond, true }
	l := started(t, use)
	l.runWithFacts(f)
	l.line.until(wire.OpFacts, 1)
	l.kill()
	l.fleet.Push(strings.Replace(onePlan, "\ngroups: {", "\nmode: observe\ngroups: {", 1))
	for range 2 { // the second agent knows before its first claim that the node is observed
		l.start(use)
		l.line.wait("the server's word", func() bool {
			known, err := agent.ReadAlone(l.dir)
			return err == nil && known.Told != nil && known.Told.Observed
		})
		l.line.settle() // meanwhile the agent has looked at the facts
		if _, err := agent.AskLocal(t.Context(), l.dir, tutti.ModeNoop); tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), "mode: observe") {
			t.Errorf("a local run: %v", err)
		}
		if len(f.collect) > 0 {
			t.Fatal("the agent of an observed node has collected facts")
		}
		l.kill()
	}
	l.fleet.Push(onePlan)
	l.start(use)
	f.collected(t)
	l.kill()
}
