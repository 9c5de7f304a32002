package fleet

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// target returns the group or node that a step names. A name with a dot is
// no group: it is taken as a node that may join later.
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

// accept returns the outcomes after which a plan goes on.
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
			r.report(word.at, "say failed:resources", "step: accept: %q would accept any failure, a compile error too", word.string)
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

// wholeFleet is how a converge step names all nodes.
const wholeFleet = "fleet"

// convergeTarget returns the group or node that a converge step names, empty for
// the whole fleet.
func (r *reader) convergeTarget(n *yaml.Node) string {
	const what = "step: converge"
	if at := follow(n); at.Kind != yaml.ScalarNode || at.ShortTag() != "!!str" || at.Value != wholeFleet {
		return r.target(n, what)
	}
	if r.known.groups[wholeFleet] || r.known.nodes[wholeFleet] {
		r.report(n, "name that otherwise", "%s: %q is all nodes, and a group or node of this file", what, wholeFleet)
	}
	return ""
}

// limit returns how many runs may be in flight.
func (r *reader) limit(n *yaml.Node, what string) int {
	return r.whole(n, what, 1, "leave the key out for no limit")
}

// maxFailed returns after how many failed nodes nothing more begins.
func (r *reader) maxFailed(n *yaml.Node) int {
	return r.whole(n, "step: max_failed", 1, "leave the key out to go on whatever fails")
}

// whole returns a whole number that is not too small.
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
