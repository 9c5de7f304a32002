package fleet

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/dag"
)

// maxNamed is how many nodes of a step Render names.
const maxNamed = 4

// Render returns a plan as people read it: its steps in an order in which they
// can happen, each with what it waits for. Targets come from Resolve; nil leaves
// the nodes out.
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
	if !ok { // Parse lets no cycle pass; the file's order is as good as any
		order = graph.Nodes()
	}
	var out strings.Builder
	fmt.Fprintf(&out, "plan %s, %s%s\n\n", plan.Name, count(len(plan.Steps), "step"), exclusiveWords(plan.Exclusive))
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  STEP\tAFTER\tDOES\tOPTIONS")
	for _, name := range order {
		s := steps[name]
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", name, edges(s), does(s, targets), options(s))
	}
	_ = table.Flush() // a strings.Builder takes everything
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

func does(s tutti.Step, targets map[tutti.StepName][]tutti.NodeName) string {
	switch {
	case s.Run != nil:
		return "run " + s.Run.Target + nodeNames(s.Run.Target, targets[s.Name])
	case s.Converge != nil && s.Converge.Target == "":
		return "converge the fleet"
	case s.Converge != nil:
		return "converge " + s.Converge.Target
	case s.Wait == nil:
		return "nothing"
	case s.Wait.HTTP != "":
		return "wait for http " + s.Wait.HTTP
	case s.Wait.TCP != "":
		return "wait for tcp " + s.Wait.TCP
	case s.Wait.PuppetDB != "":
		return "wait for " + s.Wait.Subject()
	case s.Wait.Equals != nil:
		return fmt.Sprintf("wait for value %s = %s", s.Wait.Value, s.Wait.Equals)
	}
	return "wait for value " + s.Wait.Value
}

// nodeNames names the nodes of a target that is a group.
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

func options(s tutti.Step) string {
	var parts []string
	if s.Run != nil {
		for _, a := range s.Run.Accept {
			parts = append(parts, "accept "+string(a))
		}
		if s.Run.Limit > 0 {
			parts = append(parts, fmt.Sprintf("limit %d", s.Run.Limit))
		}
		parts = append(parts, runOptions(s.Run.RunOptions)...)
	}
	if s.Converge != nil {
		if s.Converge.Limit > 0 {
			parts = append(parts, fmt.Sprintf("limit %d", s.Converge.Limit))
		}
		if s.Converge.MaxFailed > 0 {
			parts = append(parts, fmt.Sprintf("max_failed %d", s.Converge.MaxFailed))
		}
	}
	parts = append(parts, "timeout "+Duration(s.Timeout))
	return strings.Join(parts, ", ")
}

func runOptions(o tutti.RunOptions) []string {
	var parts []string
	if o.Program != "" {
		parts = append(parts, "mode "+string(o.Program))
	}
	if o.Environment != "" {
		parts = append(parts, "environment "+o.Environment)
	}
	if o.Noop {
		parts = append(parts, "noop")
	}
	if len(o.Tags) > 0 {
		parts = append(parts, "tags "+strings.Join(o.Tags, " "))
	}
	if len(o.SkipTags) > 0 {
		parts = append(parts, "skip_tags "+strings.Join(o.SkipTags, " "))
	}
	if o.Debug {
		parts = append(parts, "debug")
	}
	if o.FreshFacts {
		parts = append(parts, "facts fresh")
	}
	return parts
}

// Duration prints whole units only: 1h, not 1h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
