// Package memory keeps the log and the blobs in memory, for tests of what
// stands above them. It passes the same suites (package storetest) as the
// durable ones, and encodes every event as they do, so that nothing survives
// here that would not survive there.
package memory

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync"

	"github.com/tutti-project/tutti"
)

// Log is a tutti.Log in memory. Any number of goroutines may use it.
type Log struct {
	mu      sync.Mutex
	encoded [][]byte // the event with sequence n is at n-1
	fault   func(events []tutti.Event) error
}

var _ tutti.Log = (*Log)(nil)

// NewLog returns an empty log.
func NewLog() *Log { return &Log{} }

// Fault makes every later Append ask f first and fail with f's error, with
// nothing stored. A nil f ends it.
func (l *Log) Fault(f func(events []tutti.Event) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
}

// Prefix returns a new log that holds the events up to the sequence last, as a
// crash right after it would leave it.
func (l *Log) Prefix(last uint64) *Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Log{encoded: slices.Clone(l.encoded[:min(last, uint64(len(l.encoded)))])}
}

// Append implements tutti.Log.
func (l *Log) Append(ctx context.Context, last uint64, events []tutti.Event) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, tutti.Wrap(tutti.CodeUnavailable, err, "append to the log")
	}
	if len(events) == 0 {
		return 0, tutti.Errorf(tutti.CodeInvalid, "append to the log: no events")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		if err := l.fault(events); err != nil {
			return 0, err
		}
	}
	if have := uint64(len(l.encoded)); last != have {
		return 0, tutti.Errorf(tutti.CodeConflict, "append to the log after %d: its last event is %d", last, have)
	}
	batch := make([][]byte, len(events))
	for i, e := range events {
		e.Seq = last + uint64(i) + 1
		if e.Body == nil {
			return 0, tutti.Errorf(tutti.CodeInvalid, "append to the log: event %d of the batch has no body", i)
		}
		raw, err := json.Marshal(e)
		if err != nil {
			return 0, tutti.Wrap(tutti.CodeInvalid, err, "append to the log")
		}
		batch[i] = raw
	}
	for i := range events {
		events[i].Seq = last + uint64(i) + 1
	}
	l.encoded = append(l.encoded, batch...)
	return uint64(len(l.encoded)), nil
}

// Read implements tutti.Log.
func (l *Log) Read(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	return func(yield func(tutti.Event, error) bool) {
		l.mu.Lock()
		encoded := l.encoded
		l.mu.Unlock()
		for _, raw := range encoded[min(after, uint64(len(encoded))):] {
			var e tutti.Event
			err := ctx.Err()
			if err == nil {
				err = json.Unmarshal(raw, &e)
			}
			if err != nil {
				yield(tutti.Event{}, tutti.Wrap(tutti.CodeUnavailable, err, "read the log"))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}
