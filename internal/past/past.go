// Package past has what is stored of a fleet: its log, the snapshot that replaces the beginning of the log, and the
// content that both name. It reads them for the writer, for readers and for copies, and removes what is not needed any more.
// It does not know the writer: its callers give it a function that appends events.
package past

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
)

// Tearing is a log that a loss of power may leave with half an append at its
// end, which readers skip. The next event goes after the sequence Torn.
type Tearing interface {
	Torn() uint64
}

// Options are what is stored, and how long it stays.
type Options struct {
	Log    tutti.Log
	Blobs  tutti.Blobs
	Logger *slog.Logger
	// KeepReports is which reports and logs of runs are kept; all.
	KeepReports retain.Reports
	// Scrubs remembers when all content was read last. All content is read once per ScrubEvery. nil or 0: never.
	Scrubs     Scrubs
	ScrubEvery time.Duration
}

// Emit appends an event of the server and returns when it is on disk.
type Emit func(ctx context.Context, body tutti.Body) error

// Past is what is stored. All its methods may be called concurrently.
type Past struct {
	opts    Options
	taken   atomic.Pointer[tutti.SnapshotTaken] // the latest one
	mu      sync.Mutex                          // held while the past is shortened or copied
	due     chan struct{}                       // says that a snapshot is due
	readers chan struct{}                       // slots of readers of the past, see inTurns
	lookups chan struct{}                       // slots of lookups of old events, see LinkOfOld
	links   links
	asked   *sharedAsked
}

// New returns what is stored. Open begins to read it.
func New(opts Options) *Past {
	return &Past{
		opts:    opts,
		due:     make(chan struct{}, 1),
		readers: make(chan struct{}, readersAtOnce),
		lookups: make(chan struct{}, lookupsAtOnce),
		asked:   newSharedAsked(),
	}
}

// Open looks up the latest snapshot. It must come before all methods that read, except CopyLog.
func (p *Past) Open(ctx context.Context) error {
	log, ok := p.trimmed()
	if !ok {
		return nil
	}
	taken, err := snapshot(ctx, log)
	if err == nil {
		p.taken.Store(taken)
	}
	return err
}

// Through is the last event that the latest snapshot covers. Of the events up to it only the needed ones are kept.
func (p *Past) Through() uint64 {
	if taken := p.taken.Load(); taken != nil {
		return taken.Through
	}
	return 0
}

// trimmedLog is a log whose beginning is dropped after a snapshot has it.
type trimmedLog interface {
	tutti.Log
	tutti.Trimming
	tutti.Chained
}

func (p *Past) trimmed() (log trimmedLog, ok bool) {
	log, ok = p.opts.Log.(trimmedLog)
	return log, ok
}

// snapshot returns the event of the log's latest snapshot, or nil.
func snapshot(ctx context.Context, log trimmedLog) (*tutti.SnapshotTaken, error) {
	e, found, err := log.Snapshot(ctx)
	if err != nil || !found {
		return nil, err
	}
	taken, ok := e.Body.(*tutti.SnapshotTaken)
	if !ok {
		return nil, tutti.Errorf(tutti.CodeDamaged, "event %d is no snapshot but %s", e.Seq, e.Body.Kind())
	}
	return taken, nil
}
