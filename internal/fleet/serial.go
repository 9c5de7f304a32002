package fleet

import (
	"fmt"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/dag"
)

// refuseSerialCycle reports that the lists of serial groups contradict each other. The function shows the
// cycle as one chain, with the line of each group.
func (r *reader) refuseSerialCycle(groups []tutti.Group, entries []entry) {
	type pair struct{ first, then tutti.NodeName }
	graph, of := dag.New[tutti.NodeName](), map[pair]int{}
	for i, g := range groups {
		for k := 1; g.Serial && k < len(g.Nodes); k++ {
			at := pair{g.Nodes[k-1], g.Nodes[k]}
			graph.Connect(at.first, at.then)
			of[at] = i
		}
	}
	cycle := graph.Cycle()
	if len(cycle) < 2 {
		return // a node that is listed twice is reported by other code
	}
	chain, last := string(cycle[0]), 0
	for i, name := range cycle {
		at := pair{name, cycle[(i+1)%len(cycle)]}
		chain += fmt.Sprintf(" → %s (group %s, line %d)", at.then, groups[of[at]].Name, entries[of[at]].key.at.Line)
		last = max(last, of[at])
	}
	r.report(entries[last].key.at, "list the nodes in the same order in all these groups", "serial: the nodes of serial groups wait for each other in a cycle: %s", chain)
}
