package past

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// Copy receives a copy of the log. CopyLog first calls Begin once, then Entry for each entry, then
// Blob for each blob.
type Copy interface {
	// Begin gets the event after which the log begins, with the link of this event.
	Begin(after uint64, link tutti.Digest) error
	Entry(tutti.Entry) error
	Blob(content []byte) error
}

// allThere returns CodeDamaged if needed content is missing.
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
	return tutti.Errorf(tutti.CodeDamaged, "acknowledged content is missing, %d in all: %s; a new backup would lack it as well: look for an earlier backup, and check the disk",
		len(gone), strings.Join(gone[:min(len(gone), 5)], "; "))
}

// CopyLog copies the log up to one event, and all content that the log needs. During the copy the server
// drops no events and removes no content. CopyLog also works before Open. CopyLog returns CodeDamaged if
// the log needs content that is missing. If CopyLog returns CodeDamaged, it has copied nothing.
func (p *Past) CopyLog(ctx context.Context, to Copy) error {
	log, ok := p.trimmed()
	if !ok {
		return tutti.Errorf(tutti.CodeInternal, "this log cannot be copied")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	taken, _, err := snapshot(ctx, log)
	if err != nil {
		return err
	}
	p.taken.CompareAndSwap(nil, taken)
	var after uint64
	var link tutti.Digest
	if taken != nil {
		after, link = taken.Through, taken.Link
	}
	// Do not begin a copy that would be incomplete.
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
	// Look for the named content again. Meanwhile the server may have appended events that name more content.
	if found, err = (&keeper{Past: p, log: log}).content(ctx); err != nil {
		return err
	}
	for _, digest := range slices.Sorted(maps.Keys(found.named)) {
		content, err := p.opts.Blobs.Get(ctx, digest)
		if tutti.CodeOf(err) == tutti.CodeNotFound {
			continue // the digest is in a text, but the server has no such content
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
