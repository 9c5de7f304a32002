package operators

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/plain"
)

// exclusive returns how a job has its nodes to itself; nil: it has not.
func exclusive(plan tutti.Plan, targets map[tutti.StepName][]tutti.NodeName, in api.StartJob) (*tutti.Exclusive, error) {
	out := plan.Exclusive
	if in.Exclusive != nil {
		reason := plain.Line(*in.Exclusive)
		asked := tutti.DefaultExclusive(reason)
		if out != nil {
			asked = &tutti.Exclusive{Reason: reason, Lease: out.Lease, Wait: out.Wait, Keep: out.Keep}
		}
		out = asked
	}
	if out == nil || in.Mode != tutti.ModeApply {
		return nil, nil
	}
	plan.Exclusive = out
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	for _, nodes := range targets {
		if len(nodes) > 0 {
			return out, nil
		}
	}
	return nil, tutti.Errorf(tutti.CodeInvalid, "plan %q runs on no node, so it cannot be exclusive", string(plan.Name))
}
