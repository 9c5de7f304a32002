package data

import (
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
)

// record is what is known of what one node reads.
type record struct {
	node    tutti.NodeName
	job     tutti.JobID
	reads   []read
	absent  *absentSet // nil if no key was absent
	touched bool       // it is in State.touched
}

// read is a question and the answer that was given. A digest is shared with its
// value. If a collector's answer was current when it was remembered, the read
// keeps the sum of its digest. Sums are compared without hashing, and
// one export that all nodes read changes an answer of each of them.
type read struct {
	*Question
	digest          tutti.Digest
	sum             sum
	summed          bool // sum is what the digest is of
	found, degraded bool
}

// given returns the digest of the answer that was given.
func (r *read) given() tutti.Digest {
	if r.summed {
		return r.sum.digest()
	}
	return r.digest
}

// changed reports whether the answer differs now. It changes nothing:
// readers compare the same record concurrently.
func (r *read) changed(asker Asker) bool {
	if r.summed {
		return r.collected(asker) != r.sum
	}
	found, digest := r.answer(asker)
	return found != r.found || digest != r.digest
}

// compact keeps an answer that is still current in the form that costs
// the least.
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

// Remember replaces what is known of a node's reads with asked.
// The job is the one whose overlay its runs read. If it is empty,
// answers are the public ones. The node is touched. Nothing of asked is
// kept except Absent, Keys and the texts of questions.
func (s *State) Remember(node tutti.NodeName, asked *tutti.Asked, job tutti.JobID) {
	r := s.records[node]
	if r == nil {
		r = &record{node: node}
		s.records[node] = r
	}
	old, oldAbsent := r.reads, r.absent
	r.job = job
	// Link everything before anything is released, so that what stays is not made again.
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

// Forget drops what is known of a node, and questions that no other node reads. The
// node is no longer touched.
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

// unlink takes a record out of what it read before and does not read now.
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

// Asked returns what is remembered of a node; nil: nothing.
func (s *State) Asked(node tutti.NodeName) *tutti.Asked {
	r := s.records[node]
	if r == nil {
		return nil
	}
	asked := &tutti.Asked{Reads: make([]tutti.Read, len(r.reads))}
	for i := range r.reads {
		read := &r.reads[i]
		asked.Reads[i] = tutti.Read{Query: read.Query, Found: read.found, Digest: read.given(), Degraded: read.degraded}
	}
	if r.absent != nil {
		asked.Absent, asked.Keys = r.absent.digest, r.absent.keys
	}
	return asked
}

// OutdatedOf returns the questions of a node's record that have another answer now,
// at most most of them (0: all): reads in their order, then hiera keys that were
// absent and are there, by name. If a job is given, its overlay counts.
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
		if !has(q) { // it is a secret of the node that is not sealed to the node
			continue
		}
		outdated = append(outdated, q.Query)
		if len(outdated) == most {
			break
		}
	}
	return outdated
}

// Touched returns the nodes, sorted, whose answers may have changed since the last
// call, and forgets them. These are nodes with a record that reads what an event has
// changed, as that record's job sees it. Touched does not notice that two changes undo each
// other, nor that a record was outdated before: use OutdatedOf.
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

// valueChanged touches the readers of a value and of its hiera key. It is
// called after the change, with the value before; the zero value: there was no value.
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

// askersOf calls f for each record with a question whose answer changes if a
// path's value changes from had to now, and with the new answer; empty: no answer. A
// record may come twice.
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

// exportsChanged updates the questions after a node's set has changed, for
// all readers or in one job only, and touches the readers that get another answer. It is called with
// the set that was in effect before and the one that is now.
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

// shiftAll changes a total, except in the view of jobs that have a set of their own of the
// node.
func (s *State) shiftAll(q *Question, node tutti.NodeName, by sum) {
	q.total = q.total.plus(by)
	for _, o := range s.jobs {
		if _, replaced := o.sets[node]; replaced {
			o.shift(q, sum{}.minus(by))
		}
	}
}

// sees reports whether a reader gets the public set of the node (no job), or
// that of the job.
func (s *State) sees(r *record, node tutti.NodeName, job tutti.JobID) bool {
	if job != "" {
		return r.job == job
	}
	_, replaced := s.jobs[r.job].all()[node]
	return !replaced
}
