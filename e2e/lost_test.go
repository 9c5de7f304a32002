//go:build e2e

package e2e_test

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

const lostFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  here: {nodes: [node-01]}
  two:  {nodes: [node-02]}
  three: {nodes: [node-03]}
plans:
  strict:
    steps:
      - run: two
      - run: here
  patient:
    steps:
      - run: three
        accept: [lost]
      - run: here
`

// serverDeadline and nodeBeat shorten the deadline of silence and the heartbeat for tests that wait
// for the deadline. Both flags set a fifth of the default.
const (
	serverDeadline = "--lost-after 6s"
	nodeBeat       = "--beat 1s"
)

// shortDeadline gives the shared fleet a short deadline of silence during the test, and returns the
// deadline. With E2E_DEEP the fleet keeps its default deadline.
func shortDeadline(t *testing.T) time.Duration {
	t.Helper()
	if os.Getenv("E2E_DEEP") != "" {
		return 30 * time.Second
	}
	each := func(ctx context.Context, do func(context.Context, *lab.Host, string, string) error) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, h := range fleet.Nodes {
			group.Go(func() error { return do(ctx, h, "tutti-agent", nodeBeat) })
		}
		group.Go(func() error { return do(ctx, fleet.Server, "tutti-server", serverDeadline) })
		return group.Wait()
	}
	if err := each(t.Context(), stage.AddFlags); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := each(context.WithoutCancel(t.Context()), stage.DropFlags); err != nil {
			t.Error(err)
		}
	})
	return 6 * time.Second
}

// TestLost cuts the network of two nodes in the middle of a run. The runs must be lost within the
// deadline. A plan that accepts the outcome `lost` continues, and a plan that does not accept it
// fails. When a node is back, the server keeps the result of the node's run.
func TestLost(t *testing.T) {
	shortDeadline(t)
	push(t, lostFleet, `
		node 'node-01' { notify { 'here': } }
		node default { exec { '/bin/sh -c "touch /run/e2e-there; while [ ! -e /run/e2e-go ]; do sleep 0.1; done"': } }
	`)
	away := []*lab.Host{host(t, "node-02"), host(t, "node-03")}
	for _, h := range away {
		sh(t, h, "rm -f /run/e2e-*")
	}
	strict, patient := start(t, fleet, "strict", tutti.ModeApply), start(t, fleet, "patient", tutti.ModeApply)
	for _, h := range away {
		eventually(t, "the run is applying", func() bool { return sh(t, h, "ls /run | grep e2e-there || true") != "" })
		sh(t, h, "ip link set "+link(t, h)+" down")
	}
	patient.end()
	if patient.Verdict != tutti.VerdictSucceeded {
		t.Errorf("the plan that accepts lost nodes: %s, %s", patient.Verdict, patient.Message)
	}
	lost := patient.last("run-three", "node-03")
	patient.expect(lost, tutti.Lost, "", "nothing heard of the node")
	strict.end()
	if strict.Verdict != tutti.VerdictFailed || strict.Step("run-here").State != engine.Pending {
		t.Errorf("the plan that does not: %s, its second step %s", strict.Verdict, strict.Step("run-here").State)
	}
	for _, h := range away {
		sh(t, h, "ip link set "+link(t, h)+" up; touch /run/e2e-go")
	}
	eventually(t, "the late result", func() bool {
		record, err := fleet.Client.RunRecord(t.Context(), lost.Run)
		return err == nil && record.Run == lost.Run
	})
}

// The function `link` returns the name of a host's only network interface.
func link(t *testing.T, h *lab.Host) string {
	t.Helper()
	return sh(t, h, `ip -o link show | sed -nE 's/^[0-9]+: ([^@:]+).*/\1/p' | grep -v '^lo$'`)
}
