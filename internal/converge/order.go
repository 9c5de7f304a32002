package converge

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/dag"
	"github.com/tutti-project/tutti/internal/data"
)

// vertex is a node or a question. A question stands between the nodes that publish into it
// and the nodes that ask it. If n nodes read and feed the same question, there are 2n edges
// instead of n².
type vertex struct {
	node     tutti.NodeName
	question *data.Question
	edge     int // number of the edge in the fleet file, or place in a serial group; counted from 1
	serial   int // number of the serial group in the fleet file, counted from 1
}

func (v vertex) isNode() bool { return v.node != "" }

// edge says that one vertex comes before another. In a cycle, soft edges are dropped first,
// because their questions are answered by a compile without an apply. Firm edges come from
// the fleet file and are dropped last.
type edge struct {
	from, to vertex
	soft     bool
	firm     bool
}

// order says which nodes precede which other nodes. The order contains only nodes that are
// not good.
type order struct {
	state *State
	job   tutti.JobID
	seats map[tutti.NodeName]*seat
	edges []edge
	turn  map[tutti.NodeName]int // a node's place in serial groups, counted from 1
}

// precedence finds which nodes of a step precede which other nodes. It considers the
// nodes that still have something to do. A node that is applying precedes others but
// follows no node.
func (s *State) precedence(v View, job tutti.JobID, seats map[tutti.NodeName]*seat, t turns) predecessors {
	o := &order{state: s, job: job, seats: seats, turn: t.places()}
	precedes := func(n tutti.NodeName) bool { return seats[n] != nil && seats[n].toDo() }
	follows := func(n tutti.NodeName) bool { return precedes(n) && seats[n].phase != applying }
	o.data(sortedSeats(seats), follows, func(n tutti.NodeName) bool {
		return precedes(n) && (seats[n].run == nil || !seats[n].run.Proved)
	})
	o.explicit(v, follows, precedes)
	o.breakCycles()
	o.inTurn(t)
	return o.predecessors()
}

// The method `data` adds an edge from one node to another if the first node answers a question of the second.
func (o *order) data(names []tutti.NodeName, follows, precedes func(tutti.NodeName) bool) {
	produced := map[*data.Question]bool{} // whether one of the nodes produces the answer; for most questions no node does
	for _, name := range names {
		if !follows(name) {
			continue
		}
		for q := range o.state.data.Questions(name) {
			is, known := produced[q]
			if !known {
				for producer := range q.Producers(o.job) {
					if precedes(producer) {
						is = true
						o.edges = append(o.edges, edge{from: vertex{node: producer}, to: vertex{question: q}, soft: !q.Hard})
					}
				}
				produced[q] = is
			}
			if is {
				o.edges = append(o.edges, edge{from: vertex{question: q}, to: vertex{node: name}, soft: !q.Hard})
			}
		}
	}
}

// The method `explicit` adds the order of the fleet file.
func (o *order) explicit(v View, follows, precedes func(tutti.NodeName) bool) {
	for i, e := range v.Order {
		between := vertex{edge: i + 1}
		for _, n := range e.First {
			if precedes(n) {
				o.edges = append(o.edges, edge{from: vertex{node: n}, to: between, firm: true})
			}
		}
		for _, n := range e.Then {
			if follows(n) {
				o.edges = append(o.edges, edge{from: between, to: vertex{node: n}, firm: true})
			}
		}
	}
}

// breakCycles drops edges until no node precedes itself. First, breakCycles drops the soft edges of each cycle.
// If a cycle remains, breakCycles chooses one node of the cycle and drops the edges that lead to this node. The
// method chooses the node with the fewest unanswered questions that other nodes of the cycle will answer. Among
// equal nodes, the method chooses the node that has run least. This prevents a node from running after each
// single change of the other nodes. If the nodes are still equal, their turn in a serial group decides, and
// after that their name. Edges of the fleet file are dropped only if they alone form a cycle. Nodes in several
// groups can cause a cycle of this kind.
func (o *order) breakCycles() {
	o.drop(o.knots(), func(e edge, _ map[vertex]bool) bool { return e.soft })
	for {
		knots := o.knots()
		if len(knots) == 0 {
			return
		}
		first := map[vertex]bool{}
		for _, knot := range knots {
			first[o.first(knot)] = true
		}
		before := len(o.edges)
		o.drop(knots, func(e edge, _ map[vertex]bool) bool { return first[e.to] && !e.firm })
		if len(o.edges) == before {
			o.drop(knots, func(e edge, _ map[vertex]bool) bool { return first[e.to] })
		}
	}
}

