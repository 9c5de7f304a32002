package server

import (
	"maps"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// presence is when each node was last heard of. It is never in the log.
type presence struct {
	mu    *sync.Mutex
	seen  map[tutti.NodeName]time.Time
	beats map[tutti.NodeName]tutti.Beat
}

func newPresence() presence {
	return presence{mu: &sync.Mutex{}, seen: map[tutti.NodeName]time.Time{}, beats: map[tutti.NodeName]tutti.Beat{}}
}

// hear notes a sign of life.
func (p presence) hear(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[n] = time.Now()
}

func (p presence) beat(n tutti.NodeName, b tutti.Beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats[n] = b
}

// forget is for a name that another machine may take.
func (p presence) forget(n tutti.NodeName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, n)
	delete(p.beats, n)
}

func (p presence) times() map[tutti.NodeName]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.seen)
}

func (p presence) last(n tutti.NodeName) (time.Time, tutti.Beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[n], p.beats[n]
}
