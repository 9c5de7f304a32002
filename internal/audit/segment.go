package audit

import (
	"encoding/json"
	"errors"
	"io"
	"iter"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lines"
)

// A segment is stored as gzipped lines of JSON. The first line is a header. After the header there is one
// line for each entry, with its bytes or their digest. Links are not stored, because they can be computed.

type header struct {
	Tutti   string       `json:"tutti"`
	Version int          `json:"v"`
	Before  tutti.Digest `json:"before,omitempty"`
}

const segmentKind = "audit"

type line struct {
	Seq    uint64          `json:"seq"`
	Digest tutti.Digest    `json:"digest,omitempty"`
	Event  json.RawMessage `json:"event,omitempty"`
}

// Segment encodes and verifies entries. The parameter `before` is the link of the last entry before these
// entries. The caller must store the returned bytes. Their digest is in the field Blob of the result.
// Segment returns CodeInvalid if there are no entries, and CodeDamaged if the entries do not fit together.
func Segment(before tutti.Digest, entries iter.Seq2[tutti.Entry, error]) ([]byte, tutti.AuditSegment, error) {
	var chain Chain
	seg := tutti.AuditSegment{Before: before}
	w := lines.NewWriter(header{segmentKind, 1, before})
	for entry, err := range entries {
		if err != nil {
			return nil, seg, err
		}
		var e tutti.Event
		if err := json.Unmarshal(entry.Raw, &e); err != nil {
			return nil, seg, tutti.Wrap(tutti.CodeDamaged, err, "entry %d", entry.Seq)
		}
		if err := chain.Add(Of(entry, before)); err != nil {
			return nil, seg, err
		}
		before = ""
		l := line{Seq: entry.Seq, Event: entry.Raw}
		if !Act(e) {
			l.Event, l.Digest = nil, tutti.DigestOf(entry.Raw)
		}
		w.Add(l)
		seg.Until = e.At
	}
	if chain.Count == 0 {
		return nil, seg, tutti.Errorf(tutti.CodeInvalid, "a segment must have entries")
	}
	stored, err := w.Close()
	if err != nil {
		return nil, seg, err
	}
	seg.First, seg.Last, seg.After, seg.Blob = chain.First, chain.Last, chain.Link, tutti.DigestOf(stored)
	return stored, seg, nil
}

// Of converts an entry of the log to an entry of the trail. If a trail begins later than the
// log, `before` is the link of the entry before the trail's first entry. For all other entries,
// `before` is empty.
func Of(e tutti.Entry, before tutti.Digest) api.AuditEntry {
	return api.AuditEntry{Seq: e.Seq, Before: before, Link: e.Link, Raw: e.Raw}
}

// Entries yields the entries of a stored segment. The first entry also has the link of the entry before
// it. Entries stops at the first error. Entries returns CodeDamaged if the stored entries are not the ones
// that `seg` describes.
func Entries(seg tutti.AuditSegment, stored []byte) iter.Seq2[api.AuditEntry, error] {
	return func(yield func(api.AuditEntry, error) bool) {
		err := read(seg, stored, func(e api.AuditEntry) bool { return yield(e, nil) })
		if err != nil {
			yield(api.AuditEntry{}, tutti.Wrap(tutti.CodeDamaged, err, "the audit trail of entries %d to %d (blob %s)", seg.First, seg.Last, seg.Blob))
		}
	}
}

func read(seg tutti.AuditSegment, stored []byte, yield func(api.AuditEntry) bool) error {
	if got := tutti.DigestOf(stored); got != seg.Blob {
		return errors.New("it has the digest " + string(got))
	}
	var head header
	r, err := lines.NewReader(stored, &head)
	if err != nil {
		return err
	}
	if head.Tutti != segmentKind || head.Version != 1 || head.Before != seg.Before {
		return errors.New("this release does not know its format, or it has other entries")
	}
	e := api.AuditEntry{Link: seg.Before}
	begin, before := uint64(0), seg.Before
	for {
		var l line
		err := r.Next(&l)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		digest := l.Digest
		if len(l.Event) > 0 {
			digest = tutti.DigestOf(l.Event)
		}
		if begin == 0 {
			begin = l.Seq
		}
		e = api.AuditEntry{Seq: l.Seq, Before: before, Link: tutti.LinkOf(e.Link, digest), Raw: l.Event, Digest: l.Digest}
		before = ""
		if !yield(e) {
			return nil
		}
	}
	if begin != seg.First || e.Seq != seg.Last || e.Link != seg.After {
		return errors.New("its entries do not lead to the entry that follows")
	}
	return nil
}
