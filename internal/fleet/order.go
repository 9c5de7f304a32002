package fleet

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/dag"
)

// maxOrder is the largest number of pairs of groups, because two long lists have very many pairs.
const maxOrder = 10_000

// The method `order` reads the explicit order between groups, as pairs.
func (r *reader) order(n *yaml.Node) []tutti.GroupOrder {
	elements, _ := r.list(n, "order")
	lines, pairs := map[tutti.GroupOrder]int{}, 0
	var order []tutti.GroupOrder
	for _, at := range elements {
		first, then := r.orderEntry(at)
		if pairs += max(1, len(first)) * max(1, len(then)); pairs > maxOrder {
			r.report(at, "put groups with the same order into one group", "order: more than %d pairs of groups", maxOrder)
			return nil
		}
		for _, a := range first {
			for _, b := range then {
				pair := tutti.GroupOrder{First: tutti.GroupName(a.string), Then: tutti.GroupName(b.string)}
				switch line := lines[pair]; {
				case pair.First == pair.Then:
					r.report(b.at, "remove the group from `first` or from `then`", "order: group %s cannot come after itself", pair.First)
				case line != 0:
					r.report(b.at, "keep one of them", "order: %s before %s occurs twice, first in line %d", pair.First, pair.Then, line)
				default:
					lines[pair] = b.at.Line
					order = append(order, pair)
				}
			}
		}
	}
	r.refuseOrderCycle(order, lines, n)
	return order
}

// orderEntry returns the existing groups of one entry.
func (r *reader) orderEntry(at *yaml.Node) (first, then []text) {
	var firstAt, thenAt *yaml.Node
	complete := r.mapping(at, "order", fields{
		"first": func(n *yaml.Node) { firstAt, first = n, r.orderedGroups(n, "order: first") },
		"then":  func(n *yaml.Node) { thenAt, then = n, r.orderedGroups(n, "order: then") },
	})
	if complete && (firstAt == nil || thenAt == nil) {
		r.report(at, "like `{first: db, then: web}`", "order: both `first` and `then` are needed")
	}
	return first, then
}

func (r *reader) orderedGroups(n *yaml.Node, what string) []text {
	var known []text
	for _, name := range r.oneOrMore(n, what) {
		if r.isGroup(name, what, "order is between groups") {
			known = append(known, name)
		}
	}
	return known
}

// refuseOrderCycle reports a cycle of groups as one chain, with the line of each edge.
func (r *reader) refuseOrderCycle(order []tutti.GroupOrder, lines map[tutti.GroupOrder]int, at *yaml.Node) {
	graph := dag.New[tutti.GroupName]()
	for _, pair := range order {
		graph.Connect(pair.First, pair.Then)
	}
	cycle := graph.Cycle()
	if cycle == nil {
		return
	}
	chain := string(cycle[0])
	for i, name := range cycle {
		pair := tutti.GroupOrder{First: name, Then: cycle[(i+1)%len(cycle)]}
		chain += fmt.Sprintf(" → %s (line %d)", pair.Then, lines[pair])
	}
	r.report(at, "remove one of these", "order: the groups wait for each other in a cycle: %s", chain)
}
