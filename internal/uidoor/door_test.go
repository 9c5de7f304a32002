package uidoor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/uidoor"
)

// server records the calls that the door passes on.
type server struct{ got []string }

func (s *server) Forward(w http.ResponseWriter, _ *http.Request, call string, body []byte, endless bool) {
	s.got = append(s.got, fmt.Sprintf("%s %s %v", call, body, endless))
	_, _ = io.WriteString(w, `{"from":"server"}`)
}

type fixture struct {
	*uidoor.Door
	server  *server
	refused []string
}

const port = "4711"

func newDoor() *fixture {
	f := &fixture{server: &server{}}
	f.Door = uidoor.New(uidoor.Options{
		Server: f.server, Port: port, About: uidoor.About{Operator: "ada", Server: "https://tutti:8150", Release: "1"},
		Refused: func(why error) { f.refused = append(f.refused, why.Error()) },
	})
	return f
}

// request returns a request as the page sends it.
func request(method, path, bearer, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:" + port
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "http://"+r.Host)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	return r
}

func (f *fixture) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

// enter exchanges a code for the bearer.
func (f *fixture) enter(t *testing.T, code string) string {
	t.Helper()
	w := f.send(request("POST", "/door/exchange", "", `{"code":"`+code+`"}`))
	var out struct{ Bearer, Operator string }
	if err := json.NewDecoder(w.Body).Decode(&out); err != nil || w.Code != 200 || out.Operator != "ada" {
		t.Fatalf("exchange: %d %+v %v", w.Code, out, err)
	}
	return out.Bearer
}

func TestAReadingCallGoesThrough(t *testing.T) {
	f := newDoor()
	bearer := f.enter(t, f.Code())
	if len(bearer) != 43 { // 256 bits in base64
		t.Errorf("the bearer has %d characters", len(bearer))
	}
	for call, endless := range uidoor.Calls() {
		f.server.got = nil
		w := f.send(request("POST", "/v1/"+call, bearer, `"web-01"`))
		if diff := cmp.Diff([]string{fmt.Sprintf(`%s "web-01" %v`, call, endless)}, f.server.got); diff != "" || w.Code != 200 {
			t.Errorf("%s: %d %s", call, w.Code, diff)
		}
	}
}

