package natsbus

import (
	"sync"

	"github.com/tutti-project/tutti"
)

// turns bounds how many calls run at once. If other calls wait, the nodes take turns: the first waiting
// call of each node begins, then the second one of each node. So a node with many calls does not delay
// the first call of another node.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting map[tutti.NodeKey][]func()
	ring    []tutti.NodeKey // nodes with waiting calls, in the order of their turns
}

func newTurns(atOnce int) *turns {
	return &turns{free: atOnce, waiting: map[tutti.NodeKey][]func(){}}
}

// The method `enter` calls the function `begin` at once if there is a free place. If too many calls
// run, an earlier call calls `begin` when it leaves. enter does not wait, and the function `begin`
// must not wait either.
func (t *turns) enter(key tutti.NodeKey, begin func()) {
	t.mu.Lock()
	if t.free == 0 {
		if len(t.waiting[key]) == 0 {
			t.ring = append(t.ring, key)
		}
		t.waiting[key] = append(t.waiting[key], begin)
		t.mu.Unlock()
		return
	}
	t.free--
	t.mu.Unlock()
	begin()
}

// The caller must call leave at the end of each call that has begun.
func (t *turns) leave() {
	if begin := t.next(); begin != nil {
		begin()
	}
}

// The method `next` returns the waiting call whose turn it is, or nil if no call waits.
func (t *turns) next() func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ring) == 0 {
		t.free++
		return nil
	}
	key := t.ring[0]
	t.ring = t.ring[1:]
	begin := t.waiting[key][0]
	if t.waiting[key] = t.waiting[key][1:]; len(t.waiting[key]) > 0 {
		t.ring = append(t.ring, key)
	} else {
		delete(t.waiting, key)
	}
	return begin
}
