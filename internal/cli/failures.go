package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// saidFailures remembers the failures that were already printed. The key is the text of failedAs, the value is the
// first node with this failure.
type saidFailures map[string]tutti.NodeName

// The method `details` returns the details of a run's failure. If the same failure was already printed, the result
// only names the first node with this failure.
func (s saidFailures) details(r *engine.Run) []string {
	lines := details(*r.Result)
	if r.Result.Outcome != tutti.Failed || len(lines) == 0 {
		return lines
	}
	key := failedAs(r)
	first, again := s[key]
	switch {
	case !again:
		s[key] = r.Node
		return lines
	case first == r.Node:
		return []string{"the same as before"}
	}
	return []string{"the same as " + string(first)}
}

// failedAs returns a text by which runs with the same failure are found. Two runs have the same text if outcome,
// messages and places are the same. The text does not contain the node's name, which Puppet adds to a compile
// error.
func failedAs(r *engine.Run) string {
	text := strings.Join(append(details(*r.Result), outcome(r.Result.Outcome, r.Result.Reason), r.Result.Message), "\n")
	return strings.ReplaceAll(text, " on node "+string(r.Node), "")
}

// printUnreported prints failures for which there is no report, such as compile errors. If many nodes have the same
// failure, it is printed once.
func printUnreported(w io.Writer, j *engine.Job) {
	first, nodes := map[string]*engine.Run{}, map[string][]tutti.NodeName{}
	var order []string
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			r := n.Last()
			if r == nil || r.Result == nil || r.Result.Outcome != tutti.Failed || r.Result.Report != "" {
				continue
			}
			key := failedAs(r)
			if first[key] == nil {
				first[key], order = r, append(order, key)
			}
			nodes[key] = append(nodes[key], n.Node)
		}
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprint(w, "\nfailures before there was a report\n")
	for _, key := range order {
		result := first[key].Result
		printLine(w, "  %s on %s: %s\n", outcome(result.Outcome, result.Reason), count(len(nodes[key]), "node"), some(nodes[key]))
		lines := details(*result)
		if len(lines) == 0 {
			lines = []string{tutti.OneLine(result.Message)}
		}
		for _, line := range lines {
			printLine(w, "      %s\n", line)
		}
	}
}
