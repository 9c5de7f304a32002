package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

const (
	caLife       = 10 * 365 * 24 * time.Hour
	serverLife   = 2 * 365 * 24 * time.Hour
	serverRenew  = serverLife / 4 // renewed when less than this time is left
	operatorLife = 365 * 24 * time.Hour
	nodeLife     = 180 * 24 * time.Hour
	// clockSkew allows a node to join although its clock is slow.
	clockSkew = 24 * time.Hour
)

// The variable `begin` is the time from which the certificates of the CA and of the server are valid. It is a fixed
// time in the past. If the certificates were valid from the time of their issue, a server whose clock is ahead would
// issue a certificate that begins in the future. After somebody corrects the clock, this certificate would not be
// valid yet.
var begin = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// keyPair is a certificate and its key.
type keyPair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA() (*keyPair, error) {
	return sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "tutti CA"},
		NotBefore:             begin,
		NotAfter:              time.Now().Add(caLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil, nil)
}

func serverTemplate(hosts []string) *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "tutti server"},
		NotBefore:   begin,
		NotAfter:    time.Now().Add(serverLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	all := append([]string{"localhost", "127.0.0.1", "::1"}, hosts...)
	slices.Sort(all)
	for _, host := range slices.Compact(all) {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return t
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// The function `sign` makes a key and its certificate. If there is no parent, the certificate is
// self-signed.
func sign(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*keyPair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	cert, err := certify(template, &key.PublicKey, parent, parentKey)
	return &keyPair{cert: cert, key: key}, err
}

// The function `certify` makes a certificate for a public key. The private key may be on another machine. If the
// template has no NotBefore, the certificate is valid from now on.
func certify(template *x509.Certificate, key *ecdsa.PublicKey, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	var err error
	if template.SerialNumber, err = newSerial(key); err != nil {
		return nil, err
	}
	if from := time.Now().Add(-clockSkew); template.NotBefore.IsZero() || from.Before(template.NotBefore) {
		template.NotBefore = from
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, parentKey)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "make the certificate of %q", template.Subject.CommonName)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate just made: %w", err)
	}
	return cert, nil
}

func (p *keyPair) certPEM() []byte { return certPEM(p.cert) }

func (p *keyPair) keyPEM() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		panic(err) // happens only with a kind of key that we do not make
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// The method `tls` returns the pair with the CA's certificate in its chain. A client that knows only the CA's
// digest needs the CA's certificate for its check.
func (p *keyPair) tls(ca *x509.Certificate) tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.cert.Raw, ca.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

func certPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func parseCert(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no certificate in PEM form")
	}
	return x509.ParseCertificate(block.Bytes)
}

// maxCAs is the largest number of CAs that are trusted at once. During a rotation there are two CAs.
const maxCAs = 8

// parseCAs reads all certificates in a PEM text.
func parseCAs(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(out) == maxCAs {
			return nil, fmt.Errorf("a block %q, or more than %d certificates", block.Type, maxCAs)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, cert)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in PEM form")
	}
	return out, nil
}

// CAPins returns the digests of the public keys of the CAs in a PEM text, sorted.
func CAPins(text []byte) ([]tutti.Digest, error) {
	cas, err := parseCAs(text)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "CA certificate")
	}
	var out []tutti.Digest
	for _, ca := range cas {
		out = append(out, pinOf(ca))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no private key in PEM form")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("not an ECDSA key")
	}
	return ec, nil
}

func pinOf(cert *x509.Certificate) tutti.Digest { return tutti.DigestOf(cert.RawSubjectPublicKeyInfo) }
