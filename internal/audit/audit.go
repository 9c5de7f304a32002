// Package audit is the log as a trail of who did what: which entries keep their
// bytes when the log lets them go, how they are kept (Segment), and how anybody
// who has all entries verifies them from end to end (Chain). It is pure.
//
// What is verified is content and order: an entry's link covers its bytes and the
// link before it. Sequences only ever grow; gaps in them are appends that a loss
// of power left incomplete, which are no part of the log.
package audit

import (
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Keep is how long segments are kept.
const Keep = 400 * 24 * time.Hour

// Unexpired returns the segments that are still to be kept.
func Unexpired(segments []tutti.AuditSegment, now time.Time) []tutti.AuditSegment {
	return slices.DeleteFunc(slices.Clone(segments), func(s tutti.AuditSegment) bool { return now.Sub(s.Until) > Keep })
}

// Act reports whether a person may ask for an event: what operators did, what was
// denied, who came and went, how jobs ended. Of anything else (runs, their
// exports and values) the trail keeps the digest alone.
func Act(e tutti.Event) bool {
	return strings.HasPrefix(e.By, "operator:") || tutti.TrailOf(e.Body.Kind()) == tutti.TrailAlways
}

// Chain verifies entries one after the other. The zero value begins with the
// first entry of a log.
type Chain struct {
	First uint64 // the sequence of the first entry, 0 before it
	Last  uint64
	Link  tutti.Digest // of the last entry; before the first: what was before it
	Count int
	// Bare is how many of them came as a digest alone: what they say is not known, and whoever gives the log chooses which
	// ones they are.
	Bare int
}

// Add verifies that e comes right behind what was added before. CodeDamaged: it
// does not, and the chain stays as it is.
func (c *Chain) Add(e api.AuditEntry) error {
	before, digest := c.Link, e.Digest
	switch {
	case c.Count == 0:
		before = e.Before
	case e.Before != "":
		return tutti.Errorf(tutti.CodeDamaged, "entry %d says that the trail begins with it, but entry %d is before it", e.Seq, c.Last)
	}
	if len(e.Raw) > 0 {
		digest = tutti.DigestOf(e.Raw)
	}
	switch {
	case e.Seq <= c.Last:
		return tutti.Errorf(tutti.CodeDamaged, "entry %d comes behind entry %d", e.Seq, c.Last)
	case len(e.Raw) > 0 && e.Digest != "" && e.Digest != digest:
		return tutti.Errorf(tutti.CodeDamaged, "entry %d has the digest %s, not %s", e.Seq, digest, e.Digest)
	case e.Link != tutti.LinkOf(before, digest):
		return tutti.Errorf(tutti.CodeDamaged, "entry %d does not fit what is before it: it, or one before it, was changed or removed", e.Seq)
	}
	if c.Count == 0 {
		c.First = e.Seq
	}
	c.Last, c.Link = e.Seq, e.Link
	c.Count++
	if len(e.Raw) == 0 {
		c.Bare++
	}
	return nil
}
