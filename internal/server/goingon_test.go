package server_test

import (
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// While a run goes on, nobody knows in which state it leaves the node. So the node is not good, and a converge job
// waits for the run. The node is also not good while a retry after a failed run goes on. After the end of the run the
// server knows what is not good.
func TestARunThatGoesOn(t *testing.T) {
	f := newFenced(t)
	f.pass()
	ends := func(run tutti.RunID, outcome tutti.Outcome) {
		t.Helper()
		if err := f.db.Call(wire.OpResult, servertest.Result(run, outcome), nil); err != nil {
			t.Fatal(err)
		}
	}
	ordered := func() tutti.RunID {
		t.Helper()
		if _, err := f.StartJob(servertest.Operator(), api.StartJob{Runs: &api.NodeRuns{Nodes: []tutti.NodeName{"db-01"}}, Mode: tutti.ModeApply}); err != nil {
			t.Fatal(err)
		}
		order := f.claim()
		if order == nil {
			t.Fatal("no run")
		}
		return order.Run
	}
	run := ordered()
	f.wantWhy("before its gate", "is going on")
	f.db.Gate(full(run))
	f.wantWhy("behind its gate", "is going on")
	job := f.converge()
	if v := f.Job(job); v.Verdict != "" {
		t.Errorf("a converge while a run goes on: %s", v.Verdict)
	}
	ends(run, tutti.Changed)
	f.wantWhy("it has ended well", "good: ")
	if v := f.Job(job); v.Verdict != tutti.VerdictConverged || f.claim() != nil {
		t.Errorf("after the run: %s: %s; and another run", v.Verdict, v.Message)
	}

	run = ordered()
	f.db.Gate(full(run))
	ends(run, tutti.Failed)
	f.wantWhy("it has failed", "was failed")
	run = ordered()
	f.wantWhy("it is tried again, before its gate", "was failed")
	f.db.Gate(full(run))
	f.wantWhy("it is tried again, behind its gate", "is going on")
	job = f.converge()
	ends(run, tutti.Failed)
	if v := f.Job(job); v.Verdict == tutti.VerdictConverged {
		t.Error("it has failed again, and the converge that waited says converged")
	}
}
