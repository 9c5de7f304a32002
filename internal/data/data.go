// Package data is the data plane as a fold of the log. The package has the data that nodes and
// operators have published, and answers the questions of Puppet runs about these data. The
// package is pure, so it does no I/O, reads no clock and starts no goroutines.
//
// The keys of values are paths. Two places in a path have a special meaning:
//
//	shared/hiera/K       hiera key K on all nodes
//	node/NAME/hiera/K    hiera key K on one node, over the shared one
//
// NAME is a complete part of the path, so the data of `web` do not concern `web.example.net`.
//
// Package policy decides which nodes and operators may write and read a key. Package data
// checks that each key has only one owner (State.MayOwn), because only the state knows the
// owner.
package data

import "github.com/tutti-project/tutti"

// State is the current data. State is not safe for concurrent use. Answers share memory with
// the state, so callers must not modify them.
type State struct {
	seq    uint64
	change *Change // the change that is made by the present event, or nil
	values map[string]value
	owned  map[tutti.NodeName]map[string]bool  // the keys that each node has published
	setBy  map[string]Volume                   // volumes, by the actors who set values
	sealed map[string]struct{}                 // keys of secrets
	boxes  map[tutti.NodeName]tutti.Digest     // digest of each node's key for secrets
	shared map[string]value                    // shared/hiera/K, by K
	hiera  map[tutti.NodeName]map[string]value // values of node/NAME/hiera/K, by NAME and K
	nodes  map[tutti.NodeName]exportSet
	types  map[string]map[tutti.NodeName][]member
	jobs   map[tutti.JobID]*overlay // the overlays of unfinished jobs

	owns       map[ownKey]*ownAnswer // the answers that each node has for itself
	ownAnswers map[string]*ownAnswer // the same answers, each once, by their canonical form

	weights weights // the weights of all sets in nodes

	// The index has the questions that nodes have asked.
	records    map[tutti.NodeName]*record
	questions  map[identity]*Question
	collectors map[string]map[*Question]struct{} // by type
	absent     map[tutti.Digest]*absentSet
	touched    []*record

	// The fields below say what nodes will publish.
	declares    map[tutti.NodeName][]string            // paths, sorted
	declared    map[string][]tutti.NodeName            // nodes that declare a path, sorted
	declaredFor map[tutti.NodeName]map[string]struct{} // NAME and K of the declared paths node/NAME/hiera/K
}

// NewState returns the state of an empty log.
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

		owns:       map[ownKey]*ownAnswer{},
		ownAnswers: map[string]*ownAnswer{},

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

// Seq returns the sequence of the last applied event. All answers are valid for this sequence
// of the log.
func (s *State) Seq() uint64 { return s.seq }

// Apply applies the next event of the log. An event that does not concern these data changes only the sequence.
// Apply accepts content that a check would refuse, because it must be possible to fold every
// log. Apply panics if the exports of an ExportsSet are not loaded. If it did not panic, the missing exports would
// look like an empty set.
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
	case *tutti.NodeClassified:
		classified(s, b)
	case *tutti.NodeRemoved:
		s.removeNode(b)
	case *tutti.JobStarted:
		s.startJob(b.Job)
	case *tutti.JobFinished:
		s.endJob(b.Job)
	}
}

// removeNode removes everything that a node has published and read. If b.Keeps is true, the published data stay. The
// values that operators set for the node stay.
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
	own(s, tutti.QueryGroups, node, nil)
	own(s, tutti.QueryENC, node, nil)
	s.Forget(node)
	s.Declare(node, nil)
}
