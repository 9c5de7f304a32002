package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"regexp"
	"time"

	"github.com/tutti-project/tutti"
)

// OperatorBundle is what an operator holds.
type OperatorBundle struct {
	Name string
	// CodeKey signs manifests; nil for an operator who may not push code.
	CodeKey ed25519.PrivateKey

	ca   *x509.Certificate
	pair *keyPair
}

// The files of an operator's directory.
const (
	fileOperatorCert = "operator.crt"
	fileOperatorKey  = "operator.key"
)

var operatorRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._@-]{0,62}$`)

// ValidateOperator accepts the name of an operator.
func ValidateOperator(name string) error {
	if !operatorRE.MatchString(name) {
		return tutti.Errorf(tutti.CodeInvalid, "operator name %q: lower-case letters, digits, '.', '_', '@' and '-' only, at most 63", name)
	}
	return nil
}

// IssueOperator makes an operator's credentials. The code-signing key is in
// them until ForgetCodeKey.
func (a *Authority) IssueOperator(name string) (OperatorBundle, error) {
	if err := ValidateOperator(name); err != nil {
		return OperatorBundle{}, err
	}
	pair, err := a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, OrganizationalUnit: []string{ouOperator}},
		NotAfter:    time.Now().Add(operatorLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return OperatorBundle{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return OperatorBundle{Name: name, CodeKey: a.codeKey, ca: a.ca, pair: pair}, nil
}

// Write stores the bundle in dir, which must be empty or not exist.
func (b OperatorBundle) Write(dir string) error {
	if err := newDir(dir); err != nil {
		return err
	}
	if b.CodeKey != nil {
		if err := writeFile(dir, fileCodeKey, encodeCodeKey(b.CodeKey)); err != nil {
			return err
		}
	}
	if err := writeFile(dir, fileOperatorKey, b.pair.keyPEM()); err != nil {
		return err
	}
	if err := writeFile(dir, fileOperatorCert, b.pair.certPEM()); err != nil {
		return err
	}
	return writeFile(dir, fileCA, certPEM(b.ca))
}

// LoadOperator reads what Write stored. Errors are those of Load.
func LoadOperator(dir string) (OperatorBundle, error) {
	var b OperatorBundle
	caPEM, err := readFile(dir, fileCA)
	if err != nil {
		return b, err
	}
	if b.ca, err = parseCert(caPEM); err != nil {
		return b, corrupt(dir, fileCA)
	}
	if b.pair, err = loadPair(dir, fileOperatorCert, fileOperatorKey); err != nil {
		return b, err
	}
	b.Name = b.pair.cert.Subject.CommonName
	b.CodeKey, err = loadCodeKey(dir)
	return b, err
}

// TLS returns the configuration of the operator's HTTPS client.
func (b OperatorBundle) TLS() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		RootCAs:      pool(b.ca),
		Certificates: []tls.Certificate{b.pair.tls(b.ca)},
	}
}

// CA returns the CA's certificate as PEM.
func (b OperatorBundle) CA() []byte { return certPEM(b.ca) }
