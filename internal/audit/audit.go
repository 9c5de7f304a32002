// Package audit reads the log as a trail of who did what. When the log drops entries, the package decides
// which of them keep their bytes. The package also stores entries (Segment) and verifies a whole trail
// (Chain). It is pure.
//
// A verification covers content and order, because the link of an entry covers its bytes
// and the previous link. Sequences only grow. A gap is an append that a loss of power left
// incomplete. An incomplete append does not belong to the log.
package audit

import (
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Keep is how long the server keeps segments.
const Keep = 400 * 24 * time.Hour

// Unexpired returns the segments that are not older than Keep.
func Unexpired(segments []tutti.AuditSegment, now time.Time) []tutti.AuditSegment {
	return slices.DeleteFunc(slices.Clone(segments), func(s tutti.AuditSegment) bool { return now.Sub(s.Until) > Keep })
}

// Act reports whether the trail keeps the content of an event. Act returns true for changes
// by operators, denials, nodes that come or leave, and the ends of jobs. For all other
// events (runs, their exports and values) the trail keeps only the digest.
func Act(e tutti.Event) bool {
	return strings.HasPrefix(e.By, "operator:") || tutti.TrailOf(e.Body.Kind()) == tutti.TrailAlways
}

// Chain verifies entries one after the other. The zero value begins with the
// first entry of a log.
type Chain struct {
	First uint64 // the sequence of the first entry, or 0 if there is none yet
	Last  uint64
	Link  tutti.Digest // the link of the last entry; if there is none yet, the link before the first entry
	Count int
	// Bare is the number of entries that have only a digest. Their content is unknown. The server that gives out the
	// log chooses which entries have no content.
	Bare int
}

// Add verifies that e follows directly after the last entry. If e does not follow, Add
// returns CodeDamaged and does not change the chain.
func (c *Chain) Add(e api.AuditEntry) error {
	before, digest := c.Link, e.Digest
	switch {
	case c.Count == 0:
		before = e.Before
	case e.Before != "":
		return tutti.Errorf(tutti.CodeDamaged, "entry %d is marked as the first one of the trail, but entry %d comes before it", e.Seq, c.Last)
	}
	if len(e.Raw) > 0 {
		digest = tutti.DigestOf(e.Raw)
	}
	switch {
	case e.Seq <= c.Last:
		return tutti.Errorf(tutti.CodeDamaged, "entry %d comes after entry %d", e.Seq, c.Last)
	case len(e.Raw) > 0 && e.Digest != "" && e.Digest != digest:
		return tutti.Errorf(tutti.CodeDamaged, "entry %d has the digest %s, not %s", e.Seq, digest, e.Digest)
	case e.Link != tutti.LinkOf(before, digest):
		return tutti.Errorf(tutti.CodeDamaged, "entry %d does not fit the entries before it: one of these entries was changed or removed", e.Seq)
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
