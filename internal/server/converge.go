package server

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/server/core"
)

// The function `rest` returns how long the server waits before its next decision on converge steps. The arguments
// are the number of nodes and the duration of the last decision. If thousands of nodes need a run, a decision after
// every append would leave the writer no time for other work. The next decision considers everything that has
// happened in the meantime. It comes at the latest with the first tick after the wait.
func rest(nodes int, took time.Duration) time.Duration {
	const few, most = 500, 2 * time.Second
	if nodes <= few {
		return 0
	}
	return min(4*took, most)
}

// convergence decides which runs of converge steps begin, go or stop, and which converge
// steps end. The function reports whether it has decided anything.
func (d *decider) convergence(tx *tx, hold bool) bool {
	began := time.Now()
	if began.Before(d.resting) {
		return false
	}
	defer func() {
		now := time.Now()
		d.resting = now.Add(rest(tx.Converge.InNeed(), now.Sub(began)))
	}()
	view := converge.View{
		Now: tx.Now, Since: tx.Since, Seen: d.Presence.Seen, Silence: d.Opts.Silence,
		Has:      tx.HasNow,
		Member:   tx.Runs,
		Unjoined: tx.Unjoined, Undecided: tx.UndecidedLines,
		Paused:   tx.PausedOrHeld(),
		Unnoted:  d.unnoted,
		Hold:     hold,
		InFlight: d.Opts.InFlight, Compiles: d.Opts.Compiles,
		Decided: d.decided,
	}
	if f := tx.Registry.Fleet; f != nil {
		view.Reaction, view.Environment, view.Serial = f.Reaction, f.Environment.Name, tx.Registry.Serial()
	}
	if tx.react(view) {
		return true
	}
	tx.Engine.Converging(func(*engine.Job, *engine.Step) {
		if view.Order == nil {
			view.Order = tx.Registry.Order()
		}
	})
	bodies := tx.Converge.Decide(view)
	if len(bodies) == 0 {
		d.decided = tx.Seq
	}
	for _, b := range bodies {
		switch b := b.(type) {
		case *tutti.RunWanted:
			tx.name(b)
		case *tutti.RunGated:
			tx.letGo(b)
			continue
		}
		tx.Emit(core.ActorServer, b)
		tx.MayCut()
	}
	return len(bodies) > 0
}

// The method `unnoted` returns why a node could not note runs that Tutti did not start.
func (d *decider) unnoted(node tutti.NodeName) string {
	_, beat := d.Presence.Last(node)
	return beat.Unnoted
}

// The method `name` adds the run id and the names of the volatile facts to an order.
func (tx *tx) name(b *tutti.RunWanted) {
	b.Order.Run, b.Order.VolatileFacts = tx.Core.Opts.NewRunID(), tx.Fleet().VolatileFacts
}

// The method `react` starts a job if the fleet reacts by itself to a change.
func (tx *tx) react(view converge.View) bool {
	reaction := tx.Converge.React(view)
	if reaction == nil {
		return false
	}
	plan, err := tx.ConvergePlan(reaction.Step)
	if err != nil { // ConvergePlan refuses only targets, and a reaction has no target
		return false
	}
	started := tx.JobWith(*tx.Registry.Fleet, reaction.Codes)
	started.Job, started.Plan, started.Mode, started.Cause = tx.Engine.NextJob(plan.Name), plan, tutti.ModeApply, plain.Words(reaction.Cause)
	tx.Emit(core.ActorServer, started)
	tx.MayCut()
	return true
}

// letGo emits the decision of the gate on a held run. If the decision is go, the exports of
// the run replace the node's earlier exports in the same append.
func (tx *tx) letGo(b *tutti.RunGated) {
	r := tx.Engine.Runs[b.Run]
	b.Reason = plain.Words(b.Reason)
	if n := tx.Registry.Nodes[r.Node]; n != nil && b.Verdict == tutti.GateGo {
		exports := tx.Data.Handed(r.Job, r.Node)
		// The fleet file may have changed while the run was held.
		if n.Tickets.Conflicted != "" {
			b.Verdict, b.Reason = tutti.GateStop, n.Tickets.Conflicted
		} else if err := tx.Withheld(n, r, exports); err != nil {
			b.Verdict, b.Reason = tutti.GateStop, plain.Words(err.Error())
		} else if r.Full() && r.Publishes() {
			tx.SetExports(n, r, exports, r.Set, false)
		}
	}
	tx.Emit(core.ActorServer, b)
	tx.MayCut()
}
