package share

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// Some bytes of a node's message can name content of 64 MiB, which is read from the store to answer it, or to take
// what it says. What is in memory for all nodes at once is bounded. Of one node there is one reading, and when more
// wait the nodes take turns.
const (
	// maxReadings bounds the bytes that readings cost at once.
	maxReadings = 256 << 20
	// SmallReading is what a reading may cost that does not count: the bus bounds how many calls are at work.
	SmallReading = 1 << 20
	// readingWait is how long a reading waits for the others: less than an agent waits for one answer.
	readingWait = 20 * time.Second
	// CostOfRecord and CostOfManifest are how often the bytes of a record and of signed code are in memory: while they
	// are decoded, and as what becomes of them.
	CostOfRecord   = 4
	CostOfManifest = 3
)

// Readings lets them begin.
type Readings struct {
	mu      sync.Mutex
	free    int64
	at      map[tutti.NodeKey]bool // one of these is at work
	waiting map[tutti.NodeKey][]*reading
	ring    []tutti.NodeKey // those of whom some wait and none is at work, the next one first
}

// reading is one that waits.
type reading struct {
	cost  int64
	begun chan struct{} // closed when it may begin
}

// NewReadings has nothing in memory yet.
func NewReadings() *Readings {
	return &Readings{free: maxReadings, at: map[tutti.NodeKey]bool{}, waiting: map[tutti.NodeKey][]*reading{}}
}

// Enter waits until a reading of a node may begin; leave has to follow when what was read is in memory no more, and may
// be called again. While it waits, another call has its place at the bus. CodeUnavailable: others took too long.
func (r *Readings) Enter(ctx context.Context, key tutti.NodeKey, cost int64) (leave func(), err error) {
	if cost <= SmallReading {
		return func() {}, nil
	}
	one := &reading{cost: min(cost, maxReadings), begun: make(chan struct{})}
	r.queue(key, one)
	leave = sync.OnceFunc(func() { r.leave(key, one.cost) })
	select {
	case <-one.begun:
		return leave, nil
	default:
	}
	tutti.TurnOf(ctx).Yield()
	patience := time.NewTimer(readingWait)
	defer patience.Stop()
	select {
	case <-one.begun:
		return leave, nil
	case <-patience.C:
		err = tutti.Errorf(tutti.CodeUnavailable, "waited %s for content that is read for this node and others, %d MiB at once; ask again", readingWait, maxReadings>>20)
	case <-ctx.Done():
		err = tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for content that is read for this node and others, %d MiB at once", maxReadings>>20)
	}
	if !r.withdraw(key, one) { // it was let in meanwhile
		leave()
	}
	return nil, err
}

func (r *Readings) queue(key tutti.NodeKey, one *reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[key] = append(r.waiting[key], one)
	if len(r.waiting[key]) == 1 && !r.at[key] {
		r.ring = append(r.ring, key)
	}
	r.admit()
}

// leave is for a reading that has begun, at its end.
func (r *Readings) leave(key tutti.NodeKey, cost int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += cost
	delete(r.at, key)
	if len(r.waiting[key]) > 0 {
		r.ring = append(r.ring, key)
	}
	r.admit()
}

// withdraw takes back a reading that waits; false: it has begun.
func (r *Readings) withdraw(key tutti.NodeKey, one *reading) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.waiting[key], one)
	if i < 0 {
		return false
	}
	if r.waiting[key] = slices.Delete(r.waiting[key], i, i+1); len(r.waiting[key]) == 0 {
		delete(r.waiting, key)
		r.ring = slices.DeleteFunc(r.ring, func(k tutti.NodeKey) bool { return k == key })
	}
	r.admit()
	return true
}

// admit lets in whose turn it is. One for which there is no room yet holds up those behind it: they would keep it out for
// ever. It needs mu.
func (r *Readings) admit() {
	for len(r.ring) > 0 {
		key := r.ring[0]
		one := r.waiting[key][0]
		if one.cost > r.free {
			return
		}
		r.ring = r.ring[1:]
		if r.waiting[key] = r.waiting[key][1:]; len(r.waiting[key]) == 0 {
			delete(r.waiting, key)
		}
		r.free -= one.cost
		r.at[key] = true
		close(one.begun)
	}
}

// Room is how many bytes more may be in memory.
func (r *Readings) Room() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.free
}
