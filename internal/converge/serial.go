package converge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/dag"
)

// Serial is a serial group of the fleet file. Only one node of the group runs at a time, and this node must
// be good before the next one runs. The nodes are in the order of the file. If nodes read from each other, the order
// of the reads takes precedence over the file's order.
type Serial struct {
	Group tutti.GroupName
	Nodes []tutti.NodeName
}

// The type `turns` contains the serial groups for one decision about a step. In the zero value, no group is serial.
type turns struct {
	groups []Serial
	busy   func(tutti.NodeName) bool // whether a run applies on a node, whoever began the run
}

// The method `turns` returns the serial groups for a step. A job that changes nothing ignores serial groups.
func (d *decision) turns() turns {
	if d.job.Mode != tutti.ModeApply {
		return turns{}
	}
	return turns{d.view.Serial, d.state.busy}
}

// The method `places` gives each node of the groups a number. A node in several groups gets its place from the first
// of these groups.
func (t turns) places() map[tutti.NodeName]int {
	out := map[tutti.NodeName]int{}
	for _, group := range t.groups {
		for _, n := range group.Nodes {
			if out[n] == 0 {
				out[n] = len(out) + 1
			}
		}
	}
	return out
}

// The method `busy` reports whether a run is applying on a node. A run that will apply also counts before its
// gate if it does not belong to a converge step. The method also returns true if an exclusive job holds the
// node.
func (s *State) busy(n tutti.NodeName) bool {
	if r := s.engine.Runs[s.engine.Active[n]]; r != nil {
		return r.Mode == tutti.ModeApply && (r.Passed() || !s.engine.Converges(r))
	}
	return s.engine.ExclusiveOn(n) != nil
}

// inTurn makes the nodes of each serial group wait for each other. The order has no cycles
// before this call. The turns of a group respect the order, so they add no cycle.
func (o *order) inTurn(t turns) {
	for g, group := range t.groups {
		queue, busy := o.queue(group, t)
		o.againFirst(queue)
		queue = o.sorted(o.ranked(queue))
		for i, n := range queue {
			o.after(vertex{serial: g + 1}, busy, n)
			if i > 0 {
				o.after(vertex{serial: g + 1, edge: i}, queue[i-1:i], n)
			}
		}
	}
}

// queue returns the nodes of a group that wait for their turn, in the order of the file. The method also
// returns the nodes whose turn it is now.
func (o *order) queue(group Serial, t turns) (queue, busy []tutti.NodeName) {
	for _, n := range group.Nodes {
		seat := o.seats[n]
		switch {
		case seat == nil || seat.phase == applying:
			if t.busy(n) {
				busy = append(busy, n)
			}
		case seat.phase == resting, seat.phase == telling, seat.phase == soon:
			busy = append(busy, n)
		case seat.toDo():
			queue = append(queue, n)
		}
	}
	return queue, busy
}

// The method `after` adds edges, so that the node `then` follows all nodes in `first`.
func (o *order) after(between vertex, first []tutti.NodeName, then tutti.NodeName) {
	for _, n := range first {
		o.edges = append(o.edges, edge{from: vertex{node: n}, to: between})
	}
	if len(first) > 0 {
		o.edges = append(o.edges, edge{from: between, to: vertex{node: then}})
	}
}

// If a node broke in this step, the other nodes of its group do not run until this node is good. Therefore againFirst
// drops the edges that make this node follow other nodes of its group.
func (o *order) againFirst(queue []tutti.NodeName) {
	again := map[vertex]bool{}
	others := map[vertex]bool{}
	for _, n := range queue {
		if o.seats[n].broken() {
			again[vertex{node: n}] = true
		} else {
			others[vertex{node: n}] = true
		}
	}
	if len(again) == 0 {
		return
	}
	g := dag.New[vertex]()
	for _, e := range o.edges {
		g.Connect(e.from, e.to)
	}
	reached := others
	for n := range others {
		for _, v := range g.Descendants(n) {
			reached[v] = true
		}
	}
	o.edges = slices.DeleteFunc(o.edges, func(e edge) bool { return again[e.to] && reached[e.from] })
}

