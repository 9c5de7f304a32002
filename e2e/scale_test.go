//go:build e2e

package e2e_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/app"
)

// A cluster of the example's shape that takes seconds: storage nodes export their
// devices, the builder collects them, makes rings of them, publishes the rings'
// digest and exports where to fetch them. A device that is no longer exported
// stays in the rings, as in Swift.
const (
	scaleFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  builder: {nodes: [node-01]}
  storage: {nodes: [node-02, node-03]}
grants:
  - {to: builder, write: [shared/rings/**], exports: [Ring::Sync]}
  - {to: storage, exports: [Ring::Device]}
`
	scaleSite = `
node 'node-01' {
	Ring::Device <<| |>>
	-> exec { '/bin/sh -c "cat /var/tmp/e2e-ring-* > /var/tmp/e2e-rings"': }
	-> tutti_value { 'shared/rings/object': source_file => '/var/tmp/e2e-rings' }
	@@ring::sync { 'object': from => 'node-01' }
}
node default {
	@@ring::device { $trusted['certname']: }
	$rings = tutti::value('shared/rings/object', undef)
	Ring::Sync <<| |>>
}
`
)

var scaleModule = map[string]string{
	"modules/ring/manifests/device.pp": "define ring::device() {\n  file { \"/var/tmp/e2e-ring-${title}\": content => $title }\n}\n",
	"modules/ring/manifests/sync.pp":   "define ring::sync(String $from) {\n  file { '/var/tmp/e2e-sync': content => $from }\n}\n",
}

// TestConvergeScale: a storage node that joins takes one run of itself, one of the
// builder, and one of each storage node that has to fetch the new rings. One that
// is removed takes one of the builder.
func TestConvergeScale(t *testing.T) {
	h := host(t, leaver)
	for _, h := range fleet.Nodes {
		sh(t, h, "rm -f /var/tmp/e2e-*")
		later(t, h, "rm -f /var/tmp/e2e-*")
	}
	gone := false
	t.Cleanup(func() { // the other tests need the node
		if gone {
			if _, err := app.Output(context.Background(), h, nil, hostTutti, "leave", "--yes", "--offline"); err != nil {
				t.Error(err)
			}
			joinAgain(context.Background(), t, h)
		}
	})
	gone = true
	leave(t, h)
	push(t, scaleFleet, scaleSite, scaleModule)
	checkRuns(t, "from nothing", map[tutti.NodeName]int{"node-01": 1, "node-02": 1})
	joinAgain(t.Context(), t, h)
	checkRuns(t, "node-03 joins", map[tutti.NodeName]int{"node-01": 1, "node-02": 1, leaver: 1})
	checkRuns(t, "nothing happens", map[tutti.NodeName]int{})
	if out, code := tuttiCLI(t, fleet, "node", "remove", leaver, "--yes"); code != 0 {
		t.Fatalf("node remove: exit code %d: %s", code, out)
	}
	checkRuns(t, "node-03 is removed", map[tutti.NodeName]int{"node-01": 1})
}

// checkRuns converges the shared fleet and compares how many runs that took of
// each node.
func checkRuns(t *testing.T, when string, want map[tutti.NodeName]int) {
	t.Helper()
	j := converge(t, fleet).end()
	got := map[tutti.NodeName]int{}
	for _, r := range runsOf(j.Job) {
		t.Logf("%s: %s attempt %d: %s %s %s", when, r.Node, r.Attempt, r.Gate, r.Outcome(), r.GateWhy)
		if r.Passed() {
			got[r.Node]++
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || j.Verdict != tutti.VerdictConverged {
		t.Errorf("%s: %s (%s); runs -want +got\n%s", when, j.Verdict, j.Message, diff)
	}
}
