package tutti

import "time"

// operatorEvents are the kinds of events of operators, and of the log.
var operatorEvents = []eventKind{
	{func() Body { return new(OperatorIssued) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(OperatorRevoked) }, ScopeNone, TrailAlways, KeepLast},
	{func() Body { return new(OperatorsTrusted) }, ScopeNone, TrailAlways, KeepLast},
	{func() Body { return new(Denied) }, ScopeNone, TrailAlways, KeepNever},
	{func() Body { return new(SnapshotTaken) }, ScopeNone, TrailOperators, KeepLast},
}

// OperatorIssued lets a certificate in. The first one, made with the server, is
// noted when that first starts.
type OperatorIssued struct {
	Operator string    `json:"operator"`
	Serial   string    `json:"serial"` // hexadecimal
	Expires  time.Time `json:"expires"`
	CodeKey  bool      `json:"code_key,omitempty"` // may sign code
	CA       Digest    `json:"ca,omitempty"`       // that signed it; empty: of a server before there were two
}

// Kind implements Body.
func (*OperatorIssued) Kind() string { return "operator.issued" }

// ID implements Body.
func (b *OperatorIssued) ID() string { return b.Operator }

// OperatorRevoked ends all certificates that an operator has.
type OperatorRevoked struct {
	Operator string `json:"operator"`
	Reason   string `json:"reason,omitempty"`
}

// Kind implements Body.
func (*OperatorRevoked) Kind() string { return "operator.revoked" }

// ID implements Body.
func (b *OperatorRevoked) ID() string { return b.Operator }

// OperatorsTrusted says who signs actions from now on. Statement is of kind StatementOperators.
type OperatorsTrusted struct {
	Counter   uint64    `json:"counter"`
	Operators []string  `json:"operators"`
	Statement Statement `json:"statement"`
}

// Kind implements Body.
func (*OperatorsTrusted) Kind() string { return "operators.trusted" }

// ID implements Body.
func (*OperatorsTrusted) ID() string { return "operators" }

// Denied is an attempt without a grant.
type Denied struct {
	Who    string `json:"who"`
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Kind implements Body.
func (*Denied) Kind() string { return "audit.denied" }

// ID implements Body.
func (b *Denied) ID() string { return b.Who }

// SnapshotTaken says that the blob State has what is needed of the events up
// to and with Through, whose link is Link; the log may remove them. Segments
// are the audit trail of removed entries, the oldest first. Operators are all who
// ever did something: an operator whose certificate is in no event is known only
// by this list.
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

// AuditSegment is a part of the log that was let go: a blob with its entries.
// Before is the link of the entry before First, After that of Last.
type AuditSegment struct {
	First  uint64    `json:"first"`
	Last   uint64    `json:"last"`
	Before Digest    `json:"before,omitempty"`
	After  Digest    `json:"after"`
	Until  time.Time `json:"until"` // of the last entry
	Blob   Digest    `json:"blob"`
}
