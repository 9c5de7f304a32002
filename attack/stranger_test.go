package attack

import (
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
)

// The method `calling` returns a client of the operators' port with a TLS configuration. calling
// retries like real clients. On a busy machine, the server may disconnect a client before its TLS
// hello.
func (f *fleet) calling(t *testing.T, config *tls.Config) *httpapi.Client {
	t.Helper()
	transport := httpapi.Transport(config, &net.Dialer{})
	t.Cleanup(transport.CloseIdleConnections)
	return httpapi.NewClient("https://"+f.https, &http.Client{Transport: transport})
}

// The method `trusting` returns the TLS configuration of a client that trusts only the CA of this
// fleet.
func (f *fleet) trusting(t *testing.T) *tls.Config {
	t.Helper()
	config, err := identity.ClientTLS(f.authority().CA())
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// The function `foreign` creates the keys of another fleet.
func foreign(t *testing.T) *identity.Authority {
	t.Helper()
	authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func certificates(t *testing.T, of *identity.Authority, name string) []tls.Certificate {
	t.Helper()
	bundle, err := of.IssueOperator(name)
	if err != nil {
		t.Fatal(err)
	}
	return bundle.TLS().Certificates
}

// TestWithoutACertificate checks that a client without a certificate may only check the server's
// health, and join with a token.
func TestWithoutACertificate(t *testing.T) {
	f := start(t)
	nobody := f.calling(t, f.trusting(t))
	_, err := nobody.ListJobs(t.Context())
	wantCode(t, "list jobs", err, tutti.CodeUnauthenticated)
	_, err = nobody.StartJob(t.Context(), api.StartJob{Plan: "every", Mode: tutti.ModeApply})
	wantCode(t, "start a job", err, tutti.CodeUnauthenticated)
	_, err = nobody.IssueOperator(t.Context(), api.IssueOperator{Operator: "eve"})
	wantCode(t, "become an operator", err, tutti.CodeUnauthenticated)
	_, err = nobody.Enrol(t.Context(), api.EnrolRequest{Name: "eve"})
	wantCode(t, "join without a token", err, tutti.CodeUnauthenticated, tutti.CodeInvalid, tutti.CodeRefused)
	f.works("during")
	f.audited(denial{"address:127.0.0.1", "call /v1/jobs/list", "no operator's certificate"})
	f.audited(denial{"address:127.0.0.1", "call /v1/jobs/start", "no operator's certificate"})
	f.audited(denial{"address:127.0.0.1", "call /v1/operators/issue", "no operator's certificate"})
	f.works("after")
}

// TestCertificateOfAnotherCA checks that the server refuses an operator of another fleet.
func TestCertificateOfAnotherCA(t *testing.T) {
	f := start(t)
	config := f.trusting(t)
	config.Certificates = certificates(t, foreign(t), "admin")
	_, err := f.calling(t, config).ListJobs(t.Context())
	wantCode(t, "an operator of another CA", err, tutti.CodeUnauthenticated)
	f.works("during")
	f.audited(denial{"address:127.0.0.1", "finish TLS with the operators' port", "unknown authority"})
	f.works("after")
}

// inTime uses a credential that is valid for only a few seconds. On a busy machine the credential
// may expire before its use. If the credential has expired, inTime tries again with twice the
// lifetime.
func inTime(t *testing.T, what string, use func(life time.Duration) error) {
	t.Helper()
	for life := 2 * time.Second; ; life *= 2 {
		issued := time.Now()
		err := use(life)
		if err == nil {
			return
		}
		if time.Since(issued) < life-time.Second { // the end of a credential is rounded to a second
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// TestExpiredCertificate checks that an operator's certificate expires, even on a connection that
// was made earlier.
func TestExpiredCertificate(t *testing.T) {
	f := start(t)
	authority := f.authority()
	authority.Lives.Operator = -time.Minute
	config := f.trusting(t)
	config.Certificates = certificates(t, authority, "late")
	_, err := f.calling(t, config).ListJobs(t.Context())
	wantCode(t, "a certificate that has ended", err, tutti.CodeUnauthenticated)
	f.audited(denial{"address:127.0.0.1", "finish TLS with the operators' port", "expired"})

	var client *httpapi.Client
	inTime(t, "a certificate that has not ended", func(life time.Duration) error {
		authority.Lives.Operator = life
		config.Certificates = certificates(t, authority, "soon")
		client = f.calling(t, config)
		_, err := client.ListJobs(t.Context())
		return err
	})
	f.works("during")
	f.eventually(func() error {
		_, err = client.ListJobs(t.Context())
		if err == nil {
			return tutti.Errorf(tutti.CodeInternal, "the certificate is still taken")
		}
		return nil
	})
	wantCode(t, "a certificate that ended on an open connection", err, tutti.CodeUnauthenticated)
	f.works("after")
}

// TestExpiredJWT checks that a node's JWT expires. After the JWT has expired, an old disk of the
// node is useless for an attacker.
func TestExpiredJWT(t *testing.T) {
	f := start(t)
	taken := f.join("taken")
	authority := f.authority()
	authority.Lives.Node = -time.Minute
	var err error
	if taken.membership.JWT, err = authority.NodeJWT(taken.Key, taken.name); err != nil {
		t.Fatal(err)
	}
	if _, err := taken.raw(t, "127.0.0.1"); err == nil {
		t.Error("a JWT that has ended lets a node in")
	}
	f.audited(denial{"address:127.0.0.1", "connect to the bus as " + string(taken.Key), ""})

	closed := make(chan struct{})
	inTime(t, "a JWT that has not ended", func(life time.Duration) error {
		authority.Lives.Node = life
		if taken.membership.JWT, err = authority.NodeJWT(taken.Key, taken.name); err != nil {
			t.Fatal(err)
		}
		_, err := taken.raw(t, "127.0.0.1", nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
		return err
	})
	f.works("during")
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("the connection outlives its JWT")
	}
	f.audited(denial{"node:taken", "use a JWT that has expired", ""})
	f.works("after")
}

// TestTheOtherPort checks that the operators' port refuses a node's key, and the bus refuses an
// operator's certificate.
func TestTheOtherPort(t *testing.T) {
	f := start(t)
	taken := f.join("taken")
	config := f.trusting(t)
	// the client shows its certificate even if the server requests a certificate of another CA
	show := func(c tls.Certificate) {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
	}
	show(selfSigned(t, string(taken.name)))
	_, err := f.calling(t, config).ListJobs(t.Context())
	wantCode(t, "a node at the operators' port", err, tutti.CodeUnauthenticated)
	f.audited(denial{"address:127.0.0.1", "finish TLS with the operators' port", "unknown authority"})

	// The bus must refuse the operator's certificate, because the bus requires a JWT.
	operator := f.trusting(t)
	operator.Certificates = certificates(t, f.authority(), "admin")
	for reason, change := range map[string]nats.Option{
		"no JWT":    func(o *nats.Options) error { o.UserJWT, o.SignatureCB = nil, nil; return nil },
		"as a user": nats.UserInfo("admin", "admin"),
	} {
		options := []nats.Option{nats.Secure(operator), func(o *nats.Options) error { o.UserJWT, o.SignatureCB = nil, nil; return nil }, change}
		if _, err := taken.raw(t, "127.0.0.1", options...); err == nil {
			t.Errorf("an operator's certificate lets somebody onto the bus, %s", reason)
		}
	}
	// The server must also refuse its own certificate as an operator's certificate.
	show(f.serverCertificate(t))
	_, err = f.calling(t, config).ListJobs(t.Context())
	wantCode(t, "the server's certificate as an operator's", err, tutti.CodeUnauthenticated)
	f.works("during")
	f.audited(denial{"address:127.0.0.1", "connect to the bus", "authentication failure"})
	f.works("after")
}
