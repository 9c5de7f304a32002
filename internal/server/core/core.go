// Package core has the code that the server's handlers share: the transaction of a message, the checks of access,
// the changes that both nodes and operators can cause, and the parts of the server. The handlers of nodes (package
// nodes) and of operators (package operators) build on core and do not use each other.
package core

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/denials"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/share"
	"github.com/tutti-project/tutti/internal/watch"
	"github.com/tutti-project/tutti/internal/writer"
	"github.com/tutti-project/tutti/wire"
)

// Bus sends messages to nodes. A message may get lost, so each message is only a doorbell: the
// server does not rely on its arrival.
type Bus interface {
	Ring(key tutti.NodeKey, op string, payload []byte) error
}

// Identity makes and checks the proofs of identity of nodes and operators.
type Identity interface {
	// NewToken makes a join token. The log keeps only the hash of the token's secret.
	NewToken(in api.CreateToken) (text string, id tutti.TokenID, hash tutti.Digest, err error)
	// VerifyEnrol checks the signature of the request and returns the hash of the token's
	// secret.
	VerifyEnrol(in api.EnrolRequest) (tutti.Digest, error)
	// ProveJoin checks that the sender has both private keys of the request.
	ProveJoin(in api.JoinRequest) error
	// VerifyJoin checks the request's certificate with the CA. The result is what the certificate says.
	VerifyJoin(in api.JoinRequest, ca tutti.JoinCASet, now time.Time) (tutti.NodeName, tutti.NodeCertificate, error)
	// ReadJoinCA checks a CA that an operator tells the server, and describes it. The function `revokes` says whether a
	// CRL revokes a certificate. If the CA is empty, the description only says how a machine reaches this server.
	ReadJoinCA(ca tutti.JoinCASet) (view api.JoinCAView, revokes func(tutti.NodeCertificate) bool, err error)
	// Enrol makes the credentials of a node.
	Enrol(node tutti.NodeName, key tutti.NodeKey) (api.Enrolled, error)
	// Revoke ends the validity of a key, also on open connections. Revoking a key twice is
	// not an error: after each start the server revokes all revoked keys again.
	Revoke(keys ...tutti.NodeKey) error
	// IssueOperator signs a certificate for the key of a request (PEM). See tutti.IssueOperator.
	IssueOperator(in api.IssueOperator) (api.IssuedOperator, error)
	Signers
}

// Keys are the key sets with which the server proves its identity and issues certificates.
type Keys interface {
	// KeySets returns the key sets that are trusted now.
	KeySets() (tutti.KeySets, error)
	// Rotate switches the key sets to a phase of the rotation. The switch is durable, and applies to all later
	// connections. If the key sets are in this phase already, Rotate changes nothing.
	Rotate(phase tutti.RotationPhase) error
	// Settle waits a short time, and then ends all connections that still use a removed key
	// set.
	Settle()
}

// Options are the settings and the adapters that a server needs. For durations of zero, the
// server uses the defaults.
type Options struct {
	Log      tutti.Log
	Blobs    tutti.Blobs
	Bus      Bus
	Identity Identity
	Logger   *slog.Logger

	// Space returns CodeUnavailable if the disk has no room for new work. Work that has
	// begun goes on. The server calls Space often. If Space is nil, there is always room.
	Space func() error

	Silence  time.Duration // a node that is silent for this long is lost; the default is 30 s
	InFlight int           // the largest number of runs at one time in the fleet; 0 means no limit
	Compiles int           // the largest number of compiles at one time while nodes converge; the default is 200
	Keep     engine.Keep   // how many jobs and runs are kept; the default is 1,000 jobs and 20,000 runs
	// KeepReports says which reports and logs of the stored runs are kept. The default is all of
	// them.
	KeepReports retain.Reports
	// SnapshotEvery is the number of events after which the server takes a snapshot, if the
	// log can drop old events. The default is 10,000.
	SnapshotEvery int
	NewRunID      func() tutti.RunID
	// FirstOperator is the first operator, whose certificate was issued before the log began.
	// It may be nil.
	FirstOperator *tutti.OperatorIssued
	// Scrubs remembers when the server last read all stored content. The server reads all content once per
	// ScrubEvery. If Scrubs is nil or ScrubEvery is 0, the server never reads all content.
	Scrubs     past.Scrubs
	ScrubEvery time.Duration
	// Epochs remembers the epoch of the log. It may be nil.
	Epochs writer.Epochs
	// ENC is true if the server asks the site's ENC about each node.
	ENC bool
	// Keys are the keys that can be rotated. If Keys is nil, the server's keys cannot be rotated.
	Keys Keys
	// Meter counts what happens. It may be nil.
	Meter Meter
}

