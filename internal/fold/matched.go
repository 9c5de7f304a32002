package fold

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// NotMatched is the reason for a node for which the server has not decided the conditions yet.
const NotMatched = "the server has not decided the condition yet"

// Matched returns what the server has found about the present conditions and a node, or nil if it has found nothing yet.
func (r *Registry) Matched(n *Node) *tutti.NodeMatched {
	if n.matched == nil || r.Conditions == nil || n.matched.Conditions != r.Conditions.Digest() {
		return nil
	}
	return n.matched
}

// LastMatch returns the last match of a node with a group, also if the conditions have changed since. The result is the
// zero Match if there is none.
func (n *Node) LastMatch(group tutti.GroupName) tutti.Match {
	if n.matched != nil {
		for _, m := range n.matched.Matches {
			if m.Group == group {
				return m
			}
		}
	}
	return tutti.Match{}
}

// Matches returns the groups with `where` in which a node is, and those for which nobody knows whether it is in them. The
// node is in no other group with `where`. If two machines act as the node, nobody knows whose facts the server has.
func (r *Registry) Matches(n *Node) []tutti.Match {
	if r.Conditions == nil {
		return nil
	}
	why, since := "", time.Time{}
	matched := r.Matched(n)
	switch {
	case n.Tickets.Conflicted != "":
		why = "two machines say that they are this node"
	case matched == nil:
		why, since = NotMatched, n.JoinedAt
	default:
		return matched.Matches
	}
	var out []tutti.Match
	for _, g := range r.Conditions.Groups() {
		out = append(out, tutti.Match{Group: g, Unknown: why, Since: since})
	}
	return out
}

// Match returns what is known about a node and a group with `where`. If the node is not in the group, the field Group is
// empty.
func (r *Registry) Match(n *Node, group tutti.GroupName) tutti.Match {
	if !r.Conditions.Has(group) { // most groups
		return tutti.Match{}
	}
	for _, m := range r.Matches(n) {
		if m.Group == group {
			return m
		}
	}
	return tutti.Match{}
}

// in reports whether a node is in a group with `where`.
func (r *Registry) in(n *Node, group tutti.GroupName) bool {
	m := r.Match(n, group)
	return m.Group != "" && m.Unknown == ""
}

// Targets returns the nodes of each group of the fleet file that lists no nodes, for plans. Unlike Enrolled, Targets also
// has the groups with `where`.
func (r *Registry) Targets() map[tutti.GroupName][]tutti.NodeName {
	out := r.Enrolled()
	for _, n := range r.Nodes {
		for _, m := range r.Matches(n) {
			if m.Unknown == "" {
				out[m.Group] = append(out[m.Group], n.Node)
			}
		}
	}
	return out
}

// Undecided is a node for which nobody knows whether it is in a group with `where`.
type Undecided struct {
	Node tutti.NodeName
	Why  string
}

// Undecided returns the nodes for which nobody knows whether they are in a group, sorted. Observed nodes are left out,
// because a job starts nothing there.
func (s *State) Undecided(group string) []Undecided {
	var out []Undecided
	if !s.Registry.Conditions.Has(tutti.GroupName(group)) {
		return nil
	}
	for name, n := range s.Registry.Nodes {
		if m := s.Registry.Match(n, tutti.GroupName(group)); m.Unknown != "" && s.WhyObserved(name) == "" {
			out = append(out, Undecided{name, m.Unknown})
		}
	}
	slices.SortFunc(out, func(a, b Undecided) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// UndecidedLines returns a line about each node of which nobody knows whether it is in a group with `where`.
func (s *State) UndecidedLines(group string) []string {
	var out []string
	for _, u := range s.Undecided(group) {
		out = append(out, fmt.Sprintf("nobody knows whether %s is in group %s: %s", u.Node, group, u.Why))
	}
	return out
}

// WhyUndecided names the nodes of which nobody knows whether they are in a group with `where`. The text is empty if there
// is no such node.
func (s *State) WhyUndecided(group string) string {
	const most = 5 // nodes with one reason, and reasons
	by := map[string][]string{}
	for _, u := range s.Undecided(group) {
		by[u.Why] = append(by[u.Why], string(u.Node))
	}
	if len(by) == 0 {
		return ""
	}
	reasons := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Compare(by[a][0], by[b][0]) })
	var out []string
	for _, why := range reasons[:min(most, len(reasons))] {
		nodes := by[why]
		text := strings.Join(nodes[:min(most, len(nodes))], ", ")
		if more := len(nodes) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		out = append(out, text+": "+why)
	}
	if more := len(reasons) - most; more > 0 {
		out = append(out, fmt.Sprintf("and others for %d more reasons", more))
	}
	return "nobody knows whether these nodes are in group " + group + ": " + strings.Join(out, "; ")
}

// MayBeMember reports whether a node belongs to a target, or nobody knows that it does not. A pause holds such a node: a
// missing answer must not start a run.
func (s *State) MayBeMember(target string, name tutti.NodeName) bool {
	n := s.Registry.Nodes[name]
	return s.Member(target, name) || n != nil && s.Registry.Match(n, tutti.GroupName(target)).Unknown != ""
}
