package fleet

import (
	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// draft is a step as the file has it, before names and edges are resolved.
type draft struct {
	tutti.Step
	at       *yaml.Node
	named    *yaml.Node // the value of name, nil for a step without
	ordered  bool       // the file says after, be it empty
	after    []text
	perNode  *yaml.Node
	target   string // what a step without a name is named after
	timeouts []*yaml.Node
}

func (r *reader) plans(n *yaml.Node) []tutti.Plan {
	entries, _ := r.entries(n, "plans")
	var plans []tutti.Plan
	for _, e := range entries {
		name := tutti.PlanName(e.key.string)
		if err := name.Validate(); err != nil {
			r.reportErr(e.key.at, "", err)
		}
		var steps *yaml.Node
		ok := r.mapping(e.value, "plan "+string(name), fields{
			"steps": func(n *yaml.Node) { steps = n },
		})
		if ok && steps == nil {
			r.report(e.key.at, "add `steps:` with a list of steps", "plan %s has no steps", name)
		}
		if steps != nil {
			plans = append(plans, tutti.Plan{Name: name, Steps: r.steps(name, steps)})
		}
	}
	return plans
}

// steps reads and compiles the steps of one plan, pass by pass.
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
	r.checkPerNode(drafts)
	steps := make([]tutti.Step, len(drafts))
	for i, d := range drafts {
		steps[i] = d.Step
	}
	return steps
}

// step reads one step. The keys of its kind stand beside those of every step.
func (r *reader) step(at *yaml.Node, d *draft) {
	d.at = at
	var run tutti.RunStep
	var runAt, waitAt *yaml.Node
	onlyRun := map[string]*yaml.Node{}
	complete := r.mapping(at, "step", fields{
		"name":    func(n *yaml.Node) { d.named = n; r.stepName(n, d) },
		"after":   func(n *yaml.Node) { d.ordered = true; d.after = r.after(n) },
		"per":     func(n *yaml.Node) { r.per(n, d) },
		"timeout": func(n *yaml.Node) { d.timeouts = append(d.timeouts, n) },
		"run":     func(n *yaml.Node) { runAt = n; run.Target = r.target(n) },
		"accept":  func(n *yaml.Node) { onlyRun["accept"] = n; run.Accept = r.accept(n) },
		"limit":   func(n *yaml.Node) { onlyRun["limit"] = n; run.Limit = r.limit(n) },
		"wait":    func(n *yaml.Node) { waitAt = n; r.wait(n, d) },
	})
	switch {
	case runAt != nil && waitAt != nil:
		r.report(at, "make two steps of it", "the step has two kinds: run and wait")
	case runAt != nil:
		d.Run, d.target = &run, run.Target
	case waitAt != nil:
		for key, n := range onlyRun {
			r.report(n, "remove it", "step: %s belongs to a run step, this one waits", key)
		}
	case complete:
		r.report(at, "add `run: GROUP` or `wait: {…}`", "the step does nothing")
	}
	r.timeout(d)
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

// after returns the names of earlier steps; an empty list says that there are none.
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

// checkPerNode refuses `per: node` where it would silently mean nothing.
func (r *reader) checkPerNode(drafts []draft) {
	runs := map[tutti.StepName]bool{}
	for _, d := range drafts {
		runs[d.Name] = d.Run != nil
	}
	for _, d := range drafts {
		useful := false
		for _, earlier := range d.After {
			useful = useful || runs[earlier]
		}
		switch {
		case d.perNode == nil:
		case d.Wait != nil:
			r.report(d.perNode, "leave `per` out", "step %s: a wait step has no nodes", d.Name)
		case d.Run != nil && !useful:
			r.report(d.perNode, "leave `per` out, or say after which step", "step %s: it follows no run step whose nodes it could wait for", d.Name)
		}
	}
}
