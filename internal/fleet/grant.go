package fleet

import (
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
	var write, read, exports []text
	grants := false
	complete := r.mapping(at, "grant", fields{
		"to":        func(n *yaml.Node) { to = n; g.To = r.grantee(n) },
		"write":     func(n *yaml.Node) { grants, write = true, r.patterns(n, "grant: write") },
		"read":      func(n *yaml.Node) { grants, read = true, r.patterns(n, "grant: read") },
		"exports":   func(n *yaml.Node) { grants, exports = true, r.exportTypes(n) },
		"compile":   func(n *yaml.Node) { grants, g.Compile = true, r.isTrue(n, "grant: compile") },
		"dangerous": func(n *yaml.Node) { g.Dangerous = r.isTrue(n, "grant: dangerous") },
	})
	if complete && to == nil {
		r.report(at, "say it with `to: GROUP`", "grant: to whom is missing")
	}
	if complete && !grants {
		r.report(at, "add exports, write, read or compile", "grant: nothing is granted")
	}
	g.Write, g.Read, g.Exports = values(write), values(read), values(exports)
	if g.Compile && !g.Dangerous {
		r.report(at, "if that is meant, add `dangerous: true` to this grant",
			"grant: who compiles for other nodes reads and exports as any of them")
	}
	for _, pattern := range write {
		if tutti.DangerousPattern(pattern.string) && !g.Dangerous {
			r.report(pattern.at, "if that is meant, add `dangerous: true` to this grant",
				"grant: writing %q changes the data of other nodes", pattern.string)
		}
	}
	for _, name := range exports {
		if tutti.DangerousExport(name.string) && !g.Dangerous {
			r.report(name.at, "if that is meant, add `dangerous: true` to this grant",
				"grant: who exports %s is root on every node that collects it", name.string)
		}
	}
	return g
}

// grantee returns the group that a grant is made to. Only groups whose members
// others decide can have grants; both kinds of groups are such.
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

func (r *reader) exportTypes(n *yaml.Node) []text {
	names := r.texts(n, "grant: exports")
	for _, name := range names {
		if err := tutti.ValidateType(name.string); err != nil {
			r.report(name.at, capitalHint(name.string), "grant: exports: %s", err.Error())
		}
	}
	return names
}

func values(texts []text) []string {
	var strings []string
	for _, t := range texts {
		strings = append(strings, t.string)
	}
	return strings
}
