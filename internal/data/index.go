package data

import (
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
)

// The type `record` contains the reads of one node.
type record struct {
	node    tutti.NodeName
	job     tutti.JobID
	reads   []read
	absent  *absentSet // nil if the run asked for no absent key
	touched bool       // the record is in State.touched
}

// The type `read` is a question with the answer that the node got. The digest shares its memory with the digest of
// the value. If the answer of a collector was current when Remember stored it, the read has the sum instead of the
// digest. Comparing sums needs no hashing. Cheap comparisons are important if all nodes read one export, because a
// change of this export changes an answer of every node.
type read struct {
	*Question
	digest          tutti.Digest
	sum             sum
	summed          bool // if `summed` is true, `sum` replaces `digest`
	found, degraded bool
}

// The method `given` returns the digest of the answer that the node got.
func (r *read) given() tutti.Digest {
	if r.summed {
		return r.sum.digest()
	}
	return r.digest
}

// The method `changed` reports whether the answer is different now. The method modifies nothing, because several
// readers compare the same record at the same time.
func (r *read) changed(asker Asker) bool {
	if r.summed {
		return r.collected(asker) != r.sum
	}
	found, digest := r.answer(asker)
	return found != r.found || digest != r.digest
}

// If an answer is still current, the method `compact` stores it in its cheapest form.
func (r *read) compact(asker Asker) {
	if r.changed(asker) {
		return
	}
	if r.Hard || r.refused || !r.found {
		_, r.digest = r.answer(asker)
		return
	}
	r.sum, r.summed, r.digest = r.collected(asker), true, ""
}

// Remember replaces the stored reads of a node. If `job` is not empty, the node's runs read the overlay
// of this job. If `job` is empty, the node's runs read the public data. Remember touches the node (see Touched). From
// the argument `asked`, the state keeps only Absent, Keys and the texts of the questions in memory.
func (s *State) Remember(node tutti.NodeName, asked *tutti.Questions, job tutti.JobID) {
	r := s.records[node]
	if r == nil {
		r = &record{node: node}
		s.records[node] = r
	}
	old, oldAbsent := r.reads, r.absent
	r.job = job
	// Link all new reads before releasing old ones, so that questions which stay are not created
	// again.
	asker := Asker{Node: node, Job: job, Overlay: job != ""}
	r.reads = make([]read, len(asked.Reads))
	for i, in := range asked.Reads {
		q := s.intern(in.Query)
		r.reads[i] = read{Question: q, digest: in.Digest, found: in.Found, degraded: in.Degraded}
		r.reads[i].compact(asker)
		q.readers[r] = struct{}{}
	}
	r.absent = s.internAbsent(asked)
	if r.absent != nil {
		r.absent.readers[r] = struct{}{}
	}
	s.unlink(r, old, oldAbsent)
	s.touch(r)
}

// Forget deletes the stored reads of a node, and the questions that no other node reads. After
// Forget, no change touches the node.
func (s *State) Forget(node tutti.NodeName) {
	r := s.records[node]
	if r == nil {
		return
	}
	delete(s.records, node)
	reads, absent := r.reads, r.absent
	r.reads, r.absent, r.touched = nil, nil, false
	s.unlink(r, reads, absent)
}

// unlink removes a record from the questions that were in the record before and are no longer in it.
func (s *State) unlink(r *record, reads []read, absent *absentSet) {
	keep := make(map[*Question]bool, len(r.reads))
	for _, read := range r.reads {
		keep[read.Question] = true
	}
	for _, read := range reads {
		if !keep[read.Question] {
			delete(read.readers, r)
			s.release(read.Question)
		}
	}
	if absent != nil && absent != r.absent {
		delete(absent.readers, r)
		s.releaseAbsent(absent)
	}
}

// Asked returns the stored reads of a node, or nil if there are none.
func (s *State) Asked(node tutti.NodeName) *tutti.Questions {
	r := s.records[node]
	if r == nil {
		return nil
	}
	asked := &tutti.Questions{Reads: make([]tutti.Read, len(r.reads))}
	for i := range r.reads {
		read := &r.reads[i]
		asked.Reads[i] = tutti.Read{Query: read.Query, Found: read.found, Digest: read.given(), Degraded: read.degraded}
	}
	if r.absent != nil {
		asked.Absent, asked.Keys = r.absent.digest, r.absent.keys
	}
	return asked
}

// OutdatedOf returns the questions of a node's record that have another answer now. If the argument `most` is not 0,
// OutdatedOf returns at most this number of questions. The reads come first, in their order. After them come the
// hiera keys that were absent and exist now, sorted by name. If `job` is not empty, the method compares with the
// answers in the job's view.
func (s *State) OutdatedOf(node tutti.NodeName, job tutti.JobID, most int) []tutti.Query {
	r := s.records[node]
	if r == nil {
		return nil
	}
	var outdated []tutti.Query
	asker := Asker{Node: node, Job: job, Overlay: job != ""}
	for i := range r.reads {
		if !r.reads[i].changed(asker) {
			continue
		}
		outdated = append(outdated, r.reads[i].Query)
		if len(outdated) == most {
			return outdated
		}
	}
	has := func(q *Question) bool { return s.hieraValue(node, q.Query.Key).digest != "" }
	for _, q := range s.present(r, has, nil) {
		if !has(q) { // the key has a secret that is not sealed to this node
			continue
		}
		outdated = append(outdated, q.Query)
		if len(outdated) == most {
			break
		}
	}
	return outdated
}

