// Package past has what is stored of a fleet: its log, the snapshot that stands for the beginning of the log, and the
// content that both name. It reads them for the writer, for readers and for copies, and lets go of what nobody needs.
// It does not know the writer: whoever appends events is handed to it.
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
// end, which nobody reads: the next event goes behind the sequence Torn.
type Tearing interface {
	Torn() uint64
}

// Options are what is stored, and how long it stays.
type Options struct {
	Log    tutti.Log
	Blobs  tutti.Blobs
	Logger *slog.Logger
	// KeepReports is which reports and logs of runs stay; all.
	KeepReports retain.Reports
	// Scrubs remembers when content was read last, all of it; each ScrubEvery it is. nil or 0: it is not.
	Scrubs     Scrubs
	ScrubEvery time.Duration
}

// Emit appends an event of the server and returns when it is on disk.
type Emit func(ctx context.Context, body tutti.Body) error

// Past is what is stored. All its methods may be called at once.
type Past struct {
	opts    Options
	taken   atomic.Pointer[tutti.SnapshotTaken] // the latest one
	mu      sync.Mutex                          // held by whoever lets go of the past, or copies it
	due     chan struct{}                       // a snapshot is
	readers chan struct{}                       // taken by who reads the past, see inTurns
	lookups chan struct{}                       // taken by who looks up an old event, see LinkOfOld
	links   links
	asked   *sharedAsked
}

// New returns what is stored. Nothing has been read of it yet.
func New(opts Options) *Past {
	return &Past{
		opts:    opts,
		due:     make(chan struct{}, 1),
		readers: make(chan struct{}, readersAtOnce),
		lookups: make(chan struct{}, lookupsAtOnce),
		asked:   newSharedAsked(),
	}
}

// Open looks up the latest snapshot. It comes before all that reads, but for CopyLog.
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

// Through is up to which event only what a snapshot needs is kept.
func (p *Past) Through() uint64 {
	if taken := p.taken.Load(); taken != nil {
		return taken.Through
	}
	return 0
}

// trimmedLog is a log whose beginning is let go once a snapshot has it.
type trimmedLog interface {
	tutti.Log
	tutti.Trimming
	tutti.Chained
}

func (p *Past) trimmed() (log trimmedLog, ok bool) {
	log, ok = p.opts.Log.(trimmedLog)
	return log, ok
}

// snapshot returns what the latest snapshot of the log is, or nil.
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
