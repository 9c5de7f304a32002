package data

import (
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
)

// overlay is what the nodes of one job have handed over without applying it: sets that
// replace the current ones for the runs of that job.
type overlay struct {
	sets    map[tutti.NodeName]exportSet
	change  map[*Question]sum // what the sets add to the totals of questions; never zero
	weights weights
}

// all returns the sets; nil if there is no such job.
func (o *overlay) all() map[tutti.NodeName]exportSet {
	if o == nil {
		return nil
	}
	return o.sets
}

func (o *overlay) shift(q *Question, by sum) {
	if changed := o.change[q].plus(by); changed == (sum{}) {
		delete(o.change, q)
	} else {
		o.change[q] = changed
	}
}

// overlay returns what replaces current sets for this asker; nil: nothing does.
func (s *State) overlay(asker Asker) *overlay {
	if !asker.Overlay {
		return nil
	}
	return s.jobs[asker.Job]
}

// effective returns the set of a node as an asker with this overlay sees it.
func (s *State) effective(node tutti.NodeName, o *overlay) exportSet {
	if set, replaced := o.all()[node]; replaced {
		return set
	}
	return s.nodes[node]
}

// Overlaid reports whether a job has its own set of a node.
func (s *State) Overlaid(job tutti.JobID, node tutti.NodeName) bool {
	_, replaced := s.jobs[job].all()[node]
	return replaced
}

func (s *State) startJob(job tutti.JobID) {
	s.endJob(job)
	s.jobs[job] = &overlay{map[tutti.NodeName]exportSet{}, map[*Question]sum{}, weights{}}
}

// endJob drops the overlay of a job. Its readers then see the public data.
func (s *State) endJob(job tutti.JobID) {
	o := s.jobs[job]
	if o == nil {
		return
	}
	for q, change := range o.change {
		for r := range q.readers {
			if r.job != job {
				continue
			}
			// What a node hands over changes none of its own answers.
			if set, replaced := o.sets[r.node]; replaced {
				name := q.Query.Type
				if change == sumOf(set[name], q.filter).minus(sumOf(s.nodes[r.node][name], q.filter)) {
					continue
				}
			}
			s.touch(r)
		}
	}
	delete(s.jobs, job)
}

// setOverlay makes set what a node exports in the view of a job. A job that has
// ended reads nothing more, so a late set is dropped.
func (s *State) setOverlay(job tutti.JobID, node tutti.NodeName, set exportSet) {
	o := s.jobs[job]
	if o == nil {
		return
	}
	before := s.effective(node, o)
	o.weights.replace(o.sets[node], set)
	o.sets[node] = set
	s.exportsChanged(node, job, before, set)
}

// dropOverlay gives a job the public view of a node.
func (s *State) dropOverlay(job tutti.JobID, node tutti.NodeName) {
	o := s.jobs[job]
	if set, replaced := o.all()[node]; replaced {
		delete(o.sets, node)
		o.weights.replace(set, nil)
		s.exportsChanged(node, job, set, s.nodes[node])
	}
}

// AffectedBy returns the nodes that ask a question whose answer the overlay of a
// job changes, sorted.
func (s *State) AffectedBy(job tutti.JobID) []tutti.NodeName {
	o := s.jobs[job]
	if o == nil {
		return nil
	}
	nodes := map[tutti.NodeName]struct{}{}
	for q := range o.change {
		for r := range q.readers {
			nodes[r.node] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}
