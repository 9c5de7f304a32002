//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

const planFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  all: {nodes: [node-01, node-02, node-03]}
grants:
  - {to: all, write: [shared/plan/**]}
plans:
  plan:
    steps:
      - name: slow
        run: all
        limit: 1
      - name: quick
        run: all
        per: node
      - name: open
        wait: {tcp: "tutti:8150", timeout: 30s}
        after: []
      - name: said
        wait: {value: shared/plan/node-03, equals: {"n": 3}, timeout: 2m}
        after: slow
  vain:
    steps:
      - wait: {tcp: "node-01:9", timeout: 2s}
      - run: node-01
`

// TestPlan checks limits, edges of all kinds and waits on real nodes.
func TestPlan(t *testing.T) {
	push(t, planFleet, `
		$n = Integer($trusted['certname'][-1])
		tutti_value { "shared/plan/${trusted['certname']}": value => { 'n' => $n } }
	`)
	j := start(t, fleet, "plan", tutti.ModeApply)
	most, overtook := 0, false
	j.until(func(w api.Watched) bool {
		if w.Event == nil {
			return false
		}
		active := 0
		for _, n := range j.Step("slow").Nodes {
			if n.State == engine.Active {
				active++
			}
		}
		most = max(most, active)
		if !j.Step("slow").Ended() && j.Step("quick").State == engine.Active {
			overtook = true
		}
		return false
	})
	if j.Verdict != tutti.VerdictSucceeded {
		t.Fatalf("%s: %s", j.Verdict, j.Message)
	}
	if most != 1 {
		t.Errorf("%d runs of the step with limit 1 at once", most)
	}
	if !overtook {
		t.Error("per: node waited for the nodes that the step does not need")
	}
	for _, name := range []tutti.StepName{"open", "said"} {
		if st := j.Step(name); st.State != engine.Done {
			t.Errorf("%s is %s: %s", name, st.State, st.Message)
		}
	}
	vain := execute(t, "vain", tutti.ModeApply)
	if vain.Verdict != tutti.VerdictFailed || vain.Steps[1].State != engine.Pending {
		t.Errorf("a wait in vain: %s, %s", vain.Verdict, vain.Message)
	}
}
