// Package data is the data plane as a fold of the log: what every node has
// published, what operators have said, and the answers to the questions of
// Puppet runs about it. It is pure: no I/O, no clock, no goroutine.
//
// The keys of values are paths. Two places have a meaning:
//
//	shared/hiera/K       hiera key K on all nodes
//	node/NAME/hiera/K    hiera key K on one node, over the shared one
//
// NAME is a whole part of the path: the data of `web` does not concern
// `web.example.net`.
//
// Package policy decides who may write and read what. That a key has one owner is
// checked here (State.MayOwn), because only the state knows the owner.
package data

import "github.com/tutti-project/tutti"

// State is the current data. It is not safe for concurrent use; answers share
// memory with it and must not be modified.
type State struct {
	seq    uint64
	change *Change // by the event that is being applied; nil: no change
	values map[string]value
	owned  map[tutti.NodeName]map[string]bool  // keys, by the node that published them
	setBy  map[string]Volume                   // of values, by the actors who set them
	sealed map[string]struct{}                 // keys of secrets
	boxes  map[tutti.NodeName]tutti.Digest     // digests of the keys that secrets are sealed to
	shared map[string]value                    // shared/hiera/K, by K
	hiera  map[tutti.NodeName]map[string]value // node/NAME/hiera/K, by NAME and K
	nodes  map[tutti.NodeName]exportSet
	types  map[string]map[tutti.NodeName][]member
	jobs   map[tutti.JobID]*overlay // of jobs that have not ended

	weights weights // of all sets in nodes

	// The index: what nodes read.
	records    map[tutti.NodeName]*record
	questions  map[identity]*Question
	collectors map[string]map[*Question]struct{} // by type
	absent     map[tutti.Digest]*absentSet
	touched    []*record

	// What nodes will publish.
	declares    map[tutti.NodeName][]string            // paths, sorted
	declared    map[string][]tutti.NodeName            // who declares a path, sorted
	declaredFor map[tutti.NodeName]map[string]struct{} // NAME and K of the paths node/NAME/hiera/K
}

// NewState returns the state before the first event.
func NewState() *State {
	return &State{
		values: map[string]value{},
		owned:  map[tutti.NodeName]map[string]bool{},
		setBy:  map[string]Volume{},
		sealed: map[string]struct{}{},
		boxes:  map[tutti.NodeName]tutti.Digest{},
		shared: map[string]value{},
		hiera:  map[tutti.NodeName]map[string]value{},
		nodes:  map[tutti.NodeName]exportSet{},
		types:  map[string]map[tutti.NodeName][]member{},
		jobs:   map[tutti.JobID]*overlay{},

		weights: weights{},

		records:    map[tutti.NodeName]*record{},
		questions:  map[identity]*Question{},
		collectors: map[string]map[*Question]struct{}{},
		absent:     map[tutti.Digest]*absentSet{},

		declares:    map[tutti.NodeName][]string{},
		declared:    map[string][]tutti.NodeName{},
		declaredFor: map[tutti.NodeName]map[string]struct{}{},
	}
}

// Seq is the sequence of the last event that was applied, to which all answers belong.
func (s *State) Seq() uint64 { return s.seq }

// Apply folds the next event of the log. Events of other kinds change nothing
// but the sequence. Content that Check… would refuse is taken as it is: a log must stay
// foldable. Apply panics on an ExportsSet whose exports are not loaded: a set that
// is silently empty would look like an answer.
func (s *State) Apply(e tutti.Event) {
	s.seq = e.Seq
	s.change = changeOf(e)
	switch b := e.Body.(type) {
	case *tutti.ValueSet:
		s.setValue(e, b)
	case *tutti.ValueUnset:
		s.unset(b.Key)
	case *tutti.SecretSealed:
		s.setSecret(e, b)
	case *tutti.ExportsSet:
		s.setExports(b)
	case *tutti.NodeEnrolled:
		s.setBox(b.Node, tutti.BoxDigest(b.BoxKey))
	case *tutti.NodeBoxed:
		if s.boxes[b.Node] != "" {
			s.setBox(b.Node, tutti.BoxDigest(b.BoxKey))
		}
	case *tutti.NodeRemoved:
		s.removeNode(b)
	case *tutti.JobStarted:
		s.startJob(b.Job)
	case *tutti.JobFinished:
		s.endJob(b.Job)
	}
}

// removeNode withdraws all that a node published, unless the event says to keep it, and forgets
// what the node read. What operators said about the node stays.
func (s *State) removeNode(b *tutti.NodeRemoved) {
	node := b.Node
	if !b.Keeps {
		for _, key := range s.OwnedBy(node) {
			s.unset(key)
		}
		s.replace(node, nil)
		delete(s.nodes, node)
	}
	for job := range s.jobs {
		s.dropOverlay(job, node)
	}
	s.setBox(node, "")
	s.Forget(node)
	s.Declare(node, nil)
}
