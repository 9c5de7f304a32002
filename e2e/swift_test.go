//go:build e2e

package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// TestSwift deploys the example, and kills the server with -9 in the middle. The job must continue
// by itself, no run may start twice, the cluster must work, and a second deployment must change
// nothing.
func TestSwift(t *testing.T) {
	f := exampleFleet(t, "swift")
	j := start(t, f, "deploy", tutti.ModeApply)
	j.until(func(w api.Watched) bool { return w.Live != nil && w.Live.Resource != "" })
	killServer(t, f)
	j.end()
	s := j.Summary(j.EndedAt)
	if s.Outcome != tutti.VerdictSucceeded || s.Runs != 8 || s.Failed != 0 {
		t.Errorf("summary %+v, want 8 runs, none failed", s)
	}
	checkStartedOnce(t, f, j.Job)
	if err := f.StoreAndFetch(t.Context(), []byte("all together"), t.Logf); err != nil {
		t.Error(err)
	}
	checkAgain(t, f, "deploy")
}

// killServer kills the server with -9. systemd starts it again.
func killServer(t *testing.T, f *stage.LabFleet) {
	t.Helper()
	pid := func() string { return sh(t, f.Server, "systemctl show -p MainPID --value tutti-server") }
	before := pid()
	sh(t, f.Server, "kill -9 "+before)
	eventually(t, "systemd starts the server again", func() bool { after := pid(); return after != before && after != "0" })
}

// TestSwiftPower deploys the example while a storage node loses its power in the middle of its run.
// Neither this run nor the job may succeed. A second deployment does the remaining work, although
// the server loses its power in the middle.
func TestSwiftPower(t *testing.T) {
	f := exampleFleet(t, "swift")
	storage, err := f.Lab.Host("storage-02")
	if err != nil {
		t.Fatal(err)
	}
	first := start(t, f, "deploy", tutti.ModeApply)
	var cut tutti.RunID
	first.until(func(w api.Watched) bool {
		if w.Live == nil || w.Live.Resource == "" || w.Live.Node != "storage-02" {
			return false
		}
		cut = w.Live.Run
		return true
	})
	power(t, storage)
	first.end()
	for _, r := range runsOf(first.Job) {
		switch {
		case r.Run != cut && !r.Outcome().Good():
			t.Errorf("%s of %s is %s, and had its power all the time", r.Node, r.Step, r.Outcome())
		case r.Run == cut && r.Outcome() == tutti.Lost: // the boot took so long that the run was lost
			first.expect(r, tutti.Lost, "", "nothing heard of the node")
		case r.Run == cut:
			first.expect(r, tutti.Interrupted, "", "in phase apply")
		}
	}
	if first.Verdict != tutti.VerdictFailed || first.Steps[0].State != engine.Failed || !strings.Contains(first.Message, string(first.Steps[0].Name)) {
		t.Errorf("the job whose run was cut off %s: %s; its first step %s", first.Verdict, first.Message, first.Steps[0].State)
	}

	second := start(t, f, "deploy", tutti.ModeApply)
	second.until(func(w api.Watched) bool { return w.Live != nil && w.Live.Phase == "compile" })
	power(t, f.Server)
	second.end()
	if second.Verdict != tutti.VerdictSucceeded {
		t.Errorf("the second job %s: %s", second.Verdict, second.Message)
	}
	for _, r := range runsOf(second.Job) {
		if !r.Outcome().Good() {
			t.Errorf("the second time %s of %s is %s", r.Node, r.Step, r.Outcome())
		}
	}
	checkStartedOnce(t, f, first.Job, second.Job)
	if err := f.StoreAndFetch(t.Context(), []byte("all together again"), t.Logf); err != nil {
		t.Error(err)
	}
}

// The function `power` cuts a host's power and boots the host again.
func power(t *testing.T, h *lab.Host) {
	t.Helper()
	if err := h.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// runsOf returns all runs of a job.
func runsOf(j *engine.Job) []*engine.Run {
	var runs []*engine.Run
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			runs = append(runs, n.Runs...)
		}
	}
	return runs
}

// checkStartedOnce compares the runs on the nodes with the runs of the jobs, and checks that no run
// has started twice.
func checkStartedOnce(t *testing.T, f *stage.LabFleet, jobs ...*engine.Job) {
	t.Helper()
	wanted := map[string]bool{}
	for _, j := range jobs {
		for _, r := range runsOf(j) {
			wanted[string(r.Run)] = true
		}
	}
	found := 0
	for _, h := range f.Nodes {
		// Each launcher process has one line in phase.jsonl.
		out := sh(t, h, `cd /var/lib/tutti/agent/runs; for r in *; do echo "$r $(grep '"phase":"settings"' $r/phase.jsonl | grep -o '"pid":[0-9]*' | sort -u | wc -l)"; done`)
		for line := range strings.Lines(out) {
			run, starts, _ := strings.Cut(strings.TrimSpace(line), " ")
			found++
			if !wanted[run] || starts != "1" {
				t.Errorf("run %s on %s was started %s times (known to the job: %v)", run, h.Name, starts, wanted[run])
			}
		}
	}
	if found != len(wanted) {
		t.Errorf("%d runs on the nodes, the job has %d", found, len(wanted))
	}
}

// TestRunJSON reads the output of `tutti run --json` from a process.
func TestRunJSON(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/code/manifests", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"tutti.yaml": oneNode, "code/manifests/site.pp": "notify { 'hello': }\n"} {
		if err := os.WriteFile(dir+"/"+name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, code := tuttiCLI(t, fleet, "run", "one", "--json", "-f", dir+"/tutti.yaml")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	lines := bytes.Split(bytes.TrimSpace([]byte(out)), []byte("\n"))
	for i, line := range lines {
		var v struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(line, &v); err != nil || v.Type == "" {
			t.Errorf("line %d is no object with a type: %s", i+1, line)
		}
	}
	var last struct {
		Type         string  `json:"type"`
		Outcome      string  `json:"outcome"`
		Runs         int     `json:"runs"`
		Compiles     int     `json:"compiles"`
		Failed       int     `json:"failed"`
		Wall         float64 `json:"wall_s"`
		CriticalPath float64 `json:"critical_path_s"`
	}
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil {
		t.Fatal(err)
	}
	if last.Type != "summary" || last.Outcome != "succeeded" || last.Runs != 1 || last.Failed != 0 || last.Wall < last.CriticalPath || last.CriticalPath <= 0 {
		t.Errorf("last line %+v", last)
	}
}

// oneNode is a fleet file with the plan `one`, which runs node-01.
const oneNode = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  one: {nodes: [node-01]}
grants:
  - {to: one, write: [shared/w/**], exports: [Notify]}
plans:
  one:
    steps:
      - run: one
`
