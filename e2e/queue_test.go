//go:build e2e

package e2e_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// TestQueue starts a plan three times at once. The runs of one node must follow each other. Runs of
// other nodes must not wait for the runs of this node.
func TestQueue(t *testing.T) {
	push(t, everyNode, waitExec)
	held := newBarrier(t, host(t, "node-01"))
	jobs := []*job{start(t, fleet, "every", tutti.ModeApply)}
	held.wait() // the jobs that start below must wait for this run
	for range 2 {
		jobs = append(jobs, start(t, fleet, "every", tutti.ModeApply))
	}
	jobs[2].until(func(api.Watched) bool { // wait until the two nodes other than node-01 are done
		done := 0
		for _, n := range jobs[2].Steps[0].Nodes {
			if n.State == engine.Done {
				done++
			}
		}
		return done == 2
	})
	held.open()
	var of []*engine.Run // the runs of the held node
	for _, j := range jobs {
		if j.end(); j.Verdict != tutti.VerdictSucceeded {
			t.Errorf("job %s %s: %s", j.id, j.Verdict, j.Message)
		}
		of = append(of, j.last("run-every", "node-01"))
	}
	slices.SortFunc(of, func(a, b *engine.Run) int { return cmp.Compare(a.Run, b.Run) })
	for i, r := range of[1:] {
		if before := of[i]; r.WantedAt.Before(before.EndedAt) || r.Result.StartedAt.Before(before.Result.EndedAt) {
			t.Errorf("run %s began at %s, while %s ended at %s", r.Run, r.Result.StartedAt, before.Run, before.Result.EndedAt)
		}
	}
}
