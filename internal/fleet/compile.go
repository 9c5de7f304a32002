package fleet

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/dag"
)

var notInWordRE = regexp.MustCompile(`[^a-z0-9_-]+`)

// nameSteps refuses a name that is used twice. If a step has no name, the method makes a name from
// what the step does: run-storage, then run-storage-2. The method reports whether the names are
// unique.
func (r *reader) nameSteps(what string, drafts []draft) bool {
	unique := true
	lines := map[tutti.StepName]int{}
	for i := range drafts {
		d := &drafts[i]
		if d.named == nil || d.Name == "" {
			continue
		}
		if line := lines[d.Name]; line != 0 {
			r.report(d.named, "give one of them another name", "%s: duplicate step %q, first in line %d", what, d.Name, line)
			unique = false
			continue
		}
		lines[d.Name] = d.named.Line
	}
	last := map[string]int{} // the last number for each name, so that long plans need little time
	for i := range drafts {
		d := &drafts[i]
		if d.Name != "" {
			continue
		}
		base := defaultName(*d)
		d.Name = tutti.StepName(base)
		for n := max(2, last[base]+1); lines[d.Name] != 0; n++ {
			d.Name, last[base] = tutti.StepName(fmt.Sprintf("%s-%d", base, n)), n
		}
		lines[d.Name] = d.at.Line
	}
	return unique
}

func defaultName(d draft) string {
	kind := cmp.Or(string(d.Kind()), "step") // a step without a kind is already reported
	target := strings.Trim(notInWordRE.ReplaceAllString(strings.ToLower(d.target), "-"), "-")
	name := kind + "-" + target
	if len(name) > 56 { // so that a number fits after the name
		name = name[:56]
	}
	return strings.Trim(name, "-")
}

// The method `connect` resolves the edges. A step without the key `after` gets an edge from the previous step.
func (r *reader) connect(what string, drafts []draft) {
	var names []string
	known := map[string]bool{}
	for _, d := range drafts {
		names = append(names, string(d.Name))
		known[string(d.Name)] = true
	}
	for i := range drafts {
		d := &drafts[i]
		if !d.ordered && i > 0 {
			d.After = []tutti.StepName{drafts[i-1].Name}
		}
		for _, earlier := range d.after {
			if !known[earlier.string] {
				r.report(earlier.at, r.suggest(earlier.string, names), "%s, step %s: after: undefined step %q", what, d.Name, earlier.string)
				continue
			}
			d.After = append(d.After, tutti.StepName(earlier.string))
		}
	}
}

// refuseCycle reports a cycle of steps as one chain. The report says in brackets why each step comes after the
// previous step.
func (r *reader) refuseCycle(what string, drafts []draft) {
	graph := dag.New[tutti.StepName]()
	at := map[tutti.StepName]draft{}
	for _, d := range drafts {
		graph.Add(d.Name)
		at[d.Name] = d
	}
	for _, d := range drafts {
		for _, earlier := range d.After {
			graph.Connect(earlier, d.Name)
		}
	}
	cycle := graph.Cycle()
	if cycle == nil {
		return
	}
	first := at[cycle[0]]
	if len(cycle) == 1 {
		r.report(first.at, "remove the step from its own list after", "%s: step %s waits for itself", what, cycle[0])
		return
	}
	chain := string(cycle[0])
	for i, name := range cycle {
		next := at[cycle[(i+1)%len(cycle)]]
		chain += fmt.Sprintf(" → %s (%s)", next.Name, next.whyAfter(string(name)))
	}
	r.report(first.at, "remove one of these edges", "%s: the steps wait for each other in a cycle: %s", what, chain)
}

// whyAfter says which line of the fleet file makes a step come after another step.
func (d draft) whyAfter(earlier string) string {
	for _, e := range d.after {
		if e.string == earlier {
			return fmt.Sprintf("line %d: after", e.at.Line)
		}
	}
	return fmt.Sprintf("line %d: the step above", d.at.Line)
}
