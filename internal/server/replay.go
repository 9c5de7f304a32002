package server

import (
	"context"
	"fmt"
	"sync"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
)

// fold folds the log twice, for the writer and beside it for readers. Both hold what
// the events hold only once.
func (w *writer) fold(ctx context.Context) error {
	taken, err := snapshot(ctx, w.opts.Log)
	if err != nil {
		return err
	}
	w.taken.Store(taken)
	second := fold.New()
	events := make(chan tutti.Event, foldAhead)
	var beside sync.WaitGroup
	beside.Go(func() {
		for e := range events {
			second.Apply(e)
		}
	})
	err = w.replay(ctx, func(e tutti.Event) {
		w.state.Apply(e)
		w.links.note(e)
		events <- e
	})
	close(events)
	beside.Wait()
	if err != nil {
		return err
	}
	w.state.Seq = max(w.state.Seq, w.torn())
	second.Seq = w.state.Seq
	w.replica.Begin(second)
	return nil
}

// replay calls apply for all events that are kept, in order, with what the log keeps
// of them as blobs.
func (s *Server) replay(ctx context.Context, apply func(tutti.Event)) error {
	last := uint64(0)
	for e, err := range s.history(ctx, 0) {
		if err != nil {
			return fmt.Errorf("read the log after event %d: %w", last, err)
		}
		err := hydrate(ctx, s.opts.Blobs, s.asked, e.Body)
		if tutti.CodeOf(err) == tutti.CodeNotFound {
			err = tutti.Wrap(tutti.CodeDamaged, err, "content that was acknowledged is gone; put back a backup: tutti server restore")
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", e.Seq, err)
		}
		apply(e)
		last = e.Seq
	}
	return nil
}

// torn is up to which sequence the log may hold what nobody reads.
func (s *Server) torn() uint64 {
	if l, ok := s.opts.Log.(Tearing); ok {
		return l.Torn()
	}
	return 0
}
