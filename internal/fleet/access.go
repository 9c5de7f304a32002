package fleet

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The method `access` reads the section that says who may do what (ADR 0024).
func (r *reader) access(n *yaml.Node, plans []tutti.Plan) []tutti.Access {
	elements, _ := r.list(n, "access")
	before := len(r.problems)
	var out []tutti.Access
	for _, at := range elements {
		out = append(out, r.accessEntry(at, plans))
	}
	admin := func(a tutti.Access) bool { return slices.Contains(a.May, tutti.VerbAdmin) }
	if len(out) > 0 && len(r.problems) == before && !slices.ContainsFunc(out, admin) {
		r.report(n, "like `- {to: NAME, may: admin}`", "access: no operator is admin: only root on the server could change this again")
	}
	return out
}

func (r *reader) accessEntry(at *yaml.Node, plans []tutti.Plan) tutti.Access {
	var a tutti.Access
	before, narrowed := len(r.problems), map[string]*yaml.Node{}
	narrow := func(name string, read func(*yaml.Node)) func(*yaml.Node) {
		return func(n *yaml.Node) { narrowed[name] = n; read(n) }
	}
	complete := r.mapping(at, "access", fields{
		"to":     func(n *yaml.Node) { a.To = r.accessTo(n) },
		"may":    func(n *yaml.Node) { a.May = r.verbs(n) },
		"plans":  narrow("plans", func(n *yaml.Node) { a.Plans = r.accessPlans(n, plans) }),
		"groups": narrow("groups", func(n *yaml.Node) { a.Groups = r.accessGroups(n) }),
		"noop":   narrow("noop", func(n *yaml.Node) { a.Noop = r.isTrue(n, "access: noop") }),
		"keys":   narrow("keys", func(n *yaml.Node) { a.Keys = values(r.patterns(n, "access: keys")) }),
	})
	if !complete || len(r.problems) > before {
		return a
	}
	if len(a.To) == 0 || len(a.May) == 0 {
		r.report(at, "like `{to: ada, may: run}`", "access: both `to` and `may` are needed")
	}
	for name, verbs := range map[string][]tutti.Verb{
		"plans": {tutti.VerbRun}, "groups": {tutti.VerbRun, tutti.VerbPuppet}, "noop": {tutti.VerbRun}, "keys": {tutti.VerbData},
	} {
		has := func(v tutti.Verb) bool { return slices.Contains(verbs, v) }
		if n := narrowed[name]; n != nil && !slices.ContainsFunc(a.May, has) {
			r.report(n, "remove the key, or make a separate entry with it", "access: %s limits only %s, and this entry does not have that verb", name, either(verbs))
		}
	}
	if len(narrowed) > 0 && slices.Contains(a.May, tutti.VerbAdmin) {
		r.report(at, "make a separate entry for admin", "access: admin may do everything: no other key can limit it")
	}
	return a
}

func either(verbs []tutti.Verb) string {
	text := string(verbs[0])
	for _, v := range verbs[1:] {
		text += " or " + string(v)
	}
	return text
}

func (r *reader) accessTo(n *yaml.Node) []string {
	names := r.oneOrMore(n, "access: to")
	for _, name := range names {
		if err := tutti.ValidateOperator(name.string); name.string != tutti.Everybody && err != nil {
			r.report(name.at, "the name in the operator's certificate, or \"*\" for every operator", "access: to: %s", err.Error())
		}
	}
	return values(names)
}

func (r *reader) verbs(n *yaml.Node) []tutti.Verb {
	var out []tutti.Verb
	known := make([]string, len(tutti.Verbs))
	for i, v := range tutti.Verbs {
		known[i] = string(v)
	}
	for _, word := range r.oneOrMore(n, "access: may") {
		if !slices.Contains(known, word.string) {
			r.report(word.at, r.suggest(word.string, known), "access: may: there is no %q; there are: %s", word.string, fmt.Sprint(known))
		}
		out = append(out, tutti.Verb(word.string))
	}
	return out
}

func (r *reader) accessPlans(n *yaml.Node, plans []tutti.Plan) []tutti.PlanName {
	known := []string{string(api.ConvergePlan), string(api.RunsPlan)}
	for _, p := range plans {
		known = append(known, string(p.Name))
	}
	var out []tutti.PlanName
	for _, name := range r.oneOrMore(n, "access: plans") {
		if !slices.Contains(known, name.string) {
			r.report(name.at, r.suggest(name.string, known), "access: plans: undefined plan %q", name.string)
		}
		out = append(out, tutti.PlanName(name.string))
	}
	return out
}

func (r *reader) accessGroups(n *yaml.Node) []tutti.GroupName {
	var out []tutti.GroupName
	for _, name := range r.oneOrMore(n, "access: groups") {
		r.isGroup(name, "access", "access is given for groups")
		out = append(out, tutti.GroupName(name.string))
	}
	return out
}
