// Package core is what the server's handlers share: the transaction of a message, the checks of access, the changes that
// calls of nodes and of operators have in common, and the parts of the server. The handlers of nodes (package nodes) and of
// operators (package operators) build on core and do not know each other.
package core

import (
	"log/slog"
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
	"github.com/tutti-project/tutti/wire"
)

// Bus reaches nodes. A message may be lost, so each message is only a doorbell.
type Bus interface {
	Ring(key tutti.NodeKey, op string, payload []byte) error
}

// Identity makes and checks what proves the identity of nodes and operators.
type Identity interface {
	// NewToken makes a join token; the log keeps the hash of its secret.
	NewToken(in api.CreateToken) (text string, id tutti.TokenID, hash tutti.Digest, err error)
	// VerifyEnrol checks the request's signature and returns its secret's hash.
	VerifyEnrol(in api.EnrolRequest) (tutti.Digest, error)
	// Enrol makes a node's credentials.
	Enrol(node tutti.NodeName, key tutti.NodeKey) (api.Enrolled, error)
	// Revoke ends a key, also on open connections. Revoking a key twice is
	// no error: after a start all revoked keys are revoked again.
	Revoke(keys ...tutti.NodeKey) error
	// IssueOperator signs a certificate for the key of a request (PEM). See tutti.IssueOperator.
	IssueOperator(in api.IssueOperator) (api.IssuedOperator, error)
	Signers
}

// Keys are the key sets with which the server proves its identity and issues certificates.
type Keys interface {
	// KeySets returns the key sets that are trusted now.
	KeySets() (tutti.KeySets, error)
	// Rotate brings the key sets into a phase, durably and for all who connect from now on. A repeated call changes nothing.
	Rotate(phase tutti.RotationPhase) error
	// Settle ends, after a short time, what still uses a key set that is gone.
	Settle()
}

// Options are what a server needs. Zero durations take the defaults.
type Options struct {
	Log      tutti.Log
	Blobs    tutti.Blobs
	Bus      Bus
	Identity Identity
	Logger   *slog.Logger

	// Space says, as CodeUnavailable, that there is no room for new work. Work that has
	// begun goes on. Space is called often; nil: there is always room.
	Space func() error

	Silence  time.Duration // a node that is silent for this long is lost; 30 s
	InFlight int           // runs at once in the fleet; 0: no limit
	Compiles int           // at once while nodes converge; 200
	Keep     engine.Keep   // what of the past is kept; 1,000 jobs, 20,000 runs
	// KeepReports is which reports and logs of these runs are kept; all.
	KeepReports retain.Reports
	// SnapshotEvery is after how many events a snapshot is taken, if the log can
	// drop old events; 10,000.
	SnapshotEvery int
	NewRunID      func() tutti.RunID
	// FirstOperator is the first operator, whose certificate is older than the log. May be nil.
	FirstOperator *tutti.OperatorIssued
	// Scrubs remembers when all content was read last. All content is read once per ScrubEvery. nil or 0: never.
	Scrubs     past.Scrubs
	ScrubEvery time.Duration
	// Epochs remembers the log's epoch. May be nil.
	Epochs writer.Epochs
	// Keys are the keys that can be rotated; nil: they cannot be rotated.
	Keys Keys
}

// Core is what handlers share.
type Core struct {
	Opts     Options
	Writer   *writer.Writer
	Past     *past.Past
	Reader   *explain.Reader // answers requests that only read, without the writer
	Presence presence.Nodes
	Hub      watch.Hub
	Access   access
	Denials  denials.Minute
	Shares   *share.Shares
	Asks     asks
	Readings *share.Readings
	Leavers  []Leaver                     // the writer's
	Admitted map[tutti.NodeName]Admission // the writer's: for each node, of its held run
	Stored   map[tutti.NodeKey]int64      // the writer's: bytes of blobs that a node has sent since its last result
}

// New returns a core whose writer has this owner.
func New(opts Options, owner func(*Core) writer.Owner) *Core {
	c := &Core{
		Opts:     opts,
		Presence: presence.New(),
		Hub:      watch.NewHub(),
		Access:   newAccess(),
		Asks:     newAsks(),
		Shares:   share.New(),
		Admitted: map[tutti.NodeName]Admission{},
		Stored:   map[tutti.NodeKey]int64{},
		Readings: share.NewReadings(),
		Past: past.New(past.Options{Log: opts.Log, Blobs: opts.Blobs, Logger: opts.Logger,
			KeepReports: opts.KeepReports, Scrubs: opts.Scrubs, ScrubEvery: opts.ScrubEvery}),
	}
	c.Writer = writer.New(writer.Options{
		Log: opts.Log, Past: c.Past, Logger: opts.Logger, Space: opts.Space, Silence: opts.Silence,
		SnapshotEvery: opts.SnapshotEvery, Epochs: opts.Epochs,
	}, owner(c))
	c.Reader = c.ReaderOf(c.Look)
	return c
}

// Signers checks what code keys have signed (ADR 0026). The statements about code keys in the log
// say, in order, which keys those are.
type Signers interface {
	// Fleet is the id of the fleet.
	Fleet() tutti.Digest
	// Code checks the signatures of a manifest. CodeRefused: no trusted key has signed it, or it was signed for another fleet.
	// The zero Signed: its only signature is that of an earlier release.
	Code(trust []tutti.Statement, in tutti.SignedCode) (tutti.Signed, error)
	// Said is like Code, for a statement whose manifest is known.
	Said(trust []tutti.Statement, in tutti.Statement) (tutti.Signed, error)
	// Next checks the next statement about code keys.
	Next(trust []tutti.Statement, next tutti.Statement) (tutti.KeysTrusted, error)
	// Plans checks the signature of a fleet file.
	Plans(trust []tutti.Statement, in tutti.Statement) (tutti.SignedPlans, error)
	// Operators checks a list of operators who sign actions.
	Operators(trust []tutti.Statement, in tutti.Statement) (tutti.OperatorsTrusted, error)
}

// RingClaims makes nodes claim now, and hear the news with that claim. Without the doorbell they claim later by themselves.
func (s *Core) RingClaims(keys []tutti.NodeKey) {
	for _, key := range keys {
		if err := s.Opts.Bus.Ring(key, wire.RingClaim, nil); err != nil {
			s.Opts.Logger.Warn("doorbell not rung", "key", key, "error", err)
		}
	}
}
