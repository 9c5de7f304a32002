package fleet

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/dag"
)

// maxNamed is how many nodes Render names for a step.
const maxNamed = 4

// Render returns a plan as text for people. The steps are in a possible order of execution. The text says for
// each step what the step waits for. The targets come from Resolve. If targets is nil, the text has no nodes.
func Render(plan tutti.Plan, targets map[tutti.StepName][]tutti.NodeName) string {
	steps := map[tutti.StepName]tutti.Step{}
	graph := dag.New[tutti.StepName]()
	for _, s := range plan.Steps {
		steps[s.Name] = s
		graph.Add(s.Name)
	}
	for _, s := range plan.Steps {
		for _, earlier := range s.After {
			graph.Connect(earlier, s.Name)
		}
	}
	order, ok := graph.Sort()
	if !ok { // Parse refuses cycles; if Parse did not check the plan, use the order of the file
		order = graph.Nodes()
	}
	var out strings.Builder
	fmt.Fprintf(&out, "plan %s, %s%s\n\n", plan.Name, count(len(plan.Steps), "step"), exclusiveWords(plan.Exclusive))
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  STEP\tAFTER\tDOES\tOPTIONS")
	for _, name := range order {
		s := steps[name]
		options := cmp.Or(strings.Join(kindOf(s).options(s), ", "), "-")
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", name, edges(s), kindOf(s).does(s, targets[name]), options)
	}
	_ = table.Flush() // a strings.Builder never fails
	return out.String()
}

func edges(s tutti.Step) string {
	if len(s.After) == 0 {
		return "-"
	}
	var names []string
	for _, earlier := range s.After {
		names = append(names, string(earlier))
	}
	text := strings.Join(names, ", ")
	if s.PerNode {
		text += " (per node)"
	}
	return text
}

// nodeNames returns the names of a target's nodes, if the target is a group.
func nodeNames(target string, nodes []tutti.NodeName) string {
	if len(nodes) == 0 || len(nodes) == 1 && string(nodes[0]) == target {
		return ""
	}
	var names []string
	for i, n := range nodes {
		if i == maxNamed {
			names = append(names, "…")
			break
		}
		names = append(names, string(n))
	}
	return fmt.Sprintf(" (%s: %s)", count(len(nodes), "node"), strings.Join(names, ", "))
}

// limitText and timeoutText return options that several kinds have.
func limitText(n int) []string {
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("limit %d", n)}
}

func timeoutText(s tutti.Step) string { return "timeout " + Duration(s.Timeout) }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
