package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// OperatorBundle is the key material of an operator.
type OperatorBundle struct {
	Name string
	// CodeKey signs manifests. If CodeKey is nil, the operator may not push code.
	CodeKey ed25519.PrivateKey

	cas  []*x509.Certificate // the CAs that may have signed the server's certificate
	pair *keyPair
}

// These are the files of an operator's directory. Certificate and key are in one file, or in two files if they were
// stored at different times.
const (
	fileOperatorPair = "operator.pem"
	fileOperatorCert = "operator.crt"
	fileOperatorKey  = "operator.key"
)

// IssueOperator makes the credentials of the first operator. Before ForgetCodeKey, these credentials contain the
// code-signing key.
func (a *Authority) IssueOperator(name string) (OperatorBundle, error) {
	key, err := NewOperatorKey()
	if err != nil {
		return OperatorBundle{}, err
	}
	request, err := key.Request(name)
	if err != nil {
		return OperatorBundle{}, err
	}
	issued, err := a.SignFollower(name, request)
	if err != nil {
		return OperatorBundle{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return key.Bundle(issued, a.codeKey)
}

// SignOperator signs a certificate for the key in a certificate request (PKCS #10, PEM). The request must be signed
// by that key, and the key must be an ECDSA key on P-256. SignOperator uses no other part of the request.
// SignOperator serves operators whose client knows only one CA. So during a rotation, SignOperator uses the older CA.
func (a *Authority) SignOperator(name string, request []byte) (api.IssuedOperator, error) {
	a.mu.Lock()
	by := a.present
	a.mu.Unlock()
	return a.signOperator(by, name, request)
}

// SignFollower is like SignOperator, but signs with the CA that issues credentials now. SignFollower serves
// operators whose client accepts all trusted CAs.
func (a *Authority) SignFollower(name string, request []byte) (api.IssuedOperator, error) {
	a.mu.Lock()
	by := a.issuing()
	a.mu.Unlock()
	out, err := a.signOperator(by, name, request)
	out.CA = a.CA()
	return out, err
}

func (a *Authority) signOperator(by *keySet, name string, request []byte) (api.IssuedOperator, error) {
	var out api.IssuedOperator
	if err := tutti.ValidateOperator(name); err != nil {
		return out, err
	}
	block, _ := pem.Decode(request)
	if block == nil || block.Type != pemRequest {
		return out, tutti.Errorf(tutti.CodeInvalid, "no certificate request in PEM form; make one with: tutti operator request %s", name)
	}
	in, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = in.CheckSignature()
	}
	if err != nil {
		return out, tutti.Wrap(tutti.CodeInvalid, err, "certificate request")
	}
	public, ok := in.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return out, tutti.Errorf(tutti.CodeInvalid, "certificate request: the key must be an ECDSA key on P-256")
	}
	cert, err := certify(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, OrganizationalUnit: []string{ouOperator}},
		NotAfter:    time.Now().Add(a.Lives.operator()),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, public, by.ca.cert, by.ca.key)
	if err != nil {
		return out, err
	}
	return api.IssuedOperator{Certificate: certPEM(cert), CA: by.ca.certPEM(), Signer: by.pin(), Serial: serialOf(cert), Expires: cert.NotAfter.UTC()}, nil
}

func serialOf(cert *x509.Certificate) string { return cert.SerialNumber.Text(16) }

const pemRequest = "CERTIFICATE REQUEST"

// OperatorKey is a key of an operator. The operator has no certificate for this key yet.
type OperatorKey struct{ key *ecdsa.PrivateKey }

// NewOperatorKey makes a key. Call NewOperatorKey on the machine where the key will be used.
func NewOperatorKey() (OperatorKey, error) {
	key, err := newKey()
	return OperatorKey{key}, err
}

// Request returns a certificate request, as PEM.
func (k OperatorKey) Request(name string) ([]byte, error) {
	if err := tutti.ValidateOperator(name); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, k.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der}), nil
}

// Bundle combines the key, the server's certificate for it, and codeKey, which may be nil.
func (k OperatorKey) Bundle(issued api.IssuedOperator, codeKey ed25519.PrivateKey) (OperatorBundle, error) {
	cert, err := parseCert(issued.Certificate)
	if err != nil {
		return OperatorBundle{}, tutti.Wrap(tutti.CodeInternal, err, "the certificate that the server issued")
	}
	cas, err := parseCAs(issued.CA)
	if err != nil {
		return OperatorBundle{}, tutti.Wrap(tutti.CodeInternal, err, "the server's CA")
	}
	if !k.key.PublicKey.Equal(cert.PublicKey) {
		return OperatorBundle{}, tutti.Errorf(tutti.CodeInternal, "the certificate that the server issued is for another key")
	}
	b := OperatorBundle{Name: cert.Subject.CommonName, CodeKey: codeKey, cas: cas, pair: &keyPair{cert: cert, key: k.key}}
	if b.signer() == nil {
		return OperatorBundle{}, tutti.Errorf(tutti.CodeInternal, "the certificate that the server issued is not signed by any of the CAs that the server names")
	}
	return b, nil
}

// WriteKey stores the key in dir. The directory dir must be empty or must not exist. WriteIssued adds the certificate
// later.
func (k OperatorKey) WriteKey(dir string) error {
	if err := newDir(dir); err != nil {
		return err
	}
	return writeFile(dir, fileOperatorKey, (&keyPair{key: k.key}).keyPEM())
}

