package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// The type `diffView` is the result of a diff, for JSON and for people.
type diffView struct {
	Environment string           `json:"environment,omitempty"`
	CompileHost tutti.NodeName   `json:"compile_host,omitempty"` // A and B are environments of its Puppet Server
	A           diffCodeView     `json:"a"`
	B           diffCodeView     `json:"b"`
	Jobs        []tutti.JobID    `json:"jobs,omitempty"`
	Equal       []tutti.NodeName `json:"equal"`
	// Groups has for each group of nodes the changes that all these nodes have.
	Groups      []diffGroup   `json:"groups"`
	Failures    []diffFailure `json:"failures,omitempty"`
	NotCompared []notCompared `json:"not_compared"`
}

type diffCodeView struct {
	Name   string       `json:"name,omitempty"`
	Code   tutti.Digest `json:"code,omitempty"`
	Commit string       `json:"commit,omitempty"`
}

// The type `diffGroup` contains changes that the same nodes have.
type diffGroup struct {
	Nodes   []tutti.NodeName `json:"nodes"`
	Changes []diffChange     `json:"changes"`
}

type diffChange struct {
	tutti.CatalogChange
	// Others is how many other texts this change has on nodes of the group.
	Others int `json:"others,omitempty"`
}

// The type `diffFailure` contains nodes that did not compile a code, for the same reason.
type diffFailure struct {
	Code  string           `json:"code"` // A or B
	Why   string           `json:"why"`
	Nodes []tutti.NodeName `json:"nodes"`
}

type notCompared struct {
	Node tutti.NodeName `json:"node"`
	Why  string         `json:"why"`
}

func diffCodeOf(side DiffSide) diffCodeView {
	out := diffCodeView{Name: side.Name, Code: tutti.DigestOf(side.Code.Manifest)}
	if side.Source != nil {
		out.Commit = side.Source.Short()
	}
	return out
}

// reasons returns the nodes that were not compared, sorted.
func reasons(not map[tutti.NodeName]string) []notCompared {
	var out []notCompared
	for n, why := range not {
		out = append(out, notCompared{n, why})
	}
	slices.SortFunc(out, func(a, b notCompared) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// The type `grouping` collects the nodes and the texts of each change.
type grouping map[changeKey]*grouped

type changeKey struct {
	kind                tutti.ChangeKind
	resource, parameter string
}

type grouped struct {
	change tutti.CatalogChange
	texts  map[string]bool
	nodes  []tutti.NodeName // sorted, because they are added in their order
}

// The method `add` notes the changes of one node.
func (g grouping) add(n tutti.NodeName, changes []tutti.CatalogChange) {
	for _, c := range changes {
		key := changeKey{c.Kind, c.Resource, c.Parameter}
		of := g[key]
		if of == nil {
			of = &grouped{change: c, texts: map[string]bool{}}
			g[key] = of
		}
		of.texts[c.Text] = true
		if len(of.nodes) == 0 || of.nodes[len(of.nodes)-1] != n {
			of.nodes = append(of.nodes, n)
		}
	}
}

// The method `sorted` returns the changes, those of the same nodes together. The group with the most nodes is first.
func (g grouping) sorted() []diffGroup {
	byNodes := map[string]*diffGroup{}
	for _, of := range g {
		key := joined(of.nodes)
		group := byNodes[key]
		if group == nil {
			group = &diffGroup{Nodes: of.nodes}
			byNodes[key] = group
		}
		group.Changes = append(group.Changes, diffChange{of.change, len(of.texts) - 1})
	}
	out := []diffGroup{}
	for _, group := range byNodes {
		slices.SortFunc(group.Changes, func(a, b diffChange) int {
			return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Parameter, b.Parameter), cmp.Compare(a.Kind, b.Kind))
		})
		out = append(out, *group)
	}
	slices.SortFunc(out, func(a, b diffGroup) int {
		return cmp.Or(cmp.Compare(len(b.Nodes), len(a.Nodes)), slices.Compare(a.Nodes, b.Nodes))
	})
	return out
}

// The method `print` prints the digests first, and then the differences.
func (v diffView) print(w io.Writer) {
	for _, side := range []struct {
		name string
		code diffCodeView
	}{{"A", v.A}, {"B", v.B}} {
		if v.CompileHost != "" {
			printLine(w, "%s %s (of the Puppet Server on %s)\n", side.name, side.code.Name, v.CompileHost)
			continue
		}
		printLine(w, "%s %s %s (%s)\n", side.name, orNow(side.code.Name), shortCode(side.code.Code), orDash(side.code.Commit))
	}
	differ := map[tutti.NodeName]bool{}
	for _, group := range v.Groups {
		for _, n := range group.Nodes {
			differ[n] = true
		}
	}
	printLine(w, "equal: %d; differ: %d; not compared: %d\n", len(v.Equal), len(differ), len(v.NotCompared))
	for _, group := range v.Groups {
		printLine(w, "\n%s: %s\n", count(len(group.Nodes), "node"), someNodes(group.Nodes, len(group.Nodes)))
		for _, c := range group.Changes {
			c.print(w)
		}
	}
	for _, f := range v.Failures {
		printLine(w, "\n%s: %s\n  did not compile %s: %s\n", count(len(f.Nodes), "node"), someNodes(f.Nodes, len(f.Nodes)), f.Code, f.Why)
	}
	failed := map[tutti.NodeName]bool{}
	for _, f := range v.Failures {
		for _, n := range f.Nodes {
			failed[n] = true
		}
	}
	for _, n := range v.NotCompared {
		if !failed[n.Node] {
			printLine(w, "not compared: %s: %s\n", n.Node, n.Why)
		}
	}
}

func (c diffChange) print(w io.Writer) {
	what := strings.TrimSpace(c.Resource + " " + c.Parameter)
	switch lines := strings.Split(strings.TrimSuffix(tutti.Plain(c.Text, tutti.MaxChangeText), "\n"), "\n"); {
	case c.Sensitive:
		printLine(w, "  %-7s  %s (sensitive)\n", c.Kind, what)
	case c.Text == "":
		printLine(w, "  %-7s  %s\n", c.Kind, what)
	case len(lines) == 1:
		printLine(w, "  %-7s  %s: %s\n", c.Kind, what, lines[0])
	default:
		printLine(w, "  %-7s  %s:\n", c.Kind, what)
		for _, line := range lines {
			fmt.Fprintln(w, "    "+tutti.InLine(line))
		}
	}
	if c.Others > 0 {
		printLine(w, "           and %s on other nodes\n", count(c.Others, "other text"))
	}
}
