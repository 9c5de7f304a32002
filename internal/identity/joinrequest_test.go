package identity_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

var aBinding = bytes.Repeat([]byte{7}, 32)

// newJoinRequest returns a request without signatures, and the seed of its key.
func newJoinRequest(t *testing.T, cert string) (identity.JoinRequest, []byte) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	must(t, err)
	key, err := pair.PublicKey()
	must(t, err)
	seed, err := pair.Seed()
	must(t, err)
	return identity.JoinRequest{Certificate: cert, Key: tutti.NodeKey(key), BoxKey: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{9}, 32))}, seed
}

func pkcs8(t *testing.T, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return puppetPEM("PRIVATE KEY", der)
}

func certOf(t *testing.T, key crypto.Signer) string {
	t.Helper()
	return puppetPEM("CERTIFICATE", issue(t, nil, "web", key, nil).Raw)
}

func newRSAKey(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	must(t, err)
	return key
}

func newCurveKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	must(t, err)
	return key
}

func TestJoinRequestKinds(t *testing.T) {
	rsaKey, ecKey := newRSAKey(t, 2048), newECKey(t)
	sec1, err := x509.MarshalECPrivateKey(ecKey)
	must(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	p224, p384, p521 := newCurveKey(t, elliptic.P224()), newCurveKey(t, elliptic.P384()), newCurveKey(t, elliptic.P521())
	weak := newRSAKey(t, 1024)
	encrypted := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte("x"), Headers: map[string]string{
		"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00",
	}}))
	for _, c := range []struct {
		reason string
		key    crypto.Signer
		pem    string
		code   tutti.Code
		text   string
	}{
		{"RSA, PKCS#1", rsaKey, puppetPEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), "", ""},
		{"RSA, PKCS#8", rsaKey, pkcs8(t, rsaKey), "", ""},
		{"P-256, SEC 1", ecKey, puppetPEM("EC PRIVATE KEY", sec1), "", ""},
		{"P-256, SEC 1 with parameters", ecKey, puppetPEM("EC PARAMETERS", []byte("x")) + puppetPEM("EC PRIVATE KEY", sec1), "", ""},
		{"P-384", p384, pkcs8(t, p384), "", ""},
		{"P-521", p521, pkcs8(t, p521), "", ""},
		{"Ed25519", edKey, pkcs8(t, edKey), "", ""},
		{"P-224", p224, pkcs8(t, p224), tutti.CodeRefused, "curve P-224"},
		{"weak RSA", weak, pkcs8(t, weak), tutti.CodeRefused, "1024 bits"},
		{"encrypted, PKCS#1", rsaKey, encrypted, tutti.CodeInvalid, "encrypted with a passphrase"},
		{"encrypted, PKCS#8", rsaKey, puppetPEM("ENCRYPTED PRIVATE KEY", []byte("x")), tutti.CodeInvalid, "encrypted with a passphrase"},
		{"a certificate", rsaKey, certOf(t, ecKey), tutti.CodeInvalid, "\"CERTIFICATE\" is not a private key"},
		{"nothing", rsaKey, "", tutti.CodeInvalid, "no private key in PEM form"},
		{"no key in the block", rsaKey, puppetPEM("PRIVATE KEY", []byte("x")), tutti.CodeInvalid, "private key of the Puppet certificate"},
	} {
		r, seed := newJoinRequest(t, certOf(t, c.key))
		err := r.Sign(aBinding, seed, []byte(c.pem))
		wantError(t, c.reason, err, c.code, c.text)
		if err == nil {
			wantCode(t, c.reason+": verify", r.Verify(aBinding), "")
		}
	}
	r, _ := newJoinRequest(t, certOf(t, ecKey))
	wantError(t, "no seed", r.Sign(aBinding, []byte("x"), []byte(pkcs8(t, ecKey))), tutti.CodeInvalid, "sign the request to join")
}

