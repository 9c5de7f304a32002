package httpapi_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/servertest"
)

// serve serves a fleet over TLS, in the same way as the server process.
func serve(t *testing.T, f *servertest.Fleet) (url string, authority *identity.Authority) {
	t.Helper()
	authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(httpapi.NewHandler(httpapi.Options{
		Services: httpapi.Services{Jobs: f, Nodes: f, Tokens: f, Operators: f, Codes: f, Signings: f, Values: f, Pauses: f, Audits: f, Explains: f, Remotes: f, Reports: f, Secrets: f, Rotations: f},
		Admit: func(r *http.Request, _ []tutti.Verb) (context.Context, func(), error) {
			name, serial, err := identity.OperatorName(r.TLS)
			if err != nil {
				return nil, nil, err
			}
			known := false
			// the log has another serial number for this operator, because another CA signed the
			// certificate of this test
			for _, e := range f.Events() {
				if b, is := e.Body.(*tutti.OperatorIssued); is && b.Operator == name {
					known, serial = true, b.Serial
				}
			}
			if !known { // these tests accept operators that the log does not contain
				return tutti.WithActor(r.Context(), "operator:"+name), func() {}, nil
			}
			return f.Admit(r.Context(), name, serial)
		},
		Denied: func(_ *http.Request, what string, cause error) { f.Denied(t.Context(), "address:test", what, cause) },
		Ready:  f.Ready(),
		Names:  authority.Names,
	}))
	s.Listener = tls.NewListener(s.Listener, authority.HTTPS())
	s.Start()
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http://", "https://", 1), authority
}

