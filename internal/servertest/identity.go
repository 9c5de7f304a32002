package servertest

import (
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/wire"
)

// Identity is a server.Identity without cryptography. A signature is the name of the signer.
type Identity struct {
	mu      sync.Mutex
	tokens  int
	revoked []tutti.NodeKey
}

const signedByOperator = "signed by the operator"

// Sign signs a manifest in the name of the operator.
func Sign(m tutti.CodeManifest) tutti.SignedCode {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err) // a manifest always encodes
	}
	return tutti.SignedCode{Manifest: raw, Signature: []byte(signedByOperator)}
}

// Key returns the key of the machine with that name.
func Key(machine string) tutti.NodeKey {
	sum := sha256.Sum256([]byte(machine))
	return tutti.NodeKey("U" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]) + "AAA")
}

// Box returns the key for secrets of the machine with that name.
func Box(machine string) *ecdh.PrivateKey {
	sum := sha256.Sum256([]byte("box of " + machine))
	box, err := ecdh.X25519().NewPrivateKey(sum[:])
	if err != nil {
		panic(err) // any 32 bytes are a valid key
	}
	return box
}

// SignEnrol signs a request with the key in the request.
func SignEnrol(in api.EnrolRequest) api.EnrolRequest {
	in.Signature = []byte("signed by " + string(in.Key))
	return in
}

// NewToken implements server.Identity. NewToken uses the text of a token as its secret.
func (i *Identity) NewToken(api.CreateToken) (string, tutti.TokenID, tutti.Digest, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tokens++
	id := fmt.Sprintf("token-%d", runs.Add(1))
	return "secret of " + id, tutti.TokenID(id), tutti.DigestOf([]byte("secret of " + id)), nil
}

// VerifyEnrol implements server.Identity.
func (i *Identity) VerifyEnrol(in api.EnrolRequest) (tutti.Digest, error) {
	if string(in.Signature) != "signed by "+string(in.Key) {
		return "", tutti.Errorf(tutti.CodeUnauthenticated, "not signed by key %s", in.Key)
	}
	return tutti.DigestOf(in.Secret), nil
}

// Certificate is a Puppet certificate of this fake: the CA that signed it, and what it says.
type Certificate struct {
	CA   string
	Name tutti.NodeName
	tutti.NodeCertificate
}

// Join returns the request of a machine with this certificate. Both keys have signed the request.
func Join(c Certificate, key tutti.NodeKey) api.JoinRequest {
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err) // a certificate always encodes
	}
	return api.JoinRequest{
		Certificate: string(raw), Key: key, BoxKey: seal.PublicKey(Box(string(key))),
		Signature: []byte("signed by " + string(key)), Proof: []byte("signed by " + string(c.Key)),
	}
}

// ProveJoin implements server.Identity.
func (i *Identity) ProveJoin(in api.JoinRequest) error {
	var c Certificate
	if err := json.Unmarshal([]byte(in.Certificate), &c); err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "certificate")
	}
	if string(in.Signature) != "signed by "+string(in.Key) || string(in.Proof) != "signed by "+string(c.Key) {
		return tutti.Errorf(tutti.CodeUnauthenticated, "not signed by both keys")
	}
	return nil
}

// VerifyJoin implements server.Identity. The CRL of a CA is the list of the revoked serial numbers, with spaces.
func (i *Identity) VerifyJoin(in api.JoinRequest, ca tutti.JoinCASet, now time.Time) (tutti.NodeName, tutti.NodeCertificate, error) {
	var c Certificate
	if err := json.Unmarshal([]byte(in.Certificate), &c); err != nil {
		return "", c.NodeCertificate, tutti.Wrap(tutti.CodeInvalid, err, "certificate")
	}
	var err error
	switch {
	case c.CA != ca.CA:
		err = tutti.Errorf(tutti.CodeRefused, "another CA signed the certificate")
	case slices.Contains(strings.Fields(ca.CRL), c.Serial):
		err = tutti.Errorf(tutti.CodeRefused, "the certificate is revoked")
	case now.After(c.Ends):
		err = tutti.Errorf(tutti.CodeRefused, "the certificate has ended")
	}
	return c.Name, c.NodeCertificate, err
}

// ReadJoinCA implements server.Identity.
func (i *Identity) ReadJoinCA(ca tutti.JoinCASet) (api.JoinCAView, func(tutti.NodeCertificate) bool, error) {
	view := api.JoinCAView{Server: "server:1"}
	if strings.Contains(ca.CA, "broken") {
		return view, nil, tutti.Errorf(tutti.CodeInvalid, "not a CA")
	}
	if ca.CA != "" {
		view.Subjects, view.HasCRL = []string{ca.CA}, ca.CRL != ""
		view.Ends = time.Now().Add(time.Hour)
	}
	return view, func(c tutti.NodeCertificate) bool { return slices.Contains(strings.Fields(ca.CRL), c.Serial) }, nil
}

