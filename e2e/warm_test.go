//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// checkAgain executes a plan twice on nodes that have nothing left to change: first with warm runs,
// then with cold runs. No run may change anything, and warm and cold runs must leave the same
// files. After checkAgain, all runs of the nodes are cold. checkAgain returns the job with the warm
// runs.
func checkAgain(t *testing.T, f *stage.LabFleet, plan tutti.PlanName) *engine.Job {
	t.Helper()
	warm := start(t, f, plan, tutti.ModeApply).end()
	for _, r := range runsOf(warm.Job) {
		if got := r.Outcome(); got != tutti.Unchanged {
			t.Errorf("the second time %s of %s is %s, want unchanged", r.Node, r.Step, got)
		}
	}
	for _, h := range f.Nodes {
		if err := f.RunCold(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	checkWarmAsCold(t, f, warm.Job, start(t, f, plan, tutti.ModeApply).end().Job)
	return warm.Job
}

// checkOwnFacts checks that the runs of a step have collected their own facts. The first run of a node in a
// person's job must collect its own facts.
func checkOwnFacts(t *testing.T, st *engine.Step) {
	t.Helper()
	for _, n := range st.Nodes {
		if r := n.Last(); r.Result.FactsAge != 0 {
			t.Errorf("the run of %s in step %s had facts that were %s old", r.Node, r.Step, r.Result.FactsAge)
		}
	}
}

// checkWarmAsCold compares the warm runs of one job with the cold runs of another job. Both jobs
// have the same plan and the same nodes. Catalogs and reports must be equal, and every run must
// have been warm or cold as expected.
func checkWarmAsCold(t *testing.T, f *stage.LabFleet, warm, cold *engine.Job) {
	t.Helper()
	was, is := runsOf(warm), runsOf(cold)
	if len(was) != len(is) {
		t.Fatalf("%d warm runs and %d cold ones", len(was), len(is))
	}
	for i, w := range was {
		c := is[i]
		if !w.Result.Warm || w.Result.Cold != "" {
			t.Errorf("the run of %s in step %s was cold: %s", w.Node, w.Step, w.Result.Cold)
		}
		if c.Result.Warm {
			t.Errorf("the run of %s in step %s was warm, with --warm 0", c.Node, c.Step)
		}
		h, err := f.Lab.Host(string(w.Node))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(leftBy(t, h, c.Run), leftBy(t, h, w.Run)); diff != "" {
			t.Errorf("%s, step %s: -cold +warm\n%s", w.Node, w.Step, diff)
		}
	}
}

// secondsRE matches the text with which Puppet reports its own time.
var secondsRE = regexp.MustCompile(`in [0-9.]+ seconds$`)

// The variable `passing` lists those keys of a report whose values differ in every run.
var passing = []string{"time", "transaction_uuid", "job_id", "catalog_uuid", "configuration_version", "evaluation_time"}

// leftBy returns the catalog and the report that a run has left. Catalog and report must not depend
// on how the run was started.
func leftBy(t *testing.T, h *lab.Host, run tutti.RunID) map[string]any {
	t.Helper()
	dir := path.Join("/var/lib/tutti/agent/runs", string(run))
	out := map[string]any{}
	for _, name := range []string{"report.json", "gate.json"} {
		var doc map[string]any
		raw, _, _ := strings.Cut(sh(t, h, "cat "+path.Join(dir, name)), "\t") // its checksum follows
		if err := json.Unmarshal([]byte(raw), &doc); err != nil {
			t.Fatalf("%s of run %s: %v", name, run, err)
		}
		out[name] = doc
	}
	report, _ := out["report.json"].(map[string]any)
	logs, _ := report["logs"].([]any)
	for _, line := range logs {
		line, _ := line.(map[string]any)
		line["message"] = secondsRE.ReplaceAllString(fmt.Sprint(line["message"]), "in N seconds")
	}
	metrics, _ := report["metrics"].(map[string]any)
	delete(metrics, "time")
	out["report.json"] = lasting(report)
	gate, _ := out["gate.json"].(map[string]any)
	if gate["catalog"] == nil {
		t.Fatalf("the gate of run %s has no catalog, but %v", run, slices.Sorted(maps.Keys(gate)))
	}
	out["gate.json"] = fmt.Sprint(gate["catalog"], gate["exports"], gate["values"], gate["keys"])
	return out
}

// The function `lasting` removes the changing keys from a report.
func lasting(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range passing {
			delete(v, key)
		}
		for key := range v {
			v[key] = lasting(v[key])
		}
	case []any:
		for i := range v {
			v[i] = lasting(v[i])
		}
	}
	return value
}
