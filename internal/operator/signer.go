package operator

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/identity"
)

// CountersFile is a file in an operator's directory. For each environment, CountersFile contains the
// highest counter that the operator has signed with the keys of this directory.
const CountersFile = "signed.json"

// Signer signs code for an operator. It contains the operator's code keys and all statements about code
// keys up to now.
type Signer struct {
	dir   string
	fleet tutti.Digest
	own   ed25519.PrivateKey
	next  ed25519.PrivateKey   // the key that replaces `own`; nil if this operator has begun no rotation
	keys  []ed25519.PrivateKey // of the keys `own` and `next`, those that nodes trust now; the oldest first
	now   identity.Trust       // the keys that the last verified statement trusts; empty if there are no statements
	Known identity.Trust       // keys to check signatures with: those in `now`, or `own` if there are no statements
	chain []tutti.Statement    // all statements about code keys, verified
	Said  tutti.Signing
	old   bool // the server is of a release without statements
	Again bool // sign code again even if the server has it with a valid signature
}

// NewSigner reads the operator's directory, and the statements that the server has.
func NewSigner(ctx context.Context, server api.Signings, dir string) (*Signer, error) {
	bundle, err := identity.LoadOperator(dir)
	if err != nil {
		return nil, err
	}
	if bundle.CodeKey == nil {
		return nil, tutti.Errorf(tutti.CodeRefused, "operator %s has no code-signing key in %s", bundle.Name, dir)
	}
	s := &Signer{dir: dir}
	if s.fleet, err = identity.KeepFleet(dir, bundle.Pin()); err != nil {
		return nil, err
	}
	s.Said, err = server.Signing(ctx)
	if tutti.CodeOf(err) == tutti.CodeNotFound { // a server of release 0.2.0 or earlier
		s.Said, s.old, err = tutti.Signing{Fleet: s.fleet}, true, nil
	}
	if err != nil {
		return nil, err
	}
	if s.Said.Fleet != s.fleet {
		return nil, tutti.Errorf(tutti.CodeRefused, "%s belongs to the fleet %.19s, but the server belongs to the fleet %.19s: nothing is signed for another fleet", dir, s.fleet, s.Said.Fleet)
	}
	next, err := identity.NextCodeKey(dir)
	if err != nil {
		return nil, err
	}
	s.own, s.next = bundle.CodeKey, next
	if err := s.follow(); err != nil {
		return nil, err
	}
	if s.now.Counter == 0 || s.now.Has(PublicOf(s.own)) {
		s.keys = append(s.keys, s.own)
	}
	if next != nil && s.now.Has(PublicOf(next)) {
		s.keys = append(s.keys, next)
	}
	return s, nil
}

// The method `follow` determines which code keys nodes trust now. The method checks the statements that
// the server shows. Without the check, a server could bring back a rotated key, or drop the new key.
func (s *Signer) follow() error {
	kept, err := readTrust(s.dir)
	if err != nil {
		return err
	}
	own := []ed25519.PublicKey{PublicOf(s.own)}
	if s.next != nil {
		own = append(own, PublicOf(s.next))
	}
	if s.now, s.chain, err = identity.Chain(s.fleet, kept, s.Said.Trust, own...); err != nil {
		return tutti.Wrap("", err, "the server's statements about code keys do not follow from those in %s, so nothing is signed; if another operator has rotated the key, get code.key and %s from them", s.dir, TrustFile)
	}
	s.Known = identity.Trust{Fleet: s.fleet, Keys: s.now.Keys}
	if s.now.Counter == 0 {
		s.Known.Keys = own[:1]
	}
	if len(s.chain) > len(kept) {
		return writeTrust(s.dir, s.chain)
	}
	return nil
}

