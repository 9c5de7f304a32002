package server

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/retain"
)

const (
	defaultSnapshotEvery = 10_000
	keeperRetry          = time.Minute
	sweepEvery           = time.Hour
)

// keeper lets go of the past beside the writer: it takes snapshots, lets the log
// go that they have, and removes blobs that nothing names.
//
// The order is: the snapshot's blob, the segment's blob, snapshot.taken, the log.
// Each is durable before the next one begins. Whatever is cut off before
// snapshot.taken has left blobs that a sweep removes; after it, only the log is to
// be let go, which every start does again.
type keeper struct {
	*Server
	log trimmedLog
}

// needsSnapshot reports whether there are enough events after the latest snapshot.
func (w *writer) needsSnapshot() bool {
	return w.state.Seq >= w.state.Through+uint64(w.opts.SnapshotEvery)
}

// snapshotFirst takes a snapshot that is due before the server serves. The life before this one
// ended before it had taken it; a server that ends soon after each start would never take one,
// and its log would grow.
func (w *writer) snapshotFirst(ctx context.Context) error {
	log, ok := w.opts.Log.(trimmedLog)
	if !ok || !w.needsSnapshot() {
		return nil
	}
	k := &keeper{w.Server, log}
	k.past.Lock()
	defer k.past.Unlock()
	taken, err := k.state(ctx)
	if err == nil {
		if refused := w.emitFirst(ctx, taken); refused != nil {
			return refused
		}
		err = k.took(ctx, taken)
	}
	if err != nil {
		w.opts.Logger.Error("no snapshot was taken before the server serves", "error", err)
	}
	return nil
}

// keep runs until ctx ends.
func (s *Server) keep(ctx context.Context) {
	log, ok := s.opts.Log.(trimmedLog)
	if !ok {
		return
	}
	k := &keeper{s, log}
	if err := k.trim(ctx); err != nil {
		k.opts.Logger.Error("the log was not let go", "error", err)
	}
	sweeps := time.NewTicker(sweepEvery)
	defer sweeps.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.snapshotDue:
			if err := k.snapshot(ctx); err != nil && ctx.Err() == nil {
				k.opts.Logger.Error("no snapshot was taken", "error", err)
				k.pause(ctx)
			}
		case <-sweeps.C:
			if err := k.sweep(ctx); err != nil {
				k.opts.Logger.Error("blobs were not swept", "error", err)
			}
		}
	}
}

// pause keeps what fails from being tried after every append.
func (k *keeper) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(keeperRetry):
	}
}

// snapshot takes a snapshot of all that is in the log now.
func (k *keeper) snapshot(ctx context.Context) error {
	k.past.Lock()
	defer k.past.Unlock()
	taken, err := k.state(ctx)
	if err != nil {
		return err
	}
	err = k.do(ctx, func(tx *tx) error {
		tx.emit(actorServer, taken)
		return nil
	})
	if err != nil {
		return tutti.Wrap("", err, "append the snapshot of the events up to %d", taken.Through)
	}
	return k.took(ctx, taken)
}

// took lets the log go of what a snapshot has that was appended.
func (k *keeper) took(ctx context.Context, taken *tutti.SnapshotTaken) error {
	k.taken.Store(taken) // before the log lets go: whoever reads it then goes on with the snapshot
	select {
	case <-k.snapshotDue: // said before this one was taken
	default:
	}
	k.opts.Logger.Info("snapshot taken", "through", taken.Through, "events", taken.Events)
	return k.trim(ctx)
}

// trim lets go of what the latest snapshot has.
func (k *keeper) trim(ctx context.Context) error {
	if taken := k.taken.Load(); taken != nil {
		return k.log.Trim(ctx, taken.Through)
	}
	return nil
}

// state stores what is needed of the log, and the audit trail of what is not.
func (k *keeper) state(ctx context.Context) (*tutti.SnapshotTaken, error) {
	ledger, operators := retain.New(), fold.Operators{}
	var last tutti.Event
	err := k.each(ctx, func(_ tutti.Entry, e tutti.Event) bool {
		ledger.Add(e)
		operators.Apply(e)
		last = e
		return true
	})
	if err != nil {
		return nil, err
	}
	w := retain.NewWriter(tutti.Entry{Seq: last.Seq, Link: last.Link})
	err = k.each(ctx, func(entry tutti.Entry, e tutti.Event) bool {
		if e.Seq <= last.Seq && ledger.Needs(e) {
			w.Add(entry)
		}
		return e.Seq < last.Seq
	})
	if err != nil {
		return nil, err
	}
	taken := &tutti.SnapshotTaken{Through: last.Seq, Link: last.Link, Operators: slices.Sorted(maps.Keys(operators))}
	stored, events, err := w.Close()
	if err != nil {
		return nil, err
	}
	taken.Events = events
	if taken.State, err = k.opts.Blobs.Put(ctx, stored); err != nil {
		return nil, tutti.Wrap("", err, "store the snapshot of the events up to %d", last.Seq)
	}
	taken.Segments, err = k.segments(ctx, last.Seq, last.At)
	return taken, err
}

// each calls f for all that the log and its latest snapshot have, in order, until
// f has enough.
func (k *keeper) each(ctx context.Context, f func(tutti.Entry, tutti.Event) bool) error {
	for entry, err := range k.entries(ctx) {
		var e tutti.Event
		if err == nil {
			e, err = event(entry)
		}
		if err != nil {
			return tutti.Wrap("", err, "read what is to be kept")
		}
		if !f(entry, e) {
			return nil
		}
	}
	return nil
}

func (k *keeper) entries(ctx context.Context) iter.Seq2[tutti.Entry, error] {
	return func(yield func(tutti.Entry, error) bool) {
		var after uint64
		if taken := k.taken.Load(); taken != nil {
			for entry, err := range k.kept(ctx, *taken, 0) {
				if !yield(entry, err) || err != nil {
					return
				}
			}
			after = taken.Through
		}
		for entry, err := range k.log.Entries(ctx, after) {
			if !yield(entry, err) || err != nil {
				return
			}
		}
	}
}
