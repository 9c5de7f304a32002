package past

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
	keeperRetry = time.Minute
	sweepEvery  = time.Hour
)

// keeper shortens the log outside the writer's queue. The keeper takes snapshots, makes the log
// drop the events that a snapshot has, and removes blobs that nothing names.
//
// The keeper stores the blob of the snapshot and the blob of the segment, then appends the event
// snapshot.taken, and then shortens the log. Each step is durable before the next one begins. If the
// server ends before the event, there are some unused blobs, and a sweep removes them. If the server
// ends after the event, the next start shortens the log.
type keeper struct {
	*Past
	log  trimmedLog
	emit Emit
}

// Due tells the keeper that a snapshot is due.
func (p *Past) Due() {
	select {
	case p.due <- struct{}{}:
	default: // the keeper knows already that a snapshot is due
	}
}

// Snapshot takes a snapshot now, and makes the log drop the events that the snapshot has.
func (p *Past) Snapshot(ctx context.Context, emit Emit) error {
	log, ok := p.trimmed()
	if !ok {
		return nil
	}
	return (&keeper{p, log, emit}).snapshot(ctx)
}

// Keep takes due snapshots and sweeps, until ctx ends.
func (p *Past) Keep(ctx context.Context, emit Emit) {
	log, ok := p.trimmed()
	if !ok {
		return
	}
	k := &keeper{p, log, emit}
	if err := k.trim(ctx); err != nil {
		k.opts.Logger.Error("the log did not drop old events", "error", err)
	}
	sweeps := time.NewTicker(sweepEvery)
	defer sweeps.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.due:
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

// The method `pause` waits after a failure. Without the pause, the keeper would try again after every append.
func (k *keeper) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(keeperRetry):
	}
}

// The method `snapshot` takes a snapshot of all events that are in the log now.
func (k *keeper) snapshot(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken, err := k.state(ctx)
	if err != nil {
		return err
	}
	if err := k.emit(ctx, taken); err != nil {
		return tutti.Wrap("", err, "append the snapshot of the events up to %d", taken.Through)
	}
	return k.took(ctx, taken)
}

// The method `took` makes the log drop the events of a snapshot. The event snapshot.taken is in the log
// already.
func (k *keeper) took(ctx context.Context, taken *tutti.SnapshotTaken) error {
	at := time.Now()
	k.takenAt.Store(&at)
	k.taken.Store(taken) // set this first: readers whose events the log drops then go on with this snapshot
	select {
	case <-k.due: // remove a signal that is older than this snapshot
	default:
	}
	k.opts.Logger.Info("snapshot taken", "through", taken.Through, "events", taken.Events)
	return k.trim(ctx)
}

// The method `trim` makes the log drop the events that the latest snapshot has.
func (k *keeper) trim(ctx context.Context) error {
	if taken := k.taken.Load(); taken != nil {
		return k.log.Trim(ctx, taken.Through)
	}
	return nil
}

// state stores the events that are still needed, and the audit trail of all other events.
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

// The method `each` calls f for all events of the latest snapshot and of the log, in order, until f returns false.
func (k *keeper) each(ctx context.Context, f func(tutti.Entry, tutti.Event) bool) error {
	for entry, err := range k.entries(ctx) {
		var e tutti.Event
		if err == nil {
			e, err = event(entry)
		}
		if err != nil {
			return tutti.Wrap("", err, "read the events that must be kept")
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
