package engine

import (
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// tellForeign keeps a run that Tutti did not start among the latest of its node.
func (s *State) tellForeign(e tutti.Event, b *tutti.RunForeign) []tutti.RunID {
	id := b.Result.Run
	if s.Runs[id] != nil { // told before
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
		Result: &b.Result, Foreign: &b.Foreign, EndedAt: e.At, EndedSeq: e.Seq,
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

// KeepsForeign reports whether a run that Tutti did not start would be kept, and is not.
func (s *State) KeepsForeign(node tutti.NodeName, f tutti.Foreign) bool {
	_, gone := s.foreign[node].Add(&tutti.RunForeign{Node: node, Foreign: f})
	return s.Runs[f.Result.Run] == nil && !slices.Contains(gone, f.Result.Run)
}

// Foreigns returns the kept runs of a node that Tutti did not start, the latest by
// their start first.
func (s *State) Foreigns(node tutti.NodeName) []*Run {
	var out []*Run
	for _, b := range s.foreign[node] {
		out = append(out, s.Runs[b.Result.Run])
	}
	return out
}

// foreignAfter returns the foreign runs that are later than the last ones of ours, but
// noop runs before which nothing can have happened unseen.
func (s *State) foreignAfter(node tutti.NodeName, ours ...*Run) []*Run {
	return slices.DeleteFunc(s.Foreigns(node), func(f *Run) bool {
		return f.Foreign.Noop && !f.Foreign.Unwatched || slices.ContainsFunc(ours, func(r *Run) bool { return r != nil && r.touched() && !f.After(r) })
	})
}

// repeats reports whether a local run has done again what the last run of ours had done that passed its gate, or
// that a proof rests on: then it says nothing new of its node.
func (s *State) repeats(f *Run, last Last) bool {
	if f.Foreign.Local == nil || f.Foreign.Local.As == "" || !f.Outcome().Good() || last.Passed == nil {
		return false
	}
	as := s.Runs[f.Foreign.Local.As]
	return as != nil && as.Node == f.Node && as.Passed() && as.Began().Equal(last.Passed.Began())
}

// touched reports whether the run may have done anything on its node, has tried, or
// speaks for one that did.
func (r *Run) touched() bool {
	return r.Passed() || r.Proved || r.Result != nil && !r.Result.Stopped && r.Result.Outcome != tutti.Skipped
}

// Began is when the run began by its node's clock; for a proof, the run by which the
// node is what it is. Zero: nobody knows yet.
func (r *Run) Began() time.Time {
	switch {
	case r.Proved && !r.Rests.IsZero():
		return r.Rests
	case r.Result != nil:
		return r.Result.StartedAt
	}
	return time.Time{}
}

// After reports whether a foreign run is later than one of ours: it was told after
// that passed its gate, and began later by their node's own clock, or ended later and ran beside it. Where ours has not
// said when it began, what was told later is later.
func (r *Run) After(ours *Run) bool {
	switch {
	case ours == nil:
		return true
	case (ours.Passed() || ours.Proved) && ours.GatedSeq > r.EndedSeq: // a proof has looked at what was told
		return false
	case ours.Result != nil && ours.Result.Overlapped && r.Result.EndedAt.After(ours.Began()): // it ran beside ours
		return true
	case !ours.Began().IsZero():
		return r.Result.StartedAt.After(ours.Began())
	}
	return r.EndedSeq > ours.ClaimedSeq
}
