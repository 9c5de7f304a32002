package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"

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
		if name == tutti.ConvergePlan {
			r.report(e.key.at, "name it otherwise", "plan name %q: so the jobs of `tutti converge` are called", string(name))
		}
		if name == tutti.ShowPlan {
			r.report(e.key.at, "name it otherwise", "plan name %q: `tutti run show` shows a run", string(name))
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
	r.checkPuppetDB(drafts)
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
	var converge tutti.ConvergeStep
	var kinds []string
	options := map[string]*yaml.Node{}
	known := r.runOptions(&run.RunOptions, options)
	maps.Copy(known, fields{
		"name":    func(n *yaml.Node) { d.named = n; r.stepName(n, d) },
		"after":   func(n *yaml.Node) { d.ordered = true; d.after = r.after(n) },
		"per":     func(n *yaml.Node) { r.per(n, d) },
		"timeout": func(n *yaml.Node) { d.timeouts = append(d.timeouts, n) },
		"run":     func(n *yaml.Node) { kinds = append(kinds, "run"); run.Target = r.target(n, "step: run") },
		"accept":  func(n *yaml.Node) { options["accept"] = n; run.Accept = r.accept(n) },
		"limit": func(n *yaml.Node) {
			options["limit"] = n
			run.Limit = r.limit(n, "step: limit")
			converge.Limit = run.Limit
		},
		"converge":   func(n *yaml.Node) { kinds = append(kinds, "converge"); converge.Target = r.convergeTarget(n) },
		"max_failed": func(n *yaml.Node) { options["max_failed"] = n; converge.MaxFailed = r.maxFailed(n) },
		"wait":       func(n *yaml.Node) { kinds = append(kinds, "wait"); r.wait(n, d) },
	})
	complete := r.mapping(at, "step", known)
	switch {
	case len(kinds) > 1:
		r.report(at, "make a step of each", "the step has more than one kind: %s", strings.Join(kinds, " and "))
	case len(kinds) == 0:
		if complete {
			r.report(at, "add `run: GROUP`, `converge: GROUP` or `wait: {…}`", "the step does nothing")
		}
	case kinds[0] == "run":
		d.Run, d.target = &run, run.Target
		r.checkRunOptions(run.RunOptions, options)
	case kinds[0] == "converge":
		d.Converge, d.target = &converge, cmp.Or(converge.Target, wholeFleet)
	}
	if len(kinds) == 1 {
		r.checkOptions(kinds[0], options)
	}
	r.timeout(d)
}

// checkOptions refuses the keys that belong to steps of other kinds.
func (r *reader) checkOptions(kind string, options map[string]*yaml.Node) {
	for key, of := range map[string][]string{
		"accept": {"run"}, "limit": {"run", "converge"}, "max_failed": {"converge"},
		"mode": {"run"}, "environment": {"run"}, "noop": {"run"}, "debug": {"run"}, "tags": {"run"}, "skip_tags": {"run"},
	} {
		if n := options[key]; n != nil && !slices.Contains(of, kind) {
			r.report(n, "remove it", "step: %s belongs to a %s step, this is a %s step", key, strings.Join(of, " or "), kind)
		}
	}
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
	runs := runNames(drafts)
	for _, d := range drafts {
		useful := slices.ContainsFunc(d.After, runs)
		switch {
		case d.perNode == nil:
		case d.Wait != nil:
			r.report(d.perNode, "leave `per` out", "step %s: a wait step has no nodes", d.Name)
		case d.Converge != nil:
			r.report(d.perNode, "leave `per` out", "step %s: a converge step finds the order of its nodes itself", d.Name)
		case d.Run != nil && !useful:
			r.report(d.perNode, "leave `per` out, or say after which step", "step %s: it follows no run step whose nodes it could wait for", d.Name)
		}
	}
}

// checkPuppetDB refuses a wait for the catalogs of nobody.
func (r *reader) checkPuppetDB(drafts []draft) {
	runs := runNames(drafts)
	for _, d := range drafts {
		if d.Wait != nil && d.Wait.PuppetDB != "" && !slices.ContainsFunc(d.After, runs) {
			r.report(d.at, "put it behind one, or say after which", "step %s: it follows no run step whose catalogs it could wait for", d.Name)
		}
	}
}

// runNames returns whether a name is that of a run step.
func runNames(drafts []draft) func(tutti.StepName) bool {
	runs := map[tutti.StepName]bool{}
	for _, d := range drafts {
		runs[d.Name] = d.Run != nil
	}
	return func(name tutti.StepName) bool { return runs[name] }
}
