package natsbus

import (
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// What a node may send beyond the calls that it may have at once. A host that compiles for a fleet with all its
// processors is told to ask again about 64 times a second, in small calls.
const (
	excessCalls     = 2_000
	excessCallsEach = 200 // regained each second
	excessBytes     = 32 << 20
	excessBytesEach = 1 << 20
	// outFor is how long a node is put out the first time. Each further time it doubles, up to outAtMost.
	outFor    = 30 * time.Second
	outAtMost = time.Hour
)

// excess counts what nodes send beyond what they may. The bus takes messages faster than the server can answer them. Without
// a bound, a few nodes could fill the queue of unread messages, and then the calls of all other nodes would be lost, too.
type excess struct {
	mu    sync.Mutex
	of    map[tutti.NodeKey]*excessOf
	swept time.Time
}

type excessOf struct {
	calls, bytes float64 // how many are left
	at           time.Time
	times        int       // how often it was put out
	until        time.Time // the node is out until then
}

func newExcess() *excess { return &excess{of: map[tutti.NodeKey]*excessOf{}} }

// more counts a message. out: the node is out. since: it is out because of this message.
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

// sweep forgets the nodes that have not sent too much for some time.
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