// TestTheDoorRefuses: nobody gets through without the bearer, from another page, or with a call that may change something.
func TestTheDoorRefuses(t *testing.T) {
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, c := range []struct {
		reason string
		path   string
		method string
		change func(*http.Request)
		status int
	}{
		{reason: "without a bearer", change: func(r *http.Request) { r.Header.Del("Authorization") }, status: 401},
		{reason: "with another bearer", change: set("Authorization", "Bearer AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), status: 401},
		{reason: "with an empty bearer", change: set("Authorization", "Bearer "), status: 401},
		{reason: "with the bearer in a cookie", change: func(r *http.Request) {
			r.Header.Set("Cookie", "bearer="+bearerIn(r))
			r.Header.Del("Authorization")
		}, status: 401},
		{reason: "with the bearer in the address", change: func(r *http.Request) {
			r.URL.RawQuery = "bearer=" + bearerIn(r)
			r.Header.Del("Authorization")
		}, status: 401},
		{reason: "with two bearers", change: func(r *http.Request) { r.Header.Add("Authorization", "Bearer x") }, status: 401},
		{reason: "Host of another page (DNS rebinding)", change: func(r *http.Request) { r.Host = "evil.example" }, status: 403},
		{reason: "Host of another page with our port", change: func(r *http.Request) { r.Host = "evil.example:" + port }, status: 403},
		{reason: "Host with another port", change: func(r *http.Request) { r.Host = "127.0.0.1:80" }, status: 403},
		{reason: "Host and Origin of another page", change: func(r *http.Request) {
			r.Host = "evil.example:" + port
			r.Header.Set("Origin", "http://evil.example:"+port)
		}, status: 403},
		{reason: "Origin of another page", change: set("Origin", "https://evil.example"), status: 403},
		{reason: "Origin of another port of this machine", change: set("Origin", "http://127.0.0.1:8080"), status: 403},
		{reason: "Origin with TLS", change: set("Origin", "https://127.0.0.1:"+port), status: 403},
		{reason: "Origin of a sandboxed page", change: set("Origin", "null"), status: 403},
		{reason: "two Origins", change: func(r *http.Request) { r.Header.Add("Origin", "https://evil.example") }, status: 403},
		{reason: "from another site", change: set("Sec-Fetch-Site", "cross-site"), status: 403},
		{reason: "from another port of this machine", change: set("Sec-Fetch-Site", "same-site"), status: 403},
		{reason: "a form of another page", change: set("Content-Type", "text/plain"), status: 400},
		{reason: "no content type", change: func(r *http.Request) { r.Header.Del("Content-Type") }, status: 400},
		{reason: "too large", change: func(r *http.Request) { r.Body = io.NopCloser(bytes.NewReader(make([]byte, 65<<10))) }, status: 400},
		{reason: "GET", method: "GET", status: 404},
		{reason: "OPTIONS: no other page learns that it may send a bearer", method: "OPTIONS", status: 404},

		{reason: "start a job", path: "/v1/jobs/start", status: 403},
		{reason: "set a value", path: "/v1/data/set", status: 403},
		{reason: "remove a node", path: "/v1/nodes/remove", status: 403},
		{reason: "ask nodes", path: "/v1/remote/ask", status: 403},
		{reason: "make a token", path: "/v1/tokens/create", status: 403},
		{reason: "read code", path: "/v1/code/read", status: 403},
		{reason: "the fleet file", path: "/v1/fleet/get", status: 403},
		{reason: "renew the certificate", path: "/v1/operators/renew", status: 403},
		{reason: "an unknown call", path: "/v1/no/such", status: 403},
		{reason: "a reading call behind a way up", path: "/v1/nodes/list%2f..%2f..%2fdata%2fset", status: 403},
		{reason: "an empty call", path: "/v1/", status: 403},
		{reason: "write to the page", path: "/ui/", status: 404},
	} {
		t.Run(c.reason, func(t *testing.T) {
			f := newDoor()
			bearer := f.enter(t, f.Code())
			method, path := c.method, c.path
			if method == "" {
				method = "POST"
			}
			if path == "" {
				path = "/v1/nodes/list"
			}
			r := request(method, path, bearer, `{}`)
			if c.change != nil {
				c.change(r)
			}
			w := f.send(r)
			if w.Code != c.status || len(f.server.got) > 0 {
				t.Errorf("status %d, want %d; the server got %q", w.Code, c.status, f.server.got)
			}
			if w.Header().Get("Tutti-Door") == "" || !json.Valid(w.Body.Bytes()) {
				t.Errorf("the page cannot tell that the door refused: %v %q", w.Header(), w.Body)
			}
			if w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Error("another page may read the answer")
			}
			if said := strings.Join(f.refused, " "); strings.Contains(said, bearer) || strings.Contains(w.Body.String(), bearer) {
				t.Errorf("the refusal contains the bearer: %s %s", said, w.Body)
			}
		})
	}
}

func bearerIn(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func TestACodeIsGoodOnceForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newDoor()
		used, late, fresh := f.Code(), f.Code(), f.Code()
		first := f.enter(t, used)
		try := func(code string) (int, string) {
			w := f.send(request("POST", "/door/exchange", "", `{"code":"`+code+`"}`))
			return w.Code, w.Body.String()
		}
		if status, said := try(used); status != 401 || !strings.Contains(said, "was used before") {
			t.Errorf("a used code: %d %s", status, said)
		}
		if status, said := try("guess"); status != 401 || strings.Contains(said, "bearer\":") {
			t.Errorf("a guessed code: %d %s", status, said)
		}
		if status, _ := try(""); status != 401 {
			t.Errorf("no code: %d", status)
		}
		time.Sleep(time.Minute)
		second := f.enter(t, fresh) // the minute has not passed
		time.Sleep(time.Nanosecond)
		if status, said := try(late); status != 401 || !strings.Contains(said, "valid for 1m0s") {
			t.Errorf("a late code: %d %s", status, said)
		}
		if w := f.send(request("POST", "/door/about", first, "{}")); w.Code != 401 {
			t.Errorf("the bearer before the last one: %d", w.Code)
		}
		if w := f.send(request("POST", "/door/about", second, "{}")); w.Code != 200 {
			t.Errorf("the last bearer: %d", w.Code)
		}
	})
}

// TestAnotherPageCannotUseACode: a code that somebody has read from a screen is of no use to a web page.
func TestAnotherPageCannotUseACode(t *testing.T) {
	f := newDoor()
	code := f.Code()
	r := request("POST", "/door/exchange", "", `{"code":"`+code+`"}`)
	r.Header.Set("Origin", "https://evil.example")
	if w := f.send(r); w.Code != 403 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	f.enter(t, code) // the code was not used up
}

func TestAnUnusedDoorCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newDoor()
		bearer := f.enter(t, f.Code())
		began, ended := time.Now(), make(chan time.Duration, 1)
		go func() {
			if err := f.Unused(t.Context()); err != nil {
				t.Error(err)
			}
			ended <- time.Since(began)
		}()
		time.Sleep(50 * time.Minute)
		f.send(request("POST", "/v1/nodes/list", bearer, "{}"))
		time.Sleep(20 * time.Minute)
		// a stranger does not keep the door open
		f.send(request("POST", "/v1/nodes/list", "guess", "{}"))
		f.send(request("GET", "/ui/", "", ""))
		if got, want := <-ended, 110*time.Minute; got != want {
			t.Errorf("the door closed after %s, want %s", got, want)
		}
	})
}

// slow answers a call when its test says so.
type slow struct{ end chan struct{} }

func (s slow) Forward(http.ResponseWriter, *http.Request, string, []byte, bool) { <-s.end }

func TestARunningCallKeepsTheDoorOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newDoor()
		s := slow{make(chan struct{})}
		f.Server = s
		bearer := f.enter(t, f.Code())
		began, ended := time.Now(), make(chan time.Duration, 1)
		go func() {
			_ = f.Unused(t.Context())
			ended <- time.Since(began)
		}()
		go f.send(request("POST", "/v1/audit/read", bearer, "{}"))
		time.Sleep(5 * time.Hour)
		close(s.end)
		if got, want := <-ended, 6*time.Hour; got != want {
			t.Errorf("the door closed after %s, want %s", got, want)
		}
	})
}

// TestThePageIsProtected checks the headers of the page, of a link into the page, and of refusals.
func TestThePageIsProtected(t *testing.T) {
	f := newDoor()
	for _, path := range []string{"/ui/", "/ui/nodes/web-01", "/ui/index.html", "/", "/nothing", "/v1/nodes/list", "/door/exchange"} {
		r := request("GET", path, "", "")
		if strings.HasPrefix(path, "/v1") || strings.HasPrefix(path, "/door") {
			r = request("POST", path, "", "{}")
		}
		w := f.send(r)
		if strings.HasPrefix(path, "/ui/") && (w.Code != 200 || !strings.Contains(w.Body.String(), "<title>Tutti</title>")) {
			t.Errorf("%s: %d %.80s", path, w.Code, w.Body)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; worker-src 'self'; " +
				"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types tutti",
			"X-Content-Type-Options":       "nosniff",
			"X-Frame-Options":              "DENY",
			"Referrer-Policy":              "no-referrer",
			"Cache-Control":                "no-store",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Set-Cookie":                   "",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
	}
}

// TestAnotherPageCannotShowThePage: a browser may open the page from a link. Nothing else works from another page.
func TestAnotherPageCannotShowThePage(t *testing.T) {
	for _, c := range []struct {
		reason, site, mode, dest string
		status                   int
	}{
		{"the file of tutti ui", "cross-site", "navigate", "document", 200},
		{"the address bar", "none", "navigate", "document", 200},
		{"an old browser", "", "", "", 200},
		{"the page's own script", "same-origin", "no-cors", "script", 200},
		{"a frame", "cross-site", "navigate", "iframe", 403},
		{"a frame of the page itself", "same-origin", "navigate", "iframe", 403},
		{"an object", "cross-site", "navigate", "object", 403},
		{"a script of another page", "cross-site", "no-cors", "script", 403},
		{"a script of another port", "same-site", "no-cors", "script", 403},
		{"an image of another page", "cross-site", "no-cors", "image", 403},
	} {
		r := request("GET", "/ui/", "", "")
		for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode, "Sec-Fetch-Dest": c.dest} {
			if r.Header.Del(name); value != "" {
				r.Header.Set(name, value)
			}
		}
		if w := newDoor().send(r); w.Code != c.status {
			t.Errorf("%s: %d, want %d", c.reason, w.Code, c.status)
		}
	}
}

func TestLink(t *testing.T) {
	for in, want := range map[string]string{
		"": "/ui/", "/": "/ui/", "ui": "/ui/", "/ui/": "/ui/", "nodes/web-01": "/ui/nodes/web-01", "/ui/nodes/web-01": "/ui/nodes/web-01",
		"?state=stale": "/ui/?state=stale", "nodes/../../door": "/ui/door", "a b": "/ui/a%20b",
		"//evil.example": "error", "https://evil.example/": "error", `\\evil.example`: "error", "javascript:alert(1)": "error", "#code=x": "error", "a\nb": "error",
	} {
		got, err := uidoor.Link(in)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", in, got, err, want)
		}
	}
}

// TestCallsOnlyRead guards against a slip of the pen. Package httpapi has the test that compares all calls with their verbs.
func TestCallsOnlyRead(t *testing.T) {
	for name := range uidoor.Calls() {
		if slices.Contains([]string{"start", "set", "cancel", "remove", "ask", "push", "revoke", "create"}, name[strings.Index(name, "/")+1:]) {
			t.Errorf("%s changes something", name)
		}
	}
}

// TestTheHostsOfThePage: the names of the loopback addresses with our port are the page. A refusal says all of them.
func TestTheHostsOfThePage(t *testing.T) {
	for host, status := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "[::1]:" + port: 200,
		"127.0.0.1": 403, "localhost": 403, "[::1]": 403, "127.0.0.2:" + port: 403, "": 403,
	} {
		r := request("GET", "/ui/", "", "")
		r.Host = host
		w := newDoor().send(r)
		if w.Code != status {
			t.Errorf("%q: %d, want %d", host, w.Code, status)
		}
		if says := "only at 127.0.0.1:4711, localhost:4711 and [::1]:4711"; status == 403 && !strings.Contains(w.Body.String(), says) {
			t.Errorf("%q: %s", host, w.Body)
		}
	}
}
