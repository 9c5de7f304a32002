package converge

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
)

// The method `chain` returns a text about a cycle in this job: nodes that keep changing each
// other's answers. In the text `a → b (question)`, node a publishes an answer to the question,
// and node b asks the question. The search begins at a node that keeps changing, with one of its
// changed questions. If there is no cycle, the method returns an empty string.
func (d *decision) chain() string {
	nodes := sortedSeats(d.seats)
	if !slices.ContainsFunc(nodes, func(n tutti.NodeName) bool { return d.seats[n].phase == diverging && d.seats[n].cycle == nil }) {
		return ""
	}
	answers := d.answers()
	for _, n := range nodes {
		seat := d.seats[n]
		if seat.phase != diverging || seat.cycle != nil {
			continue // the node's own cycle is in another part of the message
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

// The method `answers` looks only at nodes that ran more than once in this job. Its result is a
// map by two of these nodes: out[a][b] is a question of node b to which node a publishes the
// answer. If there are several such questions, out[a][b] is the first by name.
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

// The function `shortest` returns the shortest path from one node to another in the result of
// the method `answers`. The path includes both nodes. The function returns nil if there is no
// path.
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
