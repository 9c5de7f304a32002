package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// printLeases prints how an exclusive job stands with its nodes: how many stand
// how, and each that is not as it should be.
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

// describeLease says what goes wrong, and when all nodes are held and released. A
// line for each would hide it.
func describeLease(j *engine.Job, b *tutti.LeaseChanged) []string {
	switch {
	case j.Leases == nil: // its beginning is not known
	case b.State.Failed():
		return []string{fmt.Sprintf("%s is %s: %s", b.Node, b.State, tutti.Plain(b.Message, maxLine))}
	case b.State == tutti.LeaseKept:
		return []string{fmt.Sprintf("%s stays disabled", b.Node)}
	case b.State == tutti.LeaseIdle && j.Leases.Phase == engine.PhaseRun:
		return []string{fmt.Sprintf("held: %s, where no other Puppet runs", count(len(j.Leases.Nodes), "node"))}
	case b.State == tutti.LeaseReleased && j.Leases.Phase == engine.PhaseOver:
		return []string{"released: " + count(len(j.Leases.Nodes), "node")}
	}
	return nil
}
