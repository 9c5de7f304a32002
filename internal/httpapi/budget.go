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

// Bounds of what the requests of operators cost at a time.
const (
	smallBody = 64 << 10 // no more: it costs nothing
	// allBodies are the bytes of larger bodies of all operators, ownBodies those of one: with a body there is what it
	// becomes when it is read.
	allBodies = 256 << 20
	ownBodies = 96 << 20
	// bodyPatience is how long a large body waits for others to end.
	bodyPatience = 30 * time.Second
	// ownStreams are the streams that one operator reads: each costs the server something with each event.
	ownStreams = 64
	// ownCalls are the requests of one operator that are at work at once, besides streams; callPatience is how long others of
	// theirs wait.
	ownCalls     = 8
	callPatience = 30 * time.Second
)

// budget is what is left for requests. The zero value is not one.
type budget struct {
	all *semaphore.Weighted

	mu  sync.Mutex
	own map[string]*share // by actor
}

// share is what one operator has.
type share struct {
	bodies  *semaphore.Weighted
	calls   *semaphore.Weighted
	streams int
	users   int // requests that hold or wait for a part of it
}

func newBudget() *budget {
	return &budget{all: semaphore.NewWeighted(allBodies), own: map[string]*share{}}
}

// with returns the share of an operator, and what to call when it is not needed any more.
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

// take waits for room for a body of so many bytes: first behind those of the same operator, then behind all. They
// are let in in their order. CodeUnavailable: there was none in time.
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

// call waits until a request of an operator may be worked on: one who sends many at once waits for the own ones. CodeUnavailable:
// none of them ended in time.
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

// stream counts one more stream of an operator. CodeConflict: there are too many.
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

// read returns the body of a request that has at most so many bytes, and what to call when it is not needed any more. What is
// more than a small body waits for room.
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
		size = limit // it does not say
	}
	if release, err = b.take(ctx, tutti.Actor(ctx), size); err != nil {
		return nil, nil, err
	}
	whole := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	whole.Write(body)
	if _, err := whole.ReadFrom(from); err != nil {
		release()
		return nil, nil, invalid(err)
	}
	return whole.Bytes(), release, nil
}
