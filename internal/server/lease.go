package server

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/wire"
)

// lease takes how a node stands and answers what it is to do; whoever holds and is
// told to hold has its lease renewed by that.
func (s *Server) lease(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := decode[tutti.LeaseReport](wire.OpLease, payload)
	if err != nil {
		return nil, err
	}
	in.Message, in.Busy = plain.Words(in.Message), plain.Words(in.Busy)
	var out tutti.LeaseOrder
	err = s.do(ctx, func(tx *tx) error {
		n, err := tx.node(key)
		if err != nil {
			return err
		}
		for changed := tx.Engine.Reported(n.Node, in); changed != nil; changed = tx.Engine.Reported(n.Node, in) {
			if !s.presence.MayLease(n.Node, tx.Now) {
				return tutti.Errorf(tutti.CodeUnavailable, "how node %s stands in an exclusive job has changed more than %d times in a minute", n.Node, presence.MaxLeases)
			}
			tx.Emit(tutti.ActorNode(n.Node), changed)
		}
		out = tx.Engine.LeaseOrder(n.Node, in)
		return nil
	})
	return out, err
}

// ringLeasesEvery is after how long a node is rung again that has not answered:
// doorbells are lost.
const ringLeasesEvery = 5 * time.Second

// rungLeases is when the nodes of a job were last rung, and in which phase.
type rungLeases struct {
	phase engine.Phase
	at    time.Time
}

// ringLeases rings the nodes of which exclusive jobs wait to hear. After a start
// that are all of them.
func (d *decider) ringLeases(state *fold.State, now time.Time) {
	seen := map[tutti.JobID]rungLeases{}
	state.Engine.Exclusive(func(j *engine.Job) {
		was := d.rung[j.ID]
		if was.phase != j.Leases.Phase || now.Sub(was.at) >= ringLeasesEvery {
			for _, node := range j.Leases.Due() {
				d.ring(state, node, wire.RingLease)
			}
			was = rungLeases{j.Leases.Phase, now}
		}
		seen[j.ID] = was
	})
	d.rung = seen
}

// pausedOrHeld says why nothing may begin on a node by itself; empty: it may.
func (tx *tx) pausedOrHeld() func(tutti.NodeName) string {
	paused := tx.Paused(tx.Now)
	return func(n tutti.NodeName) string {
		if node := tx.Registry.Nodes[n]; node != nil && node.Tickets.Conflicted != "" {
			return node.Tickets.Conflicted
		}
		if j := tx.Engine.ExclusiveOn(n); j != nil {
			return heldBy(j)
		}
		return paused(n)
	}
}

func heldBy(j *engine.Job) string { return "held by job " + string(j.ID) }

// exclusive returns how a job has its nodes to itself; nil: it has not.
func exclusive(plan tutti.Plan, targets map[tutti.StepName][]tutti.NodeName, in api.StartJob) (*tutti.Exclusive, error) {
	out := plan.Exclusive
	if in.Exclusive != nil {
		reason := plain.Line(*in.Exclusive)
		asked := tutti.DefaultExclusive(reason)
		if out != nil {
			asked = &tutti.Exclusive{Reason: reason, Lease: out.Lease, Wait: out.Wait, Keep: out.Keep}
		}
		out = asked
	}
	if out == nil || in.Mode != tutti.ModeApply {
		return nil, nil
	}
	plan.Exclusive = out
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	for _, nodes := range targets {
		if len(nodes) > 0 {
			return out, nil
		}
	}
	return nil, tutti.Errorf(tutti.CodeInvalid, "plan %q runs on no node, so it cannot be exclusive", string(plan.Name))
}
