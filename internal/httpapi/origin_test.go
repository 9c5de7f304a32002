package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/servertest"
)

// TestAnotherWebPageChangesNothing: if a browser has an operator's certificate, the browser
// sends the certificate with requests of any web page.
func TestAnotherWebPageChangesNothing(t *testing.T) {
	f := servertest.Start(t)
	url, authority := serve(t, f)
	browser := with(t, operator(t, authority))
	port := url[strings.LastIndex(url, ":"):]
	for i, tc := range []struct {
		reason string
		host   string // empty: as in the URL
		header map[string]string
		status int
		says   string
	}{
		{"a form of another page", "", map[string]string{"Origin": "https://evil.example", "Content-Type": "text/plain"}, 403, `the origin "https://evil.example"`},
		{"a script of another page", "", map[string]string{"Origin": "https://evil.example", "Content-Type": "application/json"}, 403, "refuses requests from other web pages"},
		{"a script that sends no type", "", map[string]string{"Origin": "https://evil.example"}, 403, "origin"},
		{"a page without an origin", "", map[string]string{"Origin": "null", "Content-Type": "application/json"}, 403, `"null"`},
		{"the same host without TLS", "", map[string]string{"Origin": strings.Replace(url, "https:", "http:", 1)}, 403, "origin"},
		{"another port", "", map[string]string{"Origin": url + "1"}, 403, "origin"},
		{"an old browser that names no page", "", map[string]string{"Content-Type": "text/plain;charset=UTF-8"}, 400, `must be "application/json"`},
		{"a form", "", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 400, "content type"},
		{"no type at all", "", map[string]string{"Content-Type": "; application/json"}, 400, "content type"},
		{"a page of the server's own", "", map[string]string{"Origin": url, "Content-Type": "application/json; charset=utf-8"}, 200, ""},
		{"the command line of 0.2.0", "", nil, 200, ""},
		// The attacker's name leads to this server, so the browser treats the page and this server as the
		// same origin.
		{"a page under another name", "evil.example" + port, map[string]string{"Origin": "https://evil.example" + port, "Content-Type": "application/json"}, 403, `the host "evil.example", and the certificate of this server does not name it`},
		{"another name, and no page", "evil.example", nil, 403, "evil.example"},
		{"a part of a name", "ocalhost" + port, nil, 403, "ocalhost"},
		{"below a name", "evil.localhost" + port, nil, 403, "evil.localhost"},
		{"another address", "192.0.2.1" + port, nil, 403, "192.0.2.1"},
		{"a name of the server", "localhost" + port, nil, 200, ""},
		{"its name in capitals, as a page", "LOCALHOST" + port, map[string]string{"Origin": "https://LOCALHOST" + port}, 200, ""},
		{"an address of the server", "[::1]" + port, nil, 200, ""},
		{"a page under one name that calls another", "localhost" + port, map[string]string{"Origin": url}, 403, "origin"},
	} {
		before := len(f.Events())
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/data/set", strings.NewReader(fmt.Sprintf(`{"key": "shared/x", "value": %d}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range tc.header {
			req.Header.Set(k, v)
		}
		req.Host = tc.host
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		var said struct{ Message string }
		_ = json.NewDecoder(resp.Body).Decode(&said)
		resp.Body.Close()
		if resp.StatusCode != tc.status || !strings.Contains(said.Message, tc.says) {
			t.Errorf("%s: %d %q, want %d with %q", tc.reason, resp.StatusCode, said.Message, tc.status, tc.says)
		}
		for _, kind := range f.Since(before) {
			if (kind == "value.set") != (tc.status == 200) && kind != "audit.denied" {
				t.Errorf("%s: %s was appended", tc.reason, kind)
			}
		}
		if tc.status == 200 && len(f.Since(before)) != 1 {
			t.Errorf("%s: appended %v, want a value", tc.reason, f.Since(before))
		}
	}
}

// TestHealthHasAnyName: a health check may use an address that the certificate does not name, because the check changes
// nothing.
func TestHealthHasAnyName(t *testing.T) {
	f := servertest.Start(t)
	url, authority := serve(t, f)
	browser := with(t, operator(t, authority))
	for _, tc := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/healthz", 200}, {"HEAD", "/healthz", 200}, {"GET", "/readyz", 200}, {"HEAD", "/readyz", 200},
		{"GET", "/v1/nodes/list", 403}, {"GET", "/", 403}, {"HEAD", "/", 403},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, url+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "10.1.2.3"
		resp, err := browser.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tc.want {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, resp.StatusCode, tc.want)
		}
	}
}
