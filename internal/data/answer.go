package data

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
)

// Asker is who asks a question. The answer may depend on all of it.
type Asker struct {
	Node tutti.NodeName
	Job  tutti.JobID
	// Overlay: exports that nodes handed over in this job count instead of their
	// current ones.
	Overlay bool
	// Opener is who opens secrets for Node; empty: the node itself. A secret is in an answer in
	// the form that is sealed to the opener, without Sealed if there is none.
	Opener tutti.NodeName
}

// Answer is the answer to a question as of a sequence of the log.
type Answer struct {
	Found   bool            // value, hiera: there is one; collect: always
	Value   json.RawMessage // value, hiera
	Exports []tutti.Export  // collect: sorted by title and node, without the asker's own
	Digest  tutti.Digest    // equal digests: equal answers; empty if not found
	Seq     uint64
}

// NormalQuery checks a question that somebody sent and returns its normal form,
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

// Answer answers a question. What NormalQuery refuses is not found, a collect question too: nobody can
// take it for an empty set.
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

// Cost is how many comparisons of exports the answer to a question takes at most;
// 0 for what is looked up.
func (s *State) Cost(q tutti.Query) int {
	if q.Kind != tutti.QueryCollect {
		return 0
	}
	filter, err := ParseFilter(q.Filter)
	if err != nil {
		return 0 // it is not answered
	}
	exports := 0
	for _, members := range s.types[q.Type] {
		exports += len(members)
	}
	for _, overlay := range s.jobs {
		for _, set := range overlay.sets {
			exports += len(set[q.Type])
		}
	}
	return exports * (1 + filter.tests())
}

// collect looks at the exports of one type only.
func (s *State) collect(q tutti.Query, asker Asker) Answer {
	filter, err := ParseFilter(q.Filter)
	if err != nil { // its own normal form
		return Answer{Seq: s.seq}
	}
	answer := Answer{Found: true, Exports: []tutti.Export{}, Seq: s.seq}
	var digest sum
	pass := func(node tutti.NodeName, members []member) {
		if node == asker.Node {
			return
		}
		for _, m := range members {
			if filter.Match(m.Export) {
				answer.Exports = append(answer.Exports, m.Export)
				digest.add(m.digest)
			}
		}
	}
	overlay := s.overlay(asker).all()
	for node, members := range s.types[q.Type] {
		if _, replaced := overlay[node]; !replaced {
			pass(node, members)
		}
	}
	for node, set := range overlay {
		pass(node, set[q.Type])
	}
	slices.SortFunc(answer.Exports, compareExports)
	answer.Digest = digest.digest()
	return answer
}

// Outdated returns the reads whose questions have another answer by now, in
// their order. A degraded read is compared as any other. What a record has
// (Remember) costs little: it is compared, not listed.
func (s *State) Outdated(reads []tutti.Read, asker Asker) []tutti.Read {
	var outdated []tutti.Read
	for _, r := range reads {
		if found, digest := s.current(r.Query, asker); found != r.Found || digest != r.Digest {
			outdated = append(outdated, r)
		}
	}
	return outdated
}

func (s *State) current(query tutti.Query, asker Asker) (bool, tutti.Digest) {
	if q := s.questions[identify(query)]; q != nil {
		return q.answer(asker)
	}
	now := s.Answer(query, asker)
	return now.Found, now.Digest
}