// Enrol implements server.Identity.
func (i *Identity) Enrol(node tutti.NodeName, key tutti.NodeKey) (api.Enrolled, error) {
	return api.Enrolled{Node: node, JWT: "jwt of " + string(key)}, nil
}

// Revoke implements server.Identity.
func (i *Identity) Revoke(keys ...tutti.NodeKey) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revoked = append(i.revoked, keys...)
	return nil
}

// Revoked returns all revoked keys.
func (i *Identity) Revoked() []tutti.NodeKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.revoked)
}

// OperatorLife is the lifetime of a certificate that IssueOperator creates. OperatorLife is more
// than a day. It is short because a test may sleep until a certificate has expired, and in this
// sleep all timers of the server must run.
const OperatorLife = 26 * time.Hour

// IssueOperator implements server.Identity. IssueOperator writes the operator's name as the
// certificate. The serial number is `serial-` and a number.
func (i *Identity) IssueOperator(in api.IssueOperator) (api.IssuedOperator, error) {
	if string(in.Request) != "request" {
		return api.IssuedOperator{}, tutti.Errorf(tutti.CodeInvalid, "not a request: %q", in.Request)
	}
	return api.IssuedOperator{
		Certificate: []byte(in.Operator), CA: []byte("CA"), Serial: fmt.Sprintf("serial-%d", runs.Add(1)),
		Expires: time.Now().Add(OperatorLife).UTC(),
	}, nil
}

// FleetID is the id of the fleet.
var FleetID = tutti.DigestOf([]byte("the fleet of the tests"))

// SignAs signs a manifest in the name of the operator, with a counter.
func SignAs(m tutti.CodeManifest, counter uint64) tutti.SignedCode {
	out := Sign(m)
	st := State(tutti.StatementCode, tutti.Signed{Fleet: FleetID, Environment: m.Environment, Counter: counter, Digest: tutti.DigestOf(out.Manifest)}, "operator")
	out.Statement = &st
	return out
}

// State returns a statement with the names of its signers.
func State(kind tutti.StatementKind, body any, signers ...string) tutti.Statement {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err) // a body always encodes
	}
	out := tutti.Statement{Kind: kind, Body: raw}
	for _, who := range signers {
		out.Signatures = append(out.Signatures, tutti.Signature{Key: tutti.DigestOf([]byte(who)), Signature: []byte("signed by " + who)})
	}
	return out
}

// Fleet implements server.Signers.
func (i *Identity) Fleet() tutti.Digest { return FleetID }

// The function `trusts` returns the names of the keys that are trusted after these statements.
// Before the first statement, only the operator's key is trusted.
func trusts(said []tutti.Statement) (keys []string, counter uint64, err error) {
	keys = []string{"operator"}
	for _, st := range said {
		var body tutti.Trusted
		if err := json.Unmarshal(st.Body, &body); err != nil {
			return nil, 0, err
		}
		if st.Kind != tutti.StatementTrust || body.Counter != counter+1 || !signed(st, keys) {
			return nil, 0, tutti.Errorf(tutti.CodeRefused, "statement %d is not signed by a key that is trusted now", body.Counter)
		}
		keys, counter = body.Keys, body.Counter
	}
	return keys, counter, nil
}

func signed(st tutti.Statement, keys []string) bool {
	return slices.ContainsFunc(st.Signatures, func(s tutti.Signature) bool {
		return slices.ContainsFunc(keys, func(key string) bool { return string(s.Signature) == "signed by "+key })
	})
}

// Code implements server.Signers.
func (i *Identity) Code(trust []tutti.Statement, in tutti.SignedCode) (tutti.Signed, error) {
	if in.Statement != nil {
		return i.Said(trust, *in.Statement)
	}
	if string(in.Signature) != signedByOperator {
		return tutti.Signed{}, tutti.Errorf(tutti.CodeRefused, "the manifest is not signed by the operator")
	}
	return tutti.Signed{}, nil
}

// Compile implements server.Signers.
func (i *Identity) Compile(trust []tutti.Statement, in tutti.SignedCode) (tutti.SignedCompile, error) {
	var body tutti.SignedCompile
	keys, _, err := trusts(trust)
	if err == nil && (in.Statement == nil || in.Statement.Kind != tutti.StatementCompile || !signed(*in.Statement, keys)) {
		err = tutti.Errorf(tutti.CodeRefused, "the permission to compile is not signed by %v", keys)
	}
	if err == nil {
		err = json.Unmarshal(in.Statement.Body, &body)
	}
	if err == nil && body.Digest != tutti.DigestOf(in.Manifest) {
		err = tutti.Errorf(tutti.CodeRefused, "the permission to compile is for other code")
	}
	return body, err
}

