package fleet

import (
	"path"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// joinRules reads the rules by which machines join with their Puppet certificate (ADR 0031).
func joinRules(r *reader, n *yaml.Node, groups []tutti.Group) []tutti.JoinRule {
	elements, _ := r.list(n, "join")
	var out []tutti.JoinRule
	for _, at := range elements {
		var rule tutti.JoinRule
		complete := r.mapping(at, "join", fields{
			"certname":   func(n *yaml.Node) { rule.Certname = joinPattern(r, n, "join: certname") },
			"extensions": func(n *yaml.Node) { rule.Extensions = joinExtensions(r, n) },
			"groups":     func(n *yaml.Node) { rule.Groups = joinGroups(r, n, groups) },
		})
		if complete && rule.Certname == "" {
			r.report(at, `like certname: "web-*.example.net"; "*" is any certname`, "join: the certname is missing")
		}
		out = append(out, rule)
	}
	return out
}

func joinPattern(r *reader, n *yaml.Node, what string) string {
	pattern, ok := r.text(n, what)
	if _, err := path.Match(pattern, ""); ok && (err != nil || pattern == "") {
		r.report(n, "a text in which * stands for any text", "%s: %q is not a pattern", what, pattern)
	}
	return pattern
}

func joinExtensions(r *reader, n *yaml.Node) map[string]string {
	entries, _ := r.entries(n, "join: extensions")
	out := map[string]string{}
	for _, e := range entries {
		knownExtension(r, e.key.at, e.key.string, "join: extensions")
		out[e.key.string] = joinPattern(r, e.value, "join: extensions: "+e.key.string)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// joinGroups returns groups of `joined: true`. The other groups list their nodes, so a rule cannot add to them.
func joinGroups(r *reader, n *yaml.Node, groups []tutti.Group) []tutti.GroupName {
	var joined []string
	for _, g := range groups {
		if g.Named() {
			joined = append(joined, string(g.Name))
		}
	}
	var out []tutti.GroupName
	for _, name := range r.oneOrMore(n, "join: groups") {
		switch {
		case slices.ContainsFunc(groups, func(g tutti.Group) bool { return string(g.Name) == name.string && !g.Gives() }):
			r.report(name.at, ownFacts, "join: groups: group %q has `where`, so it can only be a target", name.string)
		case !slices.Contains(joined, name.string):
			r.report(name.at, r.suggest(name.string, joined), "join: groups: no group %q with `joined: true`", name.string)
		}
		out = append(out, tutti.GroupName(name.string))
	}
	return out
}
