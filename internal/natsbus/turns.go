package natsbus

import (
	"sync"

	"github.com/tutti-project/tutti"
)

// turns lets calls begin: so many at once. When more of them wait, the nodes take turns, however
// many calls of each wait.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting map[tutti.NodeKey][]func()
	ring    []tutti.NodeKey // whose calls wait, the next one first
}

func newTurns(atOnce int) *turns {
	return &turns{free: atOnce, waiting: map[tutti.NodeKey][]func(){}}
}

// enter calls begin, now or when a call that was let in leaves. It does not wait; begin must not
// either.
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

// leave is for a call that has begun, at its end.
func (t *turns) leave() {
	if begin := t.next(); begin != nil {
		begin()
	}
}

// next returns whose turn it is, nil: nobody waits.
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
