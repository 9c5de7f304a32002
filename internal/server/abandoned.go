package server

import (
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// abandonedAfter is how long the server waits for the operator who began a diff, after the connection on which they followed
// its job has ended. A command connects again for two minutes.
const abandonedAfter = 3 * time.Minute

// endAbandoned cancels the jobs of diffs whose command has been killed. Nobody would see their result, and other diffs wait
// for their end.
func (d *decider) endAbandoned(tx *tx) {
	for _, id := range d.Viewers.Abandoned(tx.Now.Add(-abandonedAfter)) {
		if j := tx.Engine.Jobs[id]; j != nil && !j.Ended() && !j.Cancelled {
			tx.Emit(core.ActorServer, &tutti.JobCancelled{Job: id, Reason: "the command that began it is gone"})
			tx.MayCut()
		}
	}
}

// ringAbandoned tells the nodes to end the compiles of a job that endAbandoned has cancelled. If a node misses the doorbell,
// its compile ends at the gate.
func (d *decider) ringAbandoned(state *fold.State, e tutti.Event) {
	j := state.Engine.Jobs[tutti.JobID(e.Body.ID())]
	if e.By != core.ActorServer || j == nil || j.Diff == nil {
		return
	}
	for node, id := range state.Engine.Active {
		n := state.Registry.Nodes[node]
		if r := state.Engine.Runs[id]; n == nil || r == nil || r.Job != j.ID {
			continue
		}
		payload, _ := json.Marshal(wire.CancelRun{Run: id})
		if err := d.Opts.Bus.Ring(n.Key, wire.RingCancel, payload); err != nil {
			d.Opts.Logger.Warn("doorbell not rung", "node", node, "error", err)
		}
	}
}
