package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

// TestASerialIsOfItsKey checks that an attacker who stole the CA's key cannot make a certificate with a serial number
// from the log.
func TestASerialIsOfItsKey(t *testing.T) {
	a, _ := newAuthority(t)
	own := mustOperator(t, a, "ada").TLS().Certificates[0].Leaf
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// The attacker signs this certificate. Everything but the key is as in the operator's certificate.
	made := func(serial *big.Int) *tls.ConnectionState {
		template := &x509.Certificate{SerialNumber: serial, Subject: own.Subject, NotBefore: own.NotBefore, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
	}
	if _, serial, err := identity.OperatorName(&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{own}}}); err != nil || len(serial) != 39 {
		t.Errorf("ada: %q, %v", serial, err)
	}
	_, _, err = identity.OperatorName(made(own.SerialNumber))
	wantCode(t, "another key with her serial", err, tutti.CodeUnauthenticated)
	_, _, err = identity.OperatorName(made(big.NewInt(1 << 62)))
	wantCode(t, "a serial of an earlier release", err, "")
}
