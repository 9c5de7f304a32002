package server

import (
	"time"

	"github.com/tutti-project/tutti/internal/fold"
)

// endLeavers ends the keys whose time has come. One that cannot be ended is
// ended at the next start; nobody listens to it in any case.
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
