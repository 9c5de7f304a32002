package cli

import (
	"context"
	"io"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The type `ended` is a server whose job has ended with the given verdict.
type ended struct {
	Server
	verdict tutti.Verdict
}

func (s ended) WatchJob(_ context.Context, _ api.WatchJob, f func(api.Watched) error) error {
	for _, body := range []tutti.Body{
		&tutti.JobStarted{Job: "converge-1", Mode: tutti.ModeApply},
		&tutti.JobFinished{Job: "converge-1", Verdict: s.verdict},
	} {
		if err := f(api.Watched{Event: &tutti.Event{By: "server", Body: body}}); err != nil {
			return err
		}
	}
	return nil
}

// TestVerdictsHaveExitCodes checks which exit code a command has if it watches a job until the verdict. The test
// contains the codes as numbers, because scripts depend on the numbers.
func TestVerdictsHaveExitCodes(t *testing.T) {
	for _, tt := range []struct {
		reason  string
		verdict tutti.Verdict
		code    int
	}{
		{"a plan has reached its goal", tutti.VerdictSucceeded, 0},
		{"all nodes are good", tutti.VerdictConverged, 0},
		{"runs failed", tutti.VerdictFailed, 1},
		{"an operator ended it", tutti.VerdictCancelled, 5},
		{"nodes wait for an answer", tutti.VerdictStuck, 7},
		{"nodes change each other's data", tutti.VerdictDiverging, 8},
		{"some nodes are not connected", tutti.VerdictPartial, 9},
		{"a reaction leaves nodes for later", tutti.VerdictDeferred, 10},
		{"a later release has more verdicts", "declined", 1},
	} {
		root := NewRoot(Deps{Connect: func(Connection) (Server, error) { return ended{verdict: tt.verdict}, nil }})
		root.SetArgs([]string{"job", "watch", "converge-1"})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		if code := ExitCode(root.ExecuteContext(t.Context())); code != tt.code {
			t.Errorf("%s: job watch of a job that ended %q has exit code %d, want %d", tt.reason, tt.verdict, code, tt.code)
		}
	}
}
