package fleet

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// target returns the group or node that a run step names. A name with a dot is
// no group: it is taken as a node that may join later.
func (r *reader) target(n *yaml.Node) string {
	name, ok := r.text(n, "step: run")
	if !ok || r.known.groups[tutti.GroupName(name)] || r.known.nodes[tutti.NodeName(name)] {
		return name
	}
	if strings.Contains(name, ".") {
		if err := tutti.NodeName(name).Validate(); err != nil {
			r.reportErr(n, "step: run: ", err)
		}
		return name
	}
	r.report(n, r.suggest(name, r.known.names), "step: run: undefined group or node %q", name)
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

// limit returns how many runs of a step may be in flight.
func (r *reader) limit(n *yaml.Node) int {
	n = follow(n)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" {
		r.wrong(n, "step: limit", "a whole number")
		return 0
	}
	limit, err := strconv.Atoi(n.Value)
	if err != nil || limit < 1 {
		r.report(n, "leave the key out for no limit", "step: limit: %s; at least 1 is needed", n.Value)
	}
	return limit
}