// Said implements server.Signers.
func (i *Identity) Said(trust []tutti.Statement, in tutti.Statement) (tutti.Signed, error) {
	var body tutti.Signed
	keys, _, err := trusts(trust)
	if err == nil && in.Kind != tutti.StatementCode {
		err = tutti.Errorf(tutti.CodeRefused, "a statement of kind %q", in.Kind)
	}
	if err == nil {
		err = json.Unmarshal(in.Body, &body)
	}
	if err == nil && !signed(in, keys) {
		err = tutti.Errorf(tutti.CodeRefused, "the code is not signed by %v", keys)
	}
	return body, err
}

// Next implements server.Signers.
func (i *Identity) Next(trust []tutti.Statement, next tutti.Statement) (tutti.KeysTrusted, error) {
	keys, counter, err := trusts(append(slices.Clone(trust), next))
	out := tutti.KeysTrusted{Counter: counter, Statement: next}
	for _, key := range keys {
		out.Keys = append(out.Keys, tutti.DigestOf([]byte(key)))
	}
	return out, err
}

// Plans implements server.Signers.
func (i *Identity) Plans(trust []tutti.Statement, in tutti.Statement) (tutti.SignedPlans, error) {
	var body tutti.SignedPlans
	keys, _, err := trusts(trust)
	if err == nil {
		err = json.Unmarshal(in.Body, &body)
	}
	if err == nil && !signed(in, keys) {
		err = tutti.Errorf(tutti.CodeRefused, "the fleet file is not signed by %v", keys)
	}
	return body, err
}

// Operators implements server.Signers.
func (i *Identity) Operators(trust []tutti.Statement, in tutti.Statement) (tutti.OperatorsTrusted, error) {
	keys, _, err := trusts(trust)
	if err == nil && !signed(in, keys) {
		err = tutti.Errorf(tutti.CodeRefused, "the list is not signed by %v", keys)
	}
	var list tutti.TrustedOperators
	if err == nil {
		err = json.Unmarshal(in.Body, &list)
	}
	out := tutti.OperatorsTrusted{Counter: list.Counter, Statement: in}
	for _, o := range list.Operators {
		out.Operators = append(out.Operators, o.Operator)
	}
	return out, err
}

// Signers returns the signers as an agent sees them.
func (i *Identity) Signers() *AgentSigners { return &AgentSigners{identity: i} }

// AgentSigners is an agent.Signers without cryptography and without a disk.
type AgentSigners struct {
	identity *Identity
	mu       sync.Mutex
	followed []tutti.Statement
}

// Code implements agent.Signers.
func (s *AgentSigners) Code(in tutti.SignedCode) (tutti.Signed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.Code(s.followed, in)
}

// Compile implements agent.Signers.
func (s *AgentSigners) Compile(in tutti.SignedCode) (tutti.SignedCompile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity.Compile(s.followed, in)
}

// Follow implements agent.Signers.
func (s *AgentSigners) Follow(chain []tutti.Statement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := slices.Concat(s.followed, chain)
	if _, _, err := trusts(next); err != nil {
		return err
	}
	s.followed = next
	return nil
}

// Trusts implements agent.Signers.
func (s *AgentSigners) Trusts() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(len(s.followed))
}

// Bus is a server.Bus that records its doorbells and calls the listeners.
type Bus struct {
	mu        sync.Mutex
	rings     []Ring
	listeners map[tutti.NodeKey]func(op string, payload []byte)
}

// Listen makes the bus call f for each doorbell of a node. The function f must not block.
func (b *Bus) Listen(key tutti.NodeKey, f func(op string, payload []byte)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = map[tutti.NodeKey]func(string, []byte){}
	}
	b.listeners[key] = f
}

// Ring is one recorded doorbell.
type Ring struct {
	Key tutti.NodeKey
	Op  string
	Run tutti.RunID // the run to cancel
}

// Ring implements server.Bus.
func (b *Bus) Ring(key tutti.NodeKey, op string, payload []byte) error {
	r := Ring{Key: key, Op: op}
	if len(payload) > 0 {
		var c wire.CancelRun
		if err := json.Unmarshal(payload, &c); err != nil {
			return err
		}
		r.Run = c.Run
	}
	b.mu.Lock()
	b.rings = append(b.rings, r)
	listener := b.listeners[key]
	b.mu.Unlock()
	if listener != nil {
		listener(op, payload)
	}
	return nil
}

// Rung returns all recorded doorbells.
func (b *Bus) Rung() []Ring {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.rings)
}
