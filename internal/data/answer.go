package data

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
)

// Asker is the node that asks a question, with the view in which it asks. The answer may depend on every
// field.
type Asker struct {
	Node tutti.NodeName
	Job  tutti.JobID
	// If Overlay is true, exports that nodes handed over in this job replace their current exports.
	Overlay bool
	// Opener is the node that opens secrets for Node. If Opener is empty, Node opens secrets itself. An answer contains
	// a secret in the form that is sealed to the opener. If the secret is not sealed to the opener, the field Sealed of
	// the secret in the answer is empty.
	Opener tutti.NodeName
}

// Answer is the answer to a question at one sequence of the log.
type Answer struct {
	// Found reports for a value or hiera question whether there is a value. For a collect
	// question, Found is always true.
	Found   bool
	Value   json.RawMessage // value, hiera
	Exports []tutti.Export  // for a collect question, the exports of other nodes, sorted by title and node
	Digest  tutti.Digest    // answers with equal digests are equal. Digest is empty if nothing was found
	Seq     uint64
}

// NormalQuery checks a question from a node or an operator, and returns its normal form. Equal questions have
// equal normal forms. NormalQuery returns CodeInvalid for an unknown kind, for a malformed key, type or
// filter, and for a field that this kind of question does not have.
func NormalQuery(q tutti.Query) (tutti.Query, error) {
	switch q.Kind {
	case tutti.QueryValue, tutti.QueryHiera:
		if q.Type != "" || q.Filter != nil {
			return q, tutti.Errorf(tutti.CodeInvalid, "%s question for key %q: it must not have a type or a filter", q.Kind, q.Key)
		}
		// Hiera also asks for keys that no value can have, for example keys with spaces. Such a key is absent.
		if q.Kind == tutti.QueryHiera {
			return q, nil
		}
		return q, tutti.ValidateKey(q.Key)
	case tutti.QueryCollect:
		if q.Key != "" {
			return q, tutti.Errorf(tutti.CodeInvalid, "collect question: it must not have a key, but has %q", q.Key)
		}
		if err := tutti.ValidateType(q.Type); err != nil {
			return q, err
		}
		var err error
		q.Filter, err = Normalize(q.Filter)
		return q, err
	case tutti.QueryGroups, tutti.QueryENC:
		if q.Key != "" || q.Type != "" || q.Filter != nil {
			return q, tutti.Errorf(tutti.CodeInvalid, "%s question: it must not have a key, a type or a filter", q.Kind)
		}
		return q, nil
	default:
		return q, tutti.Errorf(tutti.CodeInvalid, "question of kind %q: the kinds are value, hiera, collect, groups and enc", string(q.Kind))
	}
}

// Answer answers a question. If NormalQuery refuses a question, Found is false, even for a collect question. If Found
// were true, a reader would take the answer for an empty set.
func (s *State) Answer(q tutti.Query, asker Asker) Answer {
	q, err := NormalQuery(q)
	if err != nil {
		return Answer{Seq: s.seq}
	}
	if q.Kind == tutti.QueryCollect {
		return s.collect(q, asker)
	}
	if q.Own() {
		own := ownOf(s, q.Kind, asker.Node)
		return Answer{Found: own.digest != "", Value: own.value, Digest: own.digest, Seq: s.seq}
	}
	v := s.values[q.Key]
	if q.Kind == tutti.QueryHiera {
		v = s.hieraValue(asker.Node, q.Key)
	}
	digest := s.digestFor(v, asker.Node)
	if digest == "" {
		return Answer{Seq: s.seq}
	}
	return Answer{Found: true, Value: s.valueFor(v, cmp.Or(asker.Opener, asker.Node)), Digest: digest, Seq: s.seq}
}

// The method `collect` reads only the exports of one type.
func (s *State) collect(q tutti.Query, asker Asker) Answer {
	filter, err := ParseFilter(q.Filter)
	if err != nil { // cannot fail, because the filter is in normal form
		return Answer{Seq: s.seq}
	}
	answer := Answer{Found: true, Exports: []tutti.Export{}, Seq: s.seq}
	var digest sum
	s.pass(q.Type, asker, func(members []member) {
		for i := range members {
			if m := &members[i]; filter == nil || filter.match(&m.Export) {
				answer.Exports = append(answer.Exports, m.Export)
				digest.add(m.digest)
			}
		}
	})
	slices.SortFunc(answer.Exports, compareExports)
	answer.Digest = digest.digest()
	return answer
}

// The method `pass` calls f with the exports of a type, node by node. The method uses the asker's view and leaves out
// the asker's own exports.
func (s *State) pass(name string, asker Asker, f func([]member)) {
	overlay := s.overlay(asker).all()
	for node, members := range s.types[name] {
		if _, replaced := overlay[node]; !replaced && node != asker.Node {
			f(members)
		}
	}
	for node, set := range overlay {
		if node != asker.Node {
			f(set[name])
		}
	}
}
