package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/report"
)

const realReports = "../../puppet/testdata/reports"

// realRun returns a run with the report and the log of a real Puppet.
func realRun(t *testing.T, version, name string, all bool) runJSON {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(realReports, version, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := report.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	result := result(run1, tutti.Failed, 1.5, 14)
	result.Reason, result.Message, result.Phase, result.Corrective = tutti.BecauseResources, "2 resources failed", "report", true
	out := runJSON{RunReport: api.RunReport{
		RunView: *ranIn(run1, "web-01", "deploy-1"), Attempt: 2, Environment: "production", ClaimedAt: began, Result: &result, Report: &rep,
	}}
	out.Outcome, out.Reason, out.Puppet, out.Code = tutti.Failed, tutti.BecauseResources, version, tutti.DigestOf(nil)
	if raw, err = os.ReadFile(filepath.Join(realReports, version, name+".jsonl")); err != nil {
		t.Fatal(err)
	}
	err = report.Log(raw, func(l api.LogLine) error {
		if all || serious[l.Level] {
			out.Log = append(out.Log, l)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// withoutReport returns a run that has no report.
func withoutReport(change func(*api.RunReport)) runJSON {
	r := api.RunReport{RunView: *ranIn(run1, "web-01", "deploy-1"), Environment: "production", ClaimedAt: began, Missing: &api.Missing{}}
	r.Outcome, r.Code = "", tutti.DigestOf(nil)
	change(&r)
	return runJSON{RunReport: r, NoLog: "there is no log of it"}
}

// cutShort returns a run that was stopped by a signal before a refresh.
func cutShort(r runJSON) runJSON {
	r.Outcome, r.Result.Outcome, r.Reason, r.Result.Reason = tutti.Interrupted, tutti.Interrupted, "", ""
	r.Result.Failures = []tutti.Failure{{Resource: "Service[db]", Message: "not refreshed after File[/etc/db.conf] changed; the next run repeats the refresh"}}
	return r
}

// If a run was cut off, the lines of its job say that the run was cut off, even if resources are listed below.
func TestACutOffRunSaysHow(t *testing.T) {
	run := cutShort(realRun(t, "8.10.0", "noop", false))
	run.Result.Message = "cancelled in phase apply"
	if got := resultText(*run.Result); !strings.HasSuffix(got, ": cancelled in phase apply") {
		t.Error(got)
	}
}

// ofPuppetServer returns a run whose order named no environment.
func ofPuppetServer(r runJSON) runJSON {
	r.Code, r.Environment = "", ""
	return r
}

// TestRunView prints the views of runs.
func TestRunView(t *testing.T) {
	time.Local = time.UTC
	var out bytes.Buffer
	for _, tc := range []struct {
		caption string
		run     runJSON
		all     bool
	}{
		{"Puppet 7, failed and corrected", realRun(t, "7.23.0", "second", false), false},
		{"Puppet 8, the same, with its log", realRun(t, "8.10.0", "second", true), true},
		{"Puppet 8, noop", realRun(t, "8.10.0", "noop", false), false},
		{"Puppet 8, cut off", cutShort(realRun(t, "8.10.0", "noop", false)), false},
		{"through the Puppet Server", ofPuppetServer(realRun(t, "8.10.0", "noop", false)), false},
		{"and without a report", ofPuppetServer(withoutReport(func(*api.RunReport) {})), false},
		{"a run that goes on", withoutReport(func(r *api.RunReport) { r.Phase, r.Missing.Text = "applying", "the run has not ended: applying" }), true},
		{"a run that is lost", withoutReport(func(r *api.RunReport) {
			r.Lost, r.Outcome, r.Missing.Text = "silent for 30s", tutti.Lost, "the run is lost: silent for 30s"
		}), false},
		{"a run that was stopped", withoutReport(func(r *api.RunReport) {
			result := result(run1, "", 1, 2)
			result.Stopped = true
			r.Stopped, r.GateWhy, r.Result, r.Missing.Text = true, "db/port has changed", &result, "it was stopped at its gate"
		}), false},
		{"hostile words", withoutReport(func(r *api.RunReport) {
			r.Puppet, r.Lost, r.Missing.Text = "8\x1b[2J", "a\nb\x07", "c\u202e"
		}), false},
	} {
		fmt.Fprintf(&out, "== %s\n", tc.caption)
		printRun(&out, tc.run, tc.all, began.Add(time.Hour))
	}
	if strings.ContainsAny(out.String(), "\x1b\x07\u202e") {
		t.Error("it speaks to the terminal")
	}
	goldenText(t, "run.txt", out.String())
}

// TestChangesView prints the view of a job's changes.
func TestChangesView(t *testing.T) {
	var out bytes.Buffer
	var same report.Same
	for i := range 30 {
		same.Add(tutti.NodeName(fmt.Sprintf("web-%02d", i)), *realRun(t, "8.10.0", "second", false).Report)
	}
	same.Add("db-01", *realRun(t, "8.10.0", "noop", false).Report)
	changes, _ := same.Changes()
	printChanges(&out, api.JobChanges{
		Job: "deploy-1", Read: 31, Changes: changes, LeftOut: 7, Unread: []api.Unread{{Why: "its report is not kept any more", Runs: 2, Nodes: []tutti.NodeName{"db-02"}}},
	})
	printChanges(&out, api.JobChanges{})
	goldenText(t, "changes.txt", out.String())
}

func goldenText(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", name, diff)
	}
}

// Texts from records and questions must not reach a terminal unchanged.
func TestQuestionsArePlain(t *testing.T) {
	q := tutti.Query{Kind: tutti.QueryCollect, Type: "A\x1b", Filter: []byte("[\"=\",\"a\",\"\u009b2J\"]")}
	p := tutti.Place{File: "/x\x1b.pp", Line: 3}
	for _, text := range []string{question(q), question(tutti.Query{Kind: tutti.QueryValue, Key: "k\x1b"}), place(p), askedAt(p)} {
		if strings.ContainsAny(text, "\x1b\u009b") {
			t.Errorf("%q", text)
		}
	}
}

// If systemd cannot start a unit, Puppet 7.23 and 8.10 report the unit's journal twice in the log and once in the
// event. The view shows only the journal's last lines, once.
func TestAJournalIsShownOnce(t *testing.T) {
	said := "Systemd start for web failed!\njournalctl log for web:\n-- Journal begins at Tue 2026-11-24 --\n" +
		strings.Repeat("Nov 25 13:00:00 web-01 web[7]: early "+strings.Repeat("x", 80)+"\n", 48) + "Nov 25 13:00:01 web-01 web[7]: cannot bind: in use\nNov 25 13:00:01 web-01 systemd[1]: Failed to start web."
	event := "change from 'stopped' to 'running' failed: " + said
	report, err := report.Parse(fmt.Appendf(nil, `{"status": "failed", "resource_statuses": {"Service[web]": {"failed": true, "events": [
		{"property": "ensure", "status": "failure", "previous_value": "stopped", "desired_value": "running", "message": %q}]}}}`, event))
	if err != nil {
		t.Fatal(err)
	}
	r := withoutReport(func(r *api.RunReport) { r.Report, r.Missing = &report, nil })
	r.NoLog = ""
	for source, message := range map[string]string{"Puppet": said, "/Stage[main]/Main/Service[web]/ensure": event} {
		r.Log = append(r.Log, api.LogLine{Level: "err", Source: source, Message: message})
	}
	var got bytes.Buffer
	printRun(&got, r, false, began)
	text := got.String()
	if n := strings.Count(text, "cannot bind: in use"); n != 1 {
		t.Errorf("its reason is there %d times", n)
	}
	if n := strings.Count(text, "early"); n != 18 {
		t.Errorf("%d lines before the reason, want that 20 lines are kept", n)
	}
	for _, want := range []string{
		"      ensure: stopped → running  failed: change from 'stopped' to 'running' failed: Systemd start for web failed; the end of its journal:\n" +
			"          Nov 25 13:00:00 web-01 web[7]: early x",
		"  Systemd start for web failed; its journal is above\n",
		"failed: Systemd start for web failed; its journal is above  (/Stage[main]/Main/Service[web]/ensure)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say\n%s", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	r.Report, r.Missing = nil, &api.Missing{Text: "none"}
	got.Reset()
	printRun(&got, r, false, began)
	if n := strings.Count(got.String(), "cannot bind: in use"); n != 1 {
		t.Errorf("without a report its reason is there %d times:\n%s", n, got.String())
	}
	failure := tutti.Failure{Resource: "Service[web]", Message: event}
	if want := "Service[web]: change from 'stopped' to 'running' failed: Systemd start for web failed: web: cannot bind: in use"; failure.String() != want {
		t.Errorf("in a line: %q, want %q", failure, want)
	}
}
