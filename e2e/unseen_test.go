//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// TestUnseen hides Puppet runs from the agent, each in a different way (ADR 0011). Nobody knows what a hidden run did,
// so its node must be stale until Tutti runs the node. If a run is not hidden and changes nothing, the node must stay
// good.
func TestUnseen(t *testing.T) {
	const (
		changes = "puppet apply -e 'file { \"/var/tmp/e2e-unseen\": content => \"by hand\" }'"
		nothing = "puppet apply -e ''"
		report  = "report=$(puppet config print lastrunreport); state=$(dirname $report)\n"
		asleep  = "systemctl kill --signal=STOP tutti-agent\n"
		awake   = "\nsystemctl kill --signal=CONT tutti-agent"
	)
	h := host(t, "node-01")
	push(t, oneNode, "file { '/var/tmp/e2e-unseen': ensure => absent }\n")
	stands := func() api.NodeDetail {
		n, err := fleet.Client.ShowNode(t.Context(), "node-01")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, way := range []struct {
		name, script string
		want         api.NodeState
	}{
		{"nothing is hidden", nothing, api.NodeGood},
		{"the next report replaces it", asleep + changes + "\n" + nothing + awake, api.NodeStale},
		{"the agent is off", "systemctl stop tutti-agent\n" + changes + "\n" + nothing + "\nsystemctl start tutti-agent", api.NodeStale},
		{"its report is removed", report + asleep + changes + "\nrm $report" + awake, api.NodeStale},
		{"its report cannot be read", report + asleep + changes + "\necho rubbish > $report" + awake, api.NodeStale},
		{"the directory of reports is another one meanwhile",
			report + asleep + "mv $state $state.away\n" + changes + "\nrm -r $state; mv $state.away $state" + awake, api.NodeStale},
	} {
		t.Run(way.name, func(t *testing.T) {
			for range 2 { // a run of Tutti must not make the node suspect
				execute(t, "one", tutti.ModeApply)
			}
			eventually(t, "node-01 is good after runs of Tutti's", func() bool { return stands().Standing.State == api.NodeGood })
			before := stands().LastRun
			sh(t, h, way.script)
			eventually(t, "another run of node-01 is told", func() bool { return stands().LastRun != before })
			if n := stands(); n.Standing.State != way.want || !n.Foreign {
				t.Errorf("it stands %s (%s), want %s by a foreign run", n.Standing.State, n.Standing.Why, way.want)
			}
		})
	}
	execute(t, "one", tutti.ModeApply)
	if got := sh(t, h, "ls /var/tmp/e2e-unseen 2>/dev/null || true"); got != "" {
		t.Errorf("%s is there behind a run of Tutti's", got)
	}
}
