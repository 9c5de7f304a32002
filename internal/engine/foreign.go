package engine

import (
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// tellForeign adds a foreign run, which no server ordered, to the kept foreign runs of its node.
func (s *State) tellForeign(e tutti.Event, b *tutti.RunForeign) []tutti.RunID {
	id := b.Result.Run
	if s.Runs[id] != nil { // the node has reported this run before
		return nil
	}
	kept, gone := s.foreign[b.Node].Add(b)
	s.foreign[b.Node] = kept
	mode := tutti.ModeApply
	if b.Noop {
		mode = tutti.ModeNoop
	}
	s.Runs[id] = &Run{
		Order:  tutti.Order{Run: id, Node: b.Node, Mode: mode, Environment: b.Environment},
		Result: &b.Result, Foreign: &b.Foreign, EndedAt: e.At, EndedSeq: e.Seq, ToldAt: e.At, ToldSeq: e.Seq,
	}
	for _, id := range gone {
		delete(s.Runs, id)
	}
	return gone
}

func (s *State) forgetForeign(node tutti.NodeName) (gone []tutti.RunID) {
	for _, b := range s.foreign[node] {
		delete(s.Runs, b.Result.Run)
		gone = append(gone, b.Result.Run)
	}
	delete(s.foreign, node)
	return gone
}

// KeepsForeign reports whether a foreign run is new to the state, and the state would keep the run.
func (s *State) KeepsForeign(node tutti.NodeName, f tutti.Foreign) bool {
	_, gone := s.foreign[node].Add(&tutti.RunForeign{Node: node, Foreign: f})
	return s.Runs[f.Result.Run] == nil && !slices.Contains(gone, f.Result.Run)
}

// Foreigns returns the kept foreign runs of a node. The run with the latest start comes first.
func (s *State) Foreigns(node tutti.NodeName) []*Run {
	var out []*Run
	for _, b := range s.foreign[node].ByStart() {
		out = append(out, s.Runs[b.Result.Run])
	}
	return out
}

// foreignAfter returns the foreign runs that are later than all runs in the argument
// `ours`. The method leaves out noop runs that disturb nothing (see tutti.Foreign.Disturbs).
func (s *State) foreignAfter(node tutti.NodeName, ours ...*Run) []*Run {
	return slices.DeleteFunc(s.Foreigns(node), func(f *Run) bool {
		return f.Foreign.Noop && !f.Foreign.Disturbs() || slices.ContainsFunc(ours, func(r *Run) bool { return r != nil && r.touched() && !s.setBack[node].Parts(r, f) && !f.After(r) })
	})
}

// The method `repeats` reports whether a local run has only repeated the last run that passed its gate, or the run on
// which a proof rests. A local run that only repeats shows nothing new about its node.
func (s *State) repeats(f *Run, last Last) bool {
	if f.Foreign.Local == nil || f.Foreign.Local.As == "" || !f.Outcome().Good() || len(f.Foreign.Result.Owed) > 0 || last.Passed == nil {
		return false
	}
	as := s.Runs[f.Foreign.Local.As]
	return as != nil && as.Node == f.Node && as.Passed() && as.Began().Equal(last.Passed.Began())
}

// The method `touched` reports whether the run may have done or tried anything on its node. For a proof, the result
// is true, because the proof rests on a run that applied its catalog.
func (r *Run) touched() bool {
	return r.Passed() || r.Proved || r.Result != nil && !r.Result.Stopped && r.Result.Outcome != tutti.Skipped
}

// Began returns when the run began, according to its node's clock. For a proof, Began
// returns the beginning of the run that applied the node's present state. Began returns the
// zero time if this is not known yet.
func (r *Run) Began() time.Time {
	switch {
	case r.Proved && !r.Rests.IsZero():
		return r.Rests
	case r.Result != nil:
		return r.Result.StartedAt
	}
	return time.Time{}
}

// Clock returns when the run began, according to its agent's clock. For a proof, Clock returns the clock of the run
// that applied the node's present state.
func (r *Run) Clock() tutti.Clock {
	switch {
	case r.Proved && !r.Rests.IsZero():
		return r.RestsAt
	case r.Result != nil:
		return r.Result.Clock
	}
	return tutti.Clock{}
}

// After reports whether a foreign run may be later than one of our runs, or at the same time. After returns false if
// the node reported the foreign run before our run passed its gate. After also returns false if the agent saw the
// end of the foreign run before our run began. If no result contains the agent's clock, the node's time decides. If
// nobody knows when our run began, After compares the report of the foreign run with the claim of our run.
func (r *Run) After(ours *Run) bool {
	switch {
	case ours == nil:
		return true
	case (ours.Passed() || ours.Proved) && ours.GatedSeq > r.EndedSeq: // a proof has considered all earlier reports
		return false
	case ours.Began().IsZero():
		return r.EndedSeq > ours.ClaimedSeq
	case r.Result.Clock != tutti.Clock{} || ours.Clock() != tutti.Clock{}:
		return !r.Result.Clock.Before(ours.Clock())
	case ours.Result != nil && ours.Result.Overlapped && r.Result.EndedAt.After(ours.Began()): // both ran at the same time
		return true
	}
	return r.Result.StartedAt.After(ours.Began())
}

// Since reports whether a foreign run certainly began after an event of the log. In that case, the foreign run
// saw the node's state at the time of the event, or a later state.
func (r *Run) Since(seq uint64, at time.Time) bool {
	return r.Foreign.Ago > 0 && r.EndedSeq > seq && r.EndedAt.Add(-r.Foreign.Ago).After(at)
}

// Undoes reports whether a foreign run certainly began after another run of any kind had ended. In that case, a full
// foreign run has corrected the state that the other run left. If the other run was given up after its gate, nobody
// knows when it ends, so Undoes returns false.
func (r *Run) Undoes(other *Run) bool {
	switch {
	case other == nil || !other.touched():
		return true
	case other.Proved:
		return r.Since(other.GatedSeq, other.GatedAt)
	case other.Result == nil:
		return false
	}
	return r.Since(other.ToldSeq, other.ToldAt) && !r.Result.Clock.Before(other.Result.Clock)
}
