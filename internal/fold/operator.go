package fold

import (
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// Operators are those of whom the log knows, by name.
type Operators map[string]*Operator

// Operator is what the log says about one.
type Operator struct {
	Serials map[string]time.Time    // issued since the last revocation → end
	Issued  map[string]time.Time    // when
	CAs     map[string]tutti.Digest // that signed them; "": a server before there were two
	CA      tutti.Digest            // that signed the last one
	CodeKey bool
	Revoked time.Time // the last revocation; only Serials are good after it
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

// rotated forgets the certificates of a CA that is gone.
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

// Clone returns a copy that changes alone.
func (o *Operator) Clone() *Operator {
	own := *o
	own.Serials, own.Issued, own.CAs = maps.Clone(o.Serials), maps.Clone(o.Issued), maps.Clone(o.CAs)
	return &own
}

// Admit says whether a certificate that our CA signed is good. One that is in no
// log may be of a server that was made before the log had them; after a revocation
// only those are good that are in it, and have not ended.
func (o Operators) Admit(name, serial string, now time.Time) error {
	op := o[name]
	if op == nil || op.Revoked.IsZero() {
		return nil
	}
	if op.Knows(serial, now) {
		return nil
	}
	return tutti.Errorf(tutti.CodeUnauthenticated, "operator %s was revoked at %s%s; a new certificate comes from another operator, or on the server from root: tutti operator create %s",
		name, op.Revoked.Format(time.RFC3339), because(op.Reason), name)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// Knows reports whether a certificate was issued since the last revocation, and has not ended. Whoever has the key of one that
// has ended, and the CA, could make it last longer. Nil knows none.
func (o *Operator) Knows(serial string, now time.Time) bool {
	return o.Had(serial) && now.Before(o.Serials[serial])
}

// Had reports whether a certificate was issued since the last revocation; it may have ended. Nil had none.
func (o *Operator) Had(serial string) bool {
	if o == nil {
		return false
	}
	_, ok := o.Serials[serial]
	return ok
}

// IssuedSince counts the certificates that were issued since then. Nil has none.
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

// Good returns the ends of the certificates that have not ended.
func (o *Operator) Good(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Collect(maps.Values(o.Serials)), func(end time.Time) bool { return !now.Before(end) })
}
