// Package sweep removes content that nobody names any more, while others store
// and look for content at any moment. Whoever was told that content is there
// (Put, Get, Has) has so long to name it as content stays unused, and content
// that is being removed is not there for anybody: a Put of it waits and stores
// it again.
//
// When content was used is known in memory only. So nothing is removed before a
// new Blobs has watched for that long.
package sweep

import (
	"context"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// Idle is how long content stays that nobody names and nobody uses.
const Idle = time.Hour

// Store is what content is removed from.
type Store interface {
	tutti.Blobs
	tutti.Sweeping
	tutti.Sizing
}

// Blobs is a tutti.Blobs that can be swept. All who use its store while it is
// swept must do so through it. Any number of goroutines may use it.
type Blobs struct {
	store Store
	now   func() time.Time

	mu    sync.Mutex
	since time.Time
	used  map[tutti.Digest]*use // since then, or for longer than Idle
}

// use is when content was used last, and by how many it is used now.
type use struct {
	last  time.Time
	by    int
	going chan struct{} // closed when its removal has ended; nil: it is not being removed
}

var (
	_ tutti.Blobs  = (*Blobs)(nil)
	_ tutti.Sizing = (*Blobs)(nil)
)

// New returns the content of a store; now is its clock.
func New(store Store, now func() time.Time) *Blobs {
	return &Blobs{store: store, now: now, since: now(), used: map[tutti.Digest]*use{}}
}

// Put implements tutti.Blobs.
func (b *Blobs) Put(ctx context.Context, content []byte) (tutti.Digest, error) {
	digest := tutti.DigestOf(content)
	if err := b.begin(ctx, digest); err != nil {
		return "", err
	}
	defer b.end(digest, true)
	return b.store.Put(ctx, content)
}

// Get implements tutti.Blobs.
func (b *Blobs) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	if err := b.begin(ctx, digest); err != nil {
		return nil, err
	}
	content, err := b.store.Get(ctx, digest)
	b.end(digest, err == nil)
	return content, err
}

// Has implements tutti.Blobs.
func (b *Blobs) Has(ctx context.Context, digest tutti.Digest) (bool, error) {
	if err := b.begin(ctx, digest); err != nil {
		return false, err
	}
	has, err := b.store.Has(ctx, digest)
	b.end(digest, has)
	return has, err
}

// Size implements tutti.Sizing.
func (b *Blobs) Size(ctx context.Context, digest tutti.Digest) (int64, error) {
	if err := b.begin(ctx, digest); err != nil {
		return 0, err
	}
	size, err := b.store.Size(ctx, digest)
	b.end(digest, err == nil)
	return size, err
}

// begin notes that content is used, once nobody removes it.
func (b *Blobs) begin(ctx context.Context, digest tutti.Digest) error {
	for {
		b.mu.Lock()
		u := b.used[digest]
		if u == nil {
			u = &use{}
			b.used[digest] = u
		}
		if u.going == nil {
			u.by++
			b.mu.Unlock()
			return nil
		}
		going := u.going
		b.mu.Unlock()
		select {
		case <-going:
		case <-ctx.Done():
			return tutti.Wrap(tutti.CodeUnavailable, context.Cause(ctx), "wait for the removal of blob %s", digest)
		}
	}
}

// end notes when it was used, if it is there: who asks for what is not there costs no memory.
func (b *Blobs) end(digest tutti.Digest, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.used[digest]
	u.by--
	if there {
		u.last = b.now()
	} else if u.by == 0 && u.last.IsZero() {
		delete(b.used, digest)
	}
}

// Swept is what a sweep has done.
type Swept struct {
	Stored  int // before
	Removed int
}

// Sweep removes what named does not name and nobody has used for Idle. named is
// asked after the store was listed: what is stored and named later is not removed.
// It removes nothing before Idle has passed since New.
func (b *Blobs) Sweep(ctx context.Context, named func(context.Context) (map[tutti.Digest]bool, error)) (Swept, error) {
	if b.now().Sub(b.since) < Idle {
		return Swept{}, nil
	}
	stored, err := b.store.List(ctx)
	if err != nil {
		return Swept{}, err
	}
	out := Swept{Stored: len(stored)}
	keep, err := named(ctx)
	if err != nil {
		return out, err
	}
	for _, digest := range stored {
		if keep[digest] {
			continue
		}
		removed, err := b.remove(ctx, digest)
		if err != nil {
			return out, err
		}
		if removed {
			out.Removed++
		}
	}
	b.forget()
	return out, nil
}

// remove removes content unless it is in use. Whoever wants to use it meanwhile
// waits.
func (b *Blobs) remove(ctx context.Context, digest tutti.Digest) (bool, error) {
	b.mu.Lock()
	u := b.used[digest]
	if u == nil {
		u = &use{}
		b.used[digest] = u
	}
	if u.by > 0 || b.now().Sub(u.last) < Idle {
		b.mu.Unlock()
		return false, nil
	}
	u.going = make(chan struct{})
	b.mu.Unlock()
	err := b.store.Delete(ctx, digest)
	b.mu.Lock()
	defer b.mu.Unlock()
	close(u.going)
	u.going = nil
	return err == nil, err
}

// forget lets go of what was not used for so long that it needs no note.
func (b *Blobs) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for digest, u := range b.used {
		if u.by == 0 && u.going == nil && b.now().Sub(u.last) >= Idle {
			delete(b.used, digest)
		}
	}
}
