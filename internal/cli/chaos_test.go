package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLabChaos(t *testing.T) {
	tests := map[string]struct {
		reason string
		found  []string
		want   string
		code   int
	}{
		"good": {"nothing was found", nil, "seed 7: 2 faults\nseed 7: all checks passed\n", ExitOK},
		"bad": {"what was found, and how to see it again", []string{"job j has no verdict"},
			"seed 7: 2 faults\njob j has no verdict\nseed 7: 1 checks failed; repeat with: lab chaos --seed 7 --for 30s deploy\n", ExitFailed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got Chaos
			cmd := newLabCommand(&options{deps: Deps{Chaos: func(_ context.Context, _ Connection, in Chaos, say func(string, ...any)) ([]string, error) {
				got = in
				say("seed %d: 2 faults", in.Seed)
				return tt.found, nil
			}}})
			var out strings.Builder
			cmd.SetArgs([]string{"chaos", "deploy", "--lab", "swift", "--seed", "7", "--for", "30s"})
			cmd.SetOut(&out)
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			if code := ExitCode(cmd.Execute()); code != tt.code {
				t.Errorf("%s: exit code %d, want %d", tt.reason, code, tt.code)
			}
			if diff := cmp.Diff(Chaos{Lab: "swift", Plan: "deploy", Seed: 7, For: 30 * time.Second}, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
}
