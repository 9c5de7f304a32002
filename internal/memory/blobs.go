package memory

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/tutti-project/tutti"
)

// Blobs is a tutti.Blobs in memory. Any number of goroutines may use it.
type Blobs struct {
	mu      sync.Mutex
	content map[tutti.Digest][]byte
}

var (
	_ tutti.Blobs    = (*Blobs)(nil)
	_ tutti.Sweeping = (*Blobs)(nil)
	_ tutti.Sizing   = (*Blobs)(nil)
)

// NewBlobs returns an empty store.
func NewBlobs() *Blobs { return &Blobs{content: map[tutti.Digest][]byte{}} }

// Put implements tutti.Blobs.
func (b *Blobs) Put(ctx context.Context, content []byte) (tutti.Digest, error) {
	if err := ctx.Err(); err != nil {
		return "", tutti.Wrap(tutti.CodeUnavailable, err, "store a blob")
	}
	digest := tutti.DigestOf(content)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.content[digest] = bytes.Clone(content)
	return digest, nil
}

// Get implements tutti.Blobs.
func (b *Blobs) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	if err := b.check(ctx, digest); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	content, ok := b.content[digest]
	if !ok {
		return nil, tutti.Errorf(tutti.CodeNotFound, "blob %s is not stored", digest)
	}
	return bytes.Clone(content), nil
}

// Has implements tutti.Blobs.
func (b *Blobs) Has(ctx context.Context, digest tutti.Digest) (bool, error) {
	if err := b.check(ctx, digest); err != nil {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.content[digest]
	return ok, nil
}

// Size implements tutti.Sizing.
func (b *Blobs) Size(ctx context.Context, digest tutti.Digest) (int64, error) {
	if err := b.check(ctx, digest); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	content, ok := b.content[digest]
	if !ok {
		return 0, tutti.Errorf(tutti.CodeNotFound, "blob %s is not stored", digest)
	}
	return int64(len(content)), nil
}

// List implements tutti.Sweeping.
func (b *Blobs) List(ctx context.Context) ([]tutti.Digest, error) {
	if err := ctx.Err(); err != nil {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "list the blobs")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.content)), nil
}

// Delete implements tutti.Sweeping.
func (b *Blobs) Delete(ctx context.Context, digest tutti.Digest) error {
	if err := b.check(ctx, digest); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.content, digest)
	return nil
}

func (b *Blobs) check(ctx context.Context, digest tutti.Digest) error {
	if err := ctx.Err(); err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "look for blob %s", digest)
	}
	return digest.Validate()
}
