package server

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

// ringLeasesEvery is after how long a node that has not answered is rung again:
// doorbells can be lost.
const ringLeasesEvery = 5 * time.Second

// rungLeases is when the nodes of a job were last rung, and in which phase.
type rungLeases struct {
	phase engine.Phase
	at    time.Time
}

// ringLeases rings the nodes that have not answered an exclusive job yet. After a start
// it rings all of them.
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

// endLeavers ends the keys whose time has come. A key that cannot be ended now is
// ended at the next start. Until then the server refuses its messages.
func (d *decider) endLeavers(state *fold.State) {
	for len(d.Leavers) > 0 && !time.Now().Before(d.Leavers[0].At) {
		key := d.Leavers[0].Key
		d.Leavers = d.Leavers[1:]
		if state.Registry.Keys[key] != "" {
			continue // it has joined again
		}
		if err := d.Opts.Identity.Revoke(key); err != nil {
			d.Opts.Logger.Error("the key of a node that has left is not ended yet", "key", key, "error", err)
		}
	}
}
