package httpapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/servertest"
)

// seen is an Observer.
type seen struct {
	mu       sync.Mutex
	expected map[string]bool
	calls    []string
}

func (s *seen) Expect(call string) { s.expected[call] = true }

func (s *seen) Called(call, class string, ok bool, _ time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf("%s %s %t", call, class, ok))
}

// TestEachCallIsCounted checks how calls count that end well, fail, are refused, break off in a stream, or panic.
func TestEachCallIsCounted(t *testing.T) {
	f := servertest.Start(t)
	services := httpapi.Services{Jobs: f, Nodes: f, Tokens: f, Operators: f, Codes: f, Signings: f, Values: f, Pauses: f, Audits: f, Explains: f, Remotes: f, Reports: f, Secrets: f, Rotations: f}
	s := &seen{expected: map[string]bool{}}
	handler := httpapi.NewHandler(httpapi.Options{
		Services: services, Observer: s, Logger: slog.New(slog.DiscardHandler), Ready: f.Ready(),
		Admit: func(r *http.Request, _ []tutti.Verb) (context.Context, func(), error) {
			switch r.Header.Get("Operator") {
			case "stranger":
				return nil, nil, tutti.Errorf(tutti.CodeUnauthenticated, "no certificate")
			case "panic":
				panic("a mistake")
			}
			return tutti.WithActor(r.Context(), "operator:ada"), func() {}, nil
		},
		Denied: func(*http.Request, string, error) {},
	})
	for _, call := range []struct{ operator, name, body string }{
		{"ada", "nodes/list", "{}"},
		{"ada", "nodes/show", `"nobody"`},
		{"ada", "data/set", `{"key": "shared/x", "value": 1}`},
		{"stranger", "data/set", "{}"},
		{"ada", "jobs/watch", `{"job": "nobody"}`},
		{"ada", "audit/read", "{}"},
		{"panic", "nodes/list", "{}"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/"+call.name, strings.NewReader(call.body))
		r.Header.Set("Operator", call.operator)
		r.Header.Set("Content-Type", "application/json")
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	want := []string{
		"nodes/list read true", "nodes/show read false", "data/set write true", "data/set write false", "jobs/watch stream false",
		"audit/read stream true", "nodes/list read false",
	}
	if diff := cmp.Diff(want, s.calls); diff != "" {
		t.Errorf("-want +counted\n%s", diff)
	}
	for _, call := range services.Routes() {
		if !s.expected[call] {
			t.Errorf("%s has no counter before its first call", call)
		}
	}
}
