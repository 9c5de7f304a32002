package server

import (
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// order is the fleet file's order, between the nodes that have joined. Who is in
// both groups of an edge comes between those that are in one of them only: he waits
// for the first, and the others for him.
func (r *registry) order() []converge.Order {
	if r.fleet == nil || len(r.fleet.Order) == 0 {
		return nil
	}
	enrolled := r.enrolled()
	members := map[tutti.GroupName][]tutti.NodeName{}
	for _, g := range r.fleet.Groups {
		nodes := enrolled[g.Name]
		if !g.Joined() {
			nodes = slices.DeleteFunc(slices.Clone(g.Nodes), func(n tutti.NodeName) bool { return r.nodes[n] == nil })
		}
		slices.Sort(nodes)
		members[g.Name] = slices.Compact(nodes)
	}
	var out []converge.Order
	for _, pair := range r.fleet.Order {
		first, then := members[pair.First], members[pair.Then]
		both := common(first, then)
		out = append(out, converge.Order{First: without(first, both), Then: then})
		if len(both) > 0 {
			out = append(out, converge.Order{First: both, Then: without(then, both)})
		}
	}
	return out
}

// common and without are the intersection and the difference of sorted names.
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
