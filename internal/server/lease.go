package server

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

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
