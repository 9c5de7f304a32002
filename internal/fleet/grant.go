package fleet

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

func (r *reader) grants(n *yaml.Node) []tutti.Grant {
	elements, _ := r.list(n, "grants")
	var grants []tutti.Grant
	for _, at := range elements {
		grants = append(grants, r.grant(at))
	}
	return grants
}

func (r *reader) grant(at *yaml.Node) tutti.Grant {
	var g tutti.Grant
	var to *yaml.Node
	var write, read []text
	var exports []exportGrant
	grants := false
	complete := r.mapping(at, "grant", fields{
		"to":        func(n *yaml.Node) { to = n; g.To = r.grantee(n) },
		"write":     func(n *yaml.Node) { grants, write = true, r.patterns(n, "grant: write") },
		"read":      func(n *yaml.Node) { grants, read = true, r.patterns(n, "grant: read") },
		"exports":   func(n *yaml.Node) { grants, exports = true, r.exports(n) },
		"compile":   func(n *yaml.Node) { grants, g.Compile = true, r.isTrue(n, "grant: compile") },
		"dangerous": func(n *yaml.Node) { g.Dangerous = r.isTrue(n, "grant: dangerous") },
	})
	if complete && to == nil {
		r.report(at, "add `to: GROUP`", "grant: the group (to) is missing")
	}
	if complete && !grants {
		r.report(at, "add exports, write, read or compile", "grant: nothing is granted")
	}
	g.Write, g.Read = values(write), values(read)
	if g.Compile && !g.Dangerous {
		r.report(at, "if that is meant, add `dangerous: true` to this grant",
			"grant: a node that compiles for other nodes can read and export like each of them")
	}
	for _, pattern := range write {
		if tutti.DangerousPattern(pattern.string) && !g.Dangerous {
			r.report(pattern.at, "if that is meant, add `dangerous: true` to this grant",
				"grant: writing %q changes the data of other nodes", pattern.string)
		}
	}
	for _, e := range exports {
		g.Types = append(g.Types, e.ExportGrant)
		if why := e.Dangers(); why != "" && !g.Dangerous {
			r.report(e.at, e.hint(), "grant: %s", why)
		}
	}
	return g
}

// grantee returns the group that gets a grant. Each group may have grants, because nodes cannot add themselves to a
// group.
func (r *reader) grantee(n *yaml.Node) tutti.GroupName {
	name, ok := r.text(n, "grant: to")
	if ok {
		r.isGroup(text{name, n}, "grant", "grants are made to groups")
	}
	return tutti.GroupName(name)
}

func (r *reader) patterns(n *yaml.Node, what string) []text {
	patterns := r.texts(n, what)
	for _, p := range patterns {
		if err := tutti.ValidatePattern(p.string); err != nil {
			r.reportErr(p.at, what+": ", err)
		}
	}
	return patterns
}

// exportGrant is an element of the key `exports` with its place in the file.
type exportGrant struct {
	tutti.ExportGrant
	at *yaml.Node
}

// The method `hint` says what to do about a grant that needs `dangerous: true`.
func (e exportGrant) hint() string {
	if e.Native() {
		return "if that is meant, add `dangerous: true` to this grant"
	}
	return fmt.Sprintf("if your Puppet code defines the type, say {type: %s, defined: true}; if it is a native type of a module, add `dangerous: true` to this grant", e.Type)
}

// The method `exports` returns the types of a grant. In the file, each type is a name or a mapping.
func (r *reader) exports(n *yaml.Node) []exportGrant {
	elements, _ := r.list(n, "grant: exports")
	seen := map[string]bool{}
	var out []exportGrant
	for _, at := range elements {
		e := r.export(at)
		if e.Type == "" {
			continue
		}
		if seen[e.Type] {
			r.report(at, "", "grant: exports: %q occurs twice", e.Type)
			continue
		}
		seen[e.Type] = true
		out = append(out, e)
	}
	return out
}

func (r *reader) export(at *yaml.Node) exportGrant {
	e := exportGrant{at: at}
	if follow(at).Kind != yaml.MappingNode {
		name, ok := r.text(at, "grant: exports")
		if ok {
			e.Type = r.exportType(text{name, at})
		}
		return e
	}
	const what = "grant: exports"
	complete := r.mapping(at, what, fields{
		"type": func(n *yaml.Node) {
			if name, ok := r.text(n, what+": type"); ok {
				e.Type = r.exportType(text{name, n})
			}
		},
		"defined":    func(n *yaml.Node) { e.Defined = r.isTrue(n, what+": defined") },
		"parameters": func(n *yaml.Node) { e.Parameters = r.parameters(n, what+": parameters") },
		"title":      func(n *yaml.Node) { e.OwnTitle = r.isOwn(n, what+": title") },
		"tags":       func(n *yaml.Node) { e.Tags = values(r.texts(n, what+": tags")) },
		"relations":  func(n *yaml.Node) { e.NoRelations = r.is(false, n, what+": relations") },
		"most": func(n *yaml.Node) {
			e.Most = r.whole(n, what+": most", 1, fmt.Sprintf("without the key, the limit is %d", tutti.MostExports))
		},
		"most_mib": func(n *yaml.Node) {
			e.MostMiB = r.whole(n, what+": most_mib", 1, fmt.Sprintf("without the key, the limit is %d", tutti.MostExportedMiB))
		},
	})
	if complete && e.Type == "" {
		r.report(at, "add `type: TYPE`", what+": the type is missing")
	}
	if e.Defined && e.Native() {
		r.report(at, "leave `defined` out", "%s: %s is a native type of Puppet, not a defined type", what, e.Type)
	}
	return e
}

// exportType returns the name of a type, or an empty text if the name is invalid.
func (r *reader) exportType(name text) string {
	if err := tutti.ValidateType(name.string); err != nil {
		r.report(name.at, capitalHint(name.string), "grant: exports: %s", err.Error())
		return ""
	}
	return name.string
}

func (r *reader) parameters(n *yaml.Node, what string) []string {
	names := r.texts(n, what)
	for _, name := range names {
		if !tutti.IsParameter(name.string) {
			r.report(name.at, "", "%s: %q is not the name of a parameter", what, name.string)
		}
	}
	return values(names)
}

func (r *reader) isOwn(n *yaml.Node, what string) bool {
	word, ok := r.text(n, what)
	if ok && word != "own" {
		r.report(n, "leave the key out, or say `title: own`", "%s: not understood: %q", what, word)
	}
	return ok
}

func values(texts []text) []string {
	var strings []string
	for _, t := range texts {
		strings = append(strings, t.string)
	}
	return strings
}
