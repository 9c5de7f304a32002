package agent

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/tutti-project/tutti"
)

// ClockFile contains the number of events that this agent has seen on its node (ADR
// 0011).
const ClockFile = "clock.json"

// A foreign run that applied a whole catalog can make its node good. The server must hear of the
// run within newsFor after its end.
const newsFor = time.Minute

// tick counts one more event, and returns when the count is on disk. The method returns the zero
// Clock if the event could not be counted.
func (a *Agent) tick() tutti.Clock {
	a.clockMu.Lock()
	defer a.clockMu.Unlock()
	path := filepath.Join(a.opts.Dir, ClockFile)
	clock, err := readSealed[tutti.Clock](path)
	if err != nil { // a new count begins, which cannot be compared with the earlier one
		if !errors.Is(err, fs.ErrNotExist) {
			a.opts.Logger.Warn("the count of seen events cannot be read and begins again", "error", err)
		}
		clock = tutti.Clock{Line: uuid.NewString()}
	}
	clock.Count++
	if err := writeSealed(path, clock); err != nil {
		a.opts.Logger.Error("an event could not be counted", "error", err)
		return tutti.Clock{}
	}
	return clock
}

// The method `sees` sets the run's clock when the agent sees a run without an order. The method
// returns how long ago the run began. The method returns 0 if the node's clock was set back since
// then.
func (a *Agent) sees(run *tutti.Foreign) time.Duration {
	run.Result.Clock = a.tick()
	now := time.Now()
	a.clockMu.Lock()
	defer a.clockMu.Unlock()
	a.heardAt[run.Result.Run] = now
	return max(0, now.Sub(run.Result.StartedAt))
}

// asNews returns a run of the outbox in the form in which the agent reports it now. The field Whole stays true only if
// the agent that has seen the run reports it for the first time, soon after the end of the run. In all other reports
// Whole is false, because nobody knows what has happened since the run.
func (a *Agent) asNews(h heard) tutti.Foreign {
	f := h.Foreign
	a.clockMu.Lock()
	at, known := a.heardAt[f.Result.Run]
	a.clockMu.Unlock()
	f.Ago = 0
	since := time.Since(at) // monotonic
	late := since + max(0, h.Took-f.Result.Duration())
	f.Whole = f.Whole && h.Told == nil && known && h.Took > 0 && late <= newsFor
	uncounted := a.debts.late.Load() // read `late` first and OwedFile second, because settleLate first changes OwedFile and then `late`
	if owes, err := readDebts(a.opts.Dir); err != nil || len(owes.Owed) > 0 || uncounted {
		f.Whole = false // Puppet does not repeat a refresh
	}
	if f.Whole {
		f.Ago = since + max(h.Took, f.Result.Duration())
	}
	return f
}

// The method `forgets` drops the note about a run that has left the outbox.
func (a *Agent) forgets(run tutti.RunID) {
	a.clockMu.Lock()
	defer a.clockMu.Unlock()
	delete(a.heardAt, run)
}
