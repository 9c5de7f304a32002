package nodes

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// The method `lease` takes the state of a node's lease and answers what the node should do. If the
// node holds the lease and the answer tells the node to keep the lease, this call renews the lease.
func (s *Nodes) lease(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[tutti.LeaseReport](wire.OpLease, payload)
	if err != nil {
		return nil, err
	}
	in.Message, in.Busy = plain.Words(in.Message), plain.Words(in.Busy)
	var out tutti.LeaseOrder
	err = s.do(ctx, func(tx *tx) error {
		n, err := tx.Node(key)
		if err != nil {
			return err
		}
		for changed := tx.Engine.Reported(n.Node, in); changed != nil; changed = tx.Engine.Reported(n.Node, in) {
			if !s.Presence.MayLease(n.Node, tx.Now) {
				return tutti.Errorf(tutti.CodeUnavailable, "the state of node %s in an exclusive job has changed more than %d times in a minute", n.Node, presence.MaxLeases)
			}
			tx.Emit(tutti.ActorNode(n.Node), changed)
		}
		out = tx.Engine.LeaseOrder(n.Node, in)
		return nil
	})
	return out, err
}
