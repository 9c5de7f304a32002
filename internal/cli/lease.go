package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// printLeases prints the leases of an exclusive job. printLeases prints how many
// nodes are in each state, and each node with a problem.
func printLeases(w io.Writer, j *engine.Job) {
	if j.Leases == nil {
		return
	}
	counts := map[tutti.LeaseState]int{}
	for _, n := range j.Leases.Nodes {
		counts[n.State]++
	}
	var parts []string
	for _, state := range append([]tutti.LeaseState{""}, tutti.LeaseStates...) {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], leaseWord(state)))
		}
	}
	printLine(w, "exclusive phase %s, %s: %s\n", j.Leases.Phase, count(len(j.Leases.Nodes), "node"), strings.Join(parts, ", "))
	for _, n := range j.Leases.Nodes {
		if n.Message != "" {
			printLine(w, "  %s  %s: %s\n", n.Node, leaseWord(n.State), tutti.Plain(n.Message, maxLine))
		}
	}
}

func leaseWord(s tutti.LeaseState) string {
	if s == "" {
		return "not heard of"
	}
	return string(s)
}

// describeLease returns lines about problems. It also returns one line when all nodes
// are held, and one line when all nodes are released. There is no line for each
// single node, because among so many lines nobody would see a problem.
func describeLease(j *engine.Job, b *tutti.LeaseChanged) []string {
	switch {
	case j.Leases == nil: // the watch has not seen the start of the job
	case b.State.Failed():
		return []string{fmt.Sprintf("%s is %s: %s", b.Node, b.State, tutti.Plain(b.Message, maxLine))}
	case b.State == tutti.LeaseKept:
		return []string{fmt.Sprintf("%s stays disabled", b.Node)}
	case b.State == tutti.LeaseIdle && j.Leases.Phase == engine.PhaseRun:
		return []string{fmt.Sprintf("held: %s, on which no other Puppet runs", count(len(j.Leases.Nodes), "node"))}
	case b.State == tutti.LeaseReleased && j.Leases.Phase == engine.PhaseOver:
		return []string{"released: " + count(len(j.Leases.Nodes), "node")}
	}
	return nil
}
