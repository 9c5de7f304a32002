package nodes

import (
	"cmp"
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// The method `claim` gives a node the order for its next run. If the node's agent would misread the order,
// the server ends the run as failed.
func (s *runs) claim(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[wire.Claim](wire.OpClaim, payload)
	if err == nil {
		err = in.Validate()
	}
	if err != nil {
		return nil, err
	}
	if err := s.Writer.Behind(ctx, in.Seen); err != nil {
		// after any other error the server does not know yet whether its log has lost events
		if tutti.CodeOf(err) == tutti.CodeDamaged {
			s.wentBack(s.Presence.Named(key), err)
		}
		return nil, err
	}
	in.Version = plain.Words(in.Version)
	lacks := tutti.Lacking(in.Knows, tutti.Capabilities())
	var out wire.Claimed
	full := s.Opts.Space()
	err = s.do(ctx, func(tx *tx) error {
		n, err := tx.Node(key)
		if err != nil {
			return err
		}
		s.Presence.Claims(n.Node, in.Version, lacks)
		tx.compare(n, in.Begun)
		out.Expect = tx.expects(n.Node)
		out.Alone = tx.alone(n)
		out.Trust = tx.trusts(n, in.Trusts)
		out.Operators = tx.acting(in.Operators)
		out.Inventory = wantedInventory(tx, n)
		r := tx.Engine.Runs[tx.Engine.Active[n.Node]]
		if r == nil || s.Presence.OnTrial(n.Node) {
			return nil
		}
		if why := tx.WhyObserved(n.Node); why != "" && r.ClaimedAt.IsZero() {
			tx.Emit(core.ActorServer, &tutti.RunFinished{Result: tutti.Result{Run: r.Run, Outcome: tutti.Skipped, Message: "before the node began: " + why}})
			return nil
		}
		if r.ClaimedAt.IsZero() && full != nil {
			return full
		}
		first := r.ClaimedAt.IsZero()
		if r.ClaimedAt.IsZero() || in.Begun != nil && !r.Fenced && !r.Begun() {
			tx.Emit(tutti.ActorNode(n.Node), &tutti.RunClaimed{Run: r.Run, Node: n.Node, Fenced: in.Begun != nil})
		}
		if why := awaitsENC(tx, n, r); why != "" && first && s.Opts.ENC {
			waits := []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryENC}}}
			tx.Emit(core.ActorServer, &tutti.RunFinished{Result: tutti.Result{Run: r.Run, Outcome: tutti.Waiting, Message: why, Waits: waits}})
			return nil
		}
		order := r.Order
		order.ENC = s.Opts.ENC && order.Program != tutti.ProgramAgent
		if unknown := tutti.Lacking(in.Knows, order.Needs()); len(unknown) > 0 {
			tx.refuseOrder(r, in.Version, unknown)
			return nil
		}
		out.Order, out.Fence = &order, r.Fence
		return nil
	})
	out.Position = s.Writer.Position()
	return out, err
}

// The function `awaitsENC` says why a node gets no order before the ENC has answered. The order may be older than the first
// answer, and name another environment than this answer. The text is empty if the node may get its order.
func awaitsENC(tx *tx, n *fold.Node, r *engine.Run) string {
	switch {
	case r.Program == tutti.ProgramAgent:
		return ""
	case n.Classified == nil:
		why := "the ENC has not answered about it yet"
		if calls := tx.Core.Presence.ENC(n.Node); calls.Error != "" {
			why += ": " + calls.Error
		}
		return why
	case n.FirstAnswer > r.Seq && tx.Fleet().Environment.ENC:
		return "the ENC has answered about it only after this order: it may name another environment"
	}
	return ""
}

// The method `alone` returns what a node should do while this server is away. A paused node begins no run by
// itself, even if the pause is long.
func (tx *tx) alone(n *fold.Node) *tutti.Alone {
	out := tx.Fleet().AloneOf(tx.Registry.Groups(n))
	if why := tx.PausedNode(tx.Now, n.Node); why != "" {
		out.Safety, out.Why = 0, "the node is "+why
	}
	return &out
}

// refuseOrder ends a run as failed, because the node's agent would misread the order. The run
// counts as claimed, so the node's last run shows what is wrong. A fleet with reactions does not
// try again until something has changed.
func (tx *tx) refuseOrder(r *engine.Run, version string, lacks []tutti.Capability) {
	_, beat := tx.Core.Presence.Last(r.Node)
	tx.Emit(core.ActorServer, &tutti.RunFinished{Result: tutti.Result{
		Run: r.Run, Outcome: tutti.Failed, Reason: tutti.BecauseRefused,
		Message: tutti.TooOld(r.Node, cmp.Or(version, beat.Version), lacks),
	}})
}
