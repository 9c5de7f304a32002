package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
)

// TestLargeBodiesShareABudget checks that one operator's large requests leave room for the requests of others,
// and that all requests together have a limit.
func TestLargeBodiesShareABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := httpapi.NewBudget()
		const part = 24 << 20
		var held []func()
		for range httpapi.OwnBodies / part {
			release, err := b.Take(t.Context(), "operator:eve", part)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		_, err := b.Take(t.Context(), "operator:eve", part)
		if tutti.CodeOf(err) != tutti.CodeUnavailable || !strings.Contains(err.Error(), "operator:eve has other large requests") {
			t.Errorf("one more of the same operator: %v; want that there is no room", err)
		}
		release, err := b.Take(t.Context(), "operator:ada", part)
		if err != nil {
			t.Fatalf("one of another operator: %v", err)
		}
		release()
		for i := int64(len(held)) * part; i+part <= httpapi.AllBodies; i += part {
			release, err := b.Take(t.Context(), fmt.Sprintf("operator:%d", i), part)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		_, err = b.Take(t.Context(), "operator:ada", part)
		if tutti.CodeOf(err) != tutti.CodeUnavailable || !strings.Contains(err.Error(), "other operators have large requests") {
			t.Errorf("when all of the budget is taken: %v; want that there is no room", err)
		}
		waits := make(chan error, 1)
		go func() {
			release, err := b.Take(t.Context(), "operator:ada", part)
			if err == nil {
				release()
			}
			waits <- err
		}()
		synctest.Wait()
		for _, release := range held {
			release()
		}
		if err := <-waits; err != nil {
			t.Errorf("who waited: %v", err)
		}
		if b.Known() != 0 {
			t.Errorf("%d operators are remembered", b.Known())
		}
	})
}

// The variable `large` is the list of calls that may have a large input.
var large = []string{
	"blobs/missing", "blobs/put", "ca/rotate", "code/effect", "code/push", "data/effect", "data/set", "fleet/set", "jobs/start", "join/ca", "remote/ask",
	"secrets/effect", "secrets/recipients", "secrets/recover", "secrets/seal", "signing/code", "signing/operators", "signing/trust",
}

// The function `serving` starts a server that handles all calls. The header Operator of a request
// names its operator.
func serving(t *testing.T, j jobs) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(httpapi.NewHandler(httpapi.Options{
		Services: services(j), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Admit: func(r *http.Request, _ []tutti.Verb) (context.Context, func(), error) {
			return tutti.WithActor(r.Context(), "operator:"+r.Header.Get("Operator")), func() {}, nil
		},
		Denied: func(*http.Request, string, error) {},
	}))
	t.Cleanup(s.Close)
	return s
}

// The function `post` sends a body as this operator, and returns the status of the answer.
func post(t *testing.T, s *httptest.Server, operator, name string, body []byte) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/"+name, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Operator", operator)
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// TestBodiesAreSmall checks that all calls accept only small bodies, except calls with code, fleet files, values or
// lists of nodes.
func TestBodiesAreSmall(t *testing.T) {
	s := serving(t, jobs{})
	for name, limit := range services(jobs{}).Limits() {
		if small := limit == httpapi.SmallBody; small == slices.Contains(large, name) {
			t.Errorf("%s takes %d bytes", name, limit)
		}
	}
	body := fmt.Appendf(nil, "%*s", httpapi.SmallBody+1, "0")
	for _, name := range []string{"operators/renew", "operators/follow", "jobs/list", "jobs/watch"} {
		if got := post(t, s, "eve", name, body); got != http.StatusBadRequest {
			t.Errorf("%s with %d bytes: %d, want that they are too many", name, len(body), got)
		}
	}
}

