package tutti

import "slices"

// Statement is what somebody has signed so that others act on it (ADR 0026). Package identity signs and
// verifies it.
type Statement struct {
	Kind       StatementKind `json:"kind"`
	Body       []byte        `json:"body"` // JSON, as it was signed
	Signatures []Signature   `json:"signatures"`
}

// Signature is one of a statement.
type Signature struct {
	Key       Digest `json:"key"` // of the public key
	Signature []byte `json:"signature"`
}

// StatementKind says what the body of a statement is. One of a later release is refused.
type StatementKind string

// The kinds.
const (
	StatementCode      StatementKind = "code"      // Signed, by a code key
	StatementTrust     StatementKind = "trust"     // Trusted, by a code key
	StatementPlans     StatementKind = "plans"     // SignedPlans, by a code key
	StatementOperators StatementKind = "operators" // TrustedOperators, by a code key
	StatementAction    StatementKind = "action"    // SignedAction, by an operator's action key
)

// Signed is what a code key says of code: where it runs, and after what. Its zero value stands for a
// signature of release 0.2.0 or before, which says nothing of fleet and counter.
type Signed struct {
	Fleet       Digest `json:"fleet"` // the id of the fleet
	Environment string `json:"environment"`
	// Counter of the environment: one more with each push.
	Counter uint64 `json:"counter"`
	Digest  Digest `json:"digest"` // of the manifest
}

// Old reports whether nothing but a signature of release 0.2.0 or before is there.
func (s Signed) Old() bool { return s == Signed{} }

// MaxCounter bounds a counter, so that there is always a next one that JSON of any language can hold.
const MaxCounter = 1 << 53

// MaxCounterStep bounds by how much a counter may be above the last one. A signer takes the next one, so the room is for
// pushes that a server has lost. Without the bound, one signature by a thief would use up all counters.
const MaxCounterStep = 1 << 20

// Leaps reports whether a counter is farther above the last one than signers go.
func Leaps(last, next uint64) bool { return next > last && next-last > MaxCounterStep }

// Validate refuses what no signer means.
func (s Signed) Validate() error {
	if err := s.Fleet.Validate(); err != nil {
		return err
	}
	if !environmentRE.MatchString(s.Environment) || s.Counter == 0 || s.Counter > MaxCounter {
		return Errorf(CodeInvalid, "signed code: environment %q, counter %d", s.Environment, s.Counter)
	}
	return s.Digest.Validate()
}

// SignedPlans is what a code key says of a fleet file.
type SignedPlans struct {
	Fleet   Digest `json:"fleet"`
	Counter uint64 `json:"counter"` // one more with each fleet file
	Digest  Digest `json:"digest"`  // of its text
}

// Validate refuses what no signer means.
func (s SignedPlans) Validate() error {
	if err := s.Fleet.Validate(); err != nil {
		return err
	}
	if s.Counter == 0 || s.Counter > MaxCounter {
		return Errorf(CodeInvalid, "signed fleet file: counter %d", s.Counter)
	}
	return s.Digest.Validate()
}

// Trusted is what code keys say of themselves: which of them sign from now on.
type Trusted struct {
	Fleet   Digest   `json:"fleet"`
	Counter uint64   `json:"counter"` // one more with each such statement; before the first one: 0
	Keys    []string `json:"keys"`    // public keys, in PEM
}

// MaxTrusted is how many code keys are trusted at a time.
const MaxTrusted = 2

// Validate refuses what no signer means.
func (t Trusted) Validate() error {
	if err := t.Fleet.Validate(); err != nil {
		return err
	}
	if t.Counter == 0 || t.Counter > MaxCounter || len(t.Keys) == 0 || len(t.Keys) > MaxTrusted {
		return Errorf(CodeInvalid, "trust: counter %d and %d keys, at most %d", t.Counter, len(t.Keys), MaxTrusted)
	}
	if len(t.Keys) == MaxTrusted && t.Keys[0] == t.Keys[1] {
		return Errorf(CodeInvalid, "trust: the same key twice")
	}
	return nil
}

// Signing is what a signer has to know: what was signed before it.
type Signing struct {
	Fleet Digest `json:"fleet"`
	// Trust are all statements of that kind, in order. None: the first code key signs.
	Trust []Statement `json:"trust,omitempty"`
	// Operators is the last statement of who signs actions. Nil: nodes do what the server says.
	Operators *Statement `json:"operators,omitempty"`
	// Plans is what was signed of the fleet file. Nil: whoever pushed it has no code key.
	Plans *Statement `json:"plans,omitempty"`
	// Codes are all codes that nodes may be told to run, those that were pushed last first.
	Codes []SignedNow `json:"codes,omitempty"`
}

// SignedNow is code that nodes may be told to run, and what was signed of it.
type SignedNow struct {
	Environment string `json:"environment"`
	Code        Digest `json:"code"`
	Last        bool   `json:"last,omitempty"` // it is what was pushed last
	// Statement is nil where only a release of before has signed.
	Statement *Statement `json:"statement,omitempty"`
}

// CodeSign brings one more signature of a statement of code.
type CodeSign struct {
	Code      Digest    `json:"code"`
	Statement Statement `json:"statement"`
}

// SignedBy reports whether a statement has a signature that says to be of a key. Whether it is good is
// another question.
func (s Statement) SignedBy(key Digest) bool {
	return slices.ContainsFunc(s.Signatures, func(of Signature) bool { return of.Key == key })
}

// MaxSignatures bounds the signatures of a statement.
const MaxSignatures = 4
