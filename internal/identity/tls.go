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

// HTTPS returns the server's configuration for operators and joining nodes. A client certificate is optional. If the
// client sends one, the server verifies it.
func (a *Authority) HTTPS() *tls.Config {
	c := a.Bus()
	c.ClientAuth = tls.VerifyClientCertIfGiven
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Clone()
		now.GetConfigForClient, now.ClientCAs = nil, a.pool()
		return now, nil
	}
	return c
}

func (a *Authority) pool() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := x509.NewCertPool()
	for _, s := range a.trusted() {
		p.AddCert(s.ca.cert)
	}
	return p
}

// Bus returns the server's configuration for the bus, where nodes send a JWT instead of a certificate.
func (a *Authority) Bus() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			var protocols []string
			if hello != nil {
				protocols = hello.SupportedProtos
			}
			cert := a.showServer(protocols)
			return &cert, nil
		},
	}
}

// OperatorName is like the package's function OperatorName. It also checks that the CA is still trusted, because a
// rotation may have ended since the connection was made.
func (a *Authority) OperatorName(state *tls.ConnectionState) (name, serial string, err error) {
	if name, serial, err = OperatorName(state); err != nil {
		return "", "", err
	}
	if !a.trusts(state) {
		return "", "", tutti.Errorf(tutti.CodeUnauthenticated,
			"the certificate of operator %s is signed by a CA that was rotated out; get a new one from another operator, or on the server as root: tutti operator create %s", name, name)
	}
	return name, serial, nil
}

// The method `trusts` reports whether a client's certificate chain ends in a CA that is trusted
// now.
func (a *Authority) trusts(state *tls.ConnectionState) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.trusted(), func(s *keySet) bool {
		return slices.ContainsFunc(state.VerifiedChains, func(chain []*x509.Certificate) bool { return chain[len(chain)-1].Equal(s.ca.cert) })
	})
}

// OperatorName returns the name and the serial number in the verified certificate of a request. OperatorName returns
// CodeUnauthenticated if there is no certificate, or if it has expired since the connection was made.
func OperatorName(state *tls.ConnectionState) (name, serial string, err error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return "", "", tutti.Errorf(tutti.CodeUnauthenticated, "no operator's certificate was shown")
	}
	leaf := state.VerifiedChains[0][0]
	name = leaf.Subject.CommonName
	if !slices.Contains(leaf.Subject.OrganizationalUnit, ouOperator) || name == "" {
		return "", "", tutti.Errorf(tutti.CodeUnauthenticated, "the certificate of %q is not an operator's", name)
	}
	if !serialFits(leaf) {
		return "", "", tutti.Errorf(tutti.CodeUnauthenticated, "the certificate of operator %s has a serial number that does not fit its key: this server did not make the certificate, so someone else has the CA's key", name)
	}
	if time.Now().After(leaf.NotAfter) {
		return "", "", tutti.Errorf(tutti.CodeUnauthenticated, "the certificate of operator %s ended at %s", name, leaf.NotAfter.Format(time.RFC3339))
	}
	return name, serialOf(leaf), nil
}

// ClientTLS returns the configuration of a client that trusts only the CAs in caPEM. The client names these CAs to
// the server.
func ClientTLS(caPEM []byte) (*tls.Config, error) {
	cas, err := parseCAs(caPEM)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "CA certificate")
	}
	return clientTLS(cas), nil
}

func clientTLS(cas []*x509.Certificate) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}
	for _, ca := range cas {
		c.RootCAs.AddCert(ca)
		c.NextProtos = append(c.NextProtos, tutti.CAProtocol(pinOf(ca)))
	}
	return c
}

// PinnedTLS returns the configuration of a client that knows only the digest of the CA's public key (see
// Authority.Pin). The server must show the certificate of this CA, and the server's own certificate, which the CA
// signed for the server's name.
func PinnedTLS(pin tutti.Digest) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// VerifyConnection checks the chain with the pinned CA.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		NextProtos:         []string{tutti.CAProtocol(pin)},
		VerifyConnection: func(state tls.ConnectionState) error {
			i := slices.IndexFunc(state.PeerCertificates, func(c *x509.Certificate) bool { return c.IsCA && pinOf(c) == pin })
			if i <= 0 {
				return tutti.Errorf(tutti.CodeRefused, "the CA %s of the join token did not sign the server's certificate: the fleet's CA was rotated after the token was made (then make a new token), or the server belongs to another fleet, or an attacker intercepts the connection", pin)
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
