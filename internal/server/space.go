package server

import (
	"time"

	"github.com/tutti-project/tutti"
)

// The method `hold` reports whether the disk has no room to begin a run. When the answer changes, the method tells
// the operators who watch a job.
func (d *decider) hold(tx *tx) bool {
	err := d.Opts.Space()
	if held := err != nil; held != d.held {
		d.held = held
		const again = "there is room again: waiting runs go on"
		what := again
		if held {
			what = err.Error()
			d.Opts.Logger.Error("no new work", "because", err)
		} else {
			d.Opts.Logger.Info(again)
		}
		for _, j := range tx.Engine.Jobs {
			if !j.Ended() {
				d.Hub.Publish(j.ID, []tutti.Live{{At: time.Now().UTC(), Message: what}})
			}
		}
	}
	if d.held {
		d.heldTo = tx.Now
	}
	return d.held
}