// PublicOf returns the public half of a key.
func PublicOf(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// maySign returns an error if the operator has no key that nodes trust.
func (s *Signer) maySign() error {
	if len(s.keys) > 0 {
		return nil
	}
	return tutti.Errorf(tutti.CodeRefused, "the code-signing key in %s was rotated, and nodes no longer trust it; get the new code.key from the operator who rotated it", s.dir)
}

// Code signs a manifest of an environment. If the manifest is the last signed code of the environment,
// Code keeps the statement with its counter.
func (s *Signer) Code(environment string, manifest []byte) (tutti.SignedCode, error) {
	if err := s.maySign(); err != nil {
		return tutti.SignedCode{}, err
	}
	digest, highest := tutti.DigestOf(manifest), uint64(0)
	for _, c := range append(slices.Clone(s.Said.Codes), s.Said.Gone...) {
		if c.Environment != environment || c.Statement == nil {
			continue
		}
		said, err := s.Known.Said(*c.Statement)
		if err != nil || said.Environment != environment {
			continue // use only a counter with a valid signature, because a server may show any counter
		}
		if c.Last && said.Digest == digest && s.stillSigned(*c.Statement) && !s.Again {
			return tutti.SignedCode{Manifest: manifest, Signature: identity.SignManifest(s.keys[0], environment, manifest), Statement: c.Statement}, nil
		}
		highest = max(highest, said.Counter)
	}
	counter, err := s.count(environment, highest)
	if err != nil {
		return tutti.SignedCode{}, err
	}
	return identity.SignCode(tutti.Signed{Fleet: s.fleet, Environment: environment, Counter: counter}, manifest, s.keys...)
}

// Compile signs a permission to compile code of an environment up to the gate, until a time (ADR 0038). The permission needs
// no counter, because no node applies the code by it.
func (s *Signer) Compile(environment string, manifest []byte, until time.Time) (tutti.SignedCode, error) {
	if err := s.maySign(); err != nil {
		return tutti.SignedCode{}, err
	}
	if s.old {
		return tutti.SignedCode{}, tutti.Errorf(tutti.CodeConflict, "the server is too old to compare code: upgrade it")
	}
	said := tutti.SignedCompile{Fleet: s.fleet, Environment: environment, Digest: tutti.DigestOf(manifest), Until: until.UTC().Truncate(time.Second)}
	st, err := identity.State(tutti.StatementCompile, said, s.keys...)
	return tutti.SignedCode{Manifest: manifest, Statement: &st}, err
}

// plansCounter is the name of the counter of fleet files in CountersFile. No environment can have this name.
const plansCounter = "fleet file"

// plans signs the text of a fleet file. If the server already has the same text, plans does not
// sign it again.
func (s *Signer) plans(source []byte) (*tutti.Statement, error) {
	if err := s.maySign(); err != nil {
		return nil, err
	}
	said, shown := tutti.SignedPlans{}, s.Said.Plans
	if shown != nil {
		var err error
		if said, err = s.Known.Plans(*shown); err != nil {
			said = tutti.SignedPlans{} // without a valid signature, a server may show any counter
		}
	}
	digest := tutti.DigestOf(source)
	if said.Digest == digest && s.stillSigned(*shown) {
		return shown, nil
	}
	counter, err := s.count(plansCounter, said.Counter)
	if err != nil {
		return nil, err
	}
	st, err := identity.State(tutti.StatementPlans, tutti.SignedPlans{Fleet: s.fleet, Counter: counter, Digest: digest}, s.keys...)
	return &st, err
}

// SignFleet signs a fleet file if the operator's directory has a code-signing key and the server knows statements.
func SignFleet(ctx context.Context, server cli.Server, c cli.Connection, source []byte) (*tutti.Statement, error) {
	if bundle, err := identity.LoadOperator(c.OperatorDir); err != nil || bundle.CodeKey == nil {
		return nil, nil //nolint:nilerr // the server decides who may push
	}
	s, err := NewSigner(ctx, server, c.OperatorDir)
	if err != nil || s.old {
		return nil, err
	}
	return s.plans(source)
}

// stillSigned reports whether a key that nodes trust now has signed the statement. If only an earlier
// key has signed it, stillSigned returns false.
func (s *Signer) stillSigned(st tutti.Statement) bool {
	return len(s.now.Keys) == 0 || slices.ContainsFunc(s.now.Keys, func(key ed25519.PublicKey) bool { return st.SignedBy(identity.KeyID(key)) })
}

// The method `count` returns the next counter of an environment. The counter is higher than `shown` and higher than the
// environment's counter in CountersFile. count stores the new counter in CountersFile.
func (s *Signer) count(environment string, shown uint64) (uint64, error) {
	file := filepath.Join(s.dir, CountersFile)
	signed := map[string]uint64{}
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &signed)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, tutti.Wrap(tutti.CodeDamaged, err, "%s is damaged, so it is unknown which counters were signed here; if the server shows the highest counters, remove this file", file)
	}
	if last, remembered := signed[environment]; remembered && tutti.Leaps(last, shown) {
		return 0, tutti.Errorf(tutti.CodeRefused, "the server shows %s with the counter %d, but the last counter that was signed in %s is %d: nobody pushes that often; if this was not you, rotate the key (tutti rotate code-key); if it was you, set the number in %s", environment, shown, s.dir, last, file)
	}
	next := max(signed[environment], shown) + 1
	if next > tutti.MaxCounter {
		return 0, tutti.Errorf(tutti.CodeConflict, "environment %s has no counter left: give it another name", environment)
	}
	signed[environment] = next
	if raw, err = json.Marshal(signed); err != nil {
		return 0, err
	}
	return next, durable.WriteFile(file, append(raw, '\n'), 0o600)
}
