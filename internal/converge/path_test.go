package converge_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// wantChain checks that a job's path has no gap from the start of the job to the end of its last run.
func wantChain(t tester, s *sim, j *engine.Job) []engine.PathPart {
	t.Helper()
	path := j.Path()
	at, end := j.StartedAt, j.StartedAt
	for _, n := range j.Steps[0].Nodes {
		for _, r := range n.Runs {
			if r.EndedAt.After(end) {
				end = r.EndedAt
			}
		}
	}
	for i, part := range path {
		if !part.From.Equal(at) || !part.To.After(part.From) {
			t.Fatalf("part %d is from %s to %s, and the part before it ended at %s:\n%s\n%s", i, part.From.Sub(epoch), part.To.Sub(epoch), at.Sub(epoch), show(path), s.tail())
		}
		at = part.To
	}
	if !at.Equal(end) {
		t.Fatalf("the path ends at %s, the last run at %s:\n%s\n%s", at.Sub(epoch), end.Sub(epoch), show(path), s.tail())
	}
	return path
}

func show(path []engine.PathPart) string {
	var out []string
	for _, p := range path {
		out = append(out, fmt.Sprintf("%s %s %s", p.Node, p.Phase, p.Took()))
	}
	return strings.Join(out, "\n")
}

// TestThePathOfAConvergeJob checks that each moment of a job is explained by what a node did, in random fleets. The server
// decides in no time here, so a chain with a moment for which nobody is the reason would name the wrong run.
func TestThePathOfAConvergeJob(t *testing.T) {
	chains, runs := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		s := newSim(rt, acyclic(d, kinds{nodes: 7}))
		s.writeAll(operators(d))
		s.inFlight = rapid.SampledFrom([]int{0, 0, 2}).Draw(rt, "in flight")
		id, idle := s.begin(tutti.ModeApply, tutti.ConvergeStep{}), false
		for !s.engine.Jobs[id].Ended() {
			idle = idle || len(s.actions()) == 0
			s.step(pick(d))
			s.settle()
		}
		path := wantChain(rt, s, s.engine.Jobs[id])
		if idle { // then the chain has a timeout
			return
		}
		nodes := map[tutti.NodeName]bool{}
		for _, p := range path {
			if p.Phase == engine.PathDecide || p.Phase == engine.PathHeld || p.Phase == engine.PathWait {
				rt.Fatalf("nobody is the reason for %s of %s:\n%s\n%s", p.Took(), p.Phase, show(path), s.tail())
			}
			nodes[p.Node] = true
		}
		chains += len(nodes)
		runs++
	})
	if chains < 2*runs {
		t.Errorf("%d nodes in %d paths: this test has lost its edge", chains, runs)
	}
}
