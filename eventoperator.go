package tutti

import "time"

// operatorEvents are the kinds of events about operators and about the log.
var operatorEvents = []eventKind{
	{func() Body { return new(OperatorIssued) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(OperatorRevoked) }, ScopeNone, TrailAlways, KeepLast},
	{func() Body { return new(OperatorsTrusted) }, ScopeNone, TrailAlways, KeepLast},
	{func() Body { return new(Denied) }, ScopeNone, TrailAlways, KeepNever},
	{func() Body { return new(SnapshotTaken) }, ScopeNone, TrailOperators, KeepLast},
}

// OperatorIssued records a certificate with which an operator may connect. The server's
// installation makes the first certificate. The server records this certificate at its first start.
type OperatorIssued struct {
	Operator string    `json:"operator"`
	Serial   string    `json:"serial"` // hexadecimal
	Expires  time.Time `json:"expires"`
	CodeKey  bool      `json:"code_key,omitempty"` // may sign code
	// CA is the CA that signed the certificate. CA is empty in events from the time when the server
	// had only one CA.
	CA Digest `json:"ca,omitempty"`
}

// Kind implements Body.
func (*OperatorIssued) Kind() string { return "operator.issued" }

// ID implements Body.
func (b *OperatorIssued) ID() string { return b.Operator }

// OperatorRevoked makes all certificates of an operator invalid.
type OperatorRevoked struct {
	Operator string `json:"operator"`
	Reason   string `json:"reason,omitempty"`
}

// Kind implements Body.
func (*OperatorRevoked) Kind() string { return "operator.revoked" }

// ID implements Body.
func (b *OperatorRevoked) ID() string { return b.Operator }

// OperatorsTrusted says which operators sign actions from now on. Statement is of kind
// StatementOperators.
type OperatorsTrusted struct {
	Counter   uint64    `json:"counter"`
	Operators []string  `json:"operators"`
	Statement Statement `json:"statement"`
}

// Kind implements Body.
func (*OperatorsTrusted) Kind() string { return "operators.trusted" }

// ID implements Body.
func (*OperatorsTrusted) ID() string { return "operators" }

// Denied records an attempt without a grant.
type Denied struct {
	Who    string `json:"who"`
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Kind implements Body.
func (*Denied) Kind() string { return "audit.denied" }

// ID implements Body.
func (b *Denied) ID() string { return b.Who }

// SnapshotTaken says that a snapshot exists: the blob State contains everything that the folds need from the events
// up to and including Through. Link is the link of the event Through. The log may remove the events up to Through.
// Segments are the audit trail of the removed entries. The oldest segment is the first. Operators lists all operators
// who ever did something. After a removal of events, some operators are known only from this list.
type SnapshotTaken struct {
	Through   uint64         `json:"through"`
	Link      Digest         `json:"link"`
	State     Digest         `json:"state"`
	Events    int            `json:"events"`
	Segments  []AuditSegment `json:"segments,omitempty"`
	Operators []string       `json:"operators,omitempty"` // sorted
}

// Kind implements Body.
func (*SnapshotTaken) Kind() string { return "snapshot.taken" }

// ID implements Body.
func (*SnapshotTaken) ID() string { return "log" }

// AuditSegment is a removed part of the log. A blob has the entries of the removed part. Before is
// the link of the entry before First, and After is the link of Last.
type AuditSegment struct {
	First  uint64    `json:"first"`
	Last   uint64    `json:"last"`
	Before Digest    `json:"before,omitempty"`
	After  Digest    `json:"after"`
	Until  time.Time `json:"until"` // time of the last entry
	Blob   Digest    `json:"blob"`
}
