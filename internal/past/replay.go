package past

import (
	"context"
	"fmt"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/fold"
)

// Replay calls apply for all events that still exist, in order. Replay also loads the parts
// of events that are stored as blobs.
func (p *Past) Replay(ctx context.Context, apply func(tutti.Event)) error {
	last := uint64(0)
	for e, err := range p.History(ctx, 0) {
		if err != nil {
			return fmt.Errorf("read the log after event %d: %w", last, err)
		}
		err := p.Hydrate(ctx, e.Body)
		if tutti.CodeOf(err) == tutti.CodeNotFound {
			err = tutti.Wrap(tutti.CodeDamaged, err, "acknowledged content is missing; restore a backup: tutti server restore")
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", e.Seq, err)
		}
		apply(e)
		last = e.Seq
	}
	return nil
}

// Torn returns the last sequence of an incomplete append at the end of the log, or 0. Readers skip such an append.
func (p *Past) Torn() uint64 {
	if l, ok := p.opts.Log.(Tearing); ok {
		return l.Torn()
	}
	return 0
}

// refoldEvery is how long Refold waits after an error before it reads the log again.
const refoldEvery = 5 * time.Second

// Refold makes a new fold of the whole log. Refold returns nil if ctx has ended.
func (p *Past) Refold(ctx context.Context) *fold.State {
	for ctx.Err() == nil {
		state, taken := fold.New(), p.taken.Load()
		err := p.Replay(ctx, state.Apply)
		switch {
		case err == nil && p.taken.Load() == taken:
			state.Seq = max(state.Seq, p.Torn())
			return state
		case err == nil:
			continue // begin again, because the log may have dropped events that Refold has not read yet
		}
		p.opts.Logger.Error("readers have no fold of the log", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(refoldEvery):
		}
	}
	return nil
}

// Hydrate loads the part of an event that is stored as a blob.
func (p *Past) Hydrate(ctx context.Context, body tutti.Body) error {
	var err error
	switch b := body.(type) {
	case *tutti.ExportsSet:
		return p.hydrateExports(ctx, b)
	case *tutti.RunCompiled:
		b.Reads, err = p.loadAsked(ctx, b.Asked)
	case *tutti.RunAsked:
		b.Reads, err = p.loadAsked(ctx, b.Asked)
	}
	return err
}

func (p *Past) hydrateExports(ctx context.Context, set *tutti.ExportsSet) error {
	if set.Count == 0 {
		return nil
	}
	raw, err := p.opts.Blobs.Get(ctx, set.Set)
	if err != nil {
		return fmt.Errorf("exports of %s: %w", set.Node, err)
	}
	if set.Exports, err = data.DecodeExports(raw); err != nil {
		return err
	}
	if len(set.Exports) != set.Count {
		return tutti.Errorf(tutti.CodeInternal, "exports of %s: the event has %d, but blob %s has %d", set.Node, set.Count, set.Set, len(set.Exports))
	}
	return nil
}
