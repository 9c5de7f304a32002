package engine

import (
	"time"

	"github.com/tutti-project/tutti"
)

// SetBack is a node that does not know of a run that the log has, or the other way round.
type SetBack struct {
	*tutti.NodeSetBack
	Seq uint64 // of the event
	At  time.Time
}

// Compare says what it means that a node has begun no order above a fence: the last run
// of it that the node must know and does not (nil: it knows all), and whether the node has begun
// one that the log does not have. A run is lost only if the node
// kept fences when it claimed it.
func (l Last) Compare(begun tutti.Fence) (lost *Run, unknown bool) {
	newest := tutti.Fence{}
	for _, r := range []*Run{l.Claimed, l.Applied, l.Passed} {
		if r == nil {
			continue
		}
		if r.Fence.Compare(newest) > 0 {
			newest = r.Fence
		}
		if r.Fenced && r.Begun() && r.Fence.Compare(begun) > 0 && (lost == nil || r.Fence.Compare(lost.Fence) > 0) {
			lost = r
		}
	}
	return lost, begun.Compare(newest) > 0
}

// Parts reports whether a node was set back between a run of ours and a foreign run: its count went back, too, and does not
// order them.
func (b *SetBack) Parts(ours, foreign *Run) bool {
	return b != nil && ours.ToldSeq != 0 && ours.ToldSeq < b.Seq && foreign.EndedSeq > b.Seq
}

// Begun reports whether it is certain that the node has begun the run: it came to its gate.
func (r *Run) Begun() bool { return !r.CompiledAt.IsZero() || r.Gate != "" }
