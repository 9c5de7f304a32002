//go:build e2e

package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

const reportFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups: {all: {nodes: [node-01, node-02, node-03]}}
plans:
  report:
    steps: [{run: all}]
`

const reportSite = `
file { '/run/e2e-motd': content => "one\n" }
file { '/run/e2e-secret': content => Sensitive('hunter2') }
`

// TestReports changes a file by hand on two of three nodes. The reports must show the change once,
// as corrective, and must not show Sensitive values.
func TestReports(t *testing.T) {
	push(t, reportFleet, reportSite)
	all := []tutti.NodeName{"node-01", "node-02", "node-03"}
	for _, name := range all {
		sh(t, host(t, string(name)), "rm -f /run/e2e-motd /run/e2e-secret")
	}
	first := start(t, fleet, "report", tutti.ModeApply).end()
	if changed := changesOf(t, first.ID); len(changed) != 2 || changed[0].Corrective || !slices.Equal(changed[0].Nodes, all) {
		t.Errorf("the first job changed %+v: want two files, intentionally, on all nodes", changed)
	}
	for _, name := range all[:2] {
		sh(t, host(t, string(name)), "echo by hand > /run/e2e-motd")
	}
	second := start(t, fleet, "report", tutti.ModeApply).end()
	changed := changesOf(t, second.ID)
	if len(changed) != 1 || changed[0].Resource != "File[/run/e2e-motd]" || !changed[0].Corrective || !slices.Equal(changed[0].Nodes, all[:2]) {
		t.Errorf("the second job changed %+v: want one file, corrective, on two nodes", changed)
	}
	run, err := fleet.Client.RunReport(t.Context(), string(first.last("run-all", "node-01").Run))
	if err != nil || run.Report == nil || run.Report.Counts.Changed != 2 || run.Report.Puppet == "" {
		t.Fatalf("run %+v, %v", run, err)
	}
	log := 0
	err = fleet.Client.RunLog(t.Context(), run.Run, func(l api.LogLine) error {
		log++
		if strings.Contains(l.Message, "hunter2") {
			t.Errorf("log: %+v", l)
		}
		return nil
	})
	raw, _ := json.Marshal(run)
	if err != nil || log == 0 || strings.Contains(string(raw), "hunter2") || !strings.Contains(string(raw), api.Redacted) {
		t.Errorf("%d lines of the log, %v, report %s", log, err, raw)
	}
}

func changesOf(t *testing.T, job tutti.JobID) []api.SameChange {
	t.Helper()
	got, err := fleet.Client.JobChanges(t.Context(), job)
	if err != nil || len(got.Unread) > 0 {
		t.Errorf("changes of %s: unread %+v, %v", job, got.Unread, err)
	}
	return got.Changes
}