func TestJoinRequestVerify(t *testing.T) {
	key, other := newECKey(t), newECKey(t)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	cert := certOf(t, key)
	good, seed := newJoinRequest(t, cert)
	must(t, good.Sign(aBinding, seed, []byte(pkcs8(t, key))))
	foreign, _ := newJoinRequest(t, cert)
	// sign makes both signatures again after the change, with the key of another certificate.
	sign := func(puppetKey any, cert string) func(*identity.JoinRequest) {
		return func(r *identity.JoinRequest) {
			r.Certificate = cert
			must(t, r.Sign(aBinding, seed, []byte(pkcs8(t, puppetKey))))
		}
	}
	const unauthenticated, invalid = tutti.CodeUnauthenticated, tutti.CodeInvalid
	for _, c := range []struct {
		reason string
		change func(*identity.JoinRequest)
		code   tutti.Code
		text   string
	}{
		{"unchanged", func(*identity.JoinRequest) {}, "", ""},
		{"the proof of another key", sign(other, cert), unauthenticated, "private key of the Puppet certificate of \"web\" did not sign"},
		{"the proof of another kind of key", sign(edKey, cert), unauthenticated, "did not sign"},
		{"a weak certificate", sign(key, certOf(t, newRSAKey(t, 1024))), tutti.CodeRefused, "1024 bits"},
		{"another certificate of the same key", func(r *identity.JoinRequest) { r.Certificate = certOf(t, key) }, unauthenticated, "not signed by key"},
		{"another key", func(r *identity.JoinRequest) { r.Key = foreign.Key }, unauthenticated, "not signed by key"},
		{"another box key", func(r *identity.JoinRequest) {
			r.BoxKey = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32))
		}, unauthenticated, "not signed by key"},
		{"no box key", func(r *identity.JoinRequest) { r.BoxKey = "" }, invalid, "box key is not an X25519 key"},
		{"no key", func(r *identity.JoinRequest) { r.Key = "" }, invalid, "not a public nkey"},
		{"no signature", func(r *identity.JoinRequest) { r.Signature = nil }, unauthenticated, "not signed by key"},
		{"no proof", func(r *identity.JoinRequest) { r.Proof = nil }, unauthenticated, "did not sign"},
		{"no certificate", func(r *identity.JoinRequest) { r.Certificate = "" }, invalid, "0 certificates"},
		{"a private key", func(r *identity.JoinRequest) { r.Certificate = pkcs8(t, key) }, invalid, "contains a private key"},
	} {
		r := good
		c.change(&r)
		wantError(t, c.reason, r.Verify(aBinding), c.code, c.text)
	}
	wantError(t, "another connection", good.Verify(bytes.Repeat([]byte{8}, 32)), unauthenticated, "not signed by key")
	wantError(t, "no connection", good.Verify(nil), invalid, "0 bytes, want 32")
	wantError(t, "sign without a connection", good.Sign(nil, seed, []byte(pkcs8(t, key))), invalid, "0 bytes, want 32")
	// The node's key alone signs for another connection, with the proof of this one.
	moved := good
	must(t, moved.Sign(bytes.Repeat([]byte{8}, 32), seed, []byte(pkcs8(t, key))))
	moved.Proof = good.Proof
	wantError(t, "the proof of another connection", moved.Verify(bytes.Repeat([]byte{8}, 32)), unauthenticated, "did not sign")
}

// connect returns the states of both ends of a TLS connection.
func connect(t *testing.T, server, client *tls.Config) (a, b tls.ConnectionState) {
	t.Helper()
	one, two := net.Pipe()
	s, c := tls.Server(one, server), tls.Client(two, client)
	done := make(chan error, 1)
	go func() { done <- s.HandshakeContext(t.Context()) }()
	errClient := c.HandshakeContext(t.Context())
	read := make(chan struct{})
	go func() { // takes the session ticket of the server
		defer close(read)
		_, _ = c.Read(make([]byte, 1))
	}()
	must(t, <-done)
	must(t, errClient)
	a, b = s.ConnectionState(), c.ConnectionState()
	_ = one.Close()
	_ = two.Close()
	<-read
	return a, b
}

func TestJoinBinding(t *testing.T) {
	a, _ := newAuthority(t)
	client := mustClient(t, a)
	client.ServerName = "localhost"
	server, node := connect(t, a.HTTPS(), client)
	_, next := connect(t, a.HTTPS(), client)
	want, err := identity.Binding(&server)
	must(t, err)
	got, err := identity.Binding(&node)
	must(t, err)
	third, err := identity.Binding(&next)
	must(t, err)
	if !bytes.Equal(want, got) || len(got) != 32 || bytes.Equal(got, third) {
		t.Errorf("server %x, node %x, another connection %x", want, got, third)
	}
	old, oldClient := a.Bus(), client.Clone()
	old.MinVersion, old.MaxVersion, oldClient.MinVersion = tls.VersionTLS12, tls.VersionTLS12, tls.VersionTLS12
	early, _ := connect(t, old, oldClient)
	for reason, state := range map[string]*tls.ConnectionState{"TLS 1.2": &early, "no TLS": nil, "no handshake": {Version: tls.VersionTLS13}} {
		_, err := identity.Binding(state)
		wantError(t, reason, err, tutti.CodeInvalid, "TLS 1.3")
	}
}
