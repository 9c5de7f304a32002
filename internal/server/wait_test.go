package server_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
)

const waitPlan = `
fleet: test
environment: {name: production, path: ./code}
groups: {db: {nodes: [db-01]}}
plans:
  deploy:
    steps: [{wait: {%s}}]
`

// The function `waits` starts a plan with one wait step.
func waits(t *testing.T, f *servertest.Fleet, wait string) (*servertest.Fleet, tutti.JobID) {
	t.Helper()
	f.Join("db-01")
	f.Push(fmt.Sprintf(waitPlan, wait))
	return f, f.Start("deploy", tutti.ModeApply)
}

// The function `end` watches a job until it ends, and returns the job's view with the verdict.
func end(t *testing.T, f *servertest.Fleet, job tutti.JobID) api.JobView {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if _, err := watch(ctx, f, api.WatchJob{Job: job, Follow: true}, nil); err != nil {
		t.Fatal(err)
	}
	return f.Job(job)
}

func TestWaitForAValue(t *testing.T) {
	cases := map[string]struct {
		reason  string
		wait    string
		before  string // the value before the job
		then    []string
		verdict tutti.Verdict
	}{
		"there":     {"what is there is not waited for", "value: shared/x", "1", nil, tutti.VerdictSucceeded},
		"appears":   {"any value is one", "value: shared/x", "", []string{"0"}, tutti.VerdictSucceeded},
		"equals":    {"equal JSON, however written", `value: shared/x, equals: {a: 1, b: [2]}`, "1", []string{`{"b":[2],"a":1}`}, tutti.VerdictSucceeded},
		"not equal": {"another value is not the one", "value: shared/x, equals: 2", "1", []string{"3", `"2"`}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := servertest.Start(t)
				if tc.before != "" {
					set(t, f, "shared/x", tc.before)
				}
				f, job := waits(t, f, tc.wait)
				for _, v := range tc.then {
					wantVerdict(t, f, job, "")
					set(t, f, "shared/x", v)
				}
				synctest.Wait()
				if got := f.Job(job).Verdict; got != tc.verdict {
					t.Errorf("%s: verdict %q, want %q", tc.reason, got, tc.verdict)
				}
			})
		})
	}
}

func TestAWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, job := waits(t, servertest.Start(t), "value: shared/x, timeout: 1m")
		time.Sleep(59 * time.Second)
		wantVerdict(t, f, job, "")
		// After a restart the server gives the wait its full time again, because no answer
		// could arrive during the restart.
		f = f.Restart()
		time.Sleep(59 * time.Second)
		wantVerdict(t, f, job, "")
		time.Sleep(2 * time.Second)
		wantVerdict(t, f, job, tutti.VerdictFailed)
		var last *tutti.StepFinished
		for _, e := range f.Events() {
			if b, ok := e.Body.(*tutti.StepFinished); ok {
				last = b
			}
		}
		if last == nil || last.OK || last.Message != "waited 1m0s for value shared/x" {
			t.Errorf("step ended as %+v", last)
		}
	})
}

func TestACancelledWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, job := waits(t, servertest.Start(t), "value: shared/x")
		if err := f.CancelJob(servertest.Operator(), api.CancelJob{Job: job}); err != nil {
			t.Fatal(err)
		}
		wantVerdict(t, f, job, tutti.VerdictCancelled)
	})
}

// The server makes real connections, also after a restart.
func TestWaitForTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	f, job := waits(t, servertest.Start(t), fmt.Sprintf("tcp: %q", address))
	f = f.Restart()
	wantVerdict(t, f, job, "")
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := end(t, f, job); got.Verdict != tutti.VerdictSucceeded {
		t.Errorf("job %+v", got)
	}
}

func TestWaitForHTTP(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	f, job := waits(t, servertest.Start(t), fmt.Sprintf("http: %q", s.URL+"/healthcheck"))
	if got := end(t, f, job); got.Verdict != tutti.VerdictSucceeded || asked.Load() != 3 {
		t.Errorf("verdict %q after %d questions, want success after the third", got.Verdict, asked.Load())
	}
	var kinds []string
	for _, e := range f.Events() {
		if e.Body.ID() == string(job) {
			kinds = append(kinds, e.Body.Kind())
		}
	}
	if diff := cmp.Diff([]string{"job.started", "step.started", "step.finished", "job.finished"}, kinds); diff != "" {
		t.Errorf("what the server asked is no event: -want +got\n%s", diff)
	}
}

// If a wait fails, its message has the reason: the result of the last question.
func TestAWaitInVainTellsTheLastAnswer(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := gone.Addr().String()
	gone.Close()
	sick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer sick.Close()
	cases := map[string]struct{ reason, wait, want string }{
		"tcp":  {"nobody listens", fmt.Sprintf("tcp: %q", nobody), "waited 1s for tcp " + nobody + "; the last answer: dial tcp " + nobody + ": connect: connection refused"},
		"http": {"it answers that it is not ready", fmt.Sprintf("http: %q", sick.URL), "waited 1s for " + sick.URL + "; the last answer: 503 Service Unavailable"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, job := waits(t, servertest.Start(t), tc.wait+", timeout: 1s")
			if got := end(t, f, job); got.Verdict != tutti.VerdictFailed {
				t.Errorf("%s: verdict %q", tc.reason, got.Verdict)
			}
			if got := inVain(f); got != tc.want {
				t.Errorf("%s: step ended with %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// inVain returns the message of the last failed step.
func inVain(f *servertest.Fleet) (message string) {
	for _, e := range f.Events() {
		if b, ok := e.Body.(*tutti.StepFinished); ok && !b.OK {
			message = b.Message
		}
	}
	return message
}
