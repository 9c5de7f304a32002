package watch

import (
	"sync"

	"github.com/tutti-project/tutti"
)

// Broadcast wakes everybody who waits, as often as somebody tells.
type Broadcast struct {
	mu *sync.Mutex
	ch *chan struct{}
}

// NewBroadcast returns one that nobody waits for yet.
func NewBroadcast() Broadcast {
	ch := make(chan struct{})
	return Broadcast{mu: &sync.Mutex{}, ch: &ch}
}

// Wait returns a channel that is closed by the next Tell.
func (b Broadcast) Wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *b.ch
}

// Tell wakes all who wait.
func (b Broadcast) Tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(*b.ch)
	*b.ch = make(chan struct{})
}

// Hub passes what happens inside runs to those who watch. Who is slow misses
// some: nothing here is a fact that anybody relies on.
type Hub struct {
	mu   *sync.Mutex
	subs map[chan tutti.Live]tutti.JobID
}

const liveBuffer = 256

// NewHub returns one that nobody watches yet.
func NewHub() Hub {
	return Hub{mu: &sync.Mutex{}, subs: map[chan tutti.Live]tutti.JobID{}}
}

// Subscribe returns what happens from now on in the runs of a job; stop ends that.
func (h Hub) Subscribe(job tutti.JobID) (lives <-chan tutti.Live, stop func()) {
	ch := make(chan tutti.Live, liveBuffer)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subs[ch] = job
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, ch)
	}
}

// Watched reports whether anybody watches a job.
func (h Hub) Watched(job tutti.JobID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.subs {
		if of == job {
			return true
		}
	}
	return false
}

// Publish passes on what happened in the runs of a job. It waits for nobody.
func (h Hub) Publish(job tutti.JobID, lives []tutti.Live) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch, want := range h.subs {
		if want != job {
			continue
		}
		for _, l := range lives {
			select {
			case ch <- l:
			default:
			}
		}
	}
}
