package converge

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
)

// State is the fold of the log for records. State uses the folds of engine and data, which must
// fold each event first. Basis, Needy, Publishers, Standing, Standings and When may be called
// concurrently. During these calls, no event may be applied and nothing may be decided.
type State struct {
	engine *engine.State
	data   *data.State
	pushed map[string]tutti.CodePushed // the last push of each environment; Held becomes false when the code is released
	nodes  map[tutti.NodeName]bool     // nodes that have joined
	since  map[tutti.NodeName]uint64   // the sequence at which each node joined with its present machine

	looking sync.Mutex                  // locked while nodes are judged again, which changes the fields below
	dirty   map[tutti.NodeName]bool     // nodes that have to be judged again
	needy   map[tutti.NodeName]Standing // nodes that need something, except those in `dirty`

	// The field `withdrawn` contains, by node, the sequence at which values of the node were last withdrawn because
	// no grant covers them any more.
	withdrawn map[tutti.NodeName]uint64

	diffs tallies

	// The following fields are for reactions (react.go). The nodes in `diverged` are left
	// alone until the digest of their answers changes. If the digest is empty, the nodes are
	// left alone until new code or a person's converge.
	diverged   map[tutti.NodeName]tutti.Digest
	reactions  map[tutti.NodeName]reactionsOf
	waked      map[tutti.NodeName]waked
	scheduled  map[tutti.NodeName]bool
	nextSafety time.Time
	reacted    time.Time // when the server last began a job by itself
	fleetSeq   uint64    // sequence of the last fleet file
	fleetBy    string
	pushedBy   map[string]string // who pushed the code of each environment, and what released it
}

// New returns the state before the first event.
func New(e *engine.State, d *data.State) *State {
	return &State{
		engine: e, data: d,
		pushed: map[string]tutti.CodePushed{},
		nodes:  map[tutti.NodeName]bool{},
		since:  map[tutti.NodeName]uint64{},
		dirty:  map[tutti.NodeName]bool{},
		needy:  map[tutti.NodeName]Standing{},

		diffs:     tallies{},
		withdrawn: map[tutti.NodeName]uint64{},
		diverged:  map[tutti.NodeName]tutti.Digest{},
		reactions: map[tutti.NodeName]reactionsOf{},
		waked:     map[tutti.NodeName]waked{},
		scheduled: map[tutti.NodeName]bool{},
		pushedBy:  map[string]string{},
	}
}

