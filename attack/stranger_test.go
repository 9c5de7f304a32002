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

// calling is a client of the operators' port with a TLS configuration. It comes again as real
// ones do: a machine that is busy lets it say hello after the door has put it out.
func (f *fleet) calling(t *testing.T, config *tls.Config) *httpapi.Client {
	t.Helper()
	transport := httpapi.Transport(config, &net.Dialer{})
	t.Cleanup(transport.CloseIdleConnections)
	return httpapi.NewClient("https://"+f.https, &http.Client{Transport: transport})
}

// trusting is what a client has who knows this fleet's CA and nothing else.
func (f *fleet) trusting(t *testing.T) *tls.Config {
	t.Helper()
	config, err := identity.ClientTLS(f.authority().CA())
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// foreign makes another fleet's keys.
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

// TestWithoutACertificate: whoever reaches the operators' port may ask whether it
// is there, and join with a token.
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

// TestCertificateOfAnotherCA: another fleet's operator is nobody here.
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

// inTime uses what lives for some seconds. Where it may have ended before it was used,
// on a machine that is busy, it is used again with twice the life.
func inTime(t *testing.T, what string, use func(life time.Duration) error) {
	t.Helper()
	for life := 2 * time.Second; ; life *= 2 {
		issued := time.Now()
		err := use(life)
		if err == nil {
			return
		}
		if time.Since(issued) < life-time.Second { // the end is in whole seconds
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// TestExpiredCertificate: an operator's certificate ends, also on a connection
// that was made before its end.
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

// TestExpiredJWT: a node's JWT ends. Whoever finds an old disk has nothing.
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

// TestTheOtherPort: a node's key is nothing to the operators' port, an operator's
// certificate nothing to the bus.
func TestTheOtherPort(t *testing.T) {
	f := start(t)
	taken := f.join("taken")
	config := f.trusting(t)
	show := func(c tls.Certificate) { // even if the server says that it wants another CA's
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
	}
	show(selfSigned(t, string(taken.name)))
	_, err := f.calling(t, config).ListJobs(t.Context())
	wantCode(t, "a node at the operators' port", err, tutti.CodeUnauthenticated)
	f.audited(denial{"address:127.0.0.1", "finish TLS with the operators' port", "unknown authority"})

	// The operator's certificate is no proof to the bus, which asks for a JWT.
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
	// Nor is the server's own certificate one of an operator.
	show(f.serverCertificate(t))
	_, err = f.calling(t, config).ListJobs(t.Context())
	wantCode(t, "the server's certificate as an operator's", err, tutti.CodeUnauthenticated)
	f.works("during")
	f.audited(denial{"address:127.0.0.1", "connect to the bus", "authentication failure"})
	f.works("after")
}
