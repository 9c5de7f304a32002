package tutti

import (
	"slices"
	"time"
)

// Statement is a signed text on which nodes and signers act (ADR 0026). Package identity signs and verifies statements.
type Statement struct {
	Kind       StatementKind `json:"kind"`
	Body       []byte        `json:"body"` // Body has the JSON bytes that were signed.
	Signatures []Signature   `json:"signatures"`
}

// Signature is one signature of a statement.
type Signature struct {
	Key       Digest `json:"key"` // the digest of the public key
	Signature []byte `json:"signature"`
}

// StatementKind is the kind of a statement's body. A release refuses kinds of later releases.
type StatementKind string

// The kinds.
const (
	StatementCode      StatementKind = "code"      // a code key signs a body of type Signed
	StatementTrust     StatementKind = "trust"     // a code key signs a body of type Trusted
	StatementPlans     StatementKind = "plans"     // a code key signs a body of type SignedPlans
	StatementOperators StatementKind = "operators" // a code key signs a body of type TrustedOperators
	StatementAction    StatementKind = "action"    // an operator's action key signs a body of type SignedAction
	StatementCompile   StatementKind = "compile"   // a code key signs a body of type SignedCompile
)

// Signed is a code key's statement about code. It names the fleet, the environment and the counter of the code. The
// zero value stands for a signature of release 0.2.0 or older, which does not contain fleet and counter.
type Signed struct {
	Fleet       Digest `json:"fleet"` // the id of the fleet
	Environment string `json:"environment"`
	// Counter counts the pushes to the environment. Each push adds one.
	Counter uint64 `json:"counter"`
	Digest  Digest `json:"digest"` // of the manifest
}

// Old reports whether there is only a signature of release 0.2.0 or older.
func (s Signed) Old() bool { return s == Signed{} }

// MaxCounter bounds a counter. The JSON of every language can represent all numbers up to MaxCounter.
const MaxCounter = 1 << 53

// MaxCounterStep bounds the difference between a counter and the last counter. A signer adds one. The bound is larger
// than one, because a server may have lost pushes. Without the bound, one signature by a thief could use up all
// counters.
const MaxCounterStep = 1 << 20

// Leaps reports whether a counter is above the last counter by more than MaxCounterStep.
func Leaps(last, next uint64) bool { return next > last && next-last > MaxCounterStep }

// Validate refuses values that no honest signer uses.
func (s Signed) Validate() error {
	if err := s.Fleet.Validate(); err != nil {
		return err
	}
	if !environmentRE.MatchString(s.Environment) || s.Counter == 0 || s.Counter > MaxCounter {
		return Errorf(CodeInvalid, "signed code: environment %q, counter %d", s.Environment, s.Counter)
	}
	return s.Digest.Validate()
}

// SignedCompile is a code key's permission to compile code up to the gate (ADR 0038). It is no permission to apply the
// code. It has no counter, because it neither follows nor replaces a push.
type SignedCompile struct {
	Fleet       Digest    `json:"fleet"`
	Environment string    `json:"environment"`
	Digest      Digest    `json:"digest"` // of the manifest
	Until       time.Time `json:"until"`  // no node begins a compile after this time
}

// MaxCompileFor is how long a permission to compile may last.
const MaxCompileFor = 24 * time.Hour

// Validate refuses values that no honest signer uses.
func (s SignedCompile) Validate() error {
	if err := s.Fleet.Validate(); err != nil {
		return err
	}
	if !environmentRE.MatchString(s.Environment) || s.Until.IsZero() {
		return Errorf(CodeInvalid, "permission to compile: environment %q, until %s", s.Environment, s.Until)
	}
	return s.Digest.Validate()
}

