package data

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
)

// Asker is the asker of a question. The answer may depend on every field.
type Asker struct {
	Node tutti.NodeName
	Job  tutti.JobID
	// Overlay: exports that nodes handed over in this job replace their
	// current ones.
	Overlay bool
	// Opener is the node that opens secrets for Node; empty: the node itself. An answer has a secret in
	// the form that is sealed to the opener, or without Sealed if there is no such form.
	Opener tutti.NodeName
}

// Answer is the answer to a question as of a sequence of the log.
type Answer struct {
	Found   bool            // value, hiera: there is a value; collect: always true
	Value   json.RawMessage // value, hiera
	Exports []tutti.Export  // collect: sorted by title and node, without the asker's own
	Digest  tutti.Digest    // equal digests: equal answers; empty if not found
	Seq     uint64
}

// NormalQuery checks a question from outside and returns its normal form,
// so that equal questions are equal. CodeInvalid: an unknown kind, a malformed
// key, type or filter, or a part that its kind does not have.
func NormalQuery(q tutti.Query) (tutti.Query, error) {
	switch q.Kind {
	case tutti.QueryValue, tutti.QueryHiera:
		if q.Type != "" || q.Filter != nil {
			return q, tutti.Errorf(tutti.CodeInvalid, "%s question for key %q: it has no type and no filter", q.Kind, q.Key)
		}
		// Hiera asks for keys that no value can have (with spaces, say): absent.
		if q.Kind == tutti.QueryHiera {
			return q, nil
		}
		return q, tutti.ValidateKey(q.Key)
	case tutti.QueryCollect:
		if q.Key != "" {
			return q, tutti.Errorf(tutti.CodeInvalid, "collect question: it has no key, got %q", q.Key)
		}
		if err := tutti.ValidateType(q.Type); err != nil {
			return q, err
		}
		var err error
		q.Filter, err = Normalize(q.Filter)
		return q, err
	default:
		return q, tutti.Errorf(tutti.CodeInvalid, "question of kind %q: the kinds are value, hiera and collect", string(q.Kind))
	}
}

// Answer answers a question. A question that NormalQuery refuses is not found, even a collect question: so the
// answer cannot be taken for an empty set.
func (s *State) Answer(q tutti.Query, asker Asker) Answer {
	q, err := NormalQuery(q)
	if err != nil {
		return Answer{Seq: s.seq}
	}
	if q.Kind == tutti.QueryCollect {
		return s.collect(q, asker)
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

// collect looks at the exports of one type only.
func (s *State) collect(q tutti.Query, asker Asker) Answer {
	filter, err := ParseFilter(q.Filter)
	if err != nil { // cannot fail: the filter is in normal form
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

// pass calls f with the exports of a type, node by node, as the asker sees them, without the asker's own.
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
