package natsbus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"sync/atomic"

	"github.com/tutti-project/tutti"
)

// dialer opens TLS connections. dialer accepts a server only if one of the trusted CAs signed its certificate.
// dialer sends the server the list of trusted CAs (ADR 0027).
type dialer struct {
	net.Dialer
	trust  atomic.Pointer[tls.Config]
	proved atomic.Pointer[tutti.Digest] // the CA that signed the server's certificate on the latest connection
}

// The method `use` replaces the trusted CAs by the CAs in a PEM text. The change applies from the next connection on.
func (d *dialer) use(caPEM []byte) error {
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}
	for block, rest := pem.Decode(caPEM); block != nil; block, rest = pem.Decode(rest) {
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return tutti.Wrap(tutti.CodeInvalid, err, "connect to the bus: CA certificate")
		}
		config.RootCAs.AddCert(ca)
		config.NextProtos = append(config.NextProtos, tutti.CAProtocol(pinOf(ca)))
	}
	if len(config.NextProtos) == 0 {
		return tutti.Errorf(tutti.CodeInvalid, "connect to the bus: no CA certificate")
	}
	d.trust.Store(config)
	return nil
}

func pinOf(ca *x509.Certificate) tutti.Digest { return tutti.DigestOf(ca.RawSubjectPublicKeyInfo) }

// Dial implements nats.CustomDialer. Dial returns a connection after its TLS handshake is finished.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	c, err := d.Dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	config := d.trust.Load().Clone()
	config.ServerName = host
	t := tls.Client(c, config)
	ctx, cancel := context.WithTimeout(context.Background(), helloTimeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	chain := t.ConnectionState().VerifiedChains[0]
	pin := pinOf(chain[len(chain)-1])
	d.proved.Store(&pin)
	return t, nil
}

// SkipTLSHandshake tells the client library that Dial has already done the TLS handshake.
func (*dialer) SkipTLSHandshake() bool { return true }
