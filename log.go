package tutti

import (
	"context"
	"iter"
)

// MaxEvent is how many bytes the JSON of an event may have. No honest one comes near it: what is large is kept as a blob.
const MaxEvent = 64 << 20

// Log is the one durable sequence of events, with one writer. A refused append
// ends the writer: somebody else has written.
type Log interface {
	// Append stores the events, all or none, after the event with the sequence
	// last (0: the log is empty) and returns the sequence of its last event
	// when they are on disk. CodeConflict: last is not the log's last event.
	// CodeInvalid: one of them has more than MaxEvent bytes, or is not an event.
	// It sets Seq and Link of each event.
	Append(ctx context.Context, last uint64, events []Event) (uint64, error)
	// Read yields the events after the sequence after, in order, up to the
	// last one at the time of the call. It ends with the first error: an event
	// that is missing or whose link does not fit is CodeDamaged, one that was
	// removed (Trimming) is CodeNotFound.
	Read(ctx context.Context, after uint64) iter.Seq2[Event, error]
	// LinkAt returns the link of the event seq, and reads no other event for
	// that. CodeNotFound: the log has no such event, or it was removed.
	LinkAt(ctx context.Context, seq uint64) (Digest, error)
}

// Trimming is a Log that removes its beginning after a snapshot has what is still
// needed of it.
type Trimming interface {
	// Snapshot returns the latest SnapshotTaken event of the log, found false
	// if there is none.
	Snapshot(ctx context.Context) (e Event, found bool, err error)
	// Trim removes the events up to and with through, the Through of the
	// latest snapshot; its Link must be the one there, and an append must end
	// there (CodeInvalid otherwise). From then on Read and Entries work after
	// through. After an earlier event they return CodeNotFound. To repeat Trim
	// is not an error.
	Trim(ctx context.Context, through uint64) error
}

// Entry is an event as the log keeps it, byte for byte.
type Entry struct {
	Seq  uint64
	Raw  []byte // the event's JSON, without its sequence
	Link Digest // see Link
}

// Chained is a Log whose entries can be read with their links, to be verified
// by somebody else, and copied. Errors are those of Log.Read.
type Chained interface {
	Entries(ctx context.Context, after uint64) iter.Seq2[Entry, error]
}

// Link chains an entry to the one before it. To change, remove or reorder
// entries changes every link after them. The link before the first
// entry is empty.
func Link(before Digest, raw []byte) Digest { return LinkOf(before, DigestOf(raw)) }

// LinkOf is Link for an entry of which only the digest is known.
func LinkOf(before, raw Digest) Digest {
	return DigestOf([]byte(string(before) + " " + string(raw)))
}

// Blobs keeps immutable content by digest.
type Blobs interface {
	// Put stores content durably. To store it again is not an error.
	Put(ctx context.Context, content []byte) (Digest, error)
	// Get returns the content, verified. CodeNotFound if it is not there.
	Get(ctx context.Context, digest Digest) ([]byte, error)
	// Has reports whether the content is there.
	Has(ctx context.Context, digest Digest) (bool, error)
}

// Sizing is a Blobs that tells how large content is without reading all of it.
type Sizing interface {
	// Size returns the bytes of the content. CodeNotFound if it is not there.
	Size(ctx context.Context, digest Digest) (int64, error)
}

// Sweeping is a Blobs that can delete content.
type Sweeping interface {
	// List returns the digests of all content, also of what a Put that was cut
	// off has left behind, in no order.
	List(ctx context.Context) ([]Digest, error)
	// Delete removes content for good. Missing content is not an error.
	Delete(ctx context.Context, digest Digest) error
}
