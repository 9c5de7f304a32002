package data

import (
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
)

// grouping is the answer to the question for the groups of a node. Nodes with the same groups share it.
type grouping struct {
	value  json.RawMessage
	digest tutti.Digest
}

// SetGroups sets the groups of a node, as the server decides them. The groups are the answer to the node's question
// QueryGroups. The caller calls SetGroups after Apply, for each event that can change the groups of a node.
func (s *State) SetGroups(node tutti.NodeName, groups []tutti.GroupName) {
	names := append([]tutti.GroupName{}, groups...)
	slices.Sort(names)
	raw, err := json.Marshal(names)
	if err == nil {
		raw, err = Canonical(raw)
	}
	if err != nil { // encoding a list of strings never fails
		panic("groups of " + string(node) + ": " + err.Error())
	}
	g := s.groupings[string(raw)]
	if g == nil {
		g = &grouping{value: raw, digest: tutti.DigestOf(raw)}
		s.groupings[string(raw)] = g
	}
	s.group(node, g)
}

// The method `group` replaces the groups of a node, and touches the node if its record has the question.
func (s *State) group(node tutti.NodeName, g *grouping) {
	if s.groups[node] == g {
		return
	}
	if s.groups[node] = g; g == nil {
		delete(s.groups, node)
	}
	q, r := s.questions[identity{kind: tutti.QueryGroups}], s.records[node]
	if q == nil || r == nil {
		return
	}
	if _, reads := q.readers[r]; reads {
		q.change = s.change
		s.touch(r)
	}
}

// groupsOf returns the answer to the node's question for its groups. An unknown node has no answer.
func (s *State) groupsOf(node tutti.NodeName) grouping {
	if g := s.groups[node]; g != nil {
		return *g
	}
	return grouping{}
}
