package fleet

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// DefaultRunTimeout is the timeout of a run if the step has no timeout in the file.
const DefaultRunTimeout = time.Hour

// runKind implements run steps. A run step runs Puppet on the nodes of a target.
type runKind struct{}

// Run implements tutti.StepTable.
func (kinds) Run() stepKind { return runKind{} }

func (runKind) example() string { return "run: GROUP" }

func (runKind) read(r *reader) reading {
	spec, timeout := tutti.RunStep{}, DefaultRunTimeout
	keys := r.runOptionKeys(&spec.RunOptions)
	maps.Copy(keys, fields{
		"run":     func(n *yaml.Node) { spec.Target = r.target(n, "step: run") },
		"accept":  func(n *yaml.Node) { spec.Accept = r.accept(n) },
		"limit":   func(n *yaml.Node) { spec.Limit = r.limit(n, "step: limit") },
		"timeout": func(n *yaml.Node) { timeout = r.duration(n, "timeout") },
	})
	return reading{keys, func(d *draft, _ map[string]*yaml.Node) {
		d.Run, d.target, d.Timeout = &spec, spec.Target, timeout
	}}
}

func (runKind) check(r *reader, d draft, before []tutti.Step) {
	if !slices.ContainsFunc(before, func(s tutti.Step) bool { return s.ActsOn() == tutti.NodesListed }) {
		r.refusePerNode(d, "remove `per`, or add `after` with the step", "there is no run step before it whose nodes it could wait for")
	}
}

func (runKind) does(s tutti.Step, nodes []tutti.NodeName) string {
	return "run " + s.Run.Target + nodeNames(s.Run.Target, nodes)
}

func (runKind) options(s tutti.Step) []string {
	var parts []string
	for _, a := range s.Run.Accept {
		parts = append(parts, "accept "+string(a))
	}
	return append(slices.Concat(parts, limitText(s.Run.Limit), runOptions(s.Run.RunOptions)), timeoutText(s))
}

// The method `target` returns the group or node that a step names. A name with a dot cannot be a group. If the
// name has a dot and is not known, it may be the name of a node that joins later.
func (r *reader) target(n *yaml.Node, what string) string {
	name, ok := r.text(n, what)
	if !ok || r.known.groups[tutti.GroupName(name)] || r.known.nodes[tutti.NodeName(name)] {
		return name
	}
	if strings.Contains(name, ".") {
		if err := tutti.NodeName(name).Validate(); err != nil {
			r.reportErr(n, what+": ", err)
		}
		return name
	}
	r.report(n, r.suggest(name, r.known.names), "%s: undefined group or node %q", what, name)
	return name
}

// The method `accept` returns the outcomes after which a plan goes on.
func (r *reader) accept(n *yaml.Node) []tutti.Accept {
	const which = "failed:resources and lost can be accepted"
	var accepted []tutti.Accept
	for _, word := range r.oneOrMore(n, "step: accept") {
		a := tutti.Accept(word.string)
		reason, failed := strings.CutPrefix(word.string, string(tutti.Failed)+":")
		switch {
		case a == tutti.AcceptFailedResources || a == tutti.AcceptLost:
			accepted = append(accepted, a)
		case word.string == string(tutti.Failed):
			r.report(word.at, "say failed:resources", "step: accept: %q would accept every failure, also a compile error", word.string)
		case failed && slices.Contains(tutti.Reasons, tutti.Reason(reason)):
			r.report(word.at, which, "step: accept: %q is never accepted: nothing was applied as planned", word.string)
		case tutti.Outcome(word.string).Good():
			r.report(word.at, "leave it out", "step: accept: %q is always accepted", word.string)
		case slices.Contains(tutti.Outcomes, tutti.Outcome(word.string)):
			r.report(word.at, which, "step: accept: %q is never accepted", word.string)
		default:
			known := []string{string(tutti.AcceptFailedResources), string(tutti.AcceptLost)}
			r.report(word.at, r.suggest(word.string, known), "step: accept: unknown outcome %q", word.string)
		}
	}
	return accepted
}

// The method `limit` returns how many runs may go on at the same time.
func (r *reader) limit(n *yaml.Node, what string) int {
	return r.whole(n, what, 1, "without the key, there is no limit")
}

// The method `whole` reads a whole number, which must be at least the argument `least`.
func (r *reader) whole(n *yaml.Node, what string, least int, hint string) int {
	n = follow(n)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		r.wrong(n, what, "a whole number")
		return 0
	}
	number, err := strconv.Atoi(n.Value)
	if err != nil || number < least {
		r.report(n, hint, "%s: %s; at least %d is needed", what, n.Value, least)
	}
	return number
}
