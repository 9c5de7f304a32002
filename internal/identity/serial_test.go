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

// TestASerialIsOfItsKey: whoever stole the CA cannot make a certificate that is, by its serial, one that the log knows.
func TestASerialIsOfItsKey(t *testing.T) {
	a, _ := newAuthority(t)
	own := mustOperator(t, a, "ada").TLS().Certificates[0].Leaf
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// The thief's: he signs it himself, and all else is as in hers.
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
