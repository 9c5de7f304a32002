//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// foreignRuns checks the runs of a person and of the stock daemon. The server must show both kinds
// of runs as foreign runs.
func (s *puppetSite) foreignRuns(t *testing.T) {
	first := s.web[0]
	run := ""
	told := func(t *testing.T) api.NodeDetail {
		t.Helper()
		n := foreignRun(t, s.LabFleet, first, run)
		run = string(n.LastRun)
		return n
	}
	expect := func(t *testing.T, state api.NodeState, outcome tutti.Outcome, reason tutti.Reason, says string) {
		t.Helper()
		n := told(t)
		if n.Outcome != outcome || n.Reason != reason || !strings.Contains(n.Message, says) {
			t.Errorf("it ended %s:%s: %s, want %s:%s: %s", n.Outcome, n.Reason, n.Message, outcome, reason, says)
		}
		if n.Standing.State != state || n.Standing.Run == nil || !n.Standing.Run.Foreign {
			t.Errorf("the node stands %+v, want %s by a foreign run", n.Standing, state)
		}
	}
	const makes = "file { '/var/tmp/e2e-foreign': content => 'x' }"
	s.manifest(t, makes)

	t.Run("a person's", func(t *testing.T) {
		sh(t, first, "puppet agent --test || test $? = 2")
		expect(t, api.NodeGood, tutti.Changed, "", "")
		r, err := s.Client.RunReport(t.Context(), run)
		if err != nil || !r.Foreign || r.Environment != "production" || r.Puppet == "" || r.Report == nil || len(r.Report.Resources) != 1 ||
			r.Report.Resources[0].Resource != "File[/var/tmp/e2e-foreign]" || r.Report.Resources[0].Outcome != api.ResourceChanged {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("the daemon's", func(t *testing.T) {
		sh(t, first, "rm /var/tmp/e2e-foreign; kill -USR1 $(systemctl show -p MainPID --value puppet)")
		expect(t, api.NodeGood, tutti.Changed, "", "")
		if r, err := s.Client.RunReport(t.Context(), run); err != nil || !r.Result.Corrective {
			t.Errorf("%+v, %v: want a correction", r.Result, err)
		}
	})
	s.manifest(t, makes+"\nfail('by hand')")
	t.Run("one that does not compile", func(t *testing.T) {
		sh(t, first, "puppet agent --test || test $? = 1")
		expect(t, api.NodeFailed, tutti.Failed, tutti.BecauseCompile, "by hand (file: /etc/puppet/code/environments/production/manifests/site.pp, line: 3")
	})
	t.Run("one that applies an old catalog instead", func(t *testing.T) {
		sh(t, first, "puppet agent --onetime --no-daemonize")
		expect(t, api.NodeFailed, tutti.Failed, tutti.BecauseCompile, "an old catalog was applied")
	})
	s.manifest(t, makes)
	t.Run("a part mends nothing", func(t *testing.T) {
		sh(t, first, "puppet agent --test --tags nobody")
		n := told(t)
		if n.Outcome != tutti.Unchanged || n.Standing.State != api.NodeFailed {
			t.Errorf("%+v", n)
		}
	})
	t.Run("a whole one does", func(t *testing.T) {
		sh(t, first, "puppet agent --test")
		expect(t, api.NodeGood, tutti.Unchanged, "", "")
	})
	t.Run("a run of Tutti's is the last one again", func(t *testing.T) {
		j := s.execute(t, "first")
		n, err := s.Client.ShowNode(t.Context(), "web-01")
		if err != nil || n.Foreign || n.LastRun != j.last(j.Steps[0].Name, "web-01").Run || n.Standing.State != api.NodeGood {
			t.Errorf("%+v, %v", n, err)
		}
	})
}

// lastReport returns the transaction uuid of a host's last report.
func lastReport(t *testing.T, h *lab.Host) string {
	t.Helper()
	return sh(t, h, "awk '$1 == \"transaction_uuid:\" {print $2}' /var/cache/puppet/state/last_run_report.yaml | tr -d \"'\"")
}

// foreignRun waits until the last report on a host belongs to a new run. It then waits until the
// server knows this run as the last run of the node. Tutti must not have begun this run.
func foreignRun(t *testing.T, f *stage.LabFleet, h *lab.Host, before string) api.NodeDetail {
	t.Helper()
	var n api.NodeDetail
	within(t, patience, "the run is told", func() bool {
		var err error
		if n, err = f.Client.ShowNode(t.Context(), tutti.NodeName(h.Name)); err != nil {
			t.Fatal(err)
		}
		run := lastReport(t, h)
		return run != before && string(n.LastRun) == run
	})
	if !n.Foreign || n.LastJob != "" {
		t.Errorf("it is not foreign: %+v", n.NodeView)
	}
	return n
}
