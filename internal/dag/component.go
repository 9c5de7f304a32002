package dag

import "slices"

// Components returns the strongly connected components. A component is a largest set in
// which each node can be reached from each other node. Every node is in exactly one
// component. A component comes after the components that lead to it. The nodes of a
// component are in the order in which they were added.
func (g *Graph[N]) Components() [][]N {
	t := tarjan{
		after: g.after, index: make([]int, len(g.nodes)), low: make([]int, len(g.nodes)), on: make([]bool, len(g.nodes)),
	}
	for n := range g.nodes {
		if t.index[n] == 0 {
			t.visit(n)
		}
	}
	slices.Reverse(t.found)
	out := make([][]N, len(t.found))
	for i, component := range t.found {
		slices.Sort(component)
		for _, n := range component {
			out[i] = append(out[i], g.nodes[n])
		}
	}
	return out
}

// tarjan finds components with Tarjan's algorithm. The algorithm does not use recursion,
// because graphs are as deep as fleets are large.
type tarjan struct {
	after [][]int
	index []int // order of the visit, from 1; 0: not visited
	low   []int
	on    []bool // whether the node is on the stack
	stack []int
	count int
	found [][]int
}

type frame struct{ node, next int }

func (t *tarjan) visit(root int) {
	frames := []frame{t.enter(root)}
	for len(frames) > 0 {
		top := &frames[len(frames)-1]
		n := top.node
		if top.next < len(t.after[n]) {
			next := t.after[n][top.next]
			top.next++
			switch {
			case t.index[next] == 0:
				frames = append(frames, t.enter(next))
			case t.on[next]:
				t.low[n] = min(t.low[n], t.index[next])
			}
			continue
		}
		frames = frames[:len(frames)-1]
		if len(frames) > 0 {
			before := frames[len(frames)-1].node
			t.low[before] = min(t.low[before], t.low[n])
		}
		if t.low[n] == t.index[n] {
			t.leave(n)
		}
	}
}

func (t *tarjan) enter(n int) frame {
	t.count++
	t.index[n], t.low[n], t.on[n] = t.count, t.count, true
	t.stack = append(t.stack, n)
	return frame{node: n}
}

// The method `leave` removes from the stack the component whose first node is n.
func (t *tarjan) leave(n int) {
	var component []int
	for t.on[n] {
		last := t.stack[len(t.stack)-1]
		t.stack, t.on[last] = t.stack[:len(t.stack)-1], false
		component = append(component, last)
	}
	t.found = append(t.found, component)
}
