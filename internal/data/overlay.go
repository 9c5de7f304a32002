package data

import (
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
)

// The type `overlay` has the exports that the nodes of one job have handed over and not applied yet. In the runs of
// this job, these exports replace the nodes' current exports.
type overlay struct {
	sets    map[tutti.NodeName]exportSet
	change  map[*Question]sum // for each question, the job's sum minus the public sum; zero is not stored
	weights weights
}

// The method `all` returns the sets. The result is nil if there is no such job.
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

// The method `overlay` returns the overlay of the asker's job. The result is nil if the asker sees the public data.
func (s *State) overlay(asker Asker) *overlay {
	if !asker.Overlay {
		return nil
	}
	return s.jobs[asker.Job]
}

// The method `effective` returns the set of a node in the view of an asker with this overlay.
func (s *State) effective(node tutti.NodeName, o *overlay) exportSet {
	if set, replaced := o.all()[node]; replaced {
		return set
	}
	return s.nodes[node]
}

// Overlaid reports whether a job's overlay has a set of the node.
func (s *State) Overlaid(job tutti.JobID, node tutti.NodeName) bool {
	_, replaced := s.jobs[job].all()[node]
	return replaced
}

func (s *State) startJob(job tutti.JobID) {
	s.endJob(job)
	s.jobs[job] = &overlay{map[tutti.NodeName]exportSet{}, map[*Question]sum{}, weights{}}
}

// endJob deletes the overlay of a job. After endJob, the readers in this job see the
// public data.
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
			// A node's own exports are not part of its answers.
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

// setOverlay sets the exports of a node in the view of a job. If the job has ended,
// setOverlay ignores the set, because the job has no more readers.
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

// dropOverlay removes a node's set from the overlay of a job.
func (s *State) dropOverlay(job tutti.JobID, node tutti.NodeName) {
	o := s.jobs[job]
	if set, replaced := o.all()[node]; replaced {
		delete(o.sets, node)
		o.weights.replace(set, nil)
		s.exportsChanged(node, job, set, s.nodes[node])
	}
}

// AffectedBy returns the nodes with a question whose answer changes because of a job's
// overlay, sorted.
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
