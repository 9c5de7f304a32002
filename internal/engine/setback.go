package engine

import (
	"time"

	"github.com/tutti-project/tutti"
)

// SetBack describes a node that has forgotten a run which is in the log, or a node with a run that the log has lost.
type SetBack struct {
	*tutti.NodeSetBack
	Seq uint64 // sequence of the event
	At  time.Time
}

// Compare compares the log with the last fence that a node has begun. The result `lost` is the
// latest run that the node should know but does not know, or nil if there is no such run. The result
// `unknown` is true if the node has begun a run that is not in the log. Compare can find a lost run
// only if the node stored fences when it claimed the run.
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

// Parts reports whether a node was set back between a run of ours and a foreign run. In that case, the count
// of the agent's clock was set back, too. So this count does not show which of the two runs came first.
func (b *SetBack) Parts(ours, foreign *Run) bool {
	return b != nil && ours.ToldSeq != 0 && ours.ToldSeq < b.Seq && foreign.EndedSeq > b.Seq
}

// Begun reports whether the node has certainly begun the run. A node has certainly begun a
// run that came to its gate.
func (r *Run) Begun() bool { return !r.CompiledAt.IsZero() || r.Gate != "" }
