package server

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

// ringLeasesEvery is the time after which the server rings again a node that has not
// answered, because doorbells can get lost.
const ringLeasesEvery = 5 * time.Second

// rungLeases says when the server last rang the nodes of a job, and in which phase.
type rungLeases struct {
	phase engine.Phase
	at    time.Time
}

// ringLeases rings the nodes that have not yet answered an exclusive job. After the
// server's start, ringLeases rings all nodes of the job.
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

// endLeavers ends the keys of nodes that left at least LeaveGrace ago. If endLeavers cannot end a key now,
// the server ends the key at its next start. Until then the server refuses messages from this key.
func (d *decider) endLeavers(state *fold.State) {
	for len(d.Leavers) > 0 && !time.Now().Before(d.Leavers[0].At) {
		key := d.Leavers[0].Key
		d.Leavers = d.Leavers[1:]
		if state.Registry.Keys[key] != "" {
			continue // the node has joined again with this key
		}
		if err := d.Opts.Identity.Revoke(key); err != nil {
			d.Opts.Logger.Error("the connection of a node that has left could not be ended yet", "key", key, "error", err)
		}
	}
}
