package server

import (
	"context"
	"fmt"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/writer"
	"github.com/tutti-project/tutti/wire"
)

// lossesEvery is the pause between two looks for lost runs. A look goes through all present runs, so a look at every append
// would let the cost of each run grow with the number of runs. The deadlines of runs are many seconds.
const lossesEvery = 200 * time.Millisecond

// decider decides what the server does after each batch of events. The decider is the owner of the writer.
// Only the writer uses the fields of the decider.
type decider struct {
	*core.Core
	probing map[probeKey]*probing
	held    bool      // the disk had no room at the last decision
	heldTo  time.Time // when the disk last had no room
	rung    map[tutti.JobID]rungLeases
	goneAt  time.Time // before this time the server does not look for nodes that are gone
	lostAt  time.Time // before this time the server does not look for lost runs
	resting time.Time // before this time the server takes no decision on converge steps
	decided uint64    // the last event at the last decision on converge steps that had no result
}

// tx is a transaction for the decisions that the server takes by itself.
type tx struct{ *core.Tx }

// Folded implements writer.Owner.
func (d *decider) Folded(state *fold.State) error {
	if err := d.Opts.Identity.Revoke(state.Registry.Revoked...); err != nil {
		return fmt.Errorf("revoke the keys of nodes that have left: %w", err)
	}
	d.Presence.Load(state)
	return nil
}

// Begins implements writer.Owner.
func (d *decider) Begins(ctx context.Context, state *fold.State) error {
	if err := d.noteFirst(ctx, state); err != nil {
		return err
	}
	return d.followRotation(ctx, state)
}

// Serves implements writer.Owner. Serves rings the nodes that have an unfinished run. If the server was
// killed between an append and its doorbell, these nodes have not heard of their run.
func (d *decider) Serves(state *fold.State) {
	d.Access.Load(state)
	d.Opts.Logger.Info("serving", "seq", state.Seq, "nodes", len(state.Registry.Nodes), "jobs", len(state.Engine.Order))
	for node := range state.Engine.Active {
		d.ring(state, node, wire.RingClaim)
	}
}

// Decide implements writer.Owner. Decide repeats the decisions of the engine and of the value waits until
// they append nothing more. After that, Decide retires the oldest jobs above the limit.
func (d *decider) Decide(t *writer.Tx) {
	tx := &tx{&core.Tx{Tx: t, Core: d.Core}}
	for _, b := range d.Denials.Due(tx.Now) {
		tx.Emit(core.ActorServer, b)
		tx.MayCut()
	}
	d.removeGone(tx)
	d.endAbandoned(tx)
	held := d.hold(tx)
	view := engine.View{
		Now: tx.Now, Since: tx.Since, Seen: d.Presence.Seen,
		Silence: d.Opts.Silence, InFlight: d.Opts.InFlight, Hold: held, HeldTo: d.heldTo,
		Usual: tx.UsualOf, LastAnswer: d.lastAnswer, Quiet: tx.Now.Before(d.lostAt),
	}
	if !view.Quiet {
		d.lostAt = tx.Now.Add(lossesEvery)
	}
	for {
		d.checkValueWaits(tx)
		bodies := tx.Engine.Decide(view)
		view.Quiet = true
		if len(bodies) == 0 && !d.convergence(tx, held) {
			break
		}
		for _, b := range bodies {
			if want, ok := b.(*tutti.RunWanted); ok {
				tx.name(want)
			}
			tx.Emit(core.ActorServer, b)
			tx.MayCut()
		}
	}
	for _, id := range tx.Engine.Retire(d.Opts.Keep) {
		tx.Emit(core.ActorServer, &tutti.JobRetired{Job: id})
		tx.MayCut()
	}
}

// Stored implements writer.Owner.
func (d *decider) Stored(state *fold.State, events []tutti.Event) {
	d.Presence.Apply(state, events)
	d.Opts.Meter.Stored(state, events)
	for _, e := range events {
		switch e.Body.(type) {
		case *tutti.FleetSet, *tutti.NodeEnrolled, *tutti.NodeRemoved, *tutti.NodeClassified, *tutti.NodeInventory, *tutti.InventoryDropped:
			d.MatchInputs.Store(e.Seq)
		}
	}
	d.Access.Apply(events)
}

// Answered implements writer.Owner. Answered does the work that may only happen after the events are on disk.
func (d *decider) Answered(ctx context.Context, state *fold.State, events []tutti.Event) {
	if len(events) > 0 {
		killpoint.Here("server.answered", events[0].Body.Kind())
		defer killpoint.Here("server.rung", events[0].Body.Kind())
	}
	for _, e := range events {
		switch b := e.Body.(type) {
		case *tutti.RunWanted:
			d.ring(state, b.Order.Node, wire.RingClaim)
		case *tutti.RunGated:
			if r := state.Engine.Runs[b.Run]; r != nil && state.Engine.Converges(r) {
				d.ring(state, r.Node, wire.RingGate)
			}
		case *tutti.JobStarted:
			for _, node := range state.Engine.Later(b.Job) { // the doorbell makes the node prepare for its turn
				d.ring(state, node, wire.RingClaim)
			}
			d.Opts.Logger.Info("job started", "job", b.Job, "mode", b.Mode, "by", e.By)
		case *tutti.JobCancelled:
			d.ringAbandoned(state, e)
		case *tutti.JobFinished:
			d.Opts.Logger.Info("job finished", "job", b.Job, "verdict", b.Verdict)
		case *tutti.LeaseChanged:
			if b.State.Failed() {
				d.Opts.Logger.Warn("an exclusive job does not have a node", "job", b.Job, "node", b.Node, "state", b.State, "because", b.Message)
			}
		case *tutti.RunLost:
			d.Opts.Logger.Warn("run lost", "run", b.Run, "because", b.Reason)
		case *tutti.OperatorIssued:
			d.Opts.Logger.Info("operator.issued", "operator", e.Body.ID(), "by", e.By)
		case *tutti.CARotated:
			d.Opts.Logger.Info("the CA is rotated", "state", b.Phase, "by", e.By)
		case *tutti.OperatorRevoked:
			d.Opts.Logger.Info("operator.revoked", "operator", e.Body.ID(), "by", e.By)
		case *tutti.Denied:
			d.Opts.Logger.Warn("denied", "who", b.Who, "what", b.What)
		}
	}
	d.reconcileProbes(ctx, state)
	d.ringLeases(state, time.Now())
	d.endLeavers(state)
}

func (d *decider) ring(state *fold.State, node tutti.NodeName, op string) {
	n := state.Registry.Nodes[node]
	if n == nil {
		return
	}
	if err := d.Opts.Bus.Ring(n.Key, op, nil); err != nil {
		// The node claims by itself when it reconnects.
		d.Opts.Logger.Warn("doorbell not rung", "node", node, "error", err)
	}
}
