//go:build e2e

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
)

const refreshFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  all:   {nodes: [node-01, node-02, node-03]}
  fails: {nodes: [node-01]}
  left:  {nodes: [node-02]}
  cut:   {nodes: [node-03]}
plans:
  fails: {steps: [{run: fails}]}
  left:  {steps: [{run: left, tags: [configuration]}]}
  cut:   {steps: [{run: cut}]}
`

const refreshSite = `
file { '/run/e2e-refresh.conf': content => 'new', tag => 'configuration' }
-> exec { 'hold':
  command => '/bin/sh -c "echo $PPID > /run/e2e-refresh-held; while [ -e /run/e2e-refresh-hold ]; do sleep 0.1; done"',
  onlyif  => '/usr/bin/test -e /run/e2e-refresh-hold',
}
-> exec { 'restart':
  command     => '/bin/sh -c "[ ! -e /run/e2e-refresh-broken ] && echo once >> /run/e2e-refresh-done"',
  refreshonly => true,
  subscribe   => File['/run/e2e-refresh.conf'],
}
`

// TestConvergeRefresh checks runs that change a file and do not refresh the resource that the file
// notifies. The refresh fails, or tags exclude the resource, or the test kills Puppet between the
// change and the refresh. The next run finds the file unchanged, but does the refresh. The nodes are
// good only after this refresh.
func TestConvergeRefresh(t *testing.T) {
	dir := write(t, refreshFleet, refreshSite)
	if err := fleet.Push(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	nodes := []string{"node-01", "node-02", "node-03"}
	for _, name := range nodes {
		h := host(t, name)
		sh(t, h, "rm -f /run/e2e-refresh*")
		defer sh(t, h, "rm -f /run/e2e-refresh*")
	}
	fails, cut := host(t, "node-01"), host(t, "node-03")
	sh(t, fails, "touch /run/e2e-refresh-broken")
	j := execute(t, "fails", tutti.ModeApply)
	failed := j.last("run-fails", "node-01")
	j.expect(failed, tutti.Failed, tutti.BecauseResources, "Failed to call refresh")
	sh(t, fails, "rm /run/e2e-refresh-broken")

	left := execute(t, "left", tutti.ModeApply).last("run-left", "node-02")
	if want := (tutti.Owed{Resource: "Exec[restart]", Run: left.Run}); left.Outcome() != tutti.Changed || !slices.Contains(left.Result.Owed, want) {
		t.Errorf("the run with tags is %s and owes %+v, want %+v", left.Outcome(), left.Result.Owed, want)
	}

	sh(t, cut, "touch /run/e2e-refresh-hold")
	j = start(t, fleet, "cut", tutti.ModeApply)
	eventually(t, "the run is between the change and the refresh", func() bool {
		return sh(t, cut, "cat /run/e2e-refresh-held 2>/dev/null || true") != ""
	})
	sh(t, cut, "kill -9 $(cat /run/e2e-refresh-held); rm /run/e2e-refresh-hold")
	j.end()
	j.expect(j.last("run-cut", "node-03"), tutti.Interrupted, "", "not refreshed after File[/run/e2e-refresh.conf] changed")

	for i, runs := range []int{3, 0} {
		got, code := convergeCLI(t, dir, "all")
		if code != cli.ExitOK || got.Outcome != tutti.VerdictConverged || got.Runs != runs || got.Failed != 0 {
			t.Errorf("converge %d: exit code %d, %+v; want converged in %d runs", i+1, code, got, runs)
		}
		var done []string
		for _, name := range nodes {
			done = append(done, fmt.Sprintf("%s: %q", name, strings.TrimSpace(sh(t, host(t, name), "cat /run/e2e-refresh-done 2>/dev/null || true"))))
		}
		if got := strings.Join(done, ", "); got != `node-01: "once", node-02: "once", node-03: "once"` {
			t.Errorf("converge %d: refreshed on %s, want once on each node", i+1, got)
		}
	}
}
