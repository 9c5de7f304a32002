package tutti

import (
	"context"
	"iter"
)

// MaxEvent is the largest size of an event's JSON, in bytes. No honest event comes near this size, because large
// content is stored as a blob.
const MaxEvent = 64 << 20

// Log is the one durable sequence of events. It has one writer. If the log refuses an append, the
// writer ends, because another writer has appended.
type Log interface {
	// Append stores all events or none of them. The new events follow the event with the sequence `last` (0 if the log
	// is empty). Append returns the sequence of its last event when all events are on disk. CodeConflict means that the
	// argument `last` is not the sequence of the log's last event. CodeInvalid means that an event has more than
	// MaxEvent bytes, or is not a valid event. Append sets Seq and Link of each event.
	Append(ctx context.Context, last uint64, events []Event) (uint64, error)
	// Read yields, in order, the events whose sequence is above the argument `after`. Read ends with the last event
	// that the log has at the time of the call. Read stops at the first error. The error is CodeDamaged if an event is
	// missing or its link does not fit. The error is CodeNotFound if the event was removed (Trimming).
	Read(ctx context.Context, after uint64) iter.Seq2[Event, error]
	// LinkAt returns the link of the event with the sequence `seq` without reading other events. The error
	// is CodeNotFound if the log has no such event, or the event was removed.
	LinkAt(ctx context.Context, seq uint64) (Digest, error)
}

// Trimming is a Log that can remove its oldest events after a snapshot was taken.
type Trimming interface {
	// Snapshot returns the latest SnapshotTaken event of the log. The result `found` is false if the log has no
	// such event.
	Snapshot(ctx context.Context) (e Event, found bool, err error)
	// Trim removes the events up to and including the event `through`. The argument must be the field Through of the
	// latest snapshot. The snapshot's Link must be the log's link at this event, and the event must be the last one of
	// an append. If one of these conditions is not met, the error is CodeInvalid. After Trim, the methods Read and
	// Entries yield the events after `through`. If a caller asks for earlier events, both methods return CodeNotFound. A
	// repeated Trim is not an error.
	Trim(ctx context.Context, through uint64) error
}

// Entry is an event byte for byte as the log stores it.
type Entry struct {
	Seq  uint64
	Raw  []byte // the JSON of the event, without its sequence
	Link Digest // see Link
}

// Chained is a Log that can return its entries together with their links. Others can then verify
// and copy the entries. The errors are the same as the errors of Log.Read.
type Chained interface {
	Entries(ctx context.Context, after uint64) iter.Seq2[Entry, error]
}

// Link chains an entry to the entry before it. If somebody changes, removes or reorders entries,
// every later link changes. The first entry has an empty link before it.
func Link(before Digest, raw []byte) Digest { return LinkOf(before, DigestOf(raw)) }

// LinkOf is Link for an entry of which only the digest is known.
func LinkOf(before, raw Digest) Digest {
	return DigestOf([]byte(string(before) + " " + string(raw)))
}

// Blobs stores immutable content by digest.
type Blobs interface {
	// Put stores content durably. Storing the same content again is not an error.
	Put(ctx context.Context, content []byte) (Digest, error)
	// Get returns the content after verifying its digest. The error is CodeNotFound if the content is not stored.
	Get(ctx context.Context, digest Digest) ([]byte, error)
	// Has reports whether the content is stored.
	Has(ctx context.Context, digest Digest) (bool, error)
}

// Sizing is a Blobs that can return the size of content without reading all of it.
type Sizing interface {
	// Size returns the size of the content in bytes. The error is CodeNotFound if the content is not stored.
	Size(ctx context.Context, digest Digest) (int64, error)
}

// Sweeping is a Blobs that can delete content.
type Sweeping interface {
	// List returns the digests of all content, in no order. The digests include remains of an
	// interrupted Put.
	List(ctx context.Context) ([]Digest, error)
	// Delete removes content permanently. Deleting missing content is not an error.
	Delete(ctx context.Context, digest Digest) error
}
