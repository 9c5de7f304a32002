package identity

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// ouOperator marks the certificates of operators.
const ouOperator = "operator"

// HTTPS returns the server's configuration for operators and joining nodes: a
// client certificate is optional, and verified if it is given.
func (a *Authority) HTTPS() *tls.Config {
	c := a.Bus()
	c.ClientAuth = tls.VerifyClientCertIfGiven
	c.ClientCAs = pool(a.ca)
	return c
}

// Bus returns the server's configuration for the bus, where nodes show a JWT
// instead of a certificate.
func (a *Authority) Bus() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			cert := a.renewServer()
			return &cert, nil
		},
	}
}

// OperatorName returns the name in the verified certificate of a request and the
// certificate's serial number, and CodeUnauthenticated if there is none, or it has
// ended since the connection was made.
func OperatorName(state *tls.ConnectionState) (name, serial string, err error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return "", "", tutti.Errorf(tutti.CodeUnauthenticated, "no operator's certificate was shown")
	}
	leaf := state.VerifiedChains[0][0]
	name = leaf.Subject.CommonName
	if !slices.Contains(leaf.Subject.OrganizationalUnit, ouOperator) || name == "" {
		return "", "", tutti.Errorf(tutti.CodeUnauthenticated, "the certificate of %q is not an operator's", name)
	}
	if time.Now().After(leaf.NotAfter) {
		return "", "", tutti.Errorf(tutti.CodeUnauthenticated, "the certificate of operator %s ended at %s", name, leaf.NotAfter.Format(time.RFC3339))
	}
	return name, serialOf(leaf), nil
}

// ClientTLS returns the configuration of a client that trusts the CA in caPEM
// alone.
func ClientTLS(caPEM []byte) (*tls.Config, error) {
	ca, err := parseCert(caPEM)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "CA certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool(ca)}, nil
}

// PinnedTLS returns the configuration of a client that knows only the digest
// of the CA's public key (Authority.Pin). The server must show that CA and a
// certificate of it for its name.
func PinnedTLS(pin tutti.Digest) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The chain is verified below, against the pinned CA.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		VerifyConnection: func(state tls.ConnectionState) error {
			i := slices.IndexFunc(state.PeerCertificates, func(c *x509.Certificate) bool { return c.IsCA && pinOf(c) == pin })
			if i <= 0 {
				return tutti.Errorf(tutti.CodeRefused, "the server does not belong to the CA %s of the join token: another fleet's server, or somebody between", pin)
			}
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool(state.PeerCertificates[i]), DNSName: state.ServerName})
			return tutti.Wrap(tutti.CodeRefused, err, "certificate of the server")
		},
	}
}

func pool(ca *x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca)
	return p
}
