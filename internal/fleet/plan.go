package fleet

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The type `draft` is a step as it is in the file, before names and edges are resolved.
type draft struct {
	tutti.Step
	at      *yaml.Node
	named   *yaml.Node // the value of the key `name`, or nil if the step has no name
	ordered bool       // the step has the key `after`, whose list may be empty
	after   []text
	perNode *yaml.Node
	target  string // the name for a step that has no name in the file
}

func (r *reader) plans(n *yaml.Node) []tutti.Plan {
	entries, _ := r.entries(n, "plans")
	var plans []tutti.Plan
	for _, e := range entries {
		name := tutti.PlanName(e.key.string)
		if err := name.Validate(); err != nil {
			r.reportErr(e.key.at, "", err)
		}
		if name == api.ConvergePlan {
			r.report(e.key.at, "name it otherwise", "plan name %q: the jobs of `tutti converge` have this name", string(name))
		}
		if name == api.ShowPlan {
			r.report(e.key.at, "name it otherwise", "plan name %q: `tutti run show` is another command, so it cannot run this plan", string(name))
		}
		var steps, exclusive *yaml.Node
		ok := r.mapping(e.value, "plan "+string(name), fields{
			"steps":     func(n *yaml.Node) { steps = n },
			"exclusive": func(n *yaml.Node) { exclusive = n },
		})
		if ok && steps == nil {
			r.report(e.key.at, "add `steps:` with a list of steps", "plan %s has no steps", name)
		}
		if steps != nil {
			plan := tutti.Plan{Name: name, Steps: r.steps(name, steps)}
			plan.Exclusive = r.exclusive(exclusive, plan)
			plans = append(plans, plan)
		}
	}
	return plans
}

// The method `steps` reads and compiles the steps of one plan in several passes.
func (r *reader) steps(plan tutti.PlanName, n *yaml.Node) []tutti.Step {
	what := "plan " + string(plan)
	elements, ok := r.list(n, what+": steps")
	if !ok {
		return nil
	}
	drafts := make([]draft, len(elements))
	for i, at := range elements {
		r.step(follow(at), &drafts[i])
	}
	unique := r.nameSteps(what, drafts)
	r.connect(what, drafts)
	if unique {
		r.refuseCycle(what, drafts)
	}
	r.checkKinds(drafts)
	steps := make([]tutti.Step, len(drafts))
	for i, d := range drafts {
		steps[i] = d.Step
	}
	return steps
}

// The method `step` reads one step. A step may have the keys of every step and the keys of its kind.
func (r *reader) step(at *yaml.Node, d *draft) {
	d.at = at
	given := map[string]*yaml.Node{}
	keys, of := r.readings()
	known := noting(keys, given)
	maps.Copy(known, fields{
		"name":  func(n *yaml.Node) { d.named = n; r.stepName(n, d) },
		"after": func(n *yaml.Node) { d.ordered = true; d.after = r.after(n) },
		"per":   func(n *yaml.Node) { r.per(n, d) },
	})
	entries, complete := r.entries(at, "step")
	var kinds []string
	for _, e := range entries {
		if _, is := of[tutti.StepKind(e.key.string)]; is {
			kinds = append(kinds, e.key.string)
		}
	}
	for _, e := range entries {
		if read, found := known[e.key.string]; found {
			read(e.value)
			continue
		}
		complete = false
		r.report(e.key.at, r.suggestStepKey(e.key.string, known, len(kinds) > 0), "step: unknown key %q", e.key.string)
	}
	switch {
	case len(kinds) > 1:
		r.report(at, "make a separate step of each kind", "the step has more than one kind: %s", strings.Join(kinds, " and "))
	case len(kinds) == 1:
		kind := tutti.StepKind(kinds[0])
		of[kind].end(d, given)
		r.refuseOthers(kind, of, given)
	case complete:
		r.report(at, "add "+examples(), "the step does nothing")
	}
}

// suggestStepKey returns a hint about the intended key. For a step without a kind the hint may list the kinds.
func (r *reader) suggestStepKey(key string, known fields, hasKind bool) string {
	hint := r.suggest(key, slices.Collect(maps.Keys(known)))
	if hint != "" && !hasKind && !strings.HasPrefix(hint, didYouMean) {
		return "a step is " + examples()
	}
	return hint
}

func (r *reader) stepName(n *yaml.Node, d *draft) {
	name, ok := r.text(n, "step: name")
	if !ok {
		return
	}
	d.Name = tutti.StepName(name)
	if err := d.Name.Validate(); err != nil {
		r.reportErr(n, "", err)
	}
}

// The method `after` reads the key `after` and returns the names in it. An empty list means that the step comes after
// no step.
func (r *reader) after(n *yaml.Node) []text {
	if at := follow(n); at.Kind == yaml.SequenceNode && len(at.Content) == 0 {
		return nil
	}
	return r.oneOrMore(n, "step: after")
}

func (r *reader) per(n *yaml.Node, d *draft) {
	word, ok := r.text(n, "step: per")
	if ok && word != "node" {
		r.report(n, "the only one is `per: node`", "step: per: %q", word)
	}
	d.perNode, d.PerNode = n, true
}

// checkKinds calls the check of each step's kind, after all edges are known.
func (r *reader) checkKinds(drafts []draft) {
	named := map[tutti.StepName]tutti.Step{}
	for _, d := range drafts {
		named[d.Name] = d.Step
	}
	for _, d := range drafts {
		var before []tutti.Step
		for _, name := range d.After {
			before = append(before, named[name])
		}
		kindOf(d.Step).check(r, d, before)
	}
}

// refusePerNode reports `per: node` on a step for which it would have no effect.
func (r *reader) refusePerNode(d draft, hint, why string) {
	if d.perNode != nil {
		r.report(d.perNode, hint, "step %s: %s", d.Name, why)
	}
}
