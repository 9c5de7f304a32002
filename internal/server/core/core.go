// Package core is what the server's handlers share: the transaction of a message, who may do what, what one call changes
// for nodes and for operators alike, and the parts of the server. Handlers of nodes (package nodes) and of operators
// (package operators) stand on it and do not know each other.
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

// Core is what handlers share.
type Core struct {
	Opts     Options
	Writer   *writer.Writer
	Past     *past.Past
	Reader   *explain.Reader // answers what only looks, without the writer
	Presence presence.Nodes
	Hub      watch.Hub
	Access   access
	Denials  denials.Minute
	Shares   *share.Shares
	Asks     asks
	Readings *share.Readings
	Leavers  []Leaver                     // the writer's
	Admitted map[tutti.NodeName]Admission // the writer's: of the run of each node that is held
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

// Signers checks what code keys have signed (ADR 0026). Which keys those are follows from the statements
// about them that are in the log, in order.
type Signers interface {
	// Fleet is the id of the fleet.
	Fleet() tutti.Digest
	// Code checks what was signed of a manifest. CodeRefused: no key that is trusted has, or for another fleet.
	// The zero Signed: only a release of before has signed.
	Code(trust []tutti.Statement, in tutti.SignedCode) (tutti.Signed, error)
	// Said is Code of a statement whose manifest is known.
	Said(trust []tutti.Statement, in tutti.Statement) (tutti.Signed, error)
	// Next checks the next statement about code keys.
	Next(trust []tutti.Statement, next tutti.Statement) (tutti.KeysTrusted, error)
	// Plans checks what was signed of a fleet file.
	Plans(trust []tutti.Statement, in tutti.Statement) (tutti.SignedPlans, error)
	// Operators checks a list of operators who sign actions.
	Operators(trust []tutti.Statement, in tutti.Statement) (tutti.OperatorsTrusted, error)
}

// RingClaims lets nodes claim now, and hear what is new with that: they do it by themselves, later.
func (s *Core) RingClaims(keys []tutti.NodeKey) {
	for _, key := range keys {
		if err := s.Opts.Bus.Ring(key, wire.RingClaim, nil); err != nil {
			s.Opts.Logger.Warn("doorbell not rung", "key", key, "error", err)
		}
	}
}
