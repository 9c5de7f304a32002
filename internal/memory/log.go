// Package memory keeps the log and the blobs in memory. The package is for tests of the
// code that uses a log and blobs. The package passes the same suites (package storetest)
// as the durable log and blobs. The package also encodes every event as the durable log
// does. So every event that this package accepts can also be stored durably.
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
	entries []tutti.Entry
	gone    place // the place up to which the log was trimmed
	fault   func(events []tutti.Event) error
}

// place is the sequence of an entry and its link.
type place struct {
	seq  uint64
	link tutti.Digest
}

var (
	_ tutti.Log      = (*Log)(nil)
	_ tutti.Trimming = (*Log)(nil)
	_ tutti.Chained  = (*Log)(nil)
)

// NewLog returns an empty log.
func NewLog() *Log { return &Log{} }

// LoadLog returns a log with these entries, byte for byte.
func LoadLog(entries []tutti.Entry) *Log { return &Log{entries: entries} }

// Fault sets a function that every later Append calls first. If f returns an error, Append fails with
// this error and stores nothing. If f is nil, Append works normally again.
func (l *Log) Fault(f func(events []tutti.Event) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
}

// Prefix returns a new log with the events up to the sequence `last`. A crash right
// after this event would leave the same log.
func (l *Log) Prefix(last uint64) *Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	keep := max(last, l.gone.seq) - l.gone.seq
	return &Log{gone: l.gone, entries: slices.Clone(l.entries[:min(keep, uint64(len(l.entries)))])}
}

// The method `end` returns the place of the last entry.
func (l *Log) end() place {
	if len(l.entries) == 0 {
		return l.gone
	}
	e := l.entries[len(l.entries)-1]
	return place{e.Seq, e.Link}
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
	end := l.end()
	if last != end.seq {
		return 0, tutti.Errorf(tutti.CodeConflict, "append to the log after %d: its last event is %d", last, end.seq)
	}
	batch := make([]tutti.Entry, len(events))
	for i, e := range events {
		if e.Body == nil {
			return 0, tutti.Errorf(tutti.CodeInvalid, "append to the log: event %d of the batch has no body", i)
		}
		e.Seq = 0
		raw, err := json.Marshal(e)
		if err != nil {
			return 0, tutti.Wrap(tutti.CodeInvalid, err, "append to the log")
		}
		if len(raw) > tutti.MaxEvent {
			return 0, tutti.Errorf(tutti.CodeInvalid, "append to the log: event %d of the batch has %d bytes, at most %d", i, len(raw), tutti.MaxEvent)
		}
		end = place{end.seq + 1, tutti.Link(end.link, raw)}
		batch[i] = tutti.Entry{Seq: end.seq, Raw: raw, Link: end.link}
	}
	for i := range events {
		events[i].Seq, events[i].Link = batch[i].Seq, batch[i].Link
	}
	l.entries = append(l.entries, batch...)
	return end.seq, nil
}

// Read implements tutti.Log.
func (l *Log) Read(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	return func(yield func(tutti.Event, error) bool) {
		for entry, err := range l.Entries(ctx, after) {
			var e tutti.Event
			if err == nil {
				e, err = decode(entry)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

func decode(entry tutti.Entry) (tutti.Event, error) {
	var e tutti.Event
	err := json.Unmarshal(entry.Raw, &e)
	e.Seq, e.Link = entry.Seq, entry.Link
	return e, tutti.Wrap(tutti.CodeDamaged, err, "read the log: event %d", entry.Seq)
}

// Entries implements tutti.Chained.
func (l *Log) Entries(ctx context.Context, after uint64) iter.Seq2[tutti.Entry, error] {
	return func(yield func(tutti.Entry, error) bool) {
		l.mu.Lock()
		entries, gone := l.entries, l.gone
		l.mu.Unlock()
		if after < gone.seq {
			yield(tutti.Entry{}, tutti.Errorf(tutti.CodeNotFound, "read the log: event %d is not there, the log begins with event %d", after+1, gone.seq+1))
			return
		}
		skip := min(after-gone.seq, uint64(len(entries)))
		link := gone.link
		if skip > 0 {
			link = entries[skip-1].Link
		}
		for _, e := range entries[skip:] {
			if err := ctx.Err(); err != nil {
				yield(tutti.Entry{}, tutti.Wrap(tutti.CodeUnavailable, err, "read the log"))
				return
			}
			if e.Link != tutti.Link(link, e.Raw) {
				yield(tutti.Entry{}, tutti.Errorf(tutti.CodeDamaged, "read the log: event %d does not fit the event before it", e.Seq))
				return
			}
			if link = e.Link; !yield(e, nil) {
				return
			}
		}
	}
}

// LinkAt implements tutti.Log.
func (l *Log) LinkAt(ctx context.Context, seq uint64) (tutti.Digest, error) {
	if err := ctx.Err(); err != nil {
		return "", tutti.Wrap(tutti.CodeUnavailable, err, "read the log")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := seq - l.gone.seq - 1; seq > l.gone.seq && i < uint64(len(l.entries)) {
		return l.entries[i].Link, nil
	}
	return "", tutti.Errorf(tutti.CodeNotFound, "read the log: there is no event %d", seq)
}

// Snapshot implements tutti.Trimming.
func (l *Log) Snapshot(context.Context) (tutti.Event, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.snapshot()
}

func (l *Log) snapshot() (tutti.Event, bool, error) {
	for _, entry := range slices.Backward(l.entries) {
		e, err := decode(entry)
		if err != nil {
			return e, false, err
		}
		if _, ok := e.Body.(*tutti.SnapshotTaken); ok {
			return e, true, nil
		}
	}
	return tutti.Event{}, false, nil
}

// Trim implements tutti.Trimming.
func (l *Log) Trim(_ context.Context, through uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, found, err := l.snapshot()
	if err != nil {
		return err
	}
	snapshot, ok := e.Body.(*tutti.SnapshotTaken)
	if !found || !ok || snapshot.Through != through {
		return tutti.Errorf(tutti.CodeInvalid, "trim the log up to event %d: the latest snapshot is not of this event", through)
	}
	if through == l.gone.seq {
		return nil
	}
	i := slices.IndexFunc(l.entries, func(e tutti.Entry) bool { return e.Seq == through })
	if i < 0 || l.entries[i].Link != snapshot.Link {
		return tutti.Errorf(tutti.CodeInvalid, "trim the log up to event %d: the log has no event with the snapshot's link %s", through, snapshot.Link)
	}
	l.gone, l.entries = place{through, snapshot.Link}, l.entries[i+1:]
	return nil
}
