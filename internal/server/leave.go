package server

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

// leaveGrace is how long the connection of a node that has left stays: its end
// would overtake the answer.
const leaveGrace = 2 * time.Second

// leaver is a key that is no node's any more and is to be ended.
type leaver struct {
	key tutti.NodeKey
	at  time.Time
}

// leave lets a node remove itself, as an operator would remove it. Its key means
// nothing from here on, and is ended a little later.
func (s *Server) leave(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if _, err := decode[wire.Leave](wire.OpLeave, payload); err != nil {
		return nil, err
	}
	return nil, s.do(ctx, func(tx *tx) error {
		n, err := tx.node(key)
		if err != nil {
			return err
		}
		if r := tx.Engine.Runs[tx.Engine.Active[n.Node]]; r != nil && !r.ClaimedAt.IsZero() {
			return tutti.Errorf(tutti.CodeConflict, "run %s of job %s goes on here; wait for its end, or end it with: tutti job cancel --now %s", r.Run, r.Job, r.Job)
		}
		if j := tx.Engine.ExclusiveOn(n.Node); j != nil {
			return tutti.Errorf(tutti.CodeConflict, "the node is %s; wait for its end, or end it with: tutti job cancel %s", heldBy(j), j.ID)
		}
		by := tutti.ActorNode(n.Node)
		tx.leave(by, n, "the node has left the fleet")
		tx.Emit(by, &tutti.NodeRemoved{Node: n.Node})
		s.leavers = append(s.leavers, leaver{key: key, at: tx.Now.Add(leaveGrace)})
		return nil
	})
}

// endLeavers ends the keys whose time has come. One that cannot be ended is
// ended at the next start; nobody listens to it in any case.
func (d *decider) endLeavers(state *fold.State) {
	for len(d.leavers) > 0 && !time.Now().Before(d.leavers[0].at) {
		key := d.leavers[0].key
		d.leavers = d.leavers[1:]
		if state.Registry.Keys[key] != "" {
			continue // it has joined again
		}
		if err := d.opts.Identity.Revoke(key); err != nil {
			d.opts.Logger.Error("the key of a node that has left is not ended yet", "key", key, "error", err)
		}
	}
}
