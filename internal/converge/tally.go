package converge

import (
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// The type `doing` says what a node of a diff's job does now.
type doing int

const (
	mayBegin  doing = iota // the node has not compiled yet
	compiles               // the node's run goes on
	atGate                 // the node's run is held at its gate
	hasEnded               // the node has compiled, or failed
	hasOther               // a run of another job goes on
	allDoings              // how many values there are
)

// The type `tally` contains what each node of a diff's job does. A decision looks again only at the nodes about which an
// event has come since the last decision. A decision about all nodes after each event would cost as much as all nodes
// together, for each of them.
type tally struct {
	is    map[tutti.NodeName]doing
	names [allDoings][]tutti.NodeName // the nodes that do this, sorted
	again map[tutti.NodeName]bool     // nodes that the next decision has to look at again
}

// The type `tallies` contains the tallies of the unfinished jobs that compile for a diff. Only a decision begins a tally, so
// the fold of a reader has no tallies.
type tallies map[tutti.JobID]*tally

// The method `note` notes the nodes that an event concerns. The fold of engine must already have folded the event.
func (all tallies) note(e *engine.State, event tutti.Event) {
	if len(all) == 0 {
		return
	}
	switch b := event.Body.(type) {
	case *tutti.JobFinished:
		delete(all, b.Job)
	case *tutti.NodeEnrolled:
		all.look(b.Node)
	case *tutti.NodeRemoved:
		all.look(b.Node)
	case *tutti.RunWanted:
		all.look(b.Order.Node)
	case *tutti.RunCompiled, *tutti.RunGated, *tutti.RunFinished, *tutti.RunLost:
		if r := e.Runs[tutti.RunID(b.ID())]; r != nil {
			all.look(r.Node)
		}
	}
}

func (all tallies) look(n tutti.NodeName) {
	for _, t := range all {
		t.again[n] = true
	}
}

// The method `of` returns the tally of a job at this moment. A job for a diff has only one step.
func (all tallies) of(s *State, j *engine.Job, st *engine.Step) *tally {
	t := all[j.ID]
	if t == nil {
		t = newTally(s, j, st)
		all[j.ID] = t
	}
	for n := range t.again {
		if was, listed := t.is[n]; listed {
			t.move(n, was, doesIn(s, j, st, n))
		}
	}
	clear(t.again)
	return t
}

// newTally looks at all nodes of a job.
func newTally(s *State, j *engine.Job, st *engine.Step) *tally {
	t := &tally{is: map[tutti.NodeName]doing{}, again: map[tutti.NodeName]bool{}}
	for _, n := range slices.Compact(slices.Sorted(slices.Values(st.Converge.Only))) {
		does := doesIn(s, j, st, n)
		t.is[n], t.names[does] = does, append(t.names[does], n)
	}
	return t
}

func (t *tally) move(n tutti.NodeName, from, to doing) {
	if from == to {
		return
	}
	if i, found := slices.BinarySearch(t.names[from], n); found {
		t.names[from] = slices.Delete(t.names[from], i, i+1)
	}
	if i, found := slices.BinarySearch(t.names[to], n); !found {
		t.names[to] = slices.Insert(t.names[to], i, n)
	}
	t.is[n] = to
}

// doesIn finds out what a node does now in a diff's job.
func doesIn(s *State, j *engine.Job, st *engine.Step, n tutti.NodeName) doing {
	active := s.engine.Runs[s.engine.Active[n]]
	switch {
	case active != nil && active.Job == j.ID && active.Held():
		return atGate
	case active != nil && active.Job == j.ID:
		return compiles
	case len(runsIn(s, st, n)) > 0:
		return hasEnded
	case active != nil:
		return hasOther
	}
	return mayBegin
}

// runsIn returns the runs of a node in a step.
func runsIn(s *State, st *engine.Step, n tutti.NodeName) []*engine.Run {
	if of := st.Node(n); of != nil {
		return s.ownRuns(of)
	}
	return nil
}
