package core

import (
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fleet"
)

// Overlay reports whether the exports of a run go first into the overlay of its job. Such a run
// also sees the exports that other runs of its job have put into the overlay.
func (tx *Tx) Overlay(r *engine.Run) bool { return !r.Full() || tx.Engine.Converges(r) }

// Asker returns the asker of a run's queries.
func (tx *Tx) Asker(r *engine.Run) data.Asker {
	return data.Asker{Node: r.Node, Job: r.Job, Overlay: tx.Overlay(r)}
}

// ConvergePlan returns the plan of a job that converges a target.
func (tx *Tx) ConvergePlan(spec tutti.ConvergeStep) (tutti.Plan, error) {
	if err := tx.CanConverge(spec); err != nil {
		return tutti.Plan{}, err
	}
	return tutti.Plan{Name: api.ConvergePlan, Steps: []tutti.Step{
		{Name: tutti.StepName(api.ConvergePlan), Timeout: fleet.DefaultRunTimeout, Converge: &spec},
	}}, nil
}

// CanConverge refuses a target without nodes, and negative limits.
func (tx *Tx) CanConverge(spec tutti.ConvergeStep) error {
	if spec.Limit < 0 || spec.MaxFailed < 0 {
		return tutti.Errorf(tutti.CodeInvalid, "converge %d nodes at once, until %d failed: these numbers must not be below 0", spec.Limit, spec.MaxFailed)
	}
	members := tx.Members(spec.Target)
	if why := tx.WhyUndecided(spec.Target); why != "" && len(members) == 0 {
		return tutti.Errorf(tutti.CodeConflict, "%s; if facts are missing, let the nodes send them with: tutti converge --prove", why)
	}
	if spec.Target != "" && len(members) == 0 {
		if tx.Registry.Conditions.Has(tutti.GroupName(spec.Target)) {
			return tutti.Errorf(tutti.CodeNotFound, "no node fits the condition of group %q; see: tutti node show NODE", spec.Target)
		}
		return tutti.Errorf(tutti.CodeNotFound, "no group %q with nodes that have joined, and no such node; see: tutti node list", spec.Target)
	}
	if len(members) > 0 && !slices.ContainsFunc(members, func(n tutti.NodeName) bool { return tx.WhyObserved(n) == "" }) {
		return tx.observed(members[0])
	}
	return nil
}

// NoneObserved refuses nodes on which Tutti starts nothing.
func (tx *Tx) NoneObserved(nodes []tutti.NodeName) error {
	for _, n := range nodes {
		if tx.WhyObserved(n) != "" {
			return tx.observed(n)
		}
	}
	return nil
}

func (tx *Tx) observed(n tutti.NodeName) error {
	return tutti.Errorf(tutti.CodeConflict, "%s is observed, so Tutti starts nothing there: %s", n, tx.WhyObserved(n))
}
