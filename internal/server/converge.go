package server

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/plain"
)

// overlay reports whether what a run hands over is for its own job only at first,
// and whether it sees what others of its job have handed over so.
func (tx *tx) overlay(r *engine.Run) bool { return !r.Full() || tx.Engine.Converges(r) }

// asker is who asks on behalf of a run.
func (tx *tx) asker(r *engine.Run) data.Asker {
	return data.Asker{Node: r.Node, Job: r.Job, Overlay: tx.overlay(r)}
}

// rest is how long no decision on converge steps is taken after one that looked at so
// many nodes and took so long. With thousands in need, deciding after every append
// would leave the writer no time for anything else. What waits meanwhile is decided
// on together, at the latest at the next tick.
func rest(nodes int, took time.Duration) time.Duration {
	const few, most = 500, 2 * time.Second
	if nodes <= few {
		return 0
	}
	return min(4*took, most)
}

// convergence decides what begins, goes and ends in converge steps. It reports
// whether there was anything.
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
		Now: tx.Now, Since: tx.Since, Seen: d.presence.Seen, Silence: d.opts.Silence,
		Has:      tx.has,
		Member:   tx.Member,
		Unjoined: tx.Unjoined,
		Paused:   tx.pausedOrHeld(),
		Hold:     hold,
		InFlight: d.opts.InFlight, Compiles: d.opts.Compiles,
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
	for _, b := range bodies {
		switch b := b.(type) {
		case *tutti.RunWanted:
			tx.name(b)
		case *tutti.RunGated:
			tx.letGo(b)
			continue
		}
		tx.Emit(actorServer, b)
		tx.MayCut()
	}
	return len(bodies) > 0
}

// name gives an order what only the server knows.
func (tx *tx) name(b *tutti.RunWanted) {
	b.Order.Run, b.Order.VolatileFacts = tx.server.opts.NewRunID(), tx.Fleet().VolatileFacts
}

// react starts a job if something has changed to which the fleet reacts by itself.
func (tx *tx) react(view converge.View) bool {
	if _, pushed := tx.Registry.Code[view.Environment]; !pushed && view.Environment != "" {
		return false
	}
	reaction := tx.Converge.React(view)
	if reaction == nil {
		return false
	}
	plan, err := tx.convergePlan(reaction.Step)
	if err != nil { // a target, which reactions have not
		return false
	}
	tx.Emit(actorServer, &tutti.JobStarted{
		Job: tx.Engine.NextJob(plan.Name), Plan: plan, Mode: tutti.ModeApply, Env: view.Environment, Code: reaction.Code,
		Cause: plain.Words(reaction.Cause),
	})
	tx.MayCut()
	return true
}

// letGo emits the gate's decision on a run that was held; on go, its exports
// replace those that others read, together with it.
func (tx *tx) letGo(b *tutti.RunGated) {
	r := tx.Engine.Runs[b.Run]
	b.Reason = plain.Words(b.Reason)
	if n := tx.Registry.Nodes[r.Node]; n != nil && b.Verdict == tutti.GateGo {
		exports := tx.Data.Handed(r.Job, r.Node)
		// The fleet file may be another one since the run was held.
		if n.Tickets.Conflicted != "" {
			b.Verdict, b.Reason = tutti.GateStop, n.Tickets.Conflicted
		} else if err := tx.withheld(n, r, exports); err != nil {
			b.Verdict, b.Reason = tutti.GateStop, plain.Words(err.Error())
		} else if r.Full() && r.Publishes() {
			tx.setExports(n, r, exports, r.Set, false)
		}
	}
	tx.Emit(actorServer, b)
	tx.MayCut()
}

// convergePlan is the plan of a job that converges a target.
func (tx *tx) convergePlan(spec tutti.ConvergeStep) (tutti.Plan, error) {
	if err := tx.canConverge(spec); err != nil {
		return tutti.Plan{}, err
	}
	return tutti.Plan{Name: api.ConvergePlan, Steps: []tutti.Step{
		{Name: tutti.StepName(api.ConvergePlan), Timeout: fleet.DefaultRunTimeout, Converge: &spec},
	}}, nil
}

// canConverge refuses a target that is nobody.
func (tx *tx) canConverge(spec tutti.ConvergeStep) error {
	if spec.Limit < 0 || spec.MaxFailed < 0 {
		return tutti.Errorf(tutti.CodeInvalid, "converge %d nodes at once, until %d failed: neither is below 0", spec.Limit, spec.MaxFailed)
	}
	if spec.Target != "" && len(tx.Members(spec.Target)) == 0 {
		return tutti.Errorf(tutti.CodeNotFound, "no group %q with nodes that have joined, and no such node; see: tutti node list", spec.Target)
	}
	return nil
}
