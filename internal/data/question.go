package data

import (
	"iter"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
)

// Question is a question in the record of at least one node. All nodes share one Question, so equal questions have
// equal pointers until the next Remember or Forget. A Question whose field Node is set is not shared: each call that
// returns it makes a new copy.
type Question struct {
	Query tutti.Query
	// Node is set if this node has, or will have, its own data for the question's hiera key.
	// The question then belongs only to this node.
	Node tutti.NodeName
	// If Hard is true (values, hiera keys), the answer exists only after a producer has applied its catalog. If Hard
	// is false (exports), the answer exists after a producer has compiled.
	Hard bool

	state   *State
	readers map[*record]struct{}
	absent  map[*absentSet]struct{} // for a hiera question, the absent sets that contain the key
	// for a hiera question, whether the shared level has the key or a node declares that it will
	// publish the key
	present bool
	filter  *Filter // set for a collect question
	total   sum     // for a collect question, the sum of all exports that the filter accepts now
	refused bool    // the question is invalid, so it never has an answer
	change  *Change // the last known change of the answer
}

// The type `identity` has the fields that are the same in equal questions.
type identity struct {
	kind      tutti.QueryKind
	key, name string
	filter    string
}

func identify(q tutti.Query) identity { return identity{q.Kind, q.Key, q.Type, string(q.Filter)} }

// The method `intern` returns the shared question for a query. The caller must then link the question with a reader
// or an absent set, or release it.
func (s *State) intern(query tutti.Query) *Question {
	if q := s.questions[identify(query)]; q != nil {
		return q
	}
	normal, err := NormalQuery(query)
	if err == nil {
		query = normal
	}
	id := identify(query)
	if q := s.questions[id]; q != nil {
		return q
	}
	q := &Question{Query: query, Hard: query.Kind != tutti.QueryCollect, state: s, readers: map[*record]struct{}{}, refused: err != nil}
	s.questions[id] = q
	switch {
	case q.refused:
	case query.Kind == tutti.QueryHiera:
		q.absent = map[*absentSet]struct{}{}
		q.present = s.sharedPresent(query.Key)
	case query.Kind == tutti.QueryCollect:
		s.internCollect(q)
	}
	return q
}

func (s *State) internCollect(q *Question) {
	q.filter, _ = ParseFilter(q.Query.Filter) // cannot fail, because the filter is in normal form
	name := q.Query.Type
	if s.collectors[name] == nil {
		s.collectors[name] = map[*Question]struct{}{}
	}
	s.collectors[name][q] = struct{}{}
	for _, members := range s.types[name] {
		q.total = q.total.plus(sumOf(members, q.filter))
	}
	for _, o := range s.jobs {
		for node, set := range o.sets {
			o.shift(q, sumOf(set[name], q.filter).minus(sumOf(s.nodes[node][name], q.filter)))
		}
	}
}

// The method `release` deletes a question if no record reads it any more.
func (s *State) release(q *Question) {
	if len(q.readers) > 0 || len(q.absent) > 0 {
		return
	}
	delete(s.questions, identify(q.Query))
	if name := q.Query.Type; s.collectors[name] != nil {
		delete(s.collectors[name], q)
		if len(s.collectors[name]) == 0 {
			delete(s.collectors, name)
		}
	}
	for _, o := range s.jobs {
		delete(o.change, q)
	}
}

// The method `answer` returns whether an asker finds an answer now, and the answer's digest. It does not list
// exports.
func (q *Question) answer(asker Asker) (bool, tutti.Digest) {
	s := q.state
	if q.refused {
		return false, ""
	}
	switch q.Query.Kind {
	case tutti.QueryHiera:
		digest := s.hieraValue(asker.Node, q.Query.Key).digest
		return digest != "", digest
	case tutti.QueryCollect:
		return true, q.collected(asker).digest()
	case tutti.QueryGroups, tutti.QueryENC:
		digest := ownOf(s, q.Query.Kind, asker.Node).digest
		return digest != "", digest
	default:
		digest := s.digestFor(s.values[q.Query.Key], asker.Node)
		return digest != "", digest
	}
}

// The method `collected` returns the sum of the exports that an asker's collector finds now.
func (q *Question) collected(asker Asker) sum {
	o := q.state.overlay(asker)
	all := q.total
	if o != nil {
		all = all.plus(o.change[q])
	}
	return all.minus(sumOf(q.state.effective(asker.Node, o)[q.Query.Type], q.filter))
}

// Answered reports whether there is an answer for a node. If job is not empty, Answered uses the view
// of that job. A collector always has an answer, which may be an empty set.
func (q *Question) Answered(node tutti.NodeName, job tutti.JobID) bool {
	found, _ := q.answer(Asker{Node: node, Job: job, Overlay: job != ""})
	return found
}

