package fleet

import (
	"cmp"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// convergeKind implements converge steps. A converge step runs Puppet on the nodes that need it, until no node needs
// it.
type convergeKind struct{}

// Converge implements tutti.StepTable.
func (kinds) Converge() stepKind { return convergeKind{} }

func (convergeKind) example() string { return "converge: GROUP" }

func (convergeKind) read(r *reader) reading {
	spec, timeout := tutti.ConvergeStep{}, DefaultRunTimeout
	return reading{fields{
		"converge":   func(n *yaml.Node) { spec.Target = r.convergeTarget(n) },
		"limit":      func(n *yaml.Node) { spec.Limit = r.limit(n, "step: limit") },
		"max_failed": func(n *yaml.Node) { spec.MaxFailed = r.maxFailed(n) },
		"prove":      func(n *yaml.Node) { spec.Prove = r.isTrue(n, "step: prove") },
		"timeout":    func(n *yaml.Node) { timeout = r.duration(n, "timeout") },
	}, func(d *draft, _ map[string]*yaml.Node) {
		d.Converge, d.target, d.Timeout = &spec, cmp.Or(spec.Target, wholeFleet), timeout
	}}
}

func (convergeKind) check(r *reader, d draft, _ []tutti.Step) {
	r.refusePerNode(d, "leave `per` out", "a converge step computes the order of its nodes itself")
}

func (convergeKind) does(s tutti.Step, _ []tutti.NodeName) string {
	return "converge " + cmp.Or(s.Converge.Target, "the fleet")
}

func (convergeKind) options(s tutti.Step) []string {
	parts := limitText(s.Converge.Limit)
	if s.Converge.MaxFailed > 0 {
		parts = append(parts, fmt.Sprintf("max_failed %d", s.Converge.MaxFailed))
	}
	if s.Converge.Prove {
		parts = append(parts, "prove")
	}
	return append(parts, timeoutText(s))
}

// wholeFleet is the word in a converge step that means all nodes.
const wholeFleet = "fleet"

// convergeTarget returns the group or node that a converge step names. For the whole fleet, the
// result is empty.
func (r *reader) convergeTarget(n *yaml.Node) string {
	const what = "step: converge"
	if at := follow(n); at.Kind != yaml.ScalarNode || at.ShortTag() != "!!str" || at.Value != wholeFleet {
		return r.target(n, what)
	}
	if r.known.groups[wholeFleet] || r.known.nodes[wholeFleet] {
		r.report(n, "give that group or node another name", "%s: %q means all nodes, but this file also has a group or node with this name", what, wholeFleet)
	}
	return ""
}

// maxFailed returns the number of failed nodes after which no more runs begin.
func (r *reader) maxFailed(n *yaml.Node) int {
	return r.whole(n, "step: max_failed", 1, "without the key, the step goes on after any number of failures")
}
