package fold

import (
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// Order returns the explicit order of the fleet file, for the nodes that have joined. A
// node may be in both groups of an edge. Such a node comes after the nodes that are only
// in the first group, and before the nodes that are only in the second group.
func (r *Registry) Order() []converge.Order {
	if r.Fleet == nil || len(r.Fleet.Order) == 0 {
		return nil
	}
	enrolled := r.Enrolled()
	members := map[tutti.GroupName][]tutti.NodeName{}
	for _, g := range r.Fleet.Groups {
		nodes := enrolled[g.Name]
		if !g.Joined() {
			nodes = slices.DeleteFunc(slices.Clone(g.Nodes), func(n tutti.NodeName) bool { return r.Nodes[n] == nil })
		}
		slices.Sort(nodes)
		members[g.Name] = slices.Compact(nodes)
	}
	var out []converge.Order
	for _, pair := range r.Fleet.Order {
		first, then := members[pair.First], members[pair.Then]
		both := common(first, then)
		out = append(out, converge.Order{First: without(first, both), Then: then})
		if len(both) > 0 {
			out = append(out, converge.Order{First: both, Then: without(then, both)})
		}
	}
	return out
}

// The function `common` returns the intersection of two sorted lists of names. The function `without` returns the
// names that are only in the first list.
func common(a, b []tutti.NodeName) []tutti.NodeName { return without(a, without(a, b)) }

func without(a, b []tutti.NodeName) []tutti.NodeName {
	var out []tutti.NodeName
	for _, n := range a {
		if _, found := slices.BinarySearch(b, n); !found {
			out = append(out, n)
		}
	}
	return out
}
