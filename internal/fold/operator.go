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
	Serials map[string]time.Time // issued since the last revocation → end
	CodeKey bool
	Revoked time.Time // the last revocation; only Serials are good after it
	Reason  string
}

// Apply folds the next event of the log.
func (o Operators) Apply(e tutti.Event) {
	switch b := e.Body.(type) {
	case *tutti.OperatorIssued:
		op := o.get(b.Operator)
		op.Serials[b.Serial] = b.Expires
		op.CodeKey = op.CodeKey || b.CodeKey
	case *tutti.OperatorRevoked:
		o[b.Operator] = &Operator{Serials: map[string]time.Time{}, Revoked: e.At, Reason: b.Reason}
	case *tutti.SnapshotTaken:
		for _, name := range b.Operators {
			o.get(name)
		}
	}
}

func (o Operators) get(name string) *Operator {
	if o[name] == nil {
		o[name] = &Operator{Serials: map[string]time.Time{}}
	}
	return o[name]
}

// Admit says whether a certificate that our CA signed is good. One that is in no
// log may be of a server that was made before the log had them; after a revocation
// only those are good that are in it.
func (o Operators) Admit(name, serial string) error {
	op := o[name]
	if op == nil || op.Revoked.IsZero() {
		return nil
	}
	if _, ok := op.Serials[serial]; ok {
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

// Good returns the ends of the certificates that have not ended.
func (o *Operator) Good(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Collect(maps.Values(o.Serials)), func(end time.Time) bool { return !now.Before(end) })
}