// At returns CodeRefused if the permission has ended, or if it lasts longer than permissions may last.
func (s SignedCompile) At(now time.Time) error {
	switch left := s.Until.Sub(now); {
	case left <= 0:
		return Errorf(CodeRefused, "the permission to compile this code has ended at %s", s.Until.UTC().Format(time.RFC3339))
	case left > MaxCompileFor:
		return Errorf(CodeRefused, "the permission to compile this code lasts until %s, longer than %s from now: is the clock right?", s.Until.UTC().Format(time.RFC3339), MaxCompileFor)
	}
	return nil
}

// SignedPlans is a code key's statement about a fleet file.
type SignedPlans struct {
	Fleet   Digest `json:"fleet"`
	Counter uint64 `json:"counter"` // each fleet file adds 1 to the counter
	Digest  Digest `json:"digest"`  // of its text
}

// Validate refuses values that no honest signer uses.
func (s SignedPlans) Validate() error {
	if err := s.Fleet.Validate(); err != nil {
		return err
	}
	if s.Counter == 0 || s.Counter > MaxCounter {
		return Errorf(CodeInvalid, "signed fleet file: counter %d", s.Counter)
	}
	return s.Digest.Validate()
}

// Trusted is a statement of code keys, and lists the code keys that sign from now on.
type Trusted struct {
	Fleet Digest `json:"fleet"`
	// Each statement of this kind adds 1 to the counter. The counter is 0 before the first statement.
	Counter uint64   `json:"counter"`
	Keys    []string `json:"keys"` // public keys, in PEM
}

// MaxTrusted is the largest number of trusted code keys at a time.
const MaxTrusted = 2

// Validate refuses values that no honest signer uses.
func (t Trusted) Validate() error {
	if err := t.Fleet.Validate(); err != nil {
		return err
	}
	if t.Counter == 0 || t.Counter > MaxCounter || len(t.Keys) == 0 || len(t.Keys) > MaxTrusted {
		return Errorf(CodeInvalid, "trust: counter %d and %d keys; the counter begins at 1, and there are 1 to %d keys", t.Counter, len(t.Keys), MaxTrusted)
	}
	if len(t.Keys) == MaxTrusted && t.Keys[0] == t.Keys[1] {
		return Errorf(CodeInvalid, "trust: the same key twice")
	}
	return nil
}

// Signing contains the earlier statements. A signer needs them to sign the next statement.
type Signing struct {
	Fleet Digest `json:"fleet"`
	// Trust lists all statements of kind StatementTrust, in order. If Trust is empty, the first code key signs.
	Trust []Statement `json:"trust,omitempty"`
	// Operators is the last statement about the operators who sign actions. If Operators is nil, nodes also do unsigned
	// actions.
	Operators *Statement `json:"operators,omitempty"`
	// Plans is the signed statement about the fleet file. Plans is nil if the operator who pushed the file has no code
	// key.
	Plans *Statement `json:"plans,omitempty"`
	// Codes lists all codes that the server may order nodes to run. The code that was pushed last is the first.
	Codes []SignedNow `json:"codes,omitempty"`
	// Gone lists the last code of each environment that was removed.
	Gone []SignedNow `json:"gone,omitempty"`
}

// SignedNow is code that the server may order nodes to run, and its statement.
type SignedNow struct {
	Environment string `json:"environment"`
	Code        Digest `json:"code"`
	Last        bool   `json:"last,omitempty"` // Last is true for the code that was pushed last.
	// Statement is nil if only release 0.2.0 or older has signed the code.
	Statement *Statement `json:"statement,omitempty"`
}

// CodeSign adds a signature to a statement about code.
type CodeSign struct {
	Code      Digest    `json:"code"`
	Statement Statement `json:"statement"`
}

// SignedBy reports whether a statement has a signature that names a key. SignedBy does not check the
// signature.
func (s Statement) SignedBy(key Digest) bool {
	return slices.ContainsFunc(s.Signatures, func(of Signature) bool { return of.Key == key })
}

// MaxSignatures bounds the signatures of a statement.
const MaxSignatures = 4