// TestAnOperatorHasSoManyCalls checks that the server handles only a limited number of an operator's calls at once.
// Further calls of this operator wait, but calls of other operators do not.
func TestAnOperatorHasSoManyCalls(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	var most, now atomic.Int64
	s := serving(t, jobs{list: func(ctx context.Context) ([]api.JobView, error) {
		if tutti.Actor(ctx) == "operator:ada" {
			return nil, nil
		}
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		begun <- struct{}{}
		<-end
		return nil, nil
	}})
	list := func(operator string) error {
		_, err := httpapi.NewClient(s.URL, &http.Client{Transport: as{operator, s.Client().Transport}}).ListJobs(t.Context())
		return err
	}
	const calls = 3 * httpapi.OwnCalls
	ended := make(chan error, calls)
	for range calls {
		go func() { ended <- list("eve") }()
	}
	for range httpapi.OwnCalls {
		<-begun
	}
	if err := list("ada"); err != nil {
		t.Error(err)
	}
	for range calls - httpapi.OwnCalls {
		end <- struct{}{}
		<-begun
	}
	close(end)
	for range calls {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if most.Load() != httpapi.OwnCalls {
		t.Errorf("%d requests of one operator were at work at once, want %d", most.Load(), httpapi.OwnCalls)
	}
}

// TestACallWaitsSoLong checks that a waiting call ends after some time with an error that gives the reason.
func TestACallWaitsSoLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := httpapi.NewBudget()
		var held []func()
		for range httpapi.OwnCalls {
			leave, err := b.Call(t.Context(), "operator:eve")
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, leave)
		}
		_, err := b.Call(t.Context(), "operator:eve")
		if tutti.CodeOf(err) != tutti.CodeUnavailable || !strings.Contains(err.Error(), "operator:eve has 8 other requests running") {
			t.Errorf("one more: %v", err)
		}
		for _, leave := range held {
			leave()
		}
		if b.Known() != 0 {
			t.Errorf("%d operators are remembered", b.Known())
		}
	})
}

// TestAnOperatorHasSoManyStreams checks that the server refuses one stream too many with a clear error, until a
// stream ends.
func TestAnOperatorHasSoManyStreams(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s := serving(t, jobs{watch: func(ctx context.Context, yield func(api.Watched) error) error {
		if err := yield(api.Watched{}); err != nil {
			return err
		}
		begun <- struct{}{}
		select {
		case <-end:
		case <-ctx.Done():
		}
		return nil
	}})
	watch := func(operator string) error {
		client := httpapi.NewClient(s.URL, &http.Client{Transport: as{operator, s.Client().Transport}})
		return client.WatchJob(t.Context(), api.WatchJob{}, func(api.Watched) error { return nil })
	}
	ended := make(chan error, httpapi.OwnStreams+1)
	for range httpapi.OwnStreams {
		go func() { ended <- watch("eve") }()
		<-begun
	}
	more := make(chan error, 1)
	go func() { more <- watch("eve") }()
	var err error
	select {
	case err = <-more:
	case <-begun:
	}
	if tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), "64 watches") {
		t.Errorf("one more: %v; want that it is refused", err)
	}
	go func() { ended <- watch("ada") }()
	<-begun // of another operator
	close(end)
	for range httpapi.OwnStreams + 1 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	go func() { ended <- watch("eve") }()
	<-begun
	if err := <-ended; err != nil {
		t.Errorf("when they have ended: %v", err)
	}
}

// The type `as` is an HTTP transport. It adds an operator's name to each request.
type as struct {
	operator string
	by       http.RoundTripper
}

func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Operator", a.operator)
	return a.by.RoundTrip(r)
}

// The type `mistaken` is a body that panics after its first part.
type mistaken struct{ left int }

func (b *mistaken) Read(p []byte) (int, error) {
	if b.left == 0 {
		panic("a mistake")
	}
	n := min(b.left, len(p))
	b.left -= n
	return n, nil
}

// TestAPanicKeepsNoRoom: if the reading of a large body panics, only this request fails. The request's part of the
// budget is free again.
func TestAPanicKeepsNoRoom(t *testing.T) {
	b := httpapi.NewBudget()
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			r := httptest.NewRequest(http.MethodPost, "/", &mistaken{httpapi.SmallBody + 1})
			r.ContentLength = httpapi.OwnBodies
			_, _, _ = b.Read(tutti.WithActor(t.Context(), "operator:eve"), httptest.NewRecorder(), r)
		}()
		if b.Known() != 0 {
			t.Fatal("it holds room")
		}
	}
}
