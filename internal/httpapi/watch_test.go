package httpapi_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
)

// The type `jobs` implements tutti.Jobs. The test provides the functions `watch` and `list`.
type jobs struct {
	api.Jobs
	watch func(ctx context.Context, yield func(api.Watched) error) error
	list  func(ctx context.Context) ([]api.JobView, error)
}

func (j jobs) ListJobs(ctx context.Context) ([]api.JobView, error) { return j.list(ctx) }

func (j jobs) WatchJob(ctx context.Context, _ api.WatchJob, yield func(api.Watched) error) error {
	return j.watch(ctx, yield)
}

// serveJobs serves a watch to all clients.
func serveJobs(t *testing.T, watch func(ctx context.Context, yield func(api.Watched) error) error) *httpapi.Client {
	t.Helper()
	s := httptest.NewServer(jobsHandler(watch))
	t.Cleanup(s.Close)
	return httpapi.NewClient(s.URL, s.Client())
}

func jobsHandler(watch func(ctx context.Context, yield func(api.Watched) error) error) http.Handler {
	return httpapi.NewHandler(httpapi.Options{
		Services: services(jobs{watch: watch}),
		Admit: func(r *http.Request, _ []tutti.Verb) (context.Context, func(), error) {
			return r.Context(), func() {}, nil
		},
	})
}

// The test calls no other method.
type (
	nodes     struct{ api.Nodes }
	tokens    struct{ api.Tokens }
	operators struct{ api.Operators }
	codes     struct{ api.Codes }
	signings  struct{ api.Signings }
	values    struct{ api.Values }
	pauses    struct{ api.Pauses }
	audits    struct{ api.Audits }
	explains  struct{ api.Explains }
	remotes   struct{ api.Remotes }
	reports   struct{ api.Reports }
	secrets   struct{ api.Secrets }
	rotations struct{ api.Rotations }
)

func services(j api.Jobs) httpapi.Services {
	return httpapi.Services{Jobs: j, Nodes: nodes{}, Tokens: tokens{}, Operators: operators{}, Codes: codes{}, Signings: signings{}, Values: values{}, Pauses: pauses{}, Audits: audits{}, Explains: explains{}, Remotes: remotes{}, Reports: reports{}, Secrets: secrets{}, Rotations: rotations{}}
}

var nothing = services(jobs{})

var phase = api.Watched{Live: &tutti.Live{Phase: "apply"}}

// The type `pipes` is a listener for connections in memory. The deadlines of these connections use
// the clock of the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// A job may take hours. The deadline for reading a request must not end the watch
// of a job.
func TestAWatchOutlivesTheReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const readTimeout = time.Minute
		listener := make(pipes)
		s := &http.Server{ReadTimeout: readTimeout, Handler: jobsHandler(func(_ context.Context, yield func(api.Watched) error) error {
			if err := yield(phase); err != nil {
				return err
			}
			time.Sleep(5 * readTimeout) // during this time no event comes
			return yield(phase)
		})}
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve(listener) })
		transport := &http.Transport{DialContext: listener.dial}
		seen := 0
		err := httpapi.NewClient("http://tutti", &http.Client{Transport: transport}).WatchJob(t.Context(), api.WatchJob{}, func(api.Watched) error { seen++; return nil })
		if err != nil || seen != 2 {
			t.Errorf("saw %d of 2, then %v", seen, err)
		}
		transport.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
}

func TestAWatchThatBreaksOffIsAnError(t *testing.T) {
	c := serveJobs(t, func(_ context.Context, yield func(api.Watched) error) error {
		_ = yield(phase)
		panic(http.ErrAbortHandler)
	})
	seen := 0
	err := c.WatchJob(t.Context(), api.WatchJob{Job: "deploy-1"}, func(api.Watched) error { seen++; return nil })
	if tutti.CodeOf(err) != tutti.CodeUnavailable || seen != 1 || !strings.Contains(err.Error(), "tutti job watch deploy-1") {
		t.Errorf("saw %d, then %v, want one and unavailable", seen, err)
	}
}

func TestAWatchEndsWithTheServersWord(t *testing.T) {
	for _, want := range []error{nil, tutti.Errorf(tutti.CodeNotFound, "no job")} {
		c := serveJobs(t, func(context.Context, func(api.Watched) error) error { return want })
		err := c.WatchJob(t.Context(), api.WatchJob{}, func(api.Watched) error { return nil })
		if tutti.CodeOf(err) != tutti.CodeOf(want) {
			t.Errorf("ended with %v, want %v", err, want)
		}
	}
}
