package data

import (
	"iter"

	"github.com/tutti-project/tutti"
)

// Comparison contains the reads of a run, prepared for a comparison with the present answers. Making a Comparison
// needs no State, so a handler can do it before the message goes to the writer. If a question occurs several times,
// it is compared once.
type Comparison struct {
	reads     []tutti.Read
	of        []*compared // the question of each read
	questions []*compared
}

// The type `compared` is one question of a Comparison.
type compared struct {
	query   tutti.Query // in normal form
	filter  *Filter     // set for a collect question
	refused bool        // the question is not valid, so it has no answer
}

// NewComparison prepares reads for a comparison. The reads need not be in normal form.
func NewComparison(reads []tutti.Read) *Comparison {
	c := &Comparison{reads: reads, of: make([]*compared, len(reads))}
	known, normal := map[identity]*compared{}, map[identity]*compared{}
	for i, r := range reads {
		id := identify(r.Query)
		q := known[id]
		if q == nil {
			q = comparedOf(r.Query)
			if other := normal[identify(q.query)]; other != nil {
				q = other
			} else {
				normal[identify(q.query)] = q
				c.questions = append(c.questions, q)
			}
			known[id] = q
		}
		c.of[i] = q
	}
	return c
}

func comparedOf(query tutti.Query) *compared {
	normal, err := NormalQuery(query)
	if err != nil {
		return &compared{query: query, refused: true}
	}
	q := &compared{query: normal}
	if normal.Kind == tutti.QueryCollect {
		q.filter, _ = ParseFilter(normal.Filter) // cannot fail, because the filter is in normal form
	}
	return q
}

// Keys yields the keys of the values that the reads name. Keys leaves out hiera keys, because each node has its own.
func (c *Comparison) Keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, q := range c.questions {
			if q.refused || q.query.Kind != tutti.QueryValue {
				continue
			}
			if !yield(q.query.Key) {
				return
			}
		}
	}
}

// Cost returns the largest number of comparisons that Outdated will make (see State.Cost). A question that is in a
// record costs little, because only the asker's own exports must be read for its answer.
func (c *Comparison) Cost(s *State, asker Asker) int {
	cost := 0
	for _, q := range c.questions {
		cost += s.costOf(q, asker)
	}
	return cost
}

func (s *State) costOf(q *compared, asker Asker) int {
	switch {
	case q.refused || q.query.Kind != tutti.QueryCollect:
		return costOfSum
	case s.questions[identify(q.query)] != nil:
		own := s.effective(asker.Node, s.overlay(asker))[q.query.Type]
		return costOfSum + weightOf(own).cost(q.filter, costOfSum)
	default:
		return costOfSum + s.cost(q.query.Type, q.filter, costOfSum)
	}
}

// Outdated returns the reads whose questions have another answer now. The reads stay in their order. Outdated treats
// a degraded read like any other read.
func (c *Comparison) Outdated(s *State, asker Asker) []tutti.Read {
	type answer struct {
		found  bool
		digest tutti.Digest
	}
	now := make(map[*compared]answer, len(c.questions))
	for _, q := range c.questions {
		found, digest := s.current(q, asker)
		now[q] = answer{found, digest}
	}
	var outdated []tutti.Read
	for i, r := range c.reads {
		if is := now[c.of[i]]; is.found != r.Found || is.digest != r.Digest {
			outdated = append(outdated, r)
		}
	}
	return outdated
}

// Outdated does the same as Comparison.Outdated. It is for reads that are in a record now, or were in a record
// earlier.
func (s *State) Outdated(reads []tutti.Read, asker Asker) []tutti.Read {
	var outdated []tutti.Read
	for _, r := range reads {
		q := &compared{query: r.Query}
		if s.questions[identify(r.Query)] == nil {
			q = comparedOf(r.Query)
		}
		if found, digest := s.current(q, asker); found != r.Found || digest != r.Digest {
			outdated = append(outdated, r)
		}
	}
	return outdated
}

// The method `current` returns whether an asker finds an answer now, and the answer's digest. If the question is in a
// record (see Remember), no search is necessary. The method never lists exports.
func (s *State) current(q *compared, asker Asker) (bool, tutti.Digest) {
	if known := s.questions[identify(q.query)]; known != nil {
		return known.answer(asker)
	}
	if q.refused {
		return false, ""
	}
	if q.query.Kind != tutti.QueryCollect {
		now := s.Answer(q.query, asker)
		return now.Found, now.Digest
	}
	var all sum
	s.pass(q.query.Type, asker, func(members []member) { all = all.plus(sumOf(members, q.filter)) })
	return true, all.digest()
}
