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

// These constants limit the cost of simultaneous requests from operators.
const (
	smallBody = 64 << 10 // bodies up to this size are not counted
	// allBodies limits the bytes of all larger bodies together. ownBodies limits the bytes of one operator's larger
	// bodies. The limits leave room for the decoded values, which are in memory at the same time as the body.
	allBodies = 256 << 20
	ownBodies = 96 << 20
	// bodyPatience is how long a request with a large body waits for room.
	bodyPatience = 30 * time.Second
	// ownStreams is how many streams one operator may have open. Each event costs the server some work for each
	// stream.
	ownStreams = 64
	// ownCalls is how many requests of one operator the server handles at the same time. Streams do not count.
	// callPatience is how long further requests of this operator wait.
	ownCalls     = 8
	callPatience = 30 * time.Second
)

// budget is the capacity that is left for requests. The zero value cannot be used.
type budget struct {
	all *semaphore.Weighted

	mu  sync.Mutex
	own map[string]*share // by actor
}

// share is the part of the budget that one operator may use.
type share struct {
	bodies  *semaphore.Weighted
	calls   *semaphore.Weighted
	streams int
	users   int // requests that use a part of the share or wait for it
}

func newBudget() *budget {
	return &budget{all: semaphore.NewWeighted(allBodies), own: map[string]*share{}}
}

// The method `with` returns the operator's share of the budget. The caller must call leave when it no
// longer needs the share.
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

// The method `take` waits until there is room for a body. The argument `size` is the size of the body in bytes. The
// method waits first in the operator's own queue, then in the common queue. Both queues are first in, first out. If
// there is no room in time, the method returns CodeUnavailable.
func (b *budget) take(ctx context.Context, who string, size int64) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, bodyPatience)
	defer cancel()
	own, leave := b.with(who)
	if err := own.bodies.Acquire(ctx, size); err != nil {
		leave()
		return nil, tutti.Errorf(tutti.CodeUnavailable, "%s has other large requests running, and none of them ended within %s; try again", who, bodyPatience)
	}
	if err := b.all.Acquire(ctx, size); err != nil {
		own.bodies.Release(size)
		leave()
		return nil, tutti.Errorf(tutti.CodeUnavailable, "other operators have large requests running, and none of them ended within %s; try again", bodyPatience)
	}
	return func() {
		b.all.Release(size)
		own.bodies.Release(size)
		leave()
	}, nil
}

// The method `call` waits until the server may handle one more request of the operator. An operator who sends many
// requests at once therefore delays only their own requests. The method returns CodeUnavailable if none of the
// operator's running requests ends in time.
func (b *budget) call(ctx context.Context, who string) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	own, left := b.with(who)
	if err := own.calls.Acquire(ctx, 1); err != nil {
		left()
		return nil, tutti.Errorf(tutti.CodeUnavailable, "%s has %d other requests running, and none of them ended within %s; try again", who, ownCalls, callPatience)
	}
	return func() {
		own.calls.Release(1)
		left()
	}, nil
}

// The method `stream` counts a new stream of an operator. The method returns CodeConflict if the operator
// already has too many streams.
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
		return nil, tutti.Errorf(tutti.CodeConflict, "%s has %d watches and other streams open; the server refuses more until one of them ends", who, open)
	}
	return func() {
		b.mu.Lock()
		own.streams--
		b.mu.Unlock()
		left()
	}, nil
}

// The method `read` returns the body of a request. The argument `limit` is the largest size of the body in bytes. The
// caller must call the function `release` when it no longer needs the body. If the body is larger than smallBody, the
// method waits for room.
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
		size = limit // the request does not say its size
	}
	if release, err = b.take(ctx, tutti.Actor(ctx), size); err != nil {
		return nil, nil, err
	}
	whole := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	whole.Write(body)
	stays := false
	defer func() {
		if !stays { // this also runs after a panic, because a panic ends only this request and not the server
			release()
		}
	}()
	if _, err := whole.ReadFrom(from); err != nil {
		return nil, nil, invalid(err)
	}
	stays = true
	return whole.Bytes(), release, nil
}
