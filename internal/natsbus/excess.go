package natsbus

import (
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// These constants limit the messages that a node may send while it already has its maximum of
// simultaneous calls. The limits are far above what an honest node needs. A host that compiles for a
// fleet with all its processors sends about 64 small calls a second above its maximum.
const (
	excessCalls     = 2_000
	excessCallsEach = 200 // regained each second
	excessBytes     = 32 << 20
	excessBytesEach = 1 << 20
	// outFor is how long the server locks a node out the first time. The time doubles each time that
	// the server locks the node out again, up to outAtMost.
	outFor    = 30 * time.Second
	outAtMost = time.Hour
)

// excess counts the messages of each node that exceed its limit. The bus takes messages faster than the server can
// answer them. Without this limit, a few nodes could fill the queue of unread messages. Then the calls of all other
// nodes would get lost too.
type excess struct {
	mu    sync.Mutex
	of    map[tutti.NodeKey]*excessOf
	swept time.Time
}

type excessOf struct {
	calls, bytes float64 // how many calls and bytes the node may still send
	at           time.Time
	times        int       // how often the server locked the node out
	until        time.Time // the node is locked out until this time
}

func newExcess() *excess { return &excess{of: map[tutti.NodeKey]*excessOf{}} }

// The method `more` counts a message. The result `out` reports whether the node is locked out. The result
// `since` reports whether this message has caused it.
func (e *excess) more(key tutti.NodeKey, bytes int, now time.Time) (out, since bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sweep(now)
	of := e.find(key, now)
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
	of.lockOut(now)
	return true, true
}

// lockOut locks a node out. lockOut returns false if the node is locked out already.
func (e *excess) lockOut(key tutti.NodeKey, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sweep(now)
	of := e.find(key, now)
	if now.Before(of.until) {
		return false
	}
	of.at = now
	of.lockOut(now)
	return true
}

// The method `find` returns the counters of a node. The caller holds e.mu.
func (e *excess) find(key tutti.NodeKey, now time.Time) *excessOf {
	of := e.of[key]
	if of == nil {
		of = &excessOf{calls: excessCalls, bytes: excessBytes, at: now}
		e.of[key] = of
	}
	return of
}

func (of *excessOf) lockOut(now time.Time) {
	of.until = now.Add(min(outAtMost, outFor<<min(of.times, 8)))
	of.times++
	of.calls, of.bytes = excessCalls, excessBytes
}

// isOut reports whether a node is locked out.
func (e *excess) isOut(key tutti.NodeKey, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.of[key]
	return of != nil && now.Before(of.until)
}

// sweep removes nodes that have stayed below their limit for some time.
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