// Meter counts what happens, for metrics. Its methods must not block.
type Meter interface {
	// Stored gets events that are on disk, and the state with these events. The writer calls Stored.
	Stored(state *fold.State, events []tutti.Event)
	// Denied gets the caller of an attempt that was not allowed, as in the audit trail.
	Denied(who string)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) Stored(*fold.State, []tutti.Event) {}
func (noMeter) Denied(string)                     {}

// Core is the part of the server that all handlers share.
type Core struct {
	Opts     Options
	Writer   *writer.Writer
	Past     *past.Past
	Reader   *explain.Reader // answers requests that only read, and does not use the writer
	Presence presence.Nodes
	Hub      watch.Hub
	Access   access
	Denials  denials.Minute
	Shares   *share.Shares
	Asks     openQuestions
	Readings *share.Readings
	Viewers  Viewers                      // of the jobs of diffs
	Leavers  []Leaver                     // only the writer uses this list
	Admitted map[tutti.NodeName]Admission // for each node, the admission of its held run; only the writer uses this map
	// Stored counts, for each node, the bytes of the blobs that the node has sent since its last result. Only the
	// writer uses this map.
	Stored map[tutti.NodeKey]int64
	// MatchInputs is the sequence of the last event that may change who is in a group with `where`.
	MatchInputs atomic.Uint64
}

// New returns a core. The function `owner` creates the object that owns the core's writer.
func New(opts Options, owner func(*Core) writer.Owner) *Core {
	if opts.Meter == nil {
		opts.Meter = noMeter{}
	}
	c := &Core{
		Opts:     opts,
		Presence: presence.New(),
		Hub:      watch.NewHub(),
		Access:   newAccess(),
		Asks:     newOpenQuestions(),
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

// Signers checks the signatures of code keys (ADR 0026). The log has the statements about code keys. In their order,
// these statements decide which keys are code keys.
type Signers interface {
	// Fleet is the id of the fleet.
	Fleet() tutti.Digest
	// Code checks the signatures of a manifest. Code returns CodeRefused if no trusted key has signed the manifest, or
	// if the manifest was signed for another fleet. Code returns the zero Signed if the only signature has the form of
	// an earlier release.
	Code(trust []tutti.Statement, in tutti.SignedCode) (tutti.Signed, error)
	// Compile checks a permission to compile code (ADR 0038), but not its time.
	Compile(trust []tutti.Statement, in tutti.SignedCode) (tutti.SignedCompile, error)
	// Said checks the signatures of a statement in the same way as Code. The server already knows the manifest of this
	// statement.
	Said(trust []tutti.Statement, in tutti.Statement) (tutti.Signed, error)
	// Next checks the next statement about code keys.
	Next(trust []tutti.Statement, next tutti.Statement) (tutti.KeysTrusted, error)
	// Plans checks the signature of a fleet file.
	Plans(trust []tutti.Statement, in tutti.Statement) (tutti.SignedPlans, error)
	// Operators checks a list of operators who sign actions.
	Operators(trust []tutti.Statement, in tutti.Statement) (tutti.OperatorsTrusted, error)
}

// RingClaims rings nodes, so that they claim now. In the answer to the claim, the nodes also learn what has
// changed. Nodes that miss the doorbell claim later by themselves.
func (s *Core) RingClaims(keys []tutti.NodeKey) {
	for _, key := range keys {
		if err := s.Opts.Bus.Ring(key, wire.RingClaim, nil); err != nil {
			s.Opts.Logger.Warn("doorbell not rung", "key", key, "error", err)
		}
	}
}
