// Package dag implements small directed graphs. The package finds an order of things that wait for other things, and
// circles of things that wait for each other.
//
// All results are deterministic. If several results are right, the node that was added
// first comes first.
package dag

import (
	"container/heap"
	"slices"
)

// Graph is a directed graph. An edge from a to b means that b comes after a. The zero
// Graph is not usable, so call New. Many goroutines may read a Graph at the same time as
// long as nobody adds to it.
type Graph[N comparable] struct {
	nodes []N
	index map[N]int
	after [][]int // successors of each node, in order of addition
	upon  [][]int // predecessors of each node, in order of addition
}

// New returns an empty graph.
func New[N comparable]() *Graph[N] {
	return &Graph[N]{index: map[N]int{}}
}

// Add adds nodes. If a node was added before, Add changes nothing and the node keeps its
// place.
func (g *Graph[N]) Add(nodes ...N) {
	for _, n := range nodes {
		g.add(n)
	}
}

func (g *Graph[N]) add(n N) int {
	if i, ok := g.index[n]; ok {
		return i
	}
	i := len(g.nodes)
	g.index[n] = i
	g.nodes = append(g.nodes, n)
	g.after = append(g.after, nil)
	g.upon = append(g.upon, nil)
	return i
}

// Connect adds the edge from one node to a later one. Connect also adds the nodes if they
// are missing. Adding an edge again changes nothing. An edge from a node to itself is a
// cycle.
func (g *Graph[N]) Connect(from, to N) {
	f, t := g.add(from), g.add(to)
	if slices.Contains(g.after[f], t) {
		return
	}
	g.after[f] = append(g.after[f], t)
	g.upon[t] = append(g.upon[t], f)
}

// Has reports whether the node was added.
func (g *Graph[N]) Has(n N) bool {
	_, ok := g.index[n]
	return ok
}

// Nodes returns all nodes in the order of their addition.
func (g *Graph[N]) Nodes() []N { return slices.Clone(g.nodes) }

// Successors returns the nodes with an edge from n. For an unknown node, Successors
// returns no nodes.
func (g *Graph[N]) Successors(n N) []N { return g.neighbours(g.after, n) }

// Predecessors returns the nodes with an edge to n. For an unknown node, Predecessors
// returns no nodes.
func (g *Graph[N]) Predecessors(n N) []N { return g.neighbours(g.upon, n) }

func (g *Graph[N]) neighbours(edges [][]int, n N) []N {
	i, ok := g.index[n]
	if !ok {
		return nil
	}
	return g.named(edges[i])
}

// Descendants returns all nodes that come after n, directly or not, in the order in which
// they were added. The node n is among them only if n is on a cycle.
func (g *Graph[N]) Descendants(n N) []N { return g.reach(g.after, n) }

// Ancestors returns all nodes that come before n, directly or not, in the order in which
// they were added. The node n is among them only if n is on a cycle.
func (g *Graph[N]) Ancestors(n N) []N { return g.reach(g.upon, n) }

func (g *Graph[N]) reach(edges [][]int, n N) []N {
	start, ok := g.index[n]
	if !ok {
		return nil
	}
	seen := make([]bool, len(g.nodes))
	queue := []int{start}
	var found []int
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, next := range edges[i] {
			if !seen[next] {
				seen[next] = true
				found = append(found, next)
				queue = append(queue, next)
			}
		}
	}
	slices.Sort(found)
	return g.named(found)
}

// Sort returns the nodes in an order in which each node comes after all its predecessors.
// If several nodes could come next, the node that was added first comes first. If there
// is a cycle, Sort returns no nodes and false.
func (g *Graph[N]) Sort() ([]N, bool) {
	waits := make([]int, len(g.nodes))
	var ready indexes
	for i := range g.nodes {
		waits[i] = len(g.upon[i])
		if waits[i] == 0 {
			ready = append(ready, i) // the indexes ascend, so ready is already a heap
		}
	}
	order := make([]N, 0, len(g.nodes))
	for len(ready) > 0 {
		i := heap.Pop(&ready).(int)
		order = append(order, g.nodes[i])
		for _, next := range g.after[i] {
			if waits[next]--; waits[next] == 0 {
				heap.Push(&ready, next)
			}
		}
	}
	if len(order) < len(g.nodes) {
		return nil, false
	}
	return order, true
}

// Cycle returns a cycle, or nothing if the graph has no cycle. Each node has an edge to
// the next node, and the last node has an edge to the first. The cycle begins at the
// first added node that is on any cycle. The cycle is the shortest one through this node.
func (g *Graph[N]) Cycle() []N {
	left := g.tangle()
	for i := range g.nodes {
		if !left[i] {
			continue
		}
		if cycle := g.shortest(i, left); cycle != nil {
			return g.named(cycle)
		}
	}
	return nil
}

// The method `tangle` removes nodes repeatedly, and marks the nodes that remain. In each round, the method removes
// all nodes that lack a predecessor or a successor. The remaining nodes are on a cycle or between two cycles. Without
// a cycle no node remains.
func (g *Graph[N]) tangle() []bool {
	left := make([]bool, len(g.nodes))
	for i := range left {
		left[i] = true
	}
	g.strip(left, g.upon, g.after)
	g.strip(left, g.after, g.upon)
	return left
}

func (g *Graph[N]) strip(left []bool, holds, frees [][]int) {
	waits := make([]int, len(g.nodes))
	var ready []int
	for i := range g.nodes {
		for _, h := range holds[i] {
			if left[h] {
				waits[i]++
			}
		}
		if left[i] && waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		i := ready[0]
		ready = ready[1:]
		left[i] = false
		for _, next := range frees[i] {
			if waits[next]--; left[next] && waits[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
}

// The method `shortest` returns the shortest cycle through the node `start` that uses only nodes in `left`.
func (g *Graph[N]) shortest(start int, left []bool) []int {
	from := map[int]int{}
	queue := []int{start}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, next := range g.after[i] {
			if next == start {
				return walkBack(start, i, from)
			}
			if _, seen := from[next]; !seen && left[next] {
				from[next] = i
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func walkBack(start, end int, from map[int]int) []int {
	way := []int{end}
	for end != start {
		end = from[end]
		way = append(way, end)
	}
	slices.Reverse(way)
	return way
}

func (g *Graph[N]) named(indexes []int) []N {
	var nodes []N
	for _, i := range indexes {
		nodes = append(nodes, g.nodes[i])
	}
	return nodes
}

// indexes is a heap with the smallest index first.
type indexes []int

func (h indexes) Len() int           { return len(h) }
func (h indexes) Less(i, j int) bool { return h[i] < h[j] }
func (h indexes) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *indexes) Push(x any) { *h = append(*h, x.(int)) }

// Pop implements heap.Interface.
func (h *indexes) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
