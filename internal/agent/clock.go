package agent

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/tutti-project/tutti"
)

// ClockFile has the count of the events that this agent has seen on its node (ADR 0011).
const ClockFile = "clock.json"

// newsFor: a whole foreign run makes its node good only if it ended at most so long ago.
const newsFor = time.Minute

// tick counts one more event, and returns when the count is on disk. The zero Clock: it could not be counted.
func (a *Agent) tick() tutti.Clock {
	a.clockMu.Lock()
	defer a.clockMu.Unlock()
	path := filepath.Join(a.opts.Dir, ClockFile)
	clock, err := readSealed[tutti.Clock](path)
	if err != nil { // another line begins: its counts cannot be compared with earlier ones
		if !errors.Is(err, fs.ErrNotExist) {
			a.opts.Logger.Warn("what this node has seen is counted from the beginning again", "error", err)
		}
		clock = tutti.Clock{Line: uuid.NewString()}
	}
	clock.Count++
	if err := writeSealed(path, clock); err != nil {
		a.opts.Logger.Error("what this node has seen is not counted", "error", err)
		return tutti.Clock{}
	}
	return clock
}

// sees notes that a run without an order was seen just now. It returns how long before that the run had begun. 0: the node's
// clock cannot tell.
func (a *Agent) sees(run *tutti.Foreign) time.Duration {
	run.Result.Clock = a.tick()
	now := time.Now()
	a.clockMu.Lock()
	defer a.clockMu.Unlock()
	a.heardAt[run.Result.Run] = now
	return max(0, now.Sub(run.Result.StartedAt))
}

// asNews is a run of the outbox as it is told now. A run is whole only if it is told for the first time, soon after its
// end, by the agent that has seen it. If it is told later, nobody knows what has happened since.
func (a *Agent) asNews(h heard) tutti.Foreign {
	f := h.Foreign
	a.clockMu.Lock()
	at, known := a.heardAt[f.Result.Run]
	a.clockMu.Unlock()
	f.Ago = 0
	since := time.Since(at) // monotonic
	late := since + max(0, h.Took-f.Result.Duration())
	f.Whole = f.Whole && h.Told == nil && known && h.Took > 0 && late <= newsFor
	if owes, err := readDebts(a.opts.Dir); err != nil || len(owes.Owed) > 0 {
		f.Whole = false // Puppet does not repeat a refresh
	}
	if f.Whole {
		f.Ago = since + max(h.Took, f.Result.Duration())
	}
	return f
}

// forgets drops the note of a run that left the outbox.
func (a *Agent) forgets(run tutti.RunID) {
	a.clockMu.Lock()
	defer a.clockMu.Unlock()
	delete(a.heardAt, run)
}
