package nodes

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// The method `leave` lets a node remove itself. The effect is the same as if an operator had
// removed the node. From then on the key has no rights. The server closes the connection of the key
// a little later.
func (s *Nodes) leave(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if _, err := core.Decode[wire.Leave](wire.OpLeave, payload); err != nil {
		return nil, err
	}
	return nil, s.do(ctx, func(tx *tx) error {
		n, err := tx.Node(key)
		if err != nil {
			return err
		}
		if r := tx.Engine.Runs[tx.Engine.Active[n.Node]]; r != nil && !r.ClaimedAt.IsZero() {
			return tutti.Errorf(tutti.CodeConflict, "run %s of job %s goes on here; wait until it ends, or end it with: tutti job cancel --now %s", r.Run, r.Job, r.Job)
		}
		if j := tx.Engine.ExclusiveOn(n.Node); j != nil {
			return tutti.Errorf(tutti.CodeConflict, "the node is %s; wait until the job ends, or end it with: tutti job cancel %s", core.HeldBy(j), j.ID)
		}
		by := tutti.ActorNode(n.Node)
		tx.Leave(by, n, "the node has left the fleet")
		tx.Emit(by, &tutti.NodeRemoved{Node: n.Node})
		s.Leavers = append(s.Leavers, core.Leaver{Key: key, At: tx.Now.Add(core.LeaveGrace)})
		return nil
	})
}