// Producers yields the nodes that publish data for the question now, or declare that they will,
// sorted by name. If job is not empty, Producers uses the view of that job. A producer may also be a
// reader of the question.
func (q *Question) Producers(job tutti.JobID) iter.Seq[tutti.NodeName] {
	return func(yield func(tutti.NodeName) bool) {
		for _, node := range q.producers(job) {
			if !yield(node) {
				return
			}
		}
	}
}

func (q *Question) producers(job tutti.JobID) []tutti.NodeName {
	if q.refused || q.Query.Own() { // no node publishes such an answer
		return nil
	}
	if q.Query.Kind == tutti.QueryCollect {
		return q.exporters(job)
	}
	paths := []string{q.Query.Key}
	if q.Query.Kind == tutti.QueryHiera {
		paths = []string{sharedHiera(q.Query.Key)}
		if q.Node != "" {
			paths = append(paths, nodeHiera(q.Node, q.Query.Key))
		}
	}
	var nodes []tutti.NodeName
	for _, path := range paths {
		if owner := q.state.values[path].Owner; owner != "" {
			nodes = append(nodes, owner)
		}
		nodes = append(nodes, q.state.declared[path]...)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func (q *Question) exporters(job tutti.JobID) []tutti.NodeName {
	s, name := q.state, q.Query.Type
	var nodes []tutti.NodeName
	add := func(node tutti.NodeName, members []member) {
		if slices.ContainsFunc(members, func(m member) bool { return q.filter.Match(m.Export) }) {
			nodes = append(nodes, node)
		}
	}
	overlay := s.jobs[job].all()
	for node, members := range s.types[name] {
		if _, replaced := overlay[node]; !replaced {
			add(node, members)
		}
	}
	for node, set := range overlay {
		add(node, set[name])
	}
	slices.Sort(nodes)
	return nodes
}

// Readers returns the nodes that have the question in their records, sorted. For a hiera key, the
// readers include nodes for which the key was absent.
func (s *State) Readers(query tutti.Query) []tutti.NodeName {
	if normal, err := NormalQuery(query); err == nil {
		query = normal
	}
	q := s.questions[identify(query)]
	if q == nil {
		return nil
	}
	nodes := map[tutti.NodeName]struct{}{}
	for r := range q.askers() {
		nodes[r.node] = struct{}{}
	}
	return slices.Sorted(maps.Keys(nodes))
}

// ReaderCount returns an upper limit for the number of nodes that Readers returns. ReaderCount does
// not look at each node.
func (s *State) ReaderCount(query tutti.Query) int {
	if normal, err := NormalQuery(query); err == nil {
		query = normal
	}
	q := s.questions[identify(query)]
	if q == nil {
		return 0
	}
	count := len(q.readers)
	for a := range q.absent {
		count += len(a.readers)
	}
	return count
}

// askers yields the records with the question, including the records in which its key was absent. If a record has the
// key both as a read and as an absent key, the record comes twice.
func (q *Question) askers() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for r := range q.readers {
			if !yield(r) {
				return
			}
		}
		for a := range q.absent {
			for r := range a.readers {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Questions yields the questions in a node's record. A record has questions with an answer, collectors, and values
// without an answer. It also has the hiera keys that were absent. Questions yields such a key only if the key has a
// value now, or if a node declares it. For the same log, the order is always the same. Callers may rely on nothing
// else about the order.
func (s *State) Questions(node tutti.NodeName) iter.Seq[*Question] {
	return func(yield func(*Question) bool) {
		r := s.records[node]
		if r == nil {
			return
		}
		var last *Question
		for _, read := range r.reads {
			if read.Question == last {
				continue
			}
			last = read.Question
			if !yield(s.ownQuestion(r, read.Question)) {
				return
			}
		}
		for _, q := range s.present(r, func(q *Question) bool { return q.present }, s.declaredFor[node]) {
			if _, read := q.readers[r]; read {
				continue
			}
			if !yield(s.ownQuestion(r, q)) {
				return
			}
		}
	}
}

// ownQuestion returns a question for this node alone if the node has, or will have, its own
// data for the hiera key.
func (s *State) ownQuestion(r *record, q *Question) *Question {
	if q.refused || q.Query.Kind != tutti.QueryHiera {
		return q
	}
	_, has := s.hiera[r.node][q.Query.Key]
	if _, declared := s.declaredFor[r.node][q.Query.Key]; !has && !declared {
		return q
	}
	return &Question{Query: q.Query, Node: r.node, Hard: true, state: s}
}
