package engine

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// The type `converging` implements converge steps. A converge step runs Puppet on the nodes that need it, until no
// node needs it. Package converge decides which runs begin, and when the step ends.
type converging struct{}

// Converge implements tutti.StepTable.
func (kinds) Converge() stepKind { return converging{} }

func (converging) next(j *Job, st *Step, _ View, _ *budget) []tutti.Body {
	if j.Halted() {
		return j.skips(st)
	}
	return nil
}

func (converging) busy(j *Job, st *Step) bool {
	return !j.Cancelled && j.ready(st, "") ||
		slices.ContainsFunc(st.Nodes, func(n *StepNode) bool { return n.State == Active })
}

// runEnded leaves the step as it is. A converge step does not end with its nodes.
func (converging) runEnded(_ *Step, n *StepNode, r *Run) {
	switch {
	case r.Proved || r.Outcome().Good():
		n.State = Done
	case r.Lost == "" && r.Result.Stopped:
		n.State = Pending
	default:
		n.State = Failed
	}
}
