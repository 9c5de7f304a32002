package server

import (
	"cmp"
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/server/nodes"
	"github.com/tutti-project/tutti/internal/server/operators"
	"github.com/tutti-project/tutti/internal/writer"
)

type (
	// Options are the settings and the adapters that a server needs.
	Options = core.Options
	// Bus sends messages to nodes.
	Bus = core.Bus
	// Identity makes and checks the proofs of identity of nodes and operators.
	Identity = core.Identity
	// Keys are the key sets with which the server proves its identity.
	Keys = core.Keys
)

// LocalOperator is the name of an operator who connects through the server's own socket.
const LocalOperator = core.LocalOperator

// Server handles the calls of operators and nodes with the handlers of their packages. Server answers readers without
// the writer's queue. All methods are safe for concurrent calls. The methods return CodeUnavailable while Run does
// not serve.
type Server struct {
	reader
	*operators.Operators
	*operators.Keys
	*nodes.Nodes
	core *core.Core
}

// reader is explain.Reader. If a handler has a method with the same name, Server uses the handler's method.
type reader struct{ *explain.Reader }

const (
	defaultSilence  = 30 * time.Second
	defaultJobs     = 1000
	defaultRuns     = 20_000
	defaultCompiles = 200
	snapshotEvery   = 10_000 // events
)

// New returns a server. Run starts it.
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
	s := &Server{}
	s.core = core.New(opts, func(c *core.Core) writer.Owner { return &decider{Core: c, probing: map[probeKey]*probing{}} })
	s.Operators, s.Keys = operators.New(s.core)
	s.Nodes = nodes.New(s.core)
	s.reader = reader{s.core.Reader}
	return s
}

// Ready returns a channel that is closed when the server serves.
func (s *Server) Ready() <-chan struct{} { return s.core.Writer.Ready() }

// Run folds the log and serves until ctx ends or the log refuses an append. Run returns
// after all its goroutines have ended.
func (s *Server) Run(ctx context.Context) error { return s.core.Writer.Run(ctx) }

// CopyLog calls past.Past.CopyLog. CopyLog also works while Run is not running.
func (s *Server) CopyLog(ctx context.Context, to past.Copy) error {
	return s.core.Past.CopyLog(ctx, to)
}

// Position returns the server's position in the log, see writer.Writer.Position.
func (s *Server) Position() tutti.Position { return s.core.Writer.Position() }

// Behind calls writer.Writer.Behind.
func (s *Server) Behind(ctx context.Context, seen tutti.Position) error {
	return s.core.Writer.Behind(ctx, seen)
}

// Tally returns the fleet in numbers, from a version of the fold. Tally does not wait for the writer.
func (s *Server) Tally(ctx context.Context) (out explain.Tally, err error) {
	err = s.core.Look(ctx, func(v explain.View) error {
		out = v.Tally()
		return nil
	})
	return out, err
}

// SnapshotAt returns when the latest snapshot was taken. The time is zero if there is none.
func (s *Server) SnapshotAt() time.Time { return s.core.Past.SnapshotAt() }

// Admit calls core.Core.Admit.
func (s *Server) Admit(ctx context.Context, name, serial string, verbs ...tutti.Verb) (inside context.Context, leave func(), err error) {
	return s.core.Admit(ctx, name, serial, verbs...)
}

// ReadAudit calls core.Core.ReadAudit.
func (s *Server) ReadAudit(ctx context.Context, in api.ReadAudit, yield func(api.AuditEntry) error) error {
	return s.core.ReadAudit(ctx, in, yield)
}

// Denied calls core.Core.Denied.
func (s *Server) Denied(ctx context.Context, who, what string, cause error) {
	s.core.Denied(ctx, who, what, cause)
}

// Refused calls core.Core.Refused.
func (s *Server) Refused(ctx context.Context, key tutti.NodeKey, what string) {
	s.core.Refused(ctx, key, what)
}
