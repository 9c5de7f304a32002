package data

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// absentSet is a set of hiera keys that were absent. All nodes with the same keys, such as the
// nodes of a role, share one set.
type absentSet struct {
	digest  tutti.Digest
	keys    []string // sorted
	readers map[*record]struct{}
	present map[*Question]struct{} // the questions of the set's keys for which Question.present is true
}

// internAbsent returns the shared set for these keys, or nil if there are no keys. If asked.Absent is not empty, it
// must be the digest of the keys.
func (s *State) internAbsent(asked *tutti.Questions) *absentSet {
	if len(asked.Keys) == 0 {
		return nil
	}
	digest := asked.Absent
	if digest == "" {
		digest = tutti.DigestOf([]byte(strings.Join(asked.Keys, "\x00")))
	}
	if a := s.absent[digest]; a != nil {
		return a
	}
	a := &absentSet{digest, slices.Clone(asked.Keys), map[*record]struct{}{}, map[*Question]struct{}{}}
	for i, key := range a.keys {
		q := s.intern(tutti.Query{Kind: tutti.QueryHiera, Key: key})
		a.keys[i] = q.Query.Key // all sets share the text of a key
		q.absent[a] = struct{}{}
		if q.present {
			a.present[q] = struct{}{}
		}
	}
	s.absent[digest] = a
	return a
}

func (s *State) releaseAbsent(a *absentSet) {
	if len(a.readers) > 0 {
		return
	}
	delete(s.absent, a.digest)
	for _, key := range a.keys {
		q := s.questions[identity{kind: tutti.QueryHiera, key: key}]
		delete(q.absent, a)
		s.release(q)
	}
}

// sharedPresent reports whether a key in absent sets may have a value now. A key may have a value
// if it exists on the shared level, or if a node declares that it will publish the key.
func (s *State) sharedPresent(key string) bool {
	_, has := s.shared[key]
	return has || len(s.declared[sharedHiera(key)]) > 0
}

// If the result of sharedPresent for a key has changed, markPresent updates the absent sets that contain the key.
func (s *State) markPresent(q *Question) {
	is := s.sharedPresent(q.Query.Key)
	if is == q.present {
		return
	}
	q.present = is
	for a := range q.absent {
		if is {
			a.present[q] = struct{}{}
		} else {
			delete(a.present, q)
		}
	}
}

// A record has keys that were absent. The method `present` returns questions about these keys, sorted by key. There
// are three kinds: all keys on the node's own level, all keys in `more`, and the keys on the shared level that are
// present and that `wanted` accepts.
func (s *State) present(r *record, wanted func(*Question) bool, more map[string]struct{}) []*Question {
	if r.absent == nil {
		return nil
	}
	var found []*Question
	for q := range r.absent.present {
		if wanted(q) {
			found = append(found, q)
		}
	}
	own := func(key string) {
		q := s.questions[identity{kind: tutti.QueryHiera, key: key}]
		if q == nil {
			return
		}
		if _, has := q.absent[r.absent]; has {
			found = append(found, q)
		}
	}
	for key := range s.hiera[r.node] {
		own(key)
	}
	for key := range more {
		own(key)
	}
	slices.SortFunc(found, func(a, b *Question) int { return cmp.Compare(a.Query.Key, b.Query.Key) })
	return slices.Compact(found)
}
