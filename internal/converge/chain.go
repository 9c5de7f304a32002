package converge

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
)

// chain prints a cycle in which nodes of this job keep changing each other's answers. The
// method returns an empty string if there is no cycle. In a cycle, each node publishes into
// the question that the next node asks. The search begins at a node that keeps changing,
// with one of its changed questions.
func (d *decision) chain() string {
	nodes := sortedSeats(d.seats)
	if !slices.ContainsFunc(nodes, func(n tutti.NodeName) bool { return d.seats[n].phase == diverging && d.seats[n].cycle == nil }) {
		return ""
	}
	answers := d.answers()
	for _, n := range nodes {
		seat := d.seats[n]
		if seat.phase != diverging || seat.cycle != nil {
			continue // another part of the message prints this node's own cycle
		}
		for _, q := range seat.standing.Changed {
			for _, by := range d.state.Publishers(n, q, d.job.ID) {
				path := shortest(answers, n, by)
				if path == nil {
					continue
				}
				text := fmt.Sprintf("%s → %s (%s)", by, n, q)
				for i, next := range path[1:] {
					text += fmt.Sprintf(" → %s (%s)", next, answers[path[i]][next])
				}
				return text
			}
		}
	}
	return ""
}

// answers considers the nodes that ran more than once in this job. For each of these nodes, the
// method returns which other nodes get an answer from this node, and to which question. If there
// are several questions, the first by name is returned.
func (d *decision) answers() map[tutti.NodeName]map[tutti.NodeName]tutti.Query {
	out := map[tutti.NodeName]map[tutti.NodeName]tutti.Query{}
	for n, seat := range d.seats {
		if tries, _, _ := count(seat.runs); tries > 1 {
			out[n] = map[tutti.NodeName]tutti.Query{}
		}
	}
	for n := range out {
		for q := range d.state.data.Questions(n) {
			for by := range q.Producers(d.job.ID) {
				if out[by] == nil || by == n {
					continue
				}
				if known, is := out[by][n]; !is || q.Query.String() < known.String() {
					out[by][n] = q.Query
				}
			}
		}
	}
	return out
}

// shortest returns the shortest path from a node to another node, including both. The
// function returns nil if there is no path.
func shortest(answers map[tutti.NodeName]map[tutti.NodeName]tutti.Query, from, to tutti.NodeName) []tutti.NodeName {
	before := map[tutti.NodeName]tutti.NodeName{from: from}
	for queue := []tutti.NodeName{from}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == to {
			path := []tutti.NodeName{to}
			for n := to; n != from; n = before[n] {
				path = append(path, before[n])
			}
			slices.Reverse(path)
			return path
		}
		for _, next := range slices.Sorted(maps.Keys(answers[queue[0]])) {
			if _, seen := before[next]; !seen {
				before[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	return nil
}
