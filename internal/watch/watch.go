package watch

import (
	"sync"

	"github.com/tutti-project/tutti"
)

// Broadcast wakes all waiting goroutines at each call of Tell.
type Broadcast struct {
	mu *sync.Mutex
	ch *chan struct{}
}

// NewBroadcast returns a Broadcast for which nobody waits yet.
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

// Tell wakes all waiting goroutines.
func (b Broadcast) Tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(*b.ch)
	*b.ch = make(chan struct{})
}

// Hub passes live messages of runs to their watchers. A slow watcher misses some messages.
// The Hub may lose messages, because nothing depends on live messages.
type Hub struct {
	mu   *sync.Mutex
	subs map[chan tutti.Live]tutti.JobID
}

const liveBuffer = 256

// NewHub returns a Hub without watchers.
func NewHub() Hub {
	return Hub{mu: &sync.Mutex{}, subs: map[chan tutti.Live]tutti.JobID{}}
}

// Subscribe returns a channel with the live messages of a job's runs from now on. The function
// `stop` ends the subscription.
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

// Publish passes live messages of a job's runs to its watchers. Publish does not wait for the watchers.
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
