package fold

import (
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// Operators are the operators in the log, by name.
type Operators map[string]*Operator

// Operator is the state of one operator according to the log.
type Operator struct {
	Serials map[string]time.Time // certificates issued since the last revocation → their end
	Issued  map[string]time.Time // when each certificate was issued
	// The CA that signed each certificate; "" if it was issued before a server could have two CAs.
	CAs     map[string]tutti.Digest
	CA      tutti.Digest // the CA that signed the last certificate
	CodeKey bool
	Revoked time.Time // the last revocation; after it only the certificates in Serials are valid
	Reason  string
}

// Apply folds the next event of the log.
func (o Operators) Apply(e tutti.Event) {
	switch b := e.Body.(type) {
	case *tutti.OperatorIssued:
		op := o.get(b.Operator)
		op.Serials[b.Serial], op.CAs[b.Serial], op.CA = b.Expires, b.CA, b.CA
		op.Issued[b.Serial] = e.At
		op.CodeKey = op.CodeKey || b.CodeKey
	case *tutti.OperatorRevoked:
		op := newOperator()
		op.Revoked, op.Reason = e.At, b.Reason
		o[b.Operator] = op
	case *tutti.CARotated:
		o.rotated(b)
	case *tutti.SnapshotTaken:
		for _, name := range b.Operators {
			o.get(name)
		}
	}
}

func (o Operators) get(name string) *Operator {
	if o[name] == nil {
		o[name] = newOperator()
	}
	return o[name]
}

func newOperator() *Operator {
	return &Operator{Serials: map[string]time.Time{}, Issued: map[string]time.Time{}, CAs: map[string]tutti.Digest{}}
}

// The method `rotated` forgets the certificates of a CA that a rotation has removed.
func (o Operators) rotated(b *tutti.CARotated) {
	if b.Phase.Rotates() {
		return
	}
	stays := b.Stays()
	for _, op := range o {
		for serial, ca := range op.CAs {
			if ca == "" {
				ca = b.From.CA
			}
			if ca != stays.CA {
				delete(op.Serials, serial)
				delete(op.CAs, serial)
				delete(op.Issued, serial)
			}
		}
	}
}

// Clone returns a copy that shares no maps with the operator.
func (o *Operator) Clone() *Operator {
	own := *o
	own.Serials, own.Issued, own.CAs = maps.Clone(o.Serials), maps.Clone(o.Issued), maps.Clone(o.CAs)
	return &own
}

// Admit returns an error if a certificate is not valid. The caller has checked that the server's CA has signed the
// certificate. If the operator was never revoked, every certificate of this CA is valid, because an old server did
// not log certificates. After a revocation, a certificate is valid only if it came into the log after the
// revocation and has not ended.
func (o Operators) Admit(name, serial string, now time.Time) error {
	op := o[name]
	if op == nil || op.Revoked.IsZero() {
		return nil
	}
	if op.Knows(serial, now) {
		return nil
	}
	return tutti.Errorf(tutti.CodeUnauthenticated, "operator %s was revoked at %s%s; another operator, or root on the server, can make a new certificate: tutti operator create %s",
		name, op.Revoked.Format(time.RFC3339), because(op.Reason), name)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// Knows reports whether a certificate was issued since the last revocation and has not ended according to the log.
// Knows uses the end in the log and not the end in the certificate. A thief of the key and the CA could make a
// certificate with a later end. If the operator is nil, Knows returns false.
func (o *Operator) Knows(serial string, now time.Time) bool {
	return o.Had(serial) && now.Before(o.Serials[serial])
}

// Had reports whether a certificate was issued since the last revocation. It may have ended. If the operator is nil,
// Had returns false.
func (o *Operator) Had(serial string) bool {
	if o == nil {
		return false
	}
	_, ok := o.Serials[serial]
	return ok
}

// IssuedSince counts the certificates that were issued after the time `then`. For a nil operator, IssuedSince
// returns 0.
func (o *Operator) IssuedSince(then time.Time) int {
	if o == nil {
		return 0
	}
	count := 0
	for _, at := range o.Issued {
		if at.After(then) {
			count++
		}
	}
	return count
}

// Good returns the end times of the certificates that are still valid.
func (o *Operator) Good(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Collect(maps.Values(o.Serials)), func(end time.Time) bool { return !now.Before(end) })
}
