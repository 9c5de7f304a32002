package httpapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-project/tutti"
)

// Bounds of what operators' requests cost at the same time.
const (
	smallBody = 64 << 10 // bodies up to this size are not counted
	// allBodies bounds the bytes of larger bodies of all operators, ownBodies those of one operator. They leave room for the
	// decoded values, which are in memory together with the body.
	allBodies = 256 << 20
	ownBodies = 96 << 20
	// bodyPatience is how long a large body waits for room.
	bodyPatience = 30 * time.Second
	// ownStreams is how many streams one operator may read. With each event the server has work for each stream.
	ownStreams = 64
	// ownCalls is how many requests of one operator the server works on at the same time, without streams. callPatience is how
	// long the operator's other requests wait.
	ownCalls     = 8
	callPatience = 30 * time.Second
)

// budget is what is left for requests. The zero value is not usable.
type budget struct {
	all *semaphore.Weighted

	mu  sync.Mutex
	own map[string]*share // by actor
}

// share is the budget of one operator.
type share struct {
	bodies  *semaphore.Weighted
	calls   *semaphore.Weighted
	streams int
	users   int // requests that hold or wait for a part of it
}

func newBudget() *budget {
	return &budget{all: semaphore.NewWeighted(allBodies), own: map[string]*share{}}
}

// with returns the share of an operator. The caller calls leave when it does not need the share any more.
func (b *budget) with(who string) (own *share, leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own = b.own[who]; own == nil {
		own = &share{bodies: semaphore.NewWeighted(ownBodies), calls: semaphore.NewWeighted(ownCalls)}
		b.own[who] = own
	}
	own.users++
	return own, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(b.own, who)
		}
	}
}

// take waits for room for a body of size bytes, first in the operator's own queue, then in the queue of all. Both queues
// keep their order. CodeUnavailable: there was no room in time.
func (b *budget) take(ctx context.Context, who string, size int64) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, bodyPatience)
	defer cancel()
	own, leave := b.with(who)
	if err := own.bodies.Acquire(ctx, size); err != nil {
		leave()
		return nil, tutti.Errorf(tutti.CodeUnavailable, "%s has other large requests under way, and none of them ended within %s; try again", who, bodyPatience)
	}
	if err := b.all.Acquire(ctx, size); err != nil {
		own.bodies.Release(size)
		leave()
		return nil, tutti.Errorf(tutti.CodeUnavailable, "other operators have large requests under way, and none of them ended within %s; try again", bodyPatience)
	}
	return func() {
		b.all.Release(size)
		own.bodies.Release(size)
		leave()
	}, nil
}

// call waits until the server may work on a request of an operator. An operator who sends many at once waits for their own
// requests. CodeUnavailable: none of these ended in time.
func (b *budget) call(ctx context.Context, who string) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	own, left := b.with(who)
	if err := own.calls.Acquire(ctx, 1); err != nil {
		left()
		return nil, tutti.Errorf(tutti.CodeUnavailable, "%s has %d other requests under way, and none of them ended within %s; try again", who, ownCalls, callPatience)
	}
	return func() {
		own.calls.Release(1)
		left()
	}, nil
}

// stream counts one more stream of an operator. CodeConflict: the operator has too many streams.
func (b *budget) stream(who string) (leave func(), err error) {
	own, left := b.with(who)
	b.mu.Lock()
	open := own.streams
	if open < ownStreams {
		own.streams++
	}
	b.mu.Unlock()
	if open >= ownStreams {
		left()
		return nil, tutti.Errorf(tutti.CodeConflict, "%s has %d watches and other streams open; no more are let in until one of them ends", who, open)
	}
	return func() {
		b.mu.Lock()
		own.streams--
		b.mu.Unlock()
		left()
	}, nil
}

// read returns the body of a request, of at most limit bytes. The caller calls release when it does not need the body any more. A
// body above smallBody waits for room.
func (b *budget) read(ctx context.Context, w http.ResponseWriter, r *http.Request, limit int64) (body []byte, release func(), err error) {
	invalid := func(err error) error {
		return tutti.Wrap(tutti.CodeInvalid, err, "request")
	}
	if r.ContentLength > limit {
		return nil, nil, invalid(&http.MaxBytesError{Limit: limit})
	}
	release = func() {}
	from := http.MaxBytesReader(w, r.Body, limit)
	body, err = io.ReadAll(io.LimitReader(from, smallBody+1))
	if err != nil {
		return nil, nil, invalid(err)
	}
	if len(body) <= smallBody {
		return body, release, nil
	}
	size := r.ContentLength
	if size < 0 {
		size = limit // the size is not known
	}
	if release, err = b.take(ctx, tutti.Actor(ctx), size); err != nil {
		return nil, nil, err
	}
	whole := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	whole.Write(body)
	stays := false
	defer func() {
		if !stays { // also after a panic, which fails one request and not the server
			release()
		}
	}()
	if _, err := whole.ReadFrom(from); err != nil {
		return nil, nil, invalid(err)
	}
	stays = true
	return whole.Bytes(), release, nil
}
