package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The type `watched` is a server that sends the same events for every job.
type watched struct{ Server }

func (watched) WatchJob(_ context.Context, _ api.WatchJob, f func(api.Watched) error) error {
	var err error
	tell(newProgress(), func(_ moment, w api.Watched) {
		if w.Event != nil {
			if _, ok := w.Event.Body.(*tutti.JobFinished); ok {
				w.Event.Body = &tutti.JobFinished{Job: "deploy-1", Verdict: tutti.VerdictConverged}
			}
		}
		if err == nil {
			err = f(w)
		}
	})
	return err
}

func TestDemoSummary(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		jobs   int
		want   string
	}{
		"converge": {
			reason: "the last line has both jobs in it: the second must have had nothing to do",
			args:   []string{"demo", "swift", "--converge", "--json"},
			jobs:   2,
			want: `{"type":"summary","job":"deploy-1","outcome":"converged","runs":2,"compiles":1,"failed":2,"wall_s":115,"critical_path_s":18,` +
				`"second_runs":2,"second_compiles":1}`,
		},
		"plan": {
			reason: "one job has its own summary",
			args:   []string{"demo", "swift", "--json"},
			jobs:   1,
			want:   `{"type":"summary","job":"deploy-1","outcome":"converged","runs":2,"compiles":1,"failed":2,"wall_s":115,"critical_path_s":18}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			root := NewRoot(Deps{Demo: func(ctx context.Context, _ Demo, show func(context.Context, Server, tutti.JobID) error) error {
				for range tc.jobs {
					if err := show(ctx, watched{}, "deploy-1"); err != nil {
						return err
					}
				}
				return nil
			}})
			root.SetArgs(tc.args)
			root.SetOut(&out)
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if diff := cmp.Diff(tc.want, lines[len(lines)-1]); diff != "" {
				t.Errorf("%s: last line -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
