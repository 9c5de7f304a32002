package natsbus

import (
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// What a node may send beyond the calls that it has at once. A host that compiles for a fleet with all its processors is
// told to ask again some 64 times a second; each such call is small.
const (
	excessCalls     = 2_000
	excessCallsEach = 200 // more each second
	excessBytes     = 32 << 20
	excessBytesEach = 1 << 20
	// outFor is how long a node is put out first that sends more than that, and outAtMost the next times.
	outFor    = 30 * time.Second
	outAtMost = time.Hour
)

// excess counts what nodes send beyond what they may. The bus takes messages faster than anybody can answer them: if nobody
// ended that, a few nodes would fill what the server has not read yet, and the calls of all others would be lost with theirs.
type excess struct {
	mu    sync.Mutex
	of    map[tutti.NodeKey]*excessOf
	swept time.Time
}

type excessOf struct {
	calls, bytes float64 // that are left
	at           time.Time
	times        int       // how often it was put out
	until        time.Time // it is out
}

func newExcess() *excess { return &excess{of: map[tutti.NodeKey]*excessOf{}} }

// more counts a message. Out: the node is out, since this message if that is new.
func (e *excess) more(key tutti.NodeKey, bytes int, now time.Time) (out, since bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sweep(now)
	of := e.of[key]
	if of == nil {
		of = &excessOf{calls: excessCalls, bytes: excessBytes, at: now}
		e.of[key] = of
	}
	if now.Before(of.until) {
		return true, false
	}
	passed := max(0, now.Sub(of.at).Seconds())
	of.calls = min(excessCalls, of.calls+passed*excessCallsEach) - 1
	of.bytes = min(excessBytes, of.bytes+passed*excessBytesEach) - float64(bytes)
	of.at = now
	if of.calls >= 0 && of.bytes >= 0 {
		return false, false
	}
	of.until = now.Add(min(outAtMost, outFor<<min(of.times, 8)))
	of.times++
	of.calls, of.bytes = excessCalls, excessBytes
	return true, true
}

// isOut reports whether a node is out.
func (e *excess) isOut(key tutti.NodeKey, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.of[key]
	return of != nil && now.Before(of.until)
}

// sweep forgets who has sent nothing more for a while than it may.
func (e *excess) sweep(now time.Time) {
	if now.Sub(e.swept) < time.Minute {
		return
	}
	e.swept = now
	for key, of := range e.of {
		if now.Sub(of.at) > 2*outAtMost {
			delete(e.of, key)
		}
	}
}
