package servertest

import (
	"crypto/ecdh"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// Identity is a server.Identity without cryptography: a signature names who
// signed.
type Identity struct {
	mu      sync.Mutex
	tokens  int
	revoked []tutti.NodeKey
}

const signedByOperator = "signed by the operator"

// Sign signs a manifest as the operator.
func Sign(m tutti.CodeManifest) tutti.SignedCode {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err) // a manifest always encodes
	}
	return tutti.SignedCode{Manifest: raw, Signature: []byte(signedByOperator)}
}

// Key is the key of the machine of that name.
func Key(machine string) tutti.NodeKey {
	sum := sha256.Sum256([]byte(machine))
	return tutti.NodeKey("U" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]) + "AAA")
}

// Box is the key that secrets for the machine of that name are sealed to.
func Box(machine string) *ecdh.PrivateKey {
	sum := sha256.Sum256([]byte("box of " + machine))
	box, err := ecdh.X25519().NewPrivateKey(sum[:])
	if err != nil {
		panic(err) // any 32 bytes are a key
	}
	return box
}

// SignEnrol signs a request as its key would.
func SignEnrol(in tutti.EnrolRequest) tutti.EnrolRequest {
	in.Signature = []byte("signed by " + string(in.Key))
	return in
}

// NewToken implements server.Identity. The text of a token is its secret.
func (i *Identity) NewToken(tutti.CreateToken) (string, tutti.TokenID, tutti.Digest, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tokens++
	id := fmt.Sprintf("token-%d", runs.Add(1))
	return "secret of " + id, tutti.TokenID(id), tutti.DigestOf([]byte("secret of " + id)), nil
}

// VerifyEnrol implements server.Identity.
func (i *Identity) VerifyEnrol(in tutti.EnrolRequest) (tutti.Digest, error) {
	if string(in.Signature) != "signed by "+string(in.Key) {
		return "", tutti.Errorf(tutti.CodeUnauthenticated, "not signed by key %s", in.Key)
	}
	return tutti.DigestOf(in.Secret), nil
}

// Enrol implements server.Identity.
func (i *Identity) Enrol(node tutti.NodeName, key tutti.NodeKey) (tutti.Enrolled, error) {
	return tutti.Enrolled{Node: node, JWT: "jwt of " + string(key)}, nil
}

// Revoke implements server.Identity.
func (i *Identity) Revoke(keys ...tutti.NodeKey) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revoked = append(i.revoked, keys...)
	return nil
}

// Revoked returns what was revoked.
func (i *Identity) Revoked() []tutti.NodeKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.revoked)
}

// OperatorLife is how long a certificate is good that IssueOperator makes.
const OperatorLife = time.Hour

// IssueOperator implements server.Identity. The certificate is the name, its
// serial number `serial-` and a number.
func (i *Identity) IssueOperator(in tutti.IssueOperator) (tutti.IssuedOperator, error) {
	if string(in.Request) != "request" {
		return tutti.IssuedOperator{}, tutti.Errorf(tutti.CodeInvalid, "not a request: %q", in.Request)
	}
	return tutti.IssuedOperator{
		Certificate: []byte(in.Operator), CA: []byte("CA"), Serial: fmt.Sprintf("serial-%d", runs.Add(1)),
		Expires: time.Now().Add(OperatorLife).UTC(),
	}, nil
}

// VerifyCode implements server.Identity.
func (i *Identity) VerifyCode(in tutti.SignedCode) error {
	if string(in.Signature) != signedByOperator {
		return tutti.Errorf(tutti.CodeRefused, "the manifest is not signed by the operator")
	}
	return nil
}

// Bus is a server.Bus that keeps what was rung, and rings those who listen.
type Bus struct {
	mu        sync.Mutex
	rings     []Ring
	listeners map[tutti.NodeKey]func(op string, payload []byte)
}

// Listen has f called for each doorbell of a node. f must not block.
func (b *Bus) Listen(key tutti.NodeKey, f func(op string, payload []byte)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = map[tutti.NodeKey]func(string, []byte){}
	}
	b.listeners[key] = f
}

// Ring is a doorbell that was rung.
type Ring struct {
	Key tutti.NodeKey
	Op  string
	Run tutti.RunID // of a cancellation
}

// Ring implements server.Bus.
func (b *Bus) Ring(key tutti.NodeKey, op string, payload []byte) error {
	r := Ring{Key: key, Op: op}
	if len(payload) > 0 {
		var c tutti.CancelRun
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

// Rung returns all doorbells that were rung.
func (b *Bus) Rung() []Ring {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.rings)
}
