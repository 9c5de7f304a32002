//go:build e2e

package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

const aloneFleet = `
fleet: e2e
environment: {name: production, path: ./code}
safety_when_away: SAFETY
groups: {every: {nodes: [node-01, node-02, node-03]}}
grants:
  - {to: every, write: [local/**]}
plans:
  every:
    steps:
      - run: every
`

const aloneSite = `
file { '/run/e2e-local': content => tutti::value('shared/local', 'by default') }
-> tutti_value { "local/${trusted['certname']}": value => tutti::value('shared/local', 'by default') }
`

// The function `alone` pushes the site, runs all nodes, and stops the server.
func alone(t *testing.T, safety string) {
	t.Helper()
	if err := fleet.Client.SetValue(t.Context(), "shared/local", []byte(`"there"`)); err != nil {
		t.Fatal(err)
	}
	push(t, strings.ReplaceAll(aloneFleet, "SAFETY", safety), aloneSite)
	execute(t, "every", tutti.ModeApply)
	for _, name := range []string{"node-01", "node-02", "node-03"} {
		later(t, host(t, name), "rm -f /run/e2e-local")
		eventually(t, name+" to know what to do alone", func() bool {
			return strings.Contains(sh(t, host(t, name), "tutti local status"), map[bool]string{true: "no safety run", false: "a safety run in"}[safety == "never"])
		})
	}
	later(t, fleet.Server, "systemctl start tutti-server")
	sh(t, fleet.Server, "systemctl stop tutti-server")
}

// TestLocalRun checks that a person on a node can repair changes while the server is away. The local run
// uses the same lock and writes the same record as other runs. Afterwards the server gets the report of the
// run, and the state of the node is as before.
func TestLocalRun(t *testing.T) {
	alone(t, "never")
	one := host(t, "node-01")
	sh(t, one, "echo by hand > /run/e2e-local")
	if got := sh(t, one, "tutti local run --noop"); !strings.Contains(got, "outcome   unchanged (noop)") || sh(t, one, "cat /run/e2e-local") != "by hand" {
		t.Errorf("a local noop run:\n%s", got)
	}
	got := sh(t, one, "tutti local run")
	if !strings.Contains(got, "changed File[/run/e2e-local]") || !strings.Contains(got, "outcome   changed\n") || !strings.Contains(got, "1 changed, 0 failed") {
		t.Errorf("a local run:\n%s", got)
	}
	if got := sh(t, one, "cat /run/e2e-local"); got != "there" {
		t.Errorf("after a local run the file has %q", got)
	}
	if got := sh(t, one, "tutti local log"); !strings.Contains(got, "a local run publishes nothing") || !strings.Contains(got, "outcome   changed\n") {
		t.Errorf("its log:\n%s", got)
	}
	if got := sh(t, one, "tutti local status"); !strings.Contains(got, ", local, changed\n") || !strings.Contains(got, "no safety run: the fleet file says never") || !strings.Contains(got, "untold") {
		t.Errorf("status:\n%s", got)
	}
	if got := sh(t, one, "systemctl stop tutti-agent; tutti local run 2>&1 || echo $?; systemctl start tutti-agent"); !strings.Contains(got, "no agent answers") || !strings.HasSuffix(got, "4") {
		t.Errorf("without an agent:\n%s", got)
	}
	sh(t, fleet.Server, "systemctl start tutti-server")
	checkTold(t, "node-01", false)
}

// checkTold checks that the server has the report of a node's local run, and still says that the node is
// good.
func checkTold(t *testing.T, node tutti.NodeName, safety bool) {
	t.Helper()
	var d api.NodeDetail
	eventually(t, "the server to know of the local run", func() bool {
		var err error
		d, err = fleet.Client.ShowNode(t.Context(), node)
		return err == nil && d.Local != nil && d.Outcome == tutti.Changed
	})
	if d.Local.Safety != safety || d.Local.As == "" || !d.Local.Away && safety {
		t.Errorf("the server knows %+v of the local run", d.Local)
	}
	if d.Standing.State != api.NodeGood {
		t.Errorf("after a run that did the same again %s is %+v", node, d.Standing)
	}
	if r, err := fleet.Client.RunReport(t.Context(), string(d.LastRun)); err != nil || r.Report == nil || r.Local == nil {
		t.Errorf("the report of the local run: %+v, %v", r, err)
	}
}

// TestSafetyRun checks that nodes without their server continue to repair changes, once in each
// interval. The safety runs are spread over the interval.
func TestSafetyRun(t *testing.T) {
	alone(t, "1m")
	names := []tutti.NodeName{"node-01", "node-02", "node-03"}
	for _, name := range names {
		sh(t, host(t, string(name)), "echo by hand > /run/e2e-local")
	}
	for _, name := range names {
		within(t, 3*time.Minute, "the safety run of "+string(name), func() bool {
			return sh(t, host(t, string(name)), "cat /run/e2e-local") == "there"
		})
	}
	sh(t, fleet.Server, "systemctl start tutti-server")
	for _, name := range names {
		checkTold(t, name, true)
		if got := sh(t, host(t, string(name)), "grep -l '\"safety\":true' "+runs+"/*/local.json | wc -l"); got != "1" {
			t.Errorf("%s has made %s local runs", name, got)
		}
	}
}