// The function `with` returns an HTTP client with this TLS configuration.
func with(t *testing.T, config *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// client returns a client of the operator ada.
func client(t *testing.T, f *servertest.Fleet) servertest.API {
	t.Helper()
	url, authority := serve(t, f)
	return httpapi.NewClient(url, with(t, operator(t, authority)))
}

func operator(t *testing.T, authority *identity.Authority) *tls.Config {
	t.Helper()
	bundle, err := authority.IssueOperator("ada")
	if err != nil {
		t.Fatal(err)
	}
	return bundle.TLS()
}

func TestClientIsJobs(t *testing.T)      { servertest.TestJobs(t, client) }
func TestClientIsNodes(t *testing.T)     { servertest.TestNodes(t, client) }
func TestClientIsTokens(t *testing.T)    { servertest.TestTokens(t, client) }
func TestClientIsOperators(t *testing.T) { servertest.TestOperators(t, client) }
func TestClientIsCodes(t *testing.T)     { servertest.TestCodes(t, client) }
func TestClientIsValues(t *testing.T)    { servertest.TestValues(t, client) }
func TestClientIsPauses(t *testing.T)    { servertest.TestPauses(t, client) }
func TestClientIsExplains(t *testing.T)  { servertest.TestExplains(t, client) }
func TestClientIsRemotes(t *testing.T)   { servertest.TestRemotes(t, client) }
func TestClientIsReports(t *testing.T)   { servertest.TestReports(t, client) }

// A client without an operator's certificate can only enrol a node.
func TestWithoutACertificate(t *testing.T) {
	f := servertest.Start(t)
	url, authority := serve(t, f)
	config, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	nobody := httpapi.NewClient(url, with(t, config))
	ctx := t.Context()
	calls := map[string]func() error{
		"start":   func() error { _, err := nobody.StartJob(ctx, api.StartJob{}); return err },
		"cancel":  func() error { return nobody.CancelJob(ctx, api.CancelJob{}) },
		"list":    func() error { _, err := nobody.ListJobs(ctx); return err },
		"record":  func() error { _, err := nobody.RunRecord(ctx, ""); return err },
		"report":  func() error { _, err := nobody.RunReport(ctx, ""); return err },
		"log":     func() error { return nobody.RunLog(ctx, "", nil) },
		"changes": func() error { _, err := nobody.JobChanges(ctx, ""); return err },
		"watch":   func() error { return nobody.WatchJob(ctx, api.WatchJob{}, nil) },
		"token":   func() error { _, err := nobody.CreateToken(ctx, api.CreateToken{Name: "x"}); return err },
		"nodes":   func() error { _, err := nobody.ListNodes(ctx); return err },
		"replace": func() error { return nobody.ReplaceNode(ctx, "x") },
		"remove":  func() error { return nobody.RemoveNode(ctx, "x") },
		"missing": func() error { _, err := nobody.MissingBlobs(ctx, nil); return err },
		"put":     func() error { _, err := nobody.PutBlob(ctx, []byte("x")); return err },
		"push":    func() error { _, err := nobody.PushCode(ctx, tutti.CodePush{}); return err },
		"fleet":   func() error { _, err := nobody.SetFleet(ctx, api.FleetSource{}); return err },
		"get":     func() error { _, err := nobody.GetFleet(ctx); return err },
		"set":     func() error { return nobody.SetValue(ctx, "x", []byte("1")) },
		"unset":   func() error { return nobody.UnsetValue(ctx, "x") },
		"values":  func() error { _, err := nobody.ListValues(ctx, ""); return err },
		"effect":  func() error { _, err := nobody.Effect(ctx, "x", nil); return err },
		"pause":   func() error { _, err := nobody.Pause(ctx, api.Pause{Reason: "x"}); return err },
		"unpause": func() error { return nobody.Unpause(ctx, "") },
		"pauses":  func() error { _, err := nobody.ListPauses(ctx); return err },
		"tokens":  func() error { _, err := nobody.ListTokens(ctx); return err },
		"end":     func() error { return nobody.RevokeToken(ctx, "x") },
		"issue":   func() error { _, err := nobody.IssueOperator(ctx, api.IssueOperator{}); return err },
		"renew":   func() error { _, err := nobody.RenewOperator(ctx, nil); return err },
		"people":  func() error { _, err := nobody.ListOperators(ctx); return err },
		"revoke":  func() error { _, err := nobody.RevokeOperator(ctx, api.RevokeOperator{}); return err },
		"show":    func() error { _, err := nobody.ShowNode(ctx, "x"); return err },
		"why":     func() error { _, err := nobody.ExplainNode(ctx, "x"); return err },
		"whence":  func() error { _, err := nobody.ExplainValue(ctx, "x"); return err },
		"what":    func() error { _, err := nobody.ExplainResource(ctx, api.ExplainResource{}); return err },
		"graph":   func() error { _, err := nobody.Graph(ctx, ""); return err },
		"picture": func() error { _, err := nobody.Picture(ctx, ""); return err },
	}
	for name, call := range calls {
		if err := call(); tutti.CodeOf(err) != tutti.CodeUnauthenticated {
			t.Errorf("%s: %v, want unauthenticated", name, err)
		}
	}
	if got := f.Denials(); len(got) != len(calls) || len(f.Events()) != len(calls) {
		t.Errorf("the log has %v, with the denials %v: want a denial for each of %d calls", servertest.Kinds(f.Events()), got, len(calls))
	}
	token, err := f.CreateToken(servertest.Operator(), api.CreateToken{Name: "db-01"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nobody.Enrol(ctx, (&servertest.Node{Name: "db-01", Key: servertest.Key("db-01")}).Request(token)); err != nil {
		t.Errorf("enrol: %v", err)
	}
}

func TestAnotherCAsOperatorIsNobody(t *testing.T) {
	url, authority := serve(t, servertest.Start(t))
	_, others := serve(t, servertest.Start(t))
	stranger := operator(t, others)
	ours, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	stranger.RootCAs = ours.RootCAs
	_, err = httpapi.NewClient(url, with(t, stranger)).ListJobs(t.Context())
	if tutti.CodeOf(err) != tutti.CodeUnauthenticated {
		t.Errorf("an operator of another fleet: %v, want unauthenticated", err)
	}
	// Our operator's client refuses a server of another CA.
	theirs, _ := serve(t, servertest.Start(t))
	_, err = httpapi.NewClient(theirs, with(t, operator(t, authority))).ListJobs(t.Context())
	if tutti.CodeOf(err) != tutti.CodeRefused {
		t.Errorf("a server of another CA: %v, want refused", err)
	}
}

func TestHealth(t *testing.T) {
	ready := make(chan struct{})
	s := httptest.NewServer(httpapi.NewHandler(httpapi.Options{
		Services: nothing, Ready: ready,
	}))
	defer s.Close()
	check := func(path string, status int, says string) {
		t.Helper()
		resp, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != status || !strings.Contains(string(body), says) {
			t.Errorf("%s: %s %q, %v: want %d and %q", path, resp.Status, body, err, status, says)
		}
	}
	check("/healthz", http.StatusOK, "ok")
	check("/readyz", http.StatusServiceUnavailable, "unavailable")
	close(ready)
	check("/readyz", http.StatusOK, "ready")
	check("/v1/jobs/list", http.StatusNotFound, "no call GET")
	check("/else", http.StatusNotFound, "no call")
}

// A server of an earlier release does not know the call for pictures. The error says what to do.
func TestAnOlderServerDrawsNothing(t *testing.T) {
	older := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"not_found","message":"no call POST /v1/graph/picture"}`)
	}))
	defer older.Close()
	_, err := httpapi.NewClient(older.URL, older.Client()).Picture(t.Context(), "")
	if tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), "too old to draw a picture: upgrade it, or use: tutti graph --dot") {
		t.Errorf("got %v", err)
	}
}

// An error has the same code on the client's side as on the server's side.
func TestErrorsCross(t *testing.T) {
	for _, code := range []tutti.Code{
		tutti.CodeInvalid, tutti.CodeNotFound, tutti.CodeConflict, tutti.CodeUnauthenticated,
		tutti.CodeRefused, tutti.CodeUnavailable, tutti.CodeDeadline, tutti.CodeInternal,
	} {
		s := httptest.NewServer(httpapi.NewHandler(httpapi.Options{
			Services: nothing,
			Admit: func(*http.Request, []tutti.Verb) (context.Context, func(), error) {
				return nil, nil, tutti.Errorf(code, "because of %s", code)
			},
			Denied: func(*http.Request, string, error) {},
		}))
		_, err := httpapi.NewClient(s.URL, s.Client()).ListJobs(t.Context())
		if tutti.CodeOf(err) != code || err.Error() != "because of "+string(code) {
			t.Errorf("%s came as %q: %v", code, tutti.CodeOf(err), err)
		}
		s.Close()
	}
}

func TestWhatIsNoServerOfOurs(t *testing.T) {
	cases := map[string]struct {
		handler http.HandlerFunc
		code    tutti.Code
	}{
		"a page":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, tutti.CodeUnavailable},
		"another error": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, tutti.CodeInternal},
		"nothing":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, tutti.CodeUnavailable},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(tc.handler)
			defer s.Close()
			_, err := httpapi.NewClient(s.URL, s.Client()).ListJobs(t.Context())
			if tutti.CodeOf(err) != tc.code {
				t.Errorf("%v (%q), want %q", err, tutti.CodeOf(err), tc.code)
			}
		})
	}
	_, err := httpapi.NewClient("http://127.0.0.1:1", http.DefaultClient).ListJobs(t.Context())
	if tutti.CodeOf(err) != tutti.CodeUnavailable || !strings.Contains(err.Error(), "http://127.0.0.1:1 cannot be reached") {
		t.Errorf("no server: %v", err)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	f := servertest.Start(t)
	url, authority := serve(t, f)
	c := with(t, operator(t, authority))
	for _, name := range []string{"jobs/start", "jobs/cancel", "jobs/watch", "runs/record", "tokens/create", "nodes/remove", "code/push", "fleet/set", "data/set", "enrol"} {
		resp, err := c.Post(url+"/v1/"+name, "application/json", strings.NewReader("{no json"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s, want 400", name, resp.Status)
		}
	}
	resp, err := c.Post(url+"/v1/enrol", "application/json", strings.NewReader(strings.Repeat(" ", 65<<10)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("more than is allowed: %s, want 400", resp.Status)
	}
}