// Touched returns the nodes whose answers may have changed since the last call, sorted. Then Touched
// clears the list. A node is touched if an event has changed the answer to a question in the node's
// record, in the view of the record's job. Touched also returns a node if two changes cancel each
// other, or if its record was already outdated. Use OutdatedOf for a precise result.
func (s *State) Touched() []tutti.NodeName {
	var nodes []tutti.NodeName
	for _, r := range s.touched {
		if r.touched {
			nodes = append(nodes, r.node)
			r.touched = false
		}
	}
	s.touched = nil
	slices.Sort(nodes)
	return nodes
}

func (s *State) touch(r *record) {
	if !r.touched {
		r.touched = true
		s.touched = append(s.touched, r)
	}
}

// valueChanged touches the nodes that read a value or its hiera key. The caller has already changed the value, and
// passes the former value, or the zero value if there was none.
func (s *State) valueChanged(path string, had value) {
	now := s.values[path]
	if now.digest == had.digest && now.sealed == had.sealed {
		return
	}
	if q := s.questions[identity{kind: tutti.QueryValue, key: path}]; q != nil {
		q.change = s.change
	}
	if node, key, ok := hieraKey(path); ok {
		if q := s.questions[identity{kind: tutti.QueryHiera, key: key}]; q != nil {
			q.change = s.change
			if node == "" {
				s.markPresent(q)
			}
		}
	}
	s.askersOf(path, had, now, func(_ *Question, r *record, _ tutti.Digest) { s.touch(r) })
}

// askersOf calls f for each record in which an answer changes when the value of a path changes from
// `had` to `now`. askersOf passes the new answer to f. The new answer is empty if there is none.
// askersOf may call f for the same record twice.
func (s *State) askersOf(path string, had, now value, f func(q *Question, r *record, answer tutti.Digest)) {
	tell := func(q *Question, r *record) {
		if is := s.digestFor(now, r.node); is != s.digestFor(had, r.node) {
			f(q, r, is)
		}
	}
	if q := s.questions[identity{kind: tutti.QueryValue, key: path}]; q != nil {
		for r := range q.readers {
			tell(q, r)
		}
	}
	node, key, ok := hieraKey(path)
	if !ok {
		return
	}
	q := s.questions[identity{kind: tutti.QueryHiera, key: key}]
	if q == nil {
		return
	}
	if node == "" {
		for r := range q.askers() {
			if _, hidden := s.hiera[r.node][key]; !hidden {
				tell(q, r)
			}
		}
		return
	}
	answer := func(own value) tutti.Digest {
		if own.digest == "" {
			own = s.shared[key]
		}
		return s.digestFor(own, node)
	}
	was, is := answer(had), answer(now)
	if r := s.records[node]; r != nil && r.asks(q) && was != is {
		f(q, r, is)
	}
}

func (r *record) asks(q *Question) bool {
	if _, reads := q.readers[r]; reads {
		return true
	}
	_, absent := q.absent[r.absent]
	return absent
}

// exportsChanged updates the questions after a node's set of exports has changed. The change is
// either public or only in the view of one job. exportsChanged touches the readers that get another
// answer. The caller passes the former set and the present set.
func (s *State) exportsChanged(node tutti.NodeName, job tutti.JobID, before, after exportSet) {
	names := maps.Clone(before)
	if names == nil {
		names = exportSet{}
	}
	maps.Copy(names, after)
	for name := range names {
		for q := range s.collectors[name] {
			was, is := sumOf(before[name], q.filter), sumOf(after[name], q.filter)
			if was == is {
				continue
			}
			if job != "" {
				s.jobs[job].shift(q, is.minus(was))
			} else {
				s.shiftAll(q, node, is.minus(was))
				q.change = s.change
			}
			for r := range q.readers {
				if r.node != node && s.sees(r, node, job) {
					s.touch(r)
				}
			}
		}
	}
}

// shiftAll adds to the total of a question. If the overlay of a job has a set of the node, the total in this job must
// not change, so shiftAll subtracts the same sum in this overlay.
func (s *State) shiftAll(q *Question, node tutti.NodeName, by sum) {
	q.total = q.total.plus(by)
	for _, o := range s.jobs {
		if _, replaced := o.sets[node]; replaced {
			o.shift(q, sum{}.minus(by))
		}
	}
}

// The method `sees` reports whether a reader sees a change of the node's set. If `job` is empty, the public set has
// changed. If `job` is not empty, the set of this job has changed.
func (s *State) sees(r *record, node tutti.NodeName, job tutti.JobID) bool {
	if job != "" {
		return r.job == job
	}
	_, replaced := s.jobs[r.job].all()[node]
	return !replaced
}