// knots returns the components that have more than one node.
func (o *order) knots() []map[vertex]bool {
	g := dag.New[vertex]()
	for _, e := range o.edges {
		g.Connect(e.from, e.to)
	}
	var out []map[vertex]bool
	for _, component := range g.Components() {
		nodes := 0
		knot := map[vertex]bool{}
		for _, v := range component {
			knot[v] = true
			if v.isNode() {
				nodes++
			}
		}
		if nodes > 1 {
			out = append(out, knot)
		}
	}
	return out
}

// The method `drop` removes those edges inside the knots for which the function `goes` returns true.
func (o *order) drop(knots []map[vertex]bool, goes func(edge, map[vertex]bool) bool) {
	of := map[vertex]int{}
	for i, knot := range knots {
		for v := range knot {
			of[v] = i + 1
		}
	}
	o.edges = slices.DeleteFunc(o.edges, func(e edge) bool {
		in := of[e.from]
		return in != 0 && in == of[e.to] && goes(e, knots[in-1])
	})
}

// All nodes of a knot wait for each other, so one of them must start. The method `first` chooses this node. If
// possible, the method chooses a node that need not wait because of the fleet file.
func (o *order) first(knot map[vertex]bool) vertex {
	feeds := map[vertex][]vertex{}
	for _, e := range o.edges {
		if knot[e.from] && knot[e.to] && e.from.isNode() {
			feeds[e.to] = append(feeds[e.to], e.from)
		}
	}
	unanswered, waits := map[vertex]int{}, map[vertex]int{}
	for _, e := range o.edges {
		if !knot[e.from] || !knot[e.to] || !e.to.isNode() {
			continue
		}
		from := feeds[e.from]
		switch {
		case e.firm:
			waits[e.to] = 1
		case len(from) == 1 && from[0] == e.to: // its own question, which no other node will answer
		case !e.from.question.Answered(e.to.node, o.job):
			unanswered[e.to]++
		}
	}
	var nodes []vertex
	for v := range knot {
		if v.isNode() {
			nodes = append(nodes, v)
		}
	}
	return slices.MinFunc(nodes, func(a, b vertex) int {
		return cmp.Or(cmp.Compare(waits[a], waits[b]), cmp.Compare(unanswered[a], unanswered[b]),
			cmp.Compare(len(o.seats[a.node].runs), len(o.seats[b.node].runs)), cmp.Compare(o.turn[a.node], o.turn[b.node]), cmp.Compare(a.node, b.node))
	})
}

// predecessors are the nodes that each node directly follows. The edges are stored under
// the vertex between the nodes. If they were stored as pairs of nodes, there could be n² of
// them.
type predecessors struct {
	between map[tutti.NodeName][]vertex
	before  map[vertex][]tutti.NodeName
	gone    map[tutti.NodeName]bool // nodes that no other node follows any more
}

func (o *order) predecessors() predecessors {
	p := predecessors{map[tutti.NodeName][]vertex{}, map[vertex][]tutti.NodeName{}, map[tutti.NodeName]bool{}}
	for _, e := range o.edges {
		if e.from.isNode() {
			p.before[e.to] = append(p.before[e.to], e.from.node)
		} else {
			p.between[e.to.node] = append(p.between[e.to.node], e.from)
		}
	}
	return p
}

// The method `free` reports whether a node follows no other node.
func (p predecessors) free(node tutti.NodeName) bool {
	for _, v := range p.between[node] {
		for len(p.before[v]) > 0 && p.gone[p.before[v][0]] {
			p.before[v] = p.before[v][1:]
		}
		for _, other := range p.before[v] {
			if other != node && !p.gone[other] {
				return false
			}
		}
	}
	return true
}

// The method `of` returns the nodes that a node follows, sorted.
func (p predecessors) of(node tutti.NodeName) []tutti.NodeName {
	var out []tutti.NodeName
	for _, v := range p.between[node] {
		for _, other := range p.before[v] {
			if other != node && !p.gone[other] {
				out = append(out, other)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
