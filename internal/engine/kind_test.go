package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// TestAKindOfALaterRelease: a viewer folds a job with a step of an unknown kind. The
// viewer keeps what the server reports about the step, and decides nothing about the
// step.
func TestAKindOfALaterRelease(t *testing.T) {
	var reboot tutti.Step
	if err := json.Unmarshal([]byte(`{"name":"reboot-web","timeout":0,"reboot":{"target":"web"}}`), &reboot); err != nil {
		t.Fatal(err)
	}
	f := newFleet()
	f.append(&tutti.JobStarted{Job: "j-1", Plan: tutti.Plan{Name: "j", Steps: []tutti.Step{reboot, run("after", "reboot-web")}}})
	step := func() *engine.Step { return f.state.Jobs["j-1"].Step("reboot-web") }
	undecided := func(state engine.StepState) {
		t.Helper()
		if bodies := f.state.Decide(f.view()); len(bodies) != 0 || step().State != state {
			t.Errorf("the step is %s, want %s; the viewer decides %v", step().State, state, bodies)
		}
	}
	undecided(engine.Pending)
	f.append(&tutti.StepStarted{Job: "j-1", Step: "reboot-web"})
	undecided(engine.Active)
	for i, outcome := range []tutti.Outcome{tutti.Changed, tutti.Failed, "rebooted"} {
		id := tutti.RunID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
		node := tutti.NodeName(fmt.Sprintf("web-%02d", i))
		f.append(&tutti.RunWanted{Order: tutti.Order{Run: id, Node: node, Job: "j-1", Step: "reboot-web"}})
		f.append(&tutti.RunFinished{Result: tutti.Result{Run: id, Outcome: outcome}})
	}
	undecided(engine.Active)
	if n := step().Nodes; len(n) != 3 || n[0].State != engine.Done || n[1].State != engine.Failed || n[2].State != engine.Done {
		t.Errorf("its nodes: %+v, want the second failed alone", n)
	}
	f.append(&tutti.StepFinished{Job: "j-1", Step: "reboot-web", Message: "web-01 did not come back"})
	f.append(&tutti.JobFinished{Job: "j-1", Verdict: tutti.VerdictFailed})
	if j := f.state.Jobs["j-1"]; step().State != engine.Failed || j.Verdict != tutti.VerdictFailed || j.Summary(f.now).Failed != 1 {
		t.Errorf("the step is %s, the job %s: %+v", step().State, j.Verdict, j.Summary(f.now))
	}
}
