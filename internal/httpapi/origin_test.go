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
	for i, tc := range []struct {
		reason string
		header map[string]string
		status int
		says   string
	}{
		{"a form of another page", map[string]string{"Origin": "https://evil.example", "Content-Type": "text/plain"}, 403, `the origin "https://evil.example"`},
		{"a script of another page", map[string]string{"Origin": "https://evil.example", "Content-Type": "application/json"}, 403, "refuses requests from other web pages"},
		{"a script that sends no type", map[string]string{"Origin": "https://evil.example"}, 403, "origin"},
		{"a page without an origin", map[string]string{"Origin": "null", "Content-Type": "application/json"}, 403, `"null"`},
		{"the same host without TLS", map[string]string{"Origin": strings.Replace(url, "https:", "http:", 1)}, 403, "origin"},
		{"another port", map[string]string{"Origin": url + "1"}, 403, "origin"},
		{"an old browser that names no page", map[string]string{"Content-Type": "text/plain;charset=UTF-8"}, 400, `must be "application/json"`},
		{"a form", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 400, "content type"},
		{"no type at all", map[string]string{"Content-Type": "; application/json"}, 400, "content type"},
		{"a page of the server's own", map[string]string{"Origin": url, "Content-Type": "application/json; charset=utf-8"}, 200, ""},
		{"the command line of 0.2.0", nil, 200, ""},
	} {
		before := len(f.Events())
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/data/set", strings.NewReader(fmt.Sprintf(`{"key": "shared/x", "value": %d}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range tc.header {
			req.Header.Set(k, v)
		}
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
