package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// JoinRequest is a request to admit a node by its Puppet certificate. The certificate says the name of the node. Key
// and BoxKey are the keys that the node has made itself.
type JoinRequest struct {
	Certificate string        `json:"certificate"` // PEM
	Key         tutti.NodeKey `json:"key"`
	BoxKey      string        `json:"box_key"`
	Signature   []byte        `json:"signature"` // by Key
	Proof       []byte        `json:"proof"`     // by the certificate's key
}

// CheckPuppetFiles checks Puppet's certificate of a machine and its private key, both in PEM, before anything is sent to a
// server. It returns CodeInvalid with the words "certificate" or "private key" if one of them cannot be used, or if they
// do not belong together.
func CheckPuppetFiles(certificate, puppetKey []byte) error {
	cert, err := readPuppetCert(certificate)
	if err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "certificate")
	}
	key, err := parsePuppetKey(puppetKey)
	if err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "private key")
	}
	own, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil || !bytes.Equal(own, cert.RawSubjectPublicKeyInfo) {
		return tutti.Errorf(tutti.CodeInvalid, "the private key is not the key of the certificate of %.100q", nameOf(cert))
	}
	return nil
}

// BindingLabel is the label for tls.ConnectionState.ExportKeyingMaterial. The node signs the exported bytes, so that a
// request is valid only on its own TLS connection.
const BindingLabel = "EXPORTER-tutti-join-certificate-1"

const bindingLength = 32

// Binding returns the 32 bytes that identify a TLS connection. Both sides of the connection get the same bytes. Binding
// returns CodeInvalid if the handshake is not complete, or if the version is below TLS 1.3.
func Binding(state *tls.ConnectionState) ([]byte, error) {
	if state == nil || !state.HandshakeComplete || state.Version < tls.VersionTLS13 {
		return nil, tutti.Errorf(tutti.CodeInvalid, "join with a Puppet certificate: the connection does not use TLS 1.3")
	}
	binding, err := state.ExportKeyingMaterial(BindingLabel, nil, bindingLength)
	return binding, tutti.Wrap(tutti.CodeInvalid, err, "join with a Puppet certificate: bind the request to the connection")
}

// Sign sets Signature and Proof. The other fields must be set before. The argument `binding` is the result of Binding.
// The seed belongs to Key. The argument puppetKey is the private key of the certificate in PEM, in the form PKCS#1,
// SEC 1 or PKCS#8. Sign returns CodeInvalid if it cannot read a key, also if puppetKey is encrypted. Sign returns
// CodeRefused if Verify would refuse this kind of key.
func (r *JoinRequest) Sign(binding, seed, puppetKey []byte) error {
	if err := checkBinding(binding); err != nil {
		return err
	}
	key, err := parsePuppetKey(puppetKey)
	if err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "private key of the Puppet certificate")
	}
	if err := checkPuppetKey(key.Public()); err != nil {
		return err
	}
	message := r.message(binding)
	if r.Signature, err = signWithSeed("sign the request to join", seed, message); err != nil {
		return err
	}
	sum := sha256.Sum256(message)
	switch key.Public().(type) {
	case *rsa.PublicKey:
		r.Proof, err = key.Sign(rand.Reader, sum[:], pssOptions)
	case ed25519.PublicKey:
		r.Proof, err = key.Sign(rand.Reader, message, crypto.Hash(0))
	default:
		r.Proof, err = key.Sign(rand.Reader, sum[:], crypto.SHA256)
	}
	return tutti.Wrap(tutti.CodeInvalid, err, "sign with the private key of the Puppet certificate")
}

var pssOptions = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}

// Verify checks the form of the request, and that the owners of Key and of the certificate's key signed it for this
// connection. Verify returns CodeUnauthenticated if one of the signatures is wrong. Verify returns CodeRefused if the
// certificate's key is too weak or of an unknown kind. Verify does not check who signed the certificate (see
// PuppetCA.Verify).
func (r *JoinRequest) Verify(binding []byte) error {
	if err := checkBinding(binding); err != nil {
		return err
	}
	cert, err := readPuppetCert([]byte(r.Certificate))
	if err != nil {
		return err
	}
	message := r.message(binding)
	if err := verifyKeys("request to join", r.Key, r.BoxKey, message, r.Signature); err != nil {
		return err
	}
	if err := checkPuppetKey(cert.PublicKey); err != nil {
		return err
	}
	sum, ok := sha256.Sum256(message), false
	switch key := cert.PublicKey.(type) {
	case *rsa.PublicKey:
		ok = rsa.VerifyPSS(key, crypto.SHA256, sum[:], r.Proof, pssOptions) == nil
	case *ecdsa.PublicKey:
		ok = ecdsa.VerifyASN1(key, sum[:], r.Proof)
	case ed25519.PublicKey:
		ok = ed25519.Verify(key, message, r.Proof)
	}
	if !ok {
		return tutti.Errorf(tutti.CodeUnauthenticated,
			"request to join: the private key of the Puppet certificate of %.100q did not sign this request on this connection", nameOf(cert))
	}
	return nil
}

func checkBinding(binding []byte) error {
	if len(binding) != bindingLength {
		return tutti.Errorf(tutti.CodeInvalid, "request to join: the binding to the connection has %d bytes, want %d", len(binding), bindingLength)
	}
	return nil
}

func (r *JoinRequest) message(binding []byte) []byte {
	return encodeParts("tutti-join-certificate-1", binding, []byte(r.Certificate), []byte(r.Key), []byte(r.BoxKey))
}

// checkPuppetKey accepts the kinds of keys that can prove a request. The upper limit for RSA bounds the time of a check,
// because anybody can send a request. TLS has the same limit.
func checkPuppetKey(public crypto.PublicKey) error {
	const least, most = 2048, 8192
	switch key := public.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < least || bits > most {
			return tutti.Errorf(tutti.CodeRefused, "the RSA key of the Puppet certificate has %d bits, want %d to %d", bits, least, most)
		}
		return nil
	case *ecdsa.PublicKey:
		if !slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, key.Curve) {
			return tutti.Errorf(tutti.CodeRefused, "the key of the Puppet certificate is on the curve %s, want P-256, P-384 or P-521", key.Params().Name)
		}
		return nil
	case ed25519.PublicKey:
		return nil
	}
	return tutti.Errorf(tutti.CodeRefused, "the key of the Puppet certificate is not an RSA, ECDSA or Ed25519 key")
}

func parsePuppetKey(text []byte) (crypto.Signer, error) {
	block, rest := pem.Decode(text)
	if block != nil && block.Type == "EC PARAMETERS" { // openssl writes this block before the key
		block, _ = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("no private key in PEM form")
	}
	if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
		return nil, errors.New("the key is encrypted with a passphrase; Puppet itself uses a key without a passphrase")
	}
	var key any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("a block %.100q is not a private key", block.Type)
	}
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("this kind of key cannot sign")
	}
	return signer, nil
}
