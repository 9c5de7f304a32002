package httpapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/uidoor"
)

// TestThePagesCallsOnlyRead: every call that the door of `tutti ui` passes on exists, and a person who may only read or
// view may use it. Every other such call is in the list here, with the reason why the door does not pass it on.
func TestThePagesCallsOnlyRead(t *testing.T) {
	kept := map[string]string{
		"operators/list": "operators", "operators/renew": "writes a certificate", "operators/follow": "writes a certificate", "ca/rotation": "the keys of the fleet",
		"code/effect": "code", "code/show": "code", "code/read": "code", "code/list": "code", "code/get": "code", "fleet/get": "the fleet file",
		"signing/show": "code", "grants/suggest": "no screen shows grants", "data/list": "for release 0.2.0", "secrets/list": "no screen shows secrets",
		"nodes/causes": "the stream has them",
	}
	passed := uidoor.Calls()
	for name, verbs := range routes {
		reads := strings.HasPrefix(verbs, byReaders) || strings.HasPrefix(verbs, byAll)
		switch _, passes := passed[name]; {
		case passes && !reads:
			t.Errorf("the door passes %s on, which needs the verb %s", name, verbs)
		case reads && !passes && kept[name] == "":
			t.Errorf("the door does not pass %s on, and this test does not say why", name)
		case passes && kept[name] != "":
			t.Errorf("the door passes %s on, and this test says why not", name)
		}
	}
	for name := range passed {
		if _, ok := routes[name]; !ok {
			t.Errorf("the door passes %s on, but the server does not know it", name)
		}
	}
}

// forwarding returns an address that passes each call on to a server with this handler.
func forwarding(t *testing.T, endless bool, h http.HandlerFunc) string {
	t.Helper()
	behind := httptest.NewServer(h)
	t.Cleanup(behind.Close)
	client := httpapi.NewClient(behind.URL, behind.Client())
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		client.Forward(w, r, strings.TrimPrefix(r.URL.Path, "/v1/"), body, endless)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// The function `forward` sends a call, and returns the status, the content type and the body of the answer.
func forward(t *testing.T, url string) (status int, kind, content string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"node":"web-01"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set("Cookie", "a=b")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(body), err
}

func TestForwardPassesBodyAndAnswerOn(t *testing.T) {
	var got *http.Request
	url := forwarding(t, false, func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(append(body, " <&"...))
	})
	status, kind, body, err := forward(t, url+"/v1/explain/node")
	if err != nil || status != http.StatusOK || body != `{"node":"web-01"} <&` || kind != "application/json" {
		t.Errorf("%d %q %v", status, body, err)
	}
	if got.URL.Path != "/v1/explain/node" || got.Header.Get("Authorization") != "" || got.Header.Get("Cookie") != "" || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the server got %s %v", got.URL.Path, got.Header)
	}
}

func TestForwardPassesErrorsOn(t *testing.T) {
	url := forwarding(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"code":"refused","message":"operator ada has none of the verbs"}`)
	})
	status, _, body, err := forward(t, url+"/v1/nodes/show")
	var said struct{ Code, Message string }
	if err := json.Unmarshal([]byte(body), &said); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{403, "refused", "operator ada has none of the verbs"}, []any{status, said.Code, said.Message}); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// TestForwardDoesNotHoldAStreamBack: the first line arrives before the stream ends.
func TestForwardDoesNotHoldAStreamBack(t *testing.T) {
	end := make(chan struct{})
	url := forwarding(t, true, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-end:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "last\n")
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/audit/read", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, len("first\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first\n" {
		t.Fatalf("%q %v", first, err)
	}
	close(end)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "last\n" {
		t.Errorf("%q %v", rest, err)
	}
}

// TestForwardEndsWithItsServer: half an answer does not look like a whole one.
func TestForwardEndsWithItsServer(t *testing.T) {
	url := forwarding(t, true, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if _, _, body, err := forward(t, url+"/v1/audit/read"); err == nil {
		t.Errorf("half an answer looks whole: %q", body)
	}
}