// The method `ranked` puts the nodes that broke in the step before all other nodes.
func (o *order) ranked(queue []tutti.NodeName) []tutti.NodeName {
	rank := func(n tutti.NodeName) int {
		if o.seats[n].broken() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(queue, func(a, b tutti.NodeName) int { return rank(a) - rank(b) })
	return queue
}

// The method `sorted` returns the nodes in an order that respects all edges outside cycles. Where no edge decides,
// the nodes stay in the order in which they came.
func (o *order) sorted(queue []tutti.NodeName) []tutti.NodeName {
	if len(queue) < 2 {
		return queue
	}
	g := dag.New[vertex]()
	for _, n := range queue {
		g.Add(vertex{node: n})
	}
	for _, e := range o.edges {
		g.Connect(e.from, e.to)
	}
	at, components := map[vertex]int{}, g.Components()
	for i, component := range components {
		for _, v := range component {
			at[v] = i
		}
	}
	return inOrder(queue, at, o.edges, len(components))
}

// The method `broken` reports whether a node broke in the step and was not good after that. Runs that were stopped at
// their gate or are still going on are ignored. A good result makes the node good, even if the run had already been
// given up.
func (st *seat) broken() bool {
	for _, r := range slices.Backward(st.runs) {
		switch {
		case !r.Ended(), r.Result != nil && r.Result.Stopped && !r.Proved:
		case r.Result != nil && r.Result.Outcome.Good():
			return false
		default:
			return broke(r)
		}
	}
	return false
}

// inOrder returns the nodes of the queue. Their order respects the edges between components. Components without a
// node of the queue come as early as possible. All other components come in the order of the queue.
func inOrder(queue []tutti.NodeName, at map[vertex]int, edges []edge, components int) []tutti.NodeName {
	// For each component, `place` has the place of its first node in the queue, counted from 1. If none of its nodes is
	// in the queue, the place is 0.
	place := make([]int, components)
	nodes := make([][]tutti.NodeName, components)
	for i, n := range queue {
		c := at[vertex{node: n}]
		place[c], nodes[c] = cmp.Or(place[c], i+1), append(nodes[c], n)
	}
	follow, waits := make([][]int, components), make([]int, components)
	for _, e := range edges {
		if from, to := at[e.from], at[e.to]; from != to {
			follow[from] = append(follow[from], to)
			waits[to]++
		}
	}
	var free, open []int
	take := func(c int) {
		if place[c] == 0 {
			free = append(free, c)
			return
		}
		i, _ := slices.BinarySearchFunc(open, c, func(a, b int) int { return place[a] - place[b] })
		open = slices.Insert(open, i, c)
	}
	for c := range components {
		if waits[c] == 0 {
			take(c)
		}
	}
	var out []tutti.NodeName
	for len(free)+len(open) > 0 {
		var c int
		if len(free) > 0 {
			c, free = free[len(free)-1], free[:len(free)-1]
		} else {
			c, open = open[0], open[1:]
			out = append(out, nodes[c]...)
		}
		for _, next := range follow[c] {
			if waits[next]--; waits[next] == 0 {
				take(next)
			}
		}
	}
	return out
}

// The type `halt` explains why a node does not run although it is not good. The serial groups of the node stop at the
// node.
type halt struct {
	phase phase
	why   string
}

// The type `halts` contains the nodes of serial groups that do not run by themselves although they are not good. The
// nodes are judged in the public view, without a job.
type halts struct {
	of     map[tutti.NodeName]halt
	queues []Serial // see State.queues
}

// haltsIn returns the halts of a view that the method survey has returned. The first
// call computes the halts.
func (s *State) haltsIn(v View) map[tutti.NodeName]halt {
	if v.halts.of != nil {
		return v.halts.of
	}
	v.halts.of = map[tutti.NodeName]halt{}
	for _, group := range v.Serial {
		for _, n := range group.Nodes {
			if _, known := v.halts.of[n]; s.nodes[n] && !known {
				s.halt(v, n, v.halts.of)
			}
		}
	}
	return v.halts.of
}

// The method `halt` adds a node to the map `out` if the node is one of the halts.
func (s *State) halt(v View, n tutti.NodeName, out map[tutti.NodeName]halt) {
	h, last := halt{}, s.engine.Last(n).Applied
	switch {
	case v.Paused(n) != "":
		h = halt{paused, v.Paused(n)}
	case !v.connected(n):
		h = halt{absent, "not connected"}
	case broke(last):
		h = halt{failed, endOf(last)}
	case last != nil && last.Ended() && last.Outcome() == tutti.Waiting:
		h = halt{waiting, endOf(last)}
	case s.letAlone(n):
		h = halt{diverging, "it keeps changing"}
	default:
		return
	}
	if s.engine.Active[n] != "" {
		return // the end of its run will decide
	}
	if standing, _, reacts := s.reacts(v, n, s.Standing(n, v.Has(n))); standing.Need != Nothing && (reacts || h.phase == failed) {
		out[n] = h
	}
}

// Node n would run by itself. The method haltsFor explains which other node stops node n. The other node has an
// earlier turn in a serial group of n. The method returns an empty string if nothing stops the node.
func (s *State) haltsFor(v View, n tutti.NodeName) string {
	in := func(g Serial) bool { return slices.Contains(g.Nodes, n) }
	if !slices.ContainsFunc(v.Serial, in) {
		return ""
	}
	all := s.haltsIn(v)
	if len(all) == 0 {
		return ""
	}
	for _, queue := range s.queues(v, n) {
		for _, before := range queue.Nodes[:max(0, slices.Index(queue.Nodes, n))] {
			if h, stops := all[before]; stops {
				return stopsAt(queue, before, h)
			}
		}
	}
	return ""
}

// queues returns the serial groups, each with its nodes that are not good, in the order of their turns. Node
// n is included in any case. All groups share one order, so that no two nodes stop each other.
func (s *State) queues(v View, n tutti.NodeName) []Serial {
	if slices.ContainsFunc(v.halts.queues, func(g Serial) bool { return slices.Contains(g.Nodes, n) }) {
		return v.halts.queues
	}
	in := map[tutti.NodeName]bool{n: true}
	for other := range s.haltsIn(v) {
		in[other] = true
	}
	for other := range s.needy {
		in[other] = true
	}
	o := s.orderOf(v, "", in)
	v.halts.queues = nil
	for g, group := range v.Serial {
		nodes := o.sorted(slices.DeleteFunc(slices.Clone(group.Nodes), func(n tutti.NodeName) bool { return !in[n] }))
		for i := 1; i < len(nodes); i++ {
			o.after(vertex{serial: g + 1, edge: i}, nodes[i-1:i], nodes[i])
		}
		v.halts.queues = append(v.halts.queues, Serial{group.Group, nodes})
	}
	return v.halts.queues
}

// stopsAt returns a text that says where a serial group stops.
func stopsAt(group Serial, at tutti.NodeName, h halt) string {
	return fmt.Sprintf("serial group %s stops at %s: %s", group.Group, at, h.why)
}

// The method `stop` finds the nodes that may not run in a job because of their serial groups. Such a node waits for
// another node of its group. The other node has an earlier turn, is not good, and does not run either. If a node was
// tried and broke in the step, all other nodes of its groups come after it.
func (s *State) stop(v View, job tutti.JobID, seats map[tutti.NodeName]*seat) {
	at := func(n tutti.NodeName) (halt, bool) {
		if seat := seats[n]; seat != nil {
			return seat.halts()
		}
		h, stops := s.haltsIn(v)[n]
		return h, stops
	}
	groups := s.notGood(v, job, seats, at)
	for again := true; again; {
		again = false
		for _, group := range groups {
			for i, n := range group.Nodes {
				seat := seats[n]
				if seat == nil || seat.stops != "" || !seat.toDo() || seat.phase == applying {
					continue
				}
				for k, other := range group.Nodes {
					h, stops := at(other)
					if !stops || k >= i && (k == i || seats[other] == nil || !seats[other].broken()) {
						continue
					}
					seat.stops, seat.cause, again = stopsAt(group, other, h), h.phase, true
					if seat.phase == ready {
						seat.phase, seat.why = barred, seat.stops
					}
					break
				}
			}
		}
	}
}

// notGood returns the serial groups with only the nodes that are not good, in the order of their turns. The order
// that results from reads between nodes takes precedence over the lists of the groups. This order includes reads
// through nodes that are in no group. The fleet file's order also takes precedence over the lists. The result is
// nil if no node stops its groups.
func (s *State) notGood(v View, job tutti.JobID, seats map[tutti.NodeName]*seat, at func(tutti.NodeName) (halt, bool)) []Serial {
	in, some := map[tutti.NodeName]bool{}, false
	for n, seat := range seats {
		in[n] = seat.toDo() && seat.phase != applying
	}
	var out []Serial
	for _, group := range v.Serial {
		nodes := slices.DeleteFunc(slices.Clone(group.Nodes), func(n tutti.NodeName) bool {
			_, stops := at(n)
			in[n], some = in[n] || stops, some || stops
			return !in[n]
		})
		out = append(out, Serial{group.Group, nodes})
	}
	if !some {
		return nil
	}
	o := s.orderOf(v, job, in)
	for i := range out {
		out[i].Nodes = o.sorted(out[i].Nodes)
	}
	return out
}

// orderOf returns the order of nodes that results from the fleet file and from what the
// nodes read from each other.
func (s *State) orderOf(v View, job tutti.JobID, in map[tutti.NodeName]bool) *order {
	o := &order{state: s, job: job}
	is := func(n tutti.NodeName) bool { return in[n] }
	o.data(slices.Sorted(maps.Keys(in)), is, is)
	o.explicit(v, is, is)
	return o
}

// The method `halts` reports whether a node of the step no longer runs although it is not good.
func (st *seat) halts() (halt, bool) {
	switch st.phase {
	case failed:
		if r := lastOf(st.runs); r != nil && st.why == "" {
			return halt{failed, endOf(r)}, true
		}
		return halt{failed, st.reason()}, true
	case absent:
		return halt{absent, "not connected"}, true
	case diverging:
		return halt{diverging, "it keeps changing"}, true
	case waiting, paused:
		return halt{st.phase, st.reason()}, true
	case barred:
		return halt{st.cause, "it waits, too: " + st.stops}, true
	default:
		return halt{}, false
	}
}
