package past

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// Copy is what a copy of the log is handed to, in this order.
type Copy interface {
	// Begin says after which event the log begins, and that event's link.
	Begin(after uint64, link tutti.Digest) error
	Entry(tutti.Entry) error
	Blob(content []byte) error
}

// allThere finds content that must be there and is not. CodeDamaged.
func (p *Past) allThere(ctx context.Context, needed map[tutti.Digest]string) error {
	var gone []string
	for _, digest := range slices.Sorted(maps.Keys(needed)) {
		has, err := p.opts.Blobs.Has(ctx, digest)
		if err != nil {
			return err
		}
		if !has {
			gone = append(gone, needed[digest]+" ("+string(digest)+")")
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return tutti.Errorf(tutti.CodeDamaged, "content that was acknowledged is gone, %d in all: %s; a backup would lack it as well: look for an earlier one, and at the disk",
		len(gone), strings.Join(gone[:min(len(gone), 5)], "; "))
}

// CopyLog hands out the log as of one event, and all content that it needs.
// Nothing is let go meanwhile. It also works on what nobody has opened. CodeDamaged: content that
// it needs is gone; nothing was handed out.
func (p *Past) CopyLog(ctx context.Context, to Copy) error {
	log, ok := p.trimmed()
	if !ok {
		return tutti.Errorf(tutti.CodeInternal, "this log cannot be copied")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	taken, err := snapshot(ctx, log)
	if err != nil {
		return err
	}
	p.taken.CompareAndSwap(nil, taken)
	var after uint64
	var link tutti.Digest
	if taken != nil {
		after, link = taken.Through, taken.Link
	}
	// Nothing is begun that would not be whole.
	found, err := (&keeper{Past: p, log: log}).content(ctx)
	if err == nil {
		err = p.allThere(ctx, found.needed)
	}
	if err != nil {
		return err
	}
	if err := to.Begin(after, link); err != nil {
		return err
	}
	for e, err := range log.Entries(ctx, after) {
		if err == nil {
			err = to.Entry(e)
		}
		if err != nil {
			return err
		}
	}
	// What has been appended since names more, which does no harm.
	if found, err = (&keeper{Past: p, log: log}).content(ctx); err != nil {
		return err
	}
	for _, digest := range slices.Sorted(maps.Keys(found.named)) {
		content, err := p.opts.Blobs.Get(ctx, digest)
		if tutti.CodeOf(err) == tutti.CodeNotFound {
			continue // a digest of something that is no content of ours
		}
		if err == nil {
			err = to.Blob(content)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
