//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/tutti-project/tutti"
)

// TestCompute deploys the compute example without a plan. The compute nodes wait for the value that
// the controller publishes. The cloud then runs servers on both compute nodes. Warm runs and cold
// runs must leave the same state.
func TestCompute(t *testing.T) {
	f := exampleFleet(t, "compute")
	converge(t, f).end().checkConverged(map[tutti.NodeName]int{"controller-01": 1, "compute-01": 1, "compute-02": 1})
	if err := f.RunServers(t.Context()); err != nil {
		t.Error(err)
	}
	converge(t, f).end().checkConverged(nil)
	checkAgain(t, f, "deploy")
}
