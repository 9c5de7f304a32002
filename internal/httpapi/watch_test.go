package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/httpapi"
)

// jobs is a tutti.Jobs whose watch a test writes.
type jobs struct {
	tutti.Jobs
	watch func(ctx context.Context, yield func(tutti.Watched) error) error
}

func (j jobs) WatchJob(ctx context.Context, _ tutti.WatchJob, yield func(tutti.Watched) error) error {
	return j.watch(ctx, yield)
}

// serveJobs serves a watch to everybody.
func serveJobs(t *testing.T, watch func(ctx context.Context, yield func(tutti.Watched) error) error, change func(*http.Server)) *httpapi.Client {
	t.Helper()
	s := httptest.NewUnstartedServer(httpapi.NewHandler(httpapi.Options{
		Services: services(jobs{watch: watch}),
		Admit:    func(r *http.Request) (context.Context, func(), error) { return r.Context(), func() {}, nil },
	}))
	change(s.Config)
	s.Start()
	t.Cleanup(s.Close)
	return httpapi.NewClient(s.URL, s.Client())
}

// Nothing else is asked for.
type (
	nodes     struct{ tutti.Nodes }
	tokens    struct{ tutti.Tokens }
	operators struct{ tutti.Operators }
	codes     struct{ tutti.Codes }
	values    struct{ tutti.Values }
	pauses    struct{ tutti.Pauses }
	audits    struct{ tutti.Audits }
	explains  struct{ tutti.Explains }
	remotes   struct{ tutti.Remotes }
	reports   struct{ tutti.Reports }
)

func services(j tutti.Jobs) httpapi.Services {
	return httpapi.Services{Jobs: j, Nodes: nodes{}, Tokens: tokens{}, Operators: operators{}, Codes: codes{}, Values: values{}, Pauses: pauses{}, Audits: audits{}, Explains: explains{}, Remotes: remotes{}, Reports: reports{}}
}

var nothing = services(jobs{})

var phase = tutti.Watched{Live: &tutti.Live{Phase: "apply"}}

// A job may take hours; the deadline for reading a request is none for it.
func TestAWatchOutlivesTheReadTimeout(t *testing.T) {
	const readTimeout = 50 * time.Millisecond
	c := serveJobs(t, func(ctx context.Context, yield func(tutti.Watched) error) error {
		if err := yield(phase); err != nil {
			return err
		}
		select { // nothing happens for longer than that
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * readTimeout):
		}
		return yield(phase)
	}, func(s *http.Server) { s.ReadTimeout = readTimeout })
	seen := 0
	err := c.WatchJob(t.Context(), tutti.WatchJob{}, func(tutti.Watched) error { seen++; return nil })
	if err != nil || seen != 2 {
		t.Errorf("saw %d of 2, then %v", seen, err)
	}
}

func TestAWatchThatBreaksOffIsAnError(t *testing.T) {
	c := serveJobs(t, func(_ context.Context, yield func(tutti.Watched) error) error {
		_ = yield(phase)
		panic(http.ErrAbortHandler)
	}, func(*http.Server) {})
	seen := 0
	err := c.WatchJob(t.Context(), tutti.WatchJob{Job: "deploy-1"}, func(tutti.Watched) error { seen++; return nil })
	if tutti.CodeOf(err) != tutti.CodeUnavailable || seen != 1 || !strings.Contains(err.Error(), "tutti job watch deploy-1") {
		t.Errorf("saw %d, then %v, want one and unavailable", seen, err)
	}
}

func TestAWatchEndsWithTheServersWord(t *testing.T) {
	for _, want := range []error{nil, tutti.Errorf(tutti.CodeNotFound, "no job")} {
		c := serveJobs(t, func(context.Context, func(tutti.Watched) error) error { return want }, func(*http.Server) {})
		err := c.WatchJob(t.Context(), tutti.WatchJob{}, func(tutti.Watched) error { return nil })
		if tutti.CodeOf(err) != tutti.CodeOf(want) {
			t.Errorf("ended with %v, want %v", err, want)
		}
	}
}
