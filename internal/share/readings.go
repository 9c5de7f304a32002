package share

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// A few bytes of a node's message can name content of 64 MiB, which the server must read from the store to handle the
// message. So the memory of this content is limited for all nodes together. Each node has only one reading at a time.
// If more readings wait, the nodes take turns.
const (
	// maxReadings is how many bytes all readings together may have in memory.
	maxReadings = 256 << 20
	// SmallReading is the largest reading that begins at once and does not count. The bus limits how many such readings
	// run at the same time.
	SmallReading = 1 << 20
	// readingWait is how long a reading waits for its turn. The constant is shorter than the time
	// that an agent waits for one answer.
	readingWait = 20 * time.Second
	// CostOfRecord is how many copies of a record are in memory while the record is decoded, and afterwards.
	// CostOfManifest is the same number for signed code.
	CostOfRecord   = 4
	CostOfManifest = 3
)

// Readings decides when each reading may begin.
type Readings struct {
	mu      sync.Mutex
	free    int64
	at      map[tutti.NodeKey]bool // nodes that have a reading now
	waiting map[tutti.NodeKey][]*reading
	ring    []tutti.NodeKey // nodes that have no reading now and wait for a turn, the next node first
}

// The type `reading` is one reading that waits.
type reading struct {
	cost  int64
	begun chan struct{} // closed when the reading may begin
}

// NewReadings returns Readings without any reading.
func NewReadings() *Readings {
	return &Readings{free: maxReadings, at: map[tutti.NodeKey]bool{}, waiting: map[tutti.NodeKey][]*reading{}}
}

// Enter waits until a reading for a node may begin. The caller must call `leave` when the content is no longer
// in memory. The caller may call leave more than once. While Enter waits, another call may use the waiting call's
// place at the bus. Enter returns CodeUnavailable if the wait was too long.
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
		err = tutti.Errorf(tutti.CodeUnavailable, "waited %s for its turn to read content: the server reads at most %d MiB for this node and others at once; ask again", readingWait, maxReadings>>20)
	case <-ctx.Done():
		err = tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting because the server reads at most %d MiB for this node and others at once", maxReadings>>20)
	}
	if !r.withdraw(key, one) { // the reading has begun in the meantime
		leave()
	}
	return nil, err
}

// Read calls Enter and then the function `read`. If this function fails or panics, Read calls `leave`. If this
// function succeeds, the caller must call `leave`.
func (r *Readings) Read(ctx context.Context, key tutti.NodeKey, cost int64, read func() error) (leave func(), err error) {
	leave, err = r.Enter(ctx, key, cost)
	if err != nil {
		return nil, err
	}
	stays := false
	defer func() {
		if !stays { // also after a panic, because a panic ends only this call of a node and not the server
			leave()
		}
	}()
	if err := read(); err != nil {
		return nil, err
	}
	stays = true
	return leave, nil
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

// The method `leave` ends a reading.
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

// The method `withdraw` removes a waiting reading. The method returns false if the reading has begun.
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

// The method `admit` lets the next readings begin. If there is no room yet for the first reading, the others wait as
// well. If small readings did not wait, a large reading could wait for ever. The caller holds the lock.
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

// Room returns how many more bytes may be in memory.
func (r *Readings) Room() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.free
}
