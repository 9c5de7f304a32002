package data

import (
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
)

// ownAnswer is the answer to a question to which each node has its own answer (see Query.Own). Nodes with equal answers
// share it.
type ownAnswer struct {
	value  json.RawMessage
	digest tutti.Digest
	nodes  int // how many nodes have it
}

// SetGroups sets the groups of a node in s, as the server decides them. The groups are the answer to the node's question
// QueryGroups. The caller calls SetGroups after Apply, for each event that can change the groups of a node.
func SetGroups(s *State, node tutti.NodeName, groups []tutti.GroupName) {
	names := append([]tutti.GroupName{}, groups...)
	slices.Sort(names)
	setOwn(s, tutti.QueryGroups, node, names)
}

// The function `classified` sets what the ENC says about a node. The environment is not part of the answer, because the
// compile does not read it.
func classified(s *State, b *tutti.NodeClassified) {
	if b.Classification == nil {
		own(s, tutti.QueryENC, b.Node, nil)
		return
	}
	answer := tutti.Classification{Classes: b.Classification.Classes, Parameters: b.Classification.Parameters}
	setOwn(s, tutti.QueryENC, b.Node, answer)
}

func setOwn(s *State, kind tutti.QueryKind, node tutti.NodeName, answer any) {
	raw, err := json.Marshal(answer)
	if err == nil {
		raw = canonicalOrRaw(raw)
	}
	if err != nil { // the JSON comes from an event, so it is valid
		panic(string(kind) + " of " + string(node) + ": " + err.Error())
	}
	a := s.ownAnswers[string(raw)]
	if a == nil {
		a = &ownAnswer{value: raw, digest: tutti.DigestOf(raw)}
		s.ownAnswers[string(raw)] = a
	}
	own(s, kind, node, a)
}

// ownKey names the answer of one node to one question.
type ownKey struct {
	kind tutti.QueryKind
	node tutti.NodeName
}

// The function `own` replaces an answer of a node, and touches the node if its record has the question.
func own(s *State, kind tutti.QueryKind, node tutti.NodeName, a *ownAnswer) {
	key := ownKey{kind, node}
	old := s.owns[key]
	if old == a {
		return
	}
	if old != nil {
		if old.nodes--; old.nodes == 0 {
			delete(s.ownAnswers, string(old.value))
		}
	}
	if a == nil {
		delete(s.owns, key)
	} else {
		s.owns[key] = a
		a.nodes++
	}
	q, r := s.questions[identity{kind: kind}], s.records[node]
	if q == nil || r == nil {
		return
	}
	if _, reads := q.readers[r]; reads {
		q.change = s.change
		s.touch(r)
	}
}

// ownOf returns the answer of a node. A node that is not known has no answer.
func ownOf(s *State, kind tutti.QueryKind, node tutti.NodeName) ownAnswer {
	if a := s.owns[ownKey{kind, node}]; a != nil {
		return *a
	}
	return ownAnswer{}
}
