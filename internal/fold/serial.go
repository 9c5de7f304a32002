package fold

import (
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// Serial returns the serial groups with their nodes that have joined. The nodes are in
// the order of the list, or sorted by name if join tokens say which nodes are in the group.
func (r *Registry) Serial() []converge.Serial {
	if r.Fleet == nil {
		return nil
	}
	var out []converge.Serial
	for _, g := range r.Fleet.Groups {
		if !g.Serial {
			continue
		}
		nodes := slices.DeleteFunc(slices.Clone(g.Nodes), func(n tutti.NodeName) bool { return r.Nodes[n] == nil })
		if g.Joined() {
			nodes = slices.Sorted(slices.Values(r.Enrolled()[g.Name]))
		}
		out = append(out, converge.Serial{Group: g.Name, Nodes: nodes})
	}
	return out
}
