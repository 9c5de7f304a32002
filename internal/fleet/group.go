package fleet

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-project/tutti"
)

// members are the names to which grants, plans and the order between groups may refer.
type members struct {
	groups map[tutti.GroupName]bool
	nodes  map[tutti.NodeName]bool  // nodes that a group lists
	names  []string                 // names of groups and nodes, for hints
	called []string                 // names of the groups
	chosen map[tutti.GroupName]bool // groups with `where`
}

func membersOf(groups []tutti.Group) members {
	m := members{groups: map[tutti.GroupName]bool{}, nodes: map[tutti.NodeName]bool{}, chosen: map[tutti.GroupName]bool{}}
	for _, g := range groups {
		m.chosen[g.Name] = !g.Gives()
		m.groups[g.Name] = true
		m.names, m.called = append(m.names, string(g.Name)), append(m.called, string(g.Name))
		for _, n := range g.Nodes {
			if !m.nodes[n] {
				m.nodes[n] = true
				m.names = append(m.names, string(n))
			}
		}
	}
	return m
}

// isGroup reports whether there is a group with this name in which a node cannot put itself. If there is no such group,
// isGroup reports a problem that says why a group is needed. A group with `where` can only be a target.
func (r *reader) isGroup(name text, what, why string) bool {
	switch {
	case r.known.chosen[tutti.GroupName(name.string)]:
		r.report(name.at, ownFacts, "%s: group %q has `where`, so it can only be a target", what, name.string)
	case r.known.groups[tutti.GroupName(name.string)]:
		return true
	case r.known.nodes[tutti.NodeName(name.string)]:
		r.report(name.at, "make a group with this node: `NAME: {nodes: ["+name.string+"]}`", "%s: %q is a node, %s", what, name.string, why)
	default:
		r.report(name.at, r.suggest(name.string, r.known.called), "%s: undefined group %q", what, name.string)
	}
	return false
}

func (r *reader) groups(n *yaml.Node) []tutti.Group {
	entries, _ := r.entries(n, "groups")
	var groups []tutti.Group
	listed := map[string]int{} // node → line
	for _, e := range entries {
		group := tutti.Group{Name: tutti.GroupName(e.key.string)}
		if err := group.Name.Validate(); err != nil {
			r.reportErr(e.key.at, "", err)
		}
		for _, node := range r.group(e, &group) {
			group.Nodes = append(group.Nodes, tutti.NodeName(node.string))
			if listed[node.string] == 0 {
				listed[node.string] = node.at.Line
			}
		}
		groups = append(groups, group)
	}
	for _, e := range entries {
		if line := listed[e.key.string]; line != 0 {
			r.report(e.key.at, "name the group otherwise", "%q is a group and, in line %d, a node: in a plan this name would be ambiguous", e.key.string, line)
		}
	}
	r.refuseSerialCycle(groups, entries)
	return groups
}

// The method `group` returns the nodes that a group lists, and sets the other fields of the group. For a group of
// join tokens, the result is empty.
func (r *reader) group(e entry, group *tutti.Group) []text {
	what := "group " + e.key.string
	var nodes []text
	var list, joined, condition, chosen, removes *yaml.Node
	given := map[string]*yaml.Node{}
	keys := fields{
		"nodes":       func(n *yaml.Node) { list = n },
		"joined":      func(n *yaml.Node) { joined = n },
		"trusted":     func(n *yaml.Node) { condition = n; group.Trusted = trustedText(r, n, what+": trusted") },
		"where":       func(n *yaml.Node) { chosen = n; group.Where = whereText(r, n, what+": where") },
		"mode":        func(n *yaml.Node) { group.Program = r.program(n, what, true) },
		"environment": func(n *yaml.Node) { group.Environment = r.environmentName(n, what+": environment") },
		"serial":      func(n *yaml.Node) { group.Serial = r.isTrue(n, what+": serial") },

		"safety_when_away": func(n *yaml.Node) { group.SafetyWhenAway = r.safetyWhenAway(n, what+": safety_when_away") },
		"runs_every":       func(n *yaml.Node) { group.RunsEvery = runsEvery(r, n, what+": runs_every") },
		"remove_after":     func(n *yaml.Node) { removes = n; group.RemoveAfter = removeAfter(r, n, what+": remove_after") },
	}
	for _, key := range whereKeys {
		read := keys[key]
		keys[key] = func(n *yaml.Node) { given[key] = n; read(n) }
	}
	complete := r.mapping(e.value, what, keys)
	for _, key := range whereKeys {
		if n := given[key]; n != nil && chosen != nil {
			r.report(n, ownFacts, "%s: a group with `where` can only be a target, so it has no %s", what, key)
		}
	}
	if list != nil && removes != nil {
		r.report(removes, "use `joined: true` and a rule in `join`, or a token", "%s: remove_after needs `joined: true`: the fleet file lists the nodes of this group", what)
	}
	if list != nil {
		nodes = r.texts(list, what+": nodes")
		for _, node := range nodes {
			if err := tutti.NodeName(node.string).Validate(); err != nil {
				r.reportErr(node.at, what+": ", err)
			}
		}
	}
	if joined != nil && !r.isTrue(joined, what+": joined") {
		return nodes
	}
	ways := 0
	for _, n := range []*yaml.Node{list, joined, condition, chosen} {
		if n != nil {
			ways++
		}
	}
	if complete && ways != 1 {
		r.report(e.key.at, "list the nodes with `nodes: [a, b]`, write `joined: true` and name the group in join tokens and rules, or write `trusted: CONDITION` or `where: CONDITION`",
			"%s: exactly one of `nodes`, `joined`, `trusted` and `where` is needed", what)
	}
	return nodes
}

