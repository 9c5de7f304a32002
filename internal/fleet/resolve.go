package fleet

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// Resolve returns the nodes of each step of a plan that has a target. The lists are sorted and have no
// duplicates. The enrolled nodes are the nodes that are in groups because of the way in which they joined, or by `where`.
// The enrolled nodes count only in groups that list no nodes. If a group has no nodes, or if a node is not known, Resolve returns
// CodeNotFound and no steps.
func Resolve(fleet tutti.Fleet, enrolled map[tutti.GroupName][]tutti.NodeName, plan tutti.Plan) (map[tutti.StepName][]tutti.NodeName, error) {
	members := map[tutti.GroupName][]tutti.NodeName{}
	conditional, chosen := map[tutti.GroupName]bool{}, map[tutti.GroupName]bool{}
	known := map[tutti.NodeName]bool{}
	for _, g := range fleet.Groups {
		nodes := slices.Clone(g.Nodes)
		if g.Joined() {
			nodes = slices.Clone(enrolled[g.Name])
		}
		conditional[g.Name], chosen[g.Name] = g.Trusted != "", g.Where != ""
		slices.Sort(nodes)
		members[g.Name] = slices.Compact(nodes)
		for _, n := range nodes {
			known[n] = true
		}
	}
	for _, nodes := range enrolled {
		for _, n := range nodes {
			known[n] = true
		}
	}
	targets := map[tutti.StepName][]tutti.NodeName{}
	for _, step := range plan.Steps {
		if step.ActsOn() != tutti.NodesListed {
			continue
		}
		target := step.Target()
		nodes, group := members[tutti.GroupName(target)]
		switch {
		case group && len(nodes) == 0 && conditional[tutti.GroupName(target)]:
			return nil, tutti.Errorf(tutti.CodeNotFound, "plan %s, step %s: no certificate of a node fits the condition of group %q; see: tutti node show NODE", plan.Name, step.Name, target)
		case group && len(nodes) == 0 && chosen[tutti.GroupName(target)]:
			return nil, tutti.Errorf(tutti.CodeNotFound, "plan %s, step %s: no node fits the condition of group %q; see: tutti node show NODE", plan.Name, step.Name, target)
		case group && len(nodes) == 0:
			return nil, tutti.Errorf(tutti.CodeNotFound, "plan %s, step %s: no node has joined group %q yet: create a join token with that group", plan.Name, step.Name, target)
		case group:
			targets[step.Name] = nodes
		case known[tutti.NodeName(target)]:
			targets[step.Name] = []tutti.NodeName{tutti.NodeName(target)}
		default:
			return nil, tutti.Errorf(tutti.CodeNotFound, "plan %s, step %s: node %q has not joined and is not in a group of the fleet file", plan.Name, step.Name, target)
		}
	}
	return targets, nil
}
