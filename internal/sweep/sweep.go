// Package sweep removes content that nothing names any more, while other goroutines store and use content. A
// successful call of `Put`, `Get` or `Has` confirms that content is there. After that, the content stays for the
// time Idle. In this time the user of the content can name it. While content is being removed, nobody can use this
// content. A call of `Put` waits, and then stores the content again.
//
// The times of use are only in memory. So a new Blobs removes nothing until the time Idle has passed.
package sweep

import (
	"context"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// Idle is how long content stays if nothing names it and nobody uses it.
const Idle = time.Hour

// Store is the store from which content is removed.
type Store interface {
	tutti.Blobs
	tutti.Sweeping
	tutti.Sizing
}

// Blobs is a tutti.Blobs that can be swept. While the store is swept, all users must use it
// through Blobs. A Blobs is safe for concurrent use.
type Blobs struct {
	store Store
	now   func() time.Time

	mu    sync.Mutex
	since time.Time
	used  map[tutti.Digest]*use // content that is in use, or was used within the time Idle
}

// The type `use` contains the time of the last use of content, and the number of calls that use the content now.
type use struct {
	last  time.Time
	by    int
	going chan struct{} // closed when the removal of the content has ended; nil if there is no removal
}

var (
	_ tutti.Blobs  = (*Blobs)(nil)
	_ tutti.Sizing = (*Blobs)(nil)
)

// New returns the Blobs of a store. The function `now` is the clock of the Blobs.
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

// The method `begin` waits until no removal of the content is running, and records that the content is in use.
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

// The method `end` ends a use of content. If the content exists, the method notes the time of this use. Requests for
// missing content use no memory.
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

// Swept is the result of a sweep.
type Swept struct {
	Stored  int // number of blobs before the sweep
	Removed int
}

// Sweep removes content that the function `named` does not return and that nobody has used for the time
// Idle. Sweep calls this function after it has listed the store, so that it does not remove content that
// is stored and named later. Sweep removes nothing until the time Idle has passed since New.
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

// The method `remove` removes content unless it is in use. Other users of this content wait until the end of the
// removal.
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

// The method `forget` deletes the records of content that nobody has used for the time Idle. Sweep does not need
// these records.
func (b *Blobs) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for digest, u := range b.used {
		if u.by == 0 && u.going == nil && b.now().Sub(u.last) >= Idle {
			delete(b.used, digest)
		}
	}
}