// isTrue accepts only `true`. For false, the fleet file must not have the key.
func (r *reader) isTrue(n *yaml.Node, what string) bool { return r.is(true, n, what) }

// The method `is` returns true only for the value `want`, and reports every other value as a problem.
func (r *reader) is(want bool, n *yaml.Node, what string) bool {
	n = follow(n)
	if n.ShortTag() != "!!bool" {
		r.wrong(n, what, fmt.Sprint(want))
		return false
	}
	var value bool
	if n.Decode(&value) != nil || value != want {
		r.report(n, "leave the key out", "%s: only the value %t is allowed here", what, want)
		return false
	}
	return true
}

// Membership says which nodes of a fleet are in which groups. Membership uses maps, so it need not search all lists.
type Membership struct {
	listed map[tutti.NodeName][]tutti.GroupName
	joined map[tutti.GroupName]bool
	trusts []trusted
}

// NewMembership returns the present membership of a fleet.
func NewMembership(fleet tutti.Fleet) Membership {
	m := Membership{listed: map[tutti.NodeName][]tutti.GroupName{}, joined: map[tutti.GroupName]bool{}}
	for _, g := range fleet.Groups {
		m.joined[g.Name] = g.Named()
		if g.Trusted != "" {
			// A condition that a later release has stored may be unknown here. Then nobody is in the group.
			if program, err := compileTrusted(g.Trusted); err == nil {
				m.trusts = append(m.trusts, trusted{g.Name, program})
			}
		}
		for _, n := range g.Nodes {
			m.listed[n] = append(m.listed[n], g.Name)
		}
	}
	return m
}

// Trusted returns the groups whose condition fits the certificate of a node. The certificate is nil if the node joined
// with a token.
func (m Membership) Trusted(node tutti.NodeName, certificate *tutti.NodeCertificate) []tutti.GroupName {
	var out []tutti.GroupName
	for _, t := range m.trusts {
		if certificate != nil && t.has(node, *certificate) {
			out = append(out, t.group)
		}
	}
	return out
}

// GroupsOf returns the sorted groups of a node. A node belongs to the groups that list it, and to the groups that Trusted
// returns. It also belongs to the groups of its join token. Of these groups, only those count that the fleet file
// declares with `joined: true`. A token cannot put a node into a listed group.
func (m Membership) GroupsOf(node tutti.NodeName, token, trusted []tutti.GroupName) []tutti.GroupName {
	groups := append(slices.Clone(m.listed[node]), m.Joined(token, trusted)...)
	slices.Sort(groups)
	return slices.Compact(groups)
}

// Joined returns the groups of a node that do not list it: the groups of its join token that the fleet file declares with
// `joined: true`, and the groups that Trusted returns.
func (m Membership) Joined(token, trusted []tutti.GroupName) []tutti.GroupName {
	out := slices.Clone(trusted)
	for _, g := range token {
		if m.joined[g] {
			out = append(out, g)
		}
	}
	return out
}
