package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// OldGrants says which types the nodes may export by grants from before 0.3.0. OldGrants returns
// the empty string if there are no such grants.
func OldGrants(nodes []NodeView) string {
	var types []string
	first, count := tutti.NodeName(""), 0
	for _, n := range nodes {
		if len(n.OldGrants) == 0 {
			continue
		}
		if count++; count == 1 {
			first = n.Node
		}
		types = append(types, n.OldGrants...)
	}
	if count == 0 {
		return ""
	}
	who := "node " + string(first)
	if count > 1 {
		who = fmt.Sprintf("node %s and %d more", first, count-1)
	}
	slices.Sort(types)
	return fmt.Sprintf("%s may export %s by grants from before 0.3.0: these grants give root on every node that collects the exports", who, strings.Join(slices.Compact(types), ", "))
}
