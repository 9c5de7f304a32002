package server

import (
	"time"

	"github.com/tutti-project/tutti"
)

// hold reports whether there is no room to begin a run, and tells those who
// watch a job when that changes.
func (w *writer) hold(tx *tx) bool {
	err := w.opts.Space()
	if held := err != nil; held != w.held {
		w.held = held
		const again = "there is room again: what waited goes on"
		what := again
		if held {
			what = err.Error()
			w.opts.Logger.Error("no new work", "because", err)
		} else {
			w.opts.Logger.Info(again)
		}
		for _, j := range tx.Engine.Jobs {
			if !j.Ended() {
				w.hub.Publish(j.ID, []tutti.Live{{At: time.Now().UTC(), Message: what}})
			}
		}
	}
	if w.held {
		w.heldTo = tx.now
	}
	return w.held
}

// notStored is the answer to a command whose events could not be appended.
func (w *writer) notStored(err error) error {
	if full := w.opts.Space(); full != nil {
		return tutti.Errorf(tutti.CodeUnavailable, "%v; whether this was kept is not known", full)
	}
	return tutti.Wrap(tutti.CodeUnavailable, err, "append to the log")
}
