package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tutti-project/tutti"
)

// KeyID returns the digest of a public key. Signatures use this digest to name the key.
func KeyID(key ed25519.PublicKey) tutti.Digest {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		panic(err) // an ed25519 key can be marshalled
	}
	return tutti.DigestOf(der)
}

// State makes a statement and signs it with keys.
func State(kind tutti.StatementKind, body any, keys ...ed25519.PrivateKey) (tutti.Statement, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return tutti.Statement{}, fmt.Errorf("encode a statement: %w", err)
	}
	out := tutti.Statement{Kind: kind, Body: raw}
	for _, key := range keys {
		out = CoSign(out, key)
	}
	return out, nil
}

// CoSign returns the statement with an additional signature by key.
func CoSign(in tutti.Statement, key ed25519.PrivateKey) tutti.Statement {
	out := in
	out.Signatures = append(append([]tutti.Signature{}, in.Signatures...), tutti.Signature{
		Key: KeyID(public25519(key)), Signature: ed25519.Sign(key, statementMessage(in)),
	})
	return out
}

func public25519(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// statementMessage returns the bytes to sign. The bytes contain the body and the kind, so a signature is valid only
// for both together.
func statementMessage(s tutti.Statement) []byte {
	return encodeParts("tutti-statement-1", []byte(s.Kind), s.Body)
}

// signedBy reports whether a key has signed a statement.
func signedBy(s tutti.Statement, key ed25519.PublicKey) bool {
	if len(key) != ed25519.PublicKeySize || len(s.Signatures) > tutti.MaxSignatures {
		return false
	}
	id := KeyID(key)
	for _, sig := range s.Signatures {
		if sig.Key == id && ed25519.Verify(key, statementMessage(s), sig.Signature) {
			return true
		}
	}
	return false
}

// maxStatement is the largest size of a statement's body, in bytes. The longest statements are lists of operators.
const maxStatement = 1 << 20

// The function `read` decodes the body of a statement and checks its kind. It does not check the signatures.
func read[Body interface{ Validate() error }](s tutti.Statement, kind tutti.StatementKind) (Body, error) {
	var body Body
	if s.Kind != kind {
		return body, tutti.Errorf(tutti.CodeRefused, "a statement of kind %q instead of kind %q", string(s.Kind), string(kind))
	}
	if len(s.Body) > maxStatement {
		return body, tutti.Errorf(tutti.CodeInvalid, "a statement of %d bytes, at most %d", len(s.Body), maxStatement)
	}
	for _, sig := range s.Signatures {
		if len(sig.Signature) != ed25519.SignatureSize || sig.Key.Validate() != nil {
			return body, tutti.Errorf(tutti.CodeInvalid, "statement of kind %q: a signature of %d bytes, or a signature without a key", string(kind), len(sig.Signature))
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(s.Body))
	// a statement with an unknown field is refused, because its meaning is not fully known
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return body, tutti.Wrap(tutti.CodeInvalid, err, "statement of kind %q", string(kind))
	}
	return body, tutti.Wrap(tutti.CodeInvalid, body.Validate(), "statement of kind %q", string(kind))
}

// Trust is the set of code keys whose signatures a node accepts. A Trust never changes. The method
// Follow returns a new Trust.
type Trust struct {
	Fleet   tutti.Digest
	Counter uint64 // number of the last accepted statement. 0 means that there is none
	Keys    []ed25519.PublicKey
}

// NewTrust returns a Trust with the key in a PEM text. If the statement `last` is not nil, NewTrust
// returns a Trust with the keys in this statement. NewTrust does not check the signatures of this
// statement. A node that joins has no key for this check, so it must believe the server.
func NewTrust(fleet tutti.Digest, key string, last *tutti.Statement) (Trust, error) {
	t := Trust{Fleet: fleet}
	first, err := ParseCodePublicKey(key)
	if err != nil {
		return t, err
	}
	t.Keys = []ed25519.PublicKey{first}
	if last == nil {
		return t, nil
	}
	next, err := t.read(*last)
	if err != nil {
		return t, err
	}
	if err := next.proven(*last, nil); err != nil {
		return t, err
	}
	return next, nil
}

// The method `read` returns the Trust that a statement defines.
func (t Trust) read(in tutti.Statement) (Trust, error) {
	body, err := read[tutti.Trusted](in, tutti.StatementTrust)
	if err != nil {
		return t, err
	}
	if body.Fleet != t.Fleet {
		return t, tutti.Errorf(tutti.CodeRefused, "which code keys to trust: signed for the fleet %.19s, but this fleet is %.19s", body.Fleet, t.Fleet)
	}
	next := Trust{Fleet: t.Fleet, Counter: body.Counter}
	for _, text := range body.Keys {
		key, err := ParseCodePublicKey(text)
		if err != nil {
			return t, err
		}
		next.Keys = append(next.Keys, key)
	}
	return next, nil
}

// Has reports whether t contains a key.
func (t Trust) Has(key ed25519.PublicKey) bool {
	for _, k := range t.Keys {
		if k.Equal(key) {
			return true
		}
	}
	return false
}

// The method `proven` returns CodeRefused if a new key has not signed the statement. A key is new if
// it is not in the argument `before`.
func (t Trust) proven(in tutti.Statement, before []ed25519.PublicKey) error {
	for _, key := range t.Keys {
		if !(Trust{Keys: before}).Has(key) && !signedBy(in, key) {
			return tutti.Errorf(tutti.CodeRefused, "which code keys to trust: the new key %.19s has not signed the statement", KeyID(key))
		}
	}
	return nil
}

// Follow returns the Trust that is valid after a statement. If the statement's counter is not above t.Counter, Follow
// returns t unchanged. Follow returns CodeRefused if no trusted key signed the statement.
func (t Trust) Follow(in tutti.Statement) (Trust, error) {
	next, err := t.read(in)
	if err != nil || next.Counter <= t.Counter {
		return t, err
	}
	if next.Counter != t.Counter+1 {
		return t, tutti.Errorf(tutti.CodeRefused, "which code keys to trust: statement %d does not follow statement %d", next.Counter, t.Counter)
	}
	if !t.signed(in) {
		return t, tutti.Errorf(tutti.CodeRefused, "which code keys to trust: statement %d is not signed by a key that is trusted now", next.Counter)
	}
	if err := next.proven(in, t.Keys); err != nil {
		return t, err
	}
	return next, nil
}

func (t Trust) signed(in tutti.Statement) bool {
	for _, key := range t.Keys {
		if signedBy(in, key) {
			return true
		}
	}
	return false
}

// Code checks the statement about a manifest and returns the statement's body. Code returns the zero Signed if the
// code has only a signature in the form of earlier releases. Code returns CodeRefused if no trusted key signed the
// statement, or if the statement is for another fleet or other code.
func (t Trust) Code(in tutti.SignedCode) (tutti.Signed, error) {
	var m tutti.CodeManifest
	if err := json.Unmarshal(in.Manifest, &m); err != nil {
		return tutti.Signed{}, tutti.Wrap(tutti.CodeInvalid, err, "manifest")
	}
	if err := m.Validate(); err != nil {
		return tutti.Signed{}, err
	}
	if in.Statement == nil {
		var err error
		for _, key := range t.Keys {
			if err = VerifyManifest(key, m.Environment, in.Manifest, in.Signature); err == nil {
				break
			}
		}
		return tutti.Signed{}, err
	}
	said, err := t.Said(*in.Statement)
	switch {
	case err != nil:
		return tutti.Signed{}, err
	case said.Environment != m.Environment:
		return tutti.Signed{}, tutti.Errorf(tutti.CodeRefused, "code of environment %q was signed for environment %q", m.Environment, said.Environment)
	case said.Digest != tutti.DigestOf(in.Manifest):
		return tutti.Signed{}, tutti.Errorf(tutti.CodeRefused, "the signature is for other code: %.19s", said.Digest)
	}
	return said, nil
}

// Compile checks a permission to compile code. Compile returns CodeRefused if no trusted key signed the statement, or if
// the statement is for another fleet or other code. The caller checks the time.
func (t Trust) Compile(in tutti.SignedCode) (tutti.SignedCompile, error) {
	refused := func(format string, args ...any) (tutti.SignedCompile, error) {
		return tutti.SignedCompile{}, tutti.Errorf(tutti.CodeRefused, format, args...)
	}
	if in.Statement == nil {
		return refused("nobody has signed a permission to compile this code")
	}
	said, err := read[tutti.SignedCompile](*in.Statement, tutti.StatementCompile)
	if err != nil {
		return said, err
	}
	var m tutti.CodeManifest
	if err := json.Unmarshal(in.Manifest, &m); err != nil {
		return tutti.SignedCompile{}, tutti.Wrap(tutti.CodeInvalid, err, "manifest")
	}
	if err := m.Validate(); err != nil {
		return tutti.SignedCompile{}, err
	}
	switch {
	case !t.signed(*in.Statement):
		return refused("permission to compile: not signed with a key of this fleet's operators")
	case said.Fleet != t.Fleet:
		return refused("permission to compile: signed for the fleet %.19s, but this fleet is %.19s", said.Fleet, t.Fleet)
	case said.Environment != m.Environment:
		return refused("permission to compile: code of environment %q was signed for environment %q", m.Environment, said.Environment)
	case said.Digest != tutti.DigestOf(in.Manifest):
		return refused("permission to compile: signed for other code: %.19s", said.Digest)
	}
	return said, nil
}

// Said checks a statement about code. Said returns the statement's body.
func (t Trust) Said(in tutti.Statement) (tutti.Signed, error) {
	said, err := read[tutti.Signed](in, tutti.StatementCode)
	switch {
	case err != nil:
		return tutti.Signed{}, err
	case !t.signed(in):
		return tutti.Signed{}, tutti.Errorf(tutti.CodeRefused, "code of environment %q: not signed with a key of this fleet's operators", said.Environment)
	case said.Fleet != t.Fleet:
		return tutti.Signed{}, tutti.Errorf(tutti.CodeRefused, "code of environment %q was signed for the fleet %.19s, but this fleet is %.19s", said.Environment, said.Fleet, t.Fleet)
	}
	return said, nil
}

// Chain returns all statements about code keys in order, and the keys that are trusted after the last of them. The
// caller has stored and checked the statements in `kept`. The statements in `shown` come from the server. A statement
// that is only in `shown` is new. Each new statement must be signed by a key that the previous statement trusts. The
// last statement must also be signed by a key in `own`. Without this rule, the owner of an old key could continue the
// chain from an old statement. If there is no statement, the Counter of the returned Trust is zero. Chain returns
// CodeRefused if a signature is missing, or if `shown` differs from `kept`.
func Chain(fleet tutti.Digest, kept, shown []tutti.Statement, own ...ed25519.PublicKey) (Trust, []tutti.Statement, error) {
	refused := func(format string, args ...any) (Trust, []tutti.Statement, error) {
		return Trust{}, nil, tutti.Errorf(tutti.CodeRefused, "which code keys to trust: "+format, args...)
	}
	for i := range min(len(kept), len(shown)) {
		if kept[i].Kind != shown[i].Kind || !bytes.Equal(kept[i].Body, shown[i].Body) {
			return refused("statement %d differs from the one that was seen before", i+1)
		}
	}
	out := Trust{Fleet: fleet}
	all := append(slices.Clone(kept), shown[min(len(kept), len(shown)):]...)
	for i, st := range all {
		next, err := out.read(st)
		switch {
		case err != nil || i < len(kept):
		case i == 0:
			err = next.proven(st, nil)
		default:
			next, err = out.Follow(st)
		}
		if err != nil {
			return Trust{}, nil, err
		}
		if next.Counter != uint64(i)+1 {
			return refused("statement %d is where statement %d should be", next.Counter, i+1)
		}
		out = next
	}
	if n := len(all); n > len(kept) && !(Trust{Keys: own}).signed(all[n-1]) {
		return refused("statement %d, the last one, is not signed by a code key in this directory: the key in this directory was rotated, or someone continues with a rotated key", n)
	}
	return out, all, nil
}

// Last returns the keys that the last statement trusts. Last returns false if there is no statement. Last does not
// check the signatures.
func Last(fleet tutti.Digest, chain []tutti.Statement) (Trust, bool, error) {
	if len(chain) == 0 {
		return Trust{Fleet: fleet}, false, nil
	}
	t, err := Trust{Fleet: fleet}.read(chain[len(chain)-1])
	return t, err == nil, err
}

// SignCode signs a statement about code with all keys. With the first key, SignCode also signs the
// manifest itself, because agents up to release 0.2.0 read only this signature.
func SignCode(said tutti.Signed, manifest []byte, keys ...ed25519.PrivateKey) (tutti.SignedCode, error) {
	said.Digest = tutti.DigestOf(manifest)
	st, err := State(tutti.StatementCode, said, keys...)
	if err != nil {
		return tutti.SignedCode{}, err
	}
	return tutti.SignedCode{Manifest: manifest, Signature: SignManifest(keys[0], said.Environment, manifest), Statement: &st}, nil
}

// Plans checks the statement about a fleet file and returns its body.
func (t Trust) Plans(in tutti.Statement) (tutti.SignedPlans, error) {
	said, err := read[tutti.SignedPlans](in, tutti.StatementPlans)
	switch {
	case err != nil:
		return said, err
	case !t.signed(in):
		return said, tutti.Errorf(tutti.CodeRefused, "fleet file: not signed with a key of this fleet's operators")
	case said.Fleet != t.Fleet:
		return said, tutti.Errorf(tutti.CodeRefused, "fleet file: signed for the fleet %.19s, but this fleet is %.19s", said.Fleet, t.Fleet)
	}
	return said, nil
}
