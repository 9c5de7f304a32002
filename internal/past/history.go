package past

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
)

// History yields the events after a sequence, in order, up to the last event at the time of the call. First
// History yields the events of the latest snapshot, then the events of the log. History stops at the first error.
func (p *Past) History(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	return func(yield func(tutti.Event, error) bool) {
		for {
			taken := p.taken.Load()
			if taken != nil && after < taken.Through {
				for entry, err := range p.kept(ctx, *taken, after) {
					var e tutti.Event
					if err == nil {
						e, err = event(entry)
					}
					if !yield(e, err) || err != nil {
						return
					}
				}
				after = taken.Through
			}
			for e, err := range p.opts.Log.Read(ctx, after) {
				if tutti.CodeOf(err) == tutti.CodeNotFound && p.taken.Load() != taken {
					break // the log has dropped these events during the read: the new snapshot has them
				}
				if !yield(e, err) || err != nil {
					return
				}
				after = e.Seq
			}
			if p.taken.Load() == taken {
				return
			}
		}
	}
}

const (
	// atATurn is how many items a reader reads before other readers have their turn.
	atATurn = 64
	// readersAtOnce is how many readers read old events at the same time. The number does not depend on
	// the number of processors. The log reads in batches, and each batch has its own deadline. With
	// more readers, each batch would take longer and could miss its deadline.
	readersAtOnce = 2
	// turnWait is how long a reader waits for a turn.
	turnWait = time.Minute
)

// inTurns yields the items of seq. inTurns takes one of the slots, reads some items, frees the slot, and then yields
// the items that it has read. Only as many readers read at the same time as there are slots. So the writer and nodes
// get enough of the processors. inTurns has no slot while it yields, so a slow caller does not block other readers.
func inTurns[T any](ctx context.Context, slots chan struct{}, seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	type one struct {
		item T
		err  error
	}
	return func(yield func(T, error) bool) {
		next, stop := iter.Pull2(seq)
		defer stop()
		more := true
		turn := func() (read []one, err error) {
			patience := time.NewTimer(turnWait)
			defer patience.Stop()
			select {
			case slots <- struct{}{}:
			case <-patience.C:
				return nil, tutti.Errorf(tutti.CodeUnavailable, "waited %s while others read old events; ask again", turnWait)
			case <-ctx.Done():
				return nil, tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting while others read old events")
			}
			defer func() { <-slots }()
			for len(read) < atATurn && more {
				var o one
				if o.item, o.err, more = next(); more {
					read = append(read, o)
				}
			}
			return read, nil
		}
		for more {
			read, err := turn()
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, o := range read {
				if !yield(o.item, o.err) {
					return
				}
			}
		}
	}
}

// HistoryInTurns yields the same as History. Use it for callers who may call it often, because only
// a few of its callers read at the same time (see inTurns).
func (p *Past) HistoryInTurns(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	return inTurns(ctx, p.readers, p.History(ctx, after))
}

// The method `kept` yields the entries of a snapshot that come after the sequence `after`.
func (p *Past) kept(ctx context.Context, taken tutti.SnapshotTaken, after uint64) iter.Seq2[tutti.Entry, error] {
	stored, err := p.opts.Blobs.Get(ctx, taken.State)
	if err != nil {
		return func(yield func(tutti.Entry, error) bool) {
			yield(tutti.Entry{}, tutti.Wrap(tutti.CodeDamaged, err,
				"the snapshot of the events up to %d cannot be read; restore a backup: tutti server restore", taken.Through))
		}
	}
	return retain.Entries(taken, stored, after)
}

// event decodes an entry of the log.
func event(entry tutti.Entry) (tutti.Event, error) {
	var e tutti.Event
	if err := json.Unmarshal(entry.Raw, &e); err != nil {
		return e, tutti.Wrap(tutti.CodeDamaged, err, "event %d", entry.Seq)
	}
	e.Seq, e.Link = entry.Seq, entry.Link
	return e, nil
}
