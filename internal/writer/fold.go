package writer

import (
	"context"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
)

// The method `fold` folds the log twice: once for the writer and once for the readers. The two results share the
// contents of the events.
func (w *Writer) fold(ctx context.Context) error {
	if err := w.opts.Past.Open(ctx); err != nil {
		return err
	}
	second := fold.New()
	events := make(chan tutti.Event, foldAhead)
	var beside sync.WaitGroup
	beside.Go(func() {
		for e := range events {
			second.Apply(e)
		}
	})
	err := w.opts.Past.Replay(ctx, func(e tutti.Event) {
		w.state.Apply(e)
		w.opts.Past.Note(e)
		events <- e
	})
	close(events)
	beside.Wait()
	if err != nil {
		return err
	}
	w.state.Seq = max(w.state.Seq, w.opts.Past.Torn())
	second.Seq = w.state.Seq
	w.replica.Begin(second)
	return nil
}

// The method `refold` folds the log again for the readers. The method returns nil if ctx has ended.
func (w *Writer) refold(ctx context.Context) *fold.State {
	w.opts.Logger.Warn("readers get a new fold of the log: the last one was kept for too long, or was too far behind")
	return w.opts.Past.Refold(ctx)
}

// needsSnapshot reports whether the log has enough events after the latest snapshot. A snapshot reads all events of the
// latest snapshot and of the log. So the log grows to at least half of the latest snapshot before the next one is due.
// Otherwise the cost of each event would grow with the number of kept events.
func (w *Writer) needsSnapshot() bool {
	return w.state.Seq >= w.state.Through+uint64(max(w.opts.SnapshotEvery, w.state.Kept/2))
}

// snapshotFirst takes a due snapshot before the server serves. The snapshot is due if the last
// server ended before it could take the snapshot. Without this, a server that ends soon after each
// start would never take a snapshot, and its log would grow.
func (w *Writer) snapshotFirst(ctx context.Context) error {
	if !w.needsSnapshot() {
		return nil
	}
	var refused error
	err := w.opts.Past.Snapshot(ctx, func(ctx context.Context, body tutti.Body) error {
		refused = w.First(ctx, body)
		return refused
	})
	if refused != nil {
		return refused
	}
	if err != nil {
		w.opts.Logger.Error("no snapshot was taken before the server serves", "error", err)
	}
	return nil
}