// Apply folds an event. The folds of engine and data must already have folded this event.
func (s *State) Apply(e tutti.Event) {
	s.diffs.note(s.engine, e)
	switch b := e.Body.(type) {
	case *tutti.NodeEnrolled:
		if !s.nodes[b.Node] {
			s.since[b.Node] = e.Seq
		}
		s.nodes[b.Node], s.dirty[b.Node] = true, true
	case *tutti.NodeRemoved:
		for _, names := range []map[tutti.NodeName]bool{s.nodes, s.dirty, s.scheduled} {
			delete(names, b.Node)
		}
		delete(s.since, b.Node)
		delete(s.needy, b.Node)
		delete(s.waked, b.Node)
		delete(s.diverged, b.Node)
		delete(s.reactions, b.Node)
		delete(s.withdrawn, b.Node)
		s.data.Forget(b.Node)
		s.data.Declare(b.Node, nil)
	case *tutti.FleetSet:
		s.fleetSeq, s.fleetBy = e.Seq, e.By
		for n := range s.nodes { // the node may now run with another program
			s.dirty[n] = true
		}
	case *tutti.CodePushed:
		s.pushed[b.Environment], s.pushedBy[b.Environment] = *b, "pushed by "+who(e.By)
		s.newCode(!b.Held)
	case *tutti.CodeReleased:
		if pushed := s.pushed[b.Environment]; pushed.Held && pushed.Code == b.Code {
			pushed.Held = false
			s.pushed[b.Environment] = pushed
			s.pushedBy[b.Environment] += ", released" + cmp.Or(because(b.Reason), " by "+who(e.By))
			s.newCode(true)
		}
	case *tutti.CodeRetired:
		if b.Gone {
			delete(s.pushed, b.Environment)
			delete(s.pushedBy, b.Environment)
			s.newCode(false)
		}
	case *tutti.RunForeign:
		s.judgeAgain(b.Node)
	case *tutti.ExportsSet:
		if b.Run == "" && !b.Overlay {
			s.withdrawn[b.Node] = e.Seq
			s.judgeAgain(b.Node)
		}
	case *tutti.NodeSetBack:
		s.judgeAgain(b.Node)
	case *tutti.NodeClassified:
		s.judgeAgain(b.Node)
	case *tutti.NodeFacts:
		s.judgeAgain(b.Node)
	case *tutti.JobStarted:
		if reaction(b.Plan) {
			s.reacted = e.At
		}
	case *tutti.ConvergeFinished:
		maps.Copy(s.diverged, b.Diverging)
	case *tutti.JobFinished:
		if j := s.engine.Jobs[b.Job]; j != nil && j.Diff == nil {
			s.leave(j)
		}
	case *tutti.RunCompiled, *tutti.RunGated, *tutti.RunAsked, *tutti.RunProved, *tutti.RunClaimed, *tutti.RunFinished, *tutti.RunLost:
		// a compile for a diff says nothing about its node, so no record changes
		if r := s.engine.Runs[tutti.RunID(e.Body.ID())]; r != nil && s.nodes[r.Node] && !r.Diff {
			s.follow(r, e)
			s.dirty[r.Node] = true
		}
	}
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// newCode judges all nodes again. If nodes react to the code, nodes that were left alone may run again.
func (s *State) newCode(react bool) {
	if react {
		clear(s.diverged)
		clear(s.reactions)
	}
	for n := range s.nodes {
		s.dirty[n] = true
	}
}

func (s *State) judgeAgain(node tutti.NodeName) {
	if s.nodes[node] {
		s.dirty[node] = true
	}
}

// The method `follow` updates a node's record according to its run. In a converge step, the record changes when the
// run has compiled. In other steps, the record changes when the run passes its gate.
func (s *State) follow(r *engine.Run, e tutti.Event) {
	job := s.overlay(r)
	switch b := e.Body.(type) {
	case *tutti.RunClaimed:
		delete(s.scheduled, r.Node)
		if j := s.engine.Jobs[r.Job]; j != nil && !reaction(j.Plan) {
			delete(s.diverged, r.Node) // a person has started this run
			delete(s.reactions, r.Node)
		}
	case *tutti.RunCompiled:
		if job != "" {
			s.remember(r, job)
		}
	case *tutti.RunGated:
		if b.Verdict == tutti.GateGo {
			s.noteReaction(r, e.At)
		}
		if b.Verdict == tutti.GateGo && job == "" && r.Full() {
			s.remember(r, "")
		}
	case *tutti.RunAsked:
		// A message that a Puppet Server sent about a compile is ignored here. It counts later, at the run's gate or
		// at the run's end.
		if b.Served == nil && (job != "" || r.Full()) {
			s.remember(r, job)
		}
	case *tutti.RunFinished, *tutti.RunLost:
		if r.Served != nil && r.Compiled == nil && (job != "" || r.Full()) {
			s.remember(r, job)
		}
	}
}

// The function `reaction` reports whether a plan belongs to a job that the server began by itself.
func reaction(p tutti.Plan) bool {
	return len(p.Steps) == 1 && p.Steps[0].Kind() == tutti.StepConverge && p.Steps[0].Converge.Reaction
}

// The method `remember` stores the questions and the declared values of a run as the record of its node.
func (s *State) remember(r *engine.Run, job tutti.JobID) {
	if r.Asked == nil {
		return
	}
	s.data.Remember(r.Node, r.Asked, job)
	if r.Compiled != nil {
		s.data.Declare(r.Node, r.Values)
	}
}

// The method `leave` resets the record of each node of a job that has ended. After that, the record no longer
// contains what the node read in the job's overlay.
func (s *State) leave(j *engine.Job) {
	if j == nil {
		return
	}
	for _, st := range j.Steps {
		if st.Kind() != tutti.StepConverge {
			continue
		}
		for _, n := range st.Nodes {
			if s.nodes[n.Node] {
				s.restore(n.Node)
				s.dirty[n.Node] = true
			}
		}
	}
}

// The method `restore` replaces a node's record with the record of the run that determines the node's standing.
func (s *State) restore(node tutti.NodeName) {
	basis := s.Basis(node)
	if basis == nil || basis.Asked == nil {
		s.data.Forget(node)
		return
	}
	s.data.Remember(node, basis.Asked, "")
	if basis.Compiled != nil {
		s.data.Declare(node, basis.Values)
	}
}

// Basis returns the run whose reads show whether a node is stale. Basis returns the last
// run that the node applied, or a later run that failed before it could apply.
func (s *State) Basis(node tutti.NodeName) *engine.Run {
	last := s.engine.Last(node)
	if a := last.Applied; a != nil && a.Asked != nil && (a.Served == nil || a.Compiled != nil || a.Ended()) && (!a.Proof || a.Gate != tutti.GateStop) {
		return a
	}
	return last.Passed
}

// The method `overlay` returns the job whose overlay a run reads and writes. Only a run of a converge step in an
// unfinished job has an overlay. For other runs the method returns an empty id.
func (s *State) overlay(r *engine.Run) tutti.JobID {
	if s.engine.Converges(r) && !s.engine.Jobs[r.Job].Ended() {
		return r.Job
	}
	return ""
}