// WriteIssued stores the server's answer in dir. The directory dir may be the directory of the key or another
// directory.
func WriteIssued(dir string, issued api.IssuedOperator) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory for key material: %w", err)
	}
	if err := writeFile(dir, fileCA, issued.CA); err != nil {
		return err
	}
	return writeFile(dir, fileOperatorCert, issued.Certificate)
}

// Write stores the bundle in dir. The directory dir must be empty or must not exist.
func (b OperatorBundle) Write(dir string) error {
	if err := newDir(dir); err != nil {
		return err
	}
	if b.CodeKey != nil {
		if err := writeFile(dir, fileCodeKey, encodeCodeKey(b.CodeKey)); err != nil {
			return err
		}
	}
	return b.Replace(dir)
}

// Replace replaces the certificate and the key in dir by the certificate and the key of the bundle. After a crash,
// dir has either the old pair or the new pair. Replace writes the trusted CAs before the pair, so both pairs work
// with the server.
func (b OperatorBundle) Replace(dir string) error {
	if err := writeFile(dir, fileCA, b.CA()); err != nil {
		return err
	}
	// Certificate and key go to one file, because two files cannot be replaced at the same time.
	if err := writeFile(dir, fileOperatorPair, append(b.pair.certPEM(), b.pair.keyPEM()...)); err != nil {
		return err
	}
	for _, old := range []string{fileOperatorCert, fileOperatorKey} {
		if err := os.Remove(filepath.Join(dir, old)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the certificate that was replaced: %w", err)
		}
	}
	return nil
}

// LoadOperator reads the files that Write has written, or that WriteKey and WriteIssued have written. LoadOperator
// returns the same errors as Load.
func LoadOperator(dir string) (OperatorBundle, error) {
	var b OperatorBundle
	caPEM, err := readFile(dir, fileCA)
	if err != nil {
		return b, err
	}
	if b.cas, err = parseCAs(caPEM); err != nil {
		return b, corrupt(dir, fileCA)
	}
	if b.pair, err = loadOperatorPair(dir); err != nil {
		return b, err
	}
	b.Name = b.pair.cert.Subject.CommonName
	b.CodeKey, err = loadCodeKey(dir)
	return b, err
}

func loadOperatorPair(dir string) (*keyPair, error) {
	text, err := readFile(dir, fileOperatorPair)
	if errors.Is(err, ErrMissing) {
		return loadPair(dir, fileOperatorCert, fileOperatorKey)
	}
	if err != nil {
		return nil, err
	}
	_, rest := pem.Decode(text)
	cert, certErr := parseCert(text)
	key, keyErr := parseKey(rest)
	if certErr != nil || keyErr != nil || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, corrupt(dir, fileOperatorPair)
	}
	return &keyPair{cert: cert, key: key}, nil
}

// Issued returns the event that records the certificate in the log.
func (b OperatorBundle) Issued() *tutti.OperatorIssued {
	_, signer := b.StandsOn()
	return &tutti.OperatorIssued{CA: signer, Operator: b.Name, Serial: serialOf(b.pair.cert), Expires: b.Expires().UTC(), CodeKey: b.CodeKey != nil}
}

// Expires returns the time when the certificate expires.
func (b OperatorBundle) Expires() time.Time { return b.pair.cert.NotAfter }

// RenewAt returns the time when the certificate should be renewed. At that time, a third of its lifetime is left.
func (b OperatorBundle) RenewAt() time.Time {
	from, until := b.pair.cert.NotBefore.Add(clockSkew), b.pair.cert.NotAfter
	return until.Add(-until.Sub(from) / 3)
}

// TLS returns the configuration of the operator's HTTPS client.
func (b OperatorBundle) TLS() *tls.Config {
	c := clientTLS(b.cas)
	shown := tls.Certificate{Certificate: [][]byte{b.pair.cert.Raw}, PrivateKey: b.pair.key, Leaf: b.pair.cert}
	if ca := b.signer(); ca != nil {
		shown = b.pair.tls(ca)
	}
	c.Certificates = []tls.Certificate{shown}
	return c
}

// The method `signer` returns the CA that signed the certificate. If the bundle does not contain this CA, the
// result is nil.
func (b OperatorBundle) signer() *x509.Certificate {
	for _, ca := range b.cas {
		if b.pair.cert.CheckSignatureFrom(ca) == nil {
			return ca
		}
	}
	return nil
}

// StandsOn returns the CAs that the operator trusts, sorted. The result `signer` is the CA that
// signed the operator's certificate. If the operator does not trust this CA, `signer` is empty.
func (b OperatorBundle) StandsOn() (trusts []tutti.Digest, signer tutti.Digest) {
	for _, ca := range b.cas {
		trusts = append(trusts, pinOf(ca))
	}
	slices.Sort(trusts)
	if ca := b.signer(); ca != nil {
		signer = pinOf(ca)
	}
	return trusts, signer
}

// CA returns the certificates of the CAs that the operator trusts, as PEM.
func (b OperatorBundle) CA() []byte {
	var out []byte
	for _, ca := range b.cas {
		out = append(out, certPEM(ca)...)
	}
	return out
}

// Pin returns the digest of the CA's public key. While two CAs are trusted, Pin returns the digest of the older CA.
func (b OperatorBundle) Pin() tutti.Digest { return pinOf(b.cas[0]) }
