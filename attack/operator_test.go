package attack

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
)

// The method `issued` returns the client of a new operator. It makes the operator's key, and lets the server
// issue the certificate.
func (f *fleet) issued(name string) *httpapi.Client {
	f.t.Helper()
	key, err := identity.NewOperatorKey()
	if err != nil {
		f.t.Fatal(err)
	}
	request, err := key.Request(name)
	if err != nil {
		f.t.Fatal(err)
	}
	out, err := f.admin.IssueOperator(f.t.Context(), api.IssueOperator{Operator: name, Request: request})
	if err != nil {
		f.t.Fatal(err)
	}
	bundle, err := key.Bundle(out, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.calling(f.t, bundle.TLS())
}

// TestRevokedOperator checks that a revocation takes effect at once, even for open connections and
// current watches.
func TestRevokedOperator(t *testing.T) {
	f := start(t)
	f.join("taken") // this node claims nothing, so that its job continues
	eve := f.issued("eve")
	if _, err := eve.ListJobs(t.Context()); err != nil { // the client keeps the connection open
		t.Fatal(err)
	}
	job, err := f.admin.StartJob(t.Context(), api.StartJob{Plan: "taken", Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	watching, watched := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		watched <- eve.WatchJob(t.Context(), api.WatchJob{Job: job, Follow: true}, func(api.Watched) error {
			select {
			case watching <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	<-watching
	if _, err := f.admin.RevokeOperator(t.Context(), api.RevokeOperator{Operator: "eve", Reason: "stolen"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "the watch", <-watched, tutti.CodeUnauthenticated)
	_, err = eve.ListJobs(t.Context())
	wantCode(t, "a request on the open connection", err, tutti.CodeUnauthenticated)
	key, err := identity.NewOperatorKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request("eve")
	if err != nil {
		t.Fatal(err)
	}
	_, err = eve.RenewOperator(t.Context(), request)
	wantCode(t, "a renewal", err, tutti.CodeUnauthenticated)
	f.works("during")
	f.audited(denial{"operator:eve", "call /v1/jobs/list", "was revoked"})
	f.audited(denial{"operator:eve", "call /v1/operators/renew", "stolen"})

	// The revocation must still be in effect after a restart. A new certificate of the same operator must be valid.
	f.end()
	f.serve()
	_, err = eve.ListJobs(t.Context())
	wantCode(t, "after a restart", err, tutti.CodeUnauthenticated, tutti.CodeUnavailable)
	_, err = eve.ListJobs(t.Context())
	wantCode(t, "after a restart, on a new connection", err, tutti.CodeUnauthenticated)
	if _, err := f.issued("eve").ListJobs(t.Context()); err != nil {
		t.Errorf("a certificate issued after the revocation: %v", err)
	}
	f.works("after")
}

// TestLastOperator checks that nobody can lock out all operators without a warning. After the last
// operator was revoked, root on the server can still connect.
func TestLastOperator(t *testing.T) {
	f := start(t)
	list, err := f.admin.ListOperators(t.Context())
	if err != nil || len(list) != 1 || list[0].Operator != "admin" || list[0].Certificates != 1 || !list[0].CodeKey {
		t.Fatalf("operators %+v, %v: want the first one", list, err)
	}
	_, err = f.admin.RevokeOperator(t.Context(), api.RevokeOperator{Operator: "admin"})
	wantCode(t, "revoke the last operator", err, tutti.CodeConflict)
	f.works("during")
	if _, err := f.admin.RevokeOperator(t.Context(), api.RevokeOperator{Operator: "admin", Last: true}); err != nil {
		t.Fatal(err)
	}
	_, err = f.admin.ListJobs(t.Context())
	wantCode(t, "the last operator", err, tutti.CodeUnauthenticated)
	if out, err := f.try(f.path("nobody"), "operator", "create", "admin", "--out", f.path("again")); err != nil {
		t.Fatalf("by the local socket: %v: %s", err, out)
	}
	f.admin = f.connect(f.path("again"))
	f.works("after")
	var exit interface{ ExitCode() int }
	if out, err := f.try(f.path("operator"), "job", "list"); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("the old certificate: %v: %s", err, out)
	}
}

// TestAnotherWebPage plays a stranger's web page in a browser that has an operator's certificate. The name of the page
// may also resolve to the address of this server (DNS rebinding).
func TestAnotherWebPage(t *testing.T) {
	f := start(t)
	admin, err := identity.LoadOperator(f.path("operator"))
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: admin.TLS(), ForceAttemptHTTP2: true}}
	defer browser.CloseIdleConnections()
	_, port, _ := net.SplitHostPort(f.https)
	for _, tc := range []struct {
		host, origin string
		status       int
	}{
		{f.https, "https://evil.example", http.StatusForbidden},
		{"evil.example:" + port, "https://evil.example:" + port, http.StatusForbidden},
		{"evil.example", "", http.StatusForbidden},
		{"localhost:" + port, "https://localhost:" + port, http.StatusOK},
		{f.https, "", http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+f.https+"/v1/nodes/list", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if req.Host = tc.host; tc.origin != "" {
			req.Header.Set("Origin", tc.origin)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tc.status {
			t.Errorf("host %s, origin %q: %d, want %d", tc.host, tc.origin, resp.StatusCode, tc.status)
		}
	}
	f.audited(denial{"operator:admin", "call /v1/nodes/list from a web page", "evil.example"})
	f.works("after")
}
