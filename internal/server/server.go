package server

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/denials"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/share"
	"github.com/tutti-project/tutti/internal/watch"
	"github.com/tutti-project/tutti/internal/writer"
)

// Bus reaches nodes. A message may be lost: it is only ever a doorbell.
type Bus interface {
	Ring(key tutti.NodeKey, op string, payload []byte) error
}

// Identity makes and checks what proves who somebody is.
type Identity interface {
	// NewToken makes a join token; the log keeps the hash of its secret.
	NewToken(in api.CreateToken) (text string, id tutti.TokenID, hash tutti.Digest, err error)
	// VerifyEnrol checks the request's signature and returns its secret's hash.
	VerifyEnrol(in api.EnrolRequest) (tutti.Digest, error)
	// Enrol makes a node's credentials.
	Enrol(node tutti.NodeName, key tutti.NodeKey) (api.Enrolled, error)
	// Revoke ends a key, also on connections that are open. Revoking again is
	// no error: after a start all revoked keys are revoked anew.
	Revoke(keys ...tutti.NodeKey) error
	// IssueOperator signs a certificate for the key of a request (PEM). See tutti.IssueOperator.
	IssueOperator(in api.IssueOperator) (api.IssuedOperator, error)
	Signers
}

// Keys are the sets of keys by which the server proves itself and issues what others prove themselves by.
type Keys interface {
	// KeySets are those that are trusted now.
	KeySets() (tutti.KeySets, error)
	// Rotate brings them into a phase: durably, and for all who connect from now on. Again it changes nothing.
	Rotate(phase tutti.RotationPhase) error
	// Settle ends, soon, what stands on a set that is gone.
	Settle()
}

// Options are what a server needs. Zero durations take the defaults.
type Options struct {
	Log      tutti.Log
	Blobs    tutti.Blobs
	Bus      Bus
	Identity Identity
	Logger   *slog.Logger

	// Space says, as CodeUnavailable, that there is no room for new work; what has
	// begun goes on. Asked often; nil: there always is.
	Space func() error

	Silence  time.Duration // a node silent for so long is lost; 30 s
	InFlight int           // runs at once in the fleet; 0: no limit
	Compiles int           // at once while nodes converge; 200
	Keep     engine.Keep   // what stays of the past; 1,000 jobs, 20,000 runs
	// KeepReports is which reports and logs of these runs stay; all.
	KeepReports retain.Reports
	// SnapshotEvery is after how many events a snapshot is taken, if the log can
	// let go of what it has; 10,000.
	SnapshotEvery int
	NewRunID      func() tutti.RunID
	// FirstOperator is whose certificate was made before there was a log. May be nil.
	FirstOperator *tutti.OperatorIssued
	// Scrubs remembers when content was read last, all of it; each ScrubEvery it is. nil or 0: it is not.
	Scrubs     past.Scrubs
	ScrubEvery time.Duration
	// Epochs remembers the log's epoch; nil: nobody does.
	Epochs writer.Epochs
	// Keys can be rotated; nil: they cannot.
	Keys Keys
}

// Server has the commands of operators and nodes on the writer's state, and answers who only looks beside it. It implements tutti.Jobs,
// tutti.Nodes, tutti.Tokens, tutti.Operators, tutti.Codes, tutti.Values, tutti.Pauses,
// tutti.Explains, tutti.Reports and tutti.Remotes for operators, and Handle for nodes;
// all of them may be called at once, and answer CodeUnavailable while Run does not
// serve.
type Server struct {
	*explain.Reader // answers what only looks, without the writer

	opts     Options
	writer   *writer.Writer
	presence presence.Nodes
	hub      watch.Hub
	access   access
	denials  denials.Minute
	shares   *share.Shares
	past     *past.Past
	asks     asks
	readings *share.Readings
	files    atomic.Pointer[codeFiles]
	leavers  []leaver                     // the writer's
	saidBack atomic.Int64                 // when it was last said that somebody knows more, in seconds
	admitted map[tutti.NodeName]admission // the writer's: of the run of each node that is held
	stored   map[tutti.NodeKey]int64      // the writer's: bytes of blobs that a node has sent since its last result
	rotating sync.Mutex                   // held by who takes a step of a rotation
}

const (
	defaultSilence  = 30 * time.Second
	defaultJobs     = 1000
	defaultRuns     = 20_000
	defaultCompiles = 200
	snapshotEvery   = 10_000 // events
)

// New returns a server that has not begun.
func New(opts Options) *Server {
	if opts.Silence == 0 {
		opts.Silence = defaultSilence
	}
	if opts.Space == nil {
		opts.Space = func() error { return nil }
	}
	opts.SnapshotEvery = cmp.Or(opts.SnapshotEvery, snapshotEvery)
	opts.Compiles = cmp.Or(opts.Compiles, defaultCompiles)
	opts.Keep.Jobs = cmp.Or(opts.Keep.Jobs, defaultJobs)
	opts.Keep.Runs = cmp.Or(opts.Keep.Runs, defaultRuns)
	s := &Server{
		opts:     opts,
		presence: presence.New(),
		hub:      watch.NewHub(),
		access:   newAccess(),
		asks:     newAsks(),
		shares:   share.New(),
		stored:   map[tutti.NodeKey]int64{},
		admitted: map[tutti.NodeName]admission{},
		readings: share.NewReadings(),
		past: past.New(past.Options{Log: opts.Log, Blobs: opts.Blobs, Logger: opts.Logger,
			KeepReports: opts.KeepReports, Scrubs: opts.Scrubs, ScrubEvery: opts.ScrubEvery}),
	}
	s.writer = writer.New(writer.Options{
		Log: opts.Log, Past: s.past, Logger: opts.Logger, Space: opts.Space, Silence: opts.Silence,
		SnapshotEvery: opts.SnapshotEvery, Epochs: opts.Epochs,
	}, &decider{Server: s, probing: map[probeKey]*probing{}})
	s.Reader = explain.New(s.look, thePast{s.past, s}, opts.Blobs)
	return s
}

// Ready is closed as soon as the server serves.
func (s *Server) Ready() <-chan struct{} { return s.writer.Ready() }

// Run folds the log and serves until ctx ends or an append is refused. It
// returns after all its goroutines have.
func (s *Server) Run(ctx context.Context) error { return s.writer.Run(ctx) }

// CopyLog is past.Past's. It also works while Run does not.
func (s *Server) CopyLog(ctx context.Context, to past.Copy) error { return s.past.CopyLog(ctx, to) }

// Position is how far the server is, see writer.Writer.Position.
func (s *Server) Position() tutti.Position { return s.writer.Position() }

// Behind is writer.Writer's.
func (s *Server) Behind(ctx context.Context, seen tutti.Position) error {
	return s.writer.Behind(ctx, seen)
}
