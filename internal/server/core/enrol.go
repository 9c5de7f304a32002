package core

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
)

// Leave gives up what a machine does that is no longer the node: its run may go
// on there, and must not begin anywhere else.
func (tx *Tx) Leave(by string, n *fold.Node, why string) {
	if run := tx.Engine.Active[n.Node]; run != "" {
		tx.Emit(by, &tutti.RunLost{Run: run, Reason: why})
	}
	tx.Core.Presence.Forget(n.Node)
}
