// Package past manages the stored data of a fleet: its log, the snapshot that replaces the beginning of
// the log, and the content that both name. The package reads this data for the writer, for readers and
// for copies. The package also removes data that is not needed any more. The package does not import
// the writer. Callers pass a function of type Emit, with which the package appends events.
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

// Tearing is a log that may end with an incomplete append after a loss of power. Torn returns the last sequence of
// this append. Readers skip the append, and the next event gets a sequence after Torn.
type Tearing interface {
	Torn() uint64
}

// Options say which data is stored, and how long it stays.
type Options struct {
	Log    tutti.Log
	Blobs  tutti.Blobs
	Logger *slog.Logger
	// KeepReports says which reports and logs of runs are kept. By default, all are kept.
	KeepReports retain.Reports
	// Scrubs stores when the server last read all content, to find damage. The server reads all content once per
	// ScrubEvery. If Scrubs is nil or ScrubEvery is 0, the server never reads all content.
	Scrubs     Scrubs
	ScrubEvery time.Duration
}

// Emit appends an event of the server and returns when it is on disk.
type Emit func(ctx context.Context, body tutti.Body) error

// Past is the stored data of a fleet. All methods are safe for concurrent calls.
type Past struct {
	opts    Options
	taken   atomic.Pointer[tutti.SnapshotTaken] // the latest snapshot
	takenAt atomic.Pointer[time.Time]           // when the latest snapshot was taken
	mu      sync.Mutex                          // locked while the log is shortened or copied
	due     chan struct{}                       // says that a snapshot is due
	readers chan struct{}                       // slots of readers of the past, see inTurns
	lookups chan struct{}                       // slots of lookups of old events, see LinkOfOld
	links   links
	asked   *sharedAsked
}

// New returns a Past. New reads nothing. Call Open before other methods.
func New(opts Options) *Past {
	return &Past{
		opts:    opts,
		due:     make(chan struct{}, 1),
		readers: make(chan struct{}, readersAtOnce),
		lookups: make(chan struct{}, lookupsAtOnce),
		asked:   newSharedAsked(),
	}
}

// Open looks up the latest snapshot. The caller must call Open before all methods that read, except CopyLog.
func (p *Past) Open(ctx context.Context) error {
	log, ok := p.trimmed()
	if !ok {
		return nil
	}
	taken, at, err := snapshot(ctx, log)
	if err == nil {
		p.taken.Store(taken)
		p.takenAt.Store(&at)
	}
	return err
}

// SnapshotAt returns when the latest snapshot was taken. The time is zero if there is none.
func (p *Past) SnapshotAt() time.Time {
	if at := p.takenAt.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Through returns the sequence of the last event that the latest snapshot covers. Of the events up to
// this one, only the needed ones are kept.
func (p *Past) Through() uint64 {
	if taken := p.taken.Load(); taken != nil {
		return taken.Through
	}
	return 0
}

// trimmedLog is a log that can drop its beginning after a snapshot has replaced it.
type trimmedLog interface {
	tutti.Log
	tutti.Trimming
	tutti.Chained
}

func (p *Past) trimmed() (log trimmedLog, ok bool) {
	log, ok = p.opts.Log.(trimmedLog)
	return log, ok
}

// snapshot returns the event snapshot.taken of the latest snapshot and its time, or nil.
func snapshot(ctx context.Context, log trimmedLog) (*tutti.SnapshotTaken, time.Time, error) {
	e, found, err := log.Snapshot(ctx)
	if err != nil || !found {
		return nil, time.Time{}, err
	}
	taken, ok := e.Body.(*tutti.SnapshotTaken)
	if !ok {
		return nil, time.Time{}, tutti.Errorf(tutti.CodeDamaged, "event %d is not a snapshot, but %s", e.Seq, e.Body.Kind())
	}
	return taken, e.At, nil
}
