package past

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// Scrub is the result of reading all named content once.
type Scrub struct {
	At    time.Time `json:"at"` // when the scrub ended
	Blobs int       `json:"blobs"`
	Bytes int64     `json:"bytes"`
	// Damaged lists content that cannot be read, or that is missing although nobody removed it. Damaged
	// has at most maxDamaged entries.
	Damaged []string `json:"damaged,omitempty"`
}

// Scrubs remembers scrubs outside the log.
type Scrubs interface {
	// Last returns when the last scrub ended. Last returns the zero time if there was no scrub.
	Last() time.Time
	// Done records a finished scrub.
	Done(Scrub) error
}

const (
	maxDamaged = 100
	// firstScrub is how long the server waits before its first scrub after a start, because it is busy at first.
	firstScrub = time.Hour
	// A scrub reads only during 1/scrubShare of the time, so that it does not disturb other work.
	scrubShare = 10
)

// Scrub reads all content once per ScrubEvery, until ctx ends.
func (p *Past) Scrub(ctx context.Context) {
	log, ok := p.trimmed()
	if !ok || p.opts.Scrubs == nil || p.opts.ScrubEvery <= 0 {
		return
	}
	k := &keeper{Past: p, log: log}
	for {
		wait := max(firstScrub, p.opts.ScrubEvery-time.Since(p.opts.Scrubs.Last()))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if time.Since(p.opts.Scrubs.Last()) < p.opts.ScrubEvery { // a backup has read all content in the meantime
			continue
		}
		found, err := k.scrub(ctx)
		if err == nil {
			err = p.opts.Scrubs.Done(found)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			p.opts.Logger.Error("the scrub of the stored content failed", "error", err)
		case len(found.Damaged) == 0:
			p.opts.Logger.Info("stored content scrubbed", "blobs", found.Blobs)
		default:
			for _, what := range found.Damaged {
				p.opts.Logger.Error("stored content is damaged", "what", what)
			}
		}
	}
}

// The method `scrub` reads all named content. At the end, the method looks again at the content
// that it could not read, because the server may have removed this content on purpose.
func (k *keeper) scrub(ctx context.Context) (Scrub, error) {
	var out Scrub
	c, err := k.contentNow(ctx)
	if err != nil {
		return out, err
	}
	var doubtful []tutti.Digest
	for _, digest := range slices.Sorted(maps.Keys(c.named)) {
		began := time.Now()
		raw, err := k.opts.Blobs.Get(ctx, digest)
		switch {
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		case err != nil:
			doubtful = append(doubtful, digest)
		default:
			out.Blobs++
			out.Bytes += int64(len(raw))
		}
		select {
		case <-ctx.Done():
			return out, context.Cause(ctx)
		case <-time.After((scrubShare - 1) * time.Since(began)):
		}
	}
	if c, err = k.contentNow(ctx); err != nil {
		return out, err
	}
	for _, digest := range doubtful {
		what, needed := c.needed[digest]
		if !needed {
			what = "content"
		}
		_, err := k.opts.Blobs.Get(ctx, digest)
		switch {
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		// This is no damage. Either the content can be read now, or nothing names it any more, or
		// the digest is only a text and not the name of content.
		case err == nil || !c.named[digest] || !needed && tutti.CodeOf(err) == tutti.CodeNotFound:
		case len(out.Damaged) < maxDamaged:
			out.Damaged = append(out.Damaged, what+": "+err.Error())
		}
	}
	out.At = time.Now().UTC()
	return out, nil
}

// contentNow returns the named content. The method locks k.mu, so that no content is removed meanwhile.
func (k *keeper) contentNow(ctx context.Context) (*content, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.content(ctx)
}
