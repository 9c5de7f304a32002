package operators

import (
	"fmt"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fleet"
)

// maxRuns is how many nodes a job may list, because the writer looks at each of them.
const maxRuns = 100_000

// runsPlan returns the plan of a job that runs on listed nodes. The plan has one step with a sliding limit. In the list
// in.Nodes, the nodes are sorted, and no node is there twice.
func (tx *tx) runsPlan(in api.NodeRuns) (tutti.Plan, map[tutti.StepName][]tutti.NodeName, error) {
	const step tutti.StepName = "run"
	nodes := in.Nodes
	if len(nodes) == 0 || in.Limit < 0 {
		return tutti.Plan{}, nil, tutti.Errorf(tutti.CodeInvalid, "runs on %d nodes, %d at once", len(nodes), in.Limit)
	}
	targets := map[tutti.StepName][]tutti.NodeName{step: nodes}
	if err := tx.allJoined(targets); err != nil {
		return tutti.Plan{}, nil, err
	}
	if err := optionsFit(in.RunOptions); err != nil {
		return tutti.Plan{}, nil, err
	}
	target := string(nodes[0])
	if len(nodes) > 1 {
		target = fmt.Sprintf("%d nodes", len(nodes))
	}
	return tutti.Plan{Name: api.RunsPlan, Steps: []tutti.Step{
		{Name: step, Timeout: fleet.DefaultRunTimeout, Run: &tutti.RunStep{Target: target, Limit: in.Limit, RunOptions: in.RunOptions}},
	}}, targets, nil
}

// optionsFit refuses options that no run may have.
func optionsFit(o tutti.RunOptions) error {
	if o.Program != "" {
		return tutti.Errorf(tutti.CodeInvalid, "program %q: each node has its own program", o.Program)
	}
	return fleet.CheckRunOptions(o)
}
