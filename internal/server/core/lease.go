package core

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// PausedOrHeld says why nothing may begin on a node by itself; empty: it may.
func (tx *Tx) PausedOrHeld() func(tutti.NodeName) string {
	paused := tx.Paused(tx.Now)
	return func(n tutti.NodeName) string {
		if node := tx.Registry.Nodes[n]; node != nil && node.Tickets.Conflicted != "" {
			return node.Tickets.Conflicted
		}
		if j := tx.Engine.ExclusiveOn(n); j != nil {
			return HeldBy(j)
		}
		return paused(n)
	}
}

func HeldBy(j *engine.Job) string { return "held by job " + string(j.ID) }
