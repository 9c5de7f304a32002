package tutti

import (
	"context"
	"iter"
)

// Log is the one durable sequence of events, with one writer. A refused append
// ends the writer: somebody else has written.
type Log interface {
	// Append stores the events, all or none, after the event with the sequence
	// last (0: the log is empty) and returns the sequence of its last event
	// when they are on disk. CodeConflict: last is not the log's last event.
	// It sets Seq of each event.
	Append(ctx context.Context, last uint64, events []Event) (uint64, error)
	// Read yields the events after the sequence after, in order, up to the
	// last one at the time of the call. It ends with the first error.
	Read(ctx context.Context, after uint64) iter.Seq2[Event, error]
}

// Blobs keeps immutable content by digest.
type Blobs interface {
	// Put stores content durably. Storing it again is no error.
	Put(ctx context.Context, content []byte) (Digest, error)
	// Get returns the content, verified. CodeNotFound if it is not there.
	Get(ctx context.Context, digest Digest) ([]byte, error)
	// Has reports whether the content is there.
	Has(ctx context.Context, digest Digest) (bool, error)
}
