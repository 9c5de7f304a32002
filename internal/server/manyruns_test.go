package server_test

import (
	"fmt"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
)

// TestAJobNamesNoMoreNodesThanAFleetHas checks that the writer does not read a list of millions of names, and that a
// refusal names only a few nodes.
func TestAJobNamesNoMoreNodesThanAFleetHas(t *testing.T) {
	f := servertest.Start(t)
	f.Push(twoSteps)
	var names []tutti.NodeName
	for i := range 100_001 {
		names = append(names, tutti.NodeName(fmt.Sprintf("n%06d", i)))
	}
	start := func(nodes []tutti.NodeName) error {
		_, err := f.StartJob(servertest.Operator(), api.StartJob{Runs: &api.NodeRuns{Nodes: nodes}, Mode: tutti.ModeNoop})
		return err
	}
	wantCode(t, start(names), tutti.CodeInvalid, "runs on 100001 nodes: at most 100000")
	err := start(names[1:])
	wantCode(t, err, tutti.CodeConflict, "not joined: n000001, n000002, n000003, n000004, n000005, 99995 more; make a token")
	if len(err.Error()) > 300 {
		t.Errorf("the refusal has %d bytes", len(err.Error()))
	}
}
