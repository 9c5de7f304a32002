package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
)

// effectServer returns the effect of a change, and records the changes.
type effectServer struct {
	cli.Server
	effect  api.Effect
	changed []string
}

func (s *effectServer) Effect(context.Context, string, json.RawMessage) (api.Effect, error) {
	return s.effect, nil
}

func (s *effectServer) SetValue(_ context.Context, key string, value json.RawMessage) error {
	s.changed = append(s.changed, key+"="+string(value))
	return nil
}

func (s *effectServer) UnsetValue(_ context.Context, key string) error {
	s.changed = append(s.changed, key)
	return nil
}

// TestWideChangesWantAYes checks that the command asks before a change with many
// runs, and makes other changes at once. A dry run changes nothing and shows which
// nodes would run.
func TestWideChangesWantAYes(t *testing.T) {
	wide := api.Effect{Reactive: true, AskAbove: 7, Wide: 15 * time.Minute, Runs: 9, When: []api.EffectRuns{
		{When: tutti.ReactNow, Runs: 1, Nodes: []tutti.NodeName{"a"}},
		{When: tutti.ReactWindow, Runs: 7, Nodes: []tutti.NodeName{"b", "c", "d", "e", "f"}},
		{When: tutti.ReactScheduled, Runs: 1, Nodes: []tutti.NodeName{"z"}},
	}}
	narrow, passive := wide, wide
	narrow.AskAbove = 9
	passive.Reactive, passive.When = false, []api.EffectRuns{{Runs: 9, Nodes: []tutti.NodeName{"a", "b", "c", "d", "e"}}}
	const why = "this directly causes 9 runs (1 now, 7 window (within 15m), 1 scheduled)"
	for _, tc := range []struct {
		reason, args string
		effect       api.Effect
		changed      []string
		out, err     string
	}{
		{"a wide change", "set k 1", wide, nil, "", "set k: " + why + ": not confirmed; add --yes"},
		{"confirmed", "set k 1 --yes", wide, []string{"k=1"}, "", ""},
		{"one that is not wide", "set k 1", narrow, []string{"k=1"}, "", ""},
		{"nodes do not run by themselves", "set k 1", passive, []string{"k=1"}, "", ""},
		{"unset is confirmed anyway", "unset k", narrow, nil, "", "unset k: not confirmed; add --yes"},
		{"and says what it causes", "unset k", wide, nil, "", "unset k: " + why + ": not confirmed; add --yes"},
		{"unset", "unset k --yes", wide, []string{"k"}, "", ""},
		{"what would run", "set k 1 --dry-run", wide, nil, `Directly, this causes 9 runs (1 now, 7 window (within 15m), 1 scheduled):
  now: a
  window (within 15m): b, c, d, e, f, 2 more
  scheduled: z
The data that these runs publish may cause more runs.
`, ""},
		{"what would, if somebody converged", "unset k --dry-run", passive, nil, "Directly, this causes 9 runs with the next `tutti converge`; nodes do not run by themselves:\n" +
			"  a, b, c, d, e, 4 more\nThe data that these runs publish may cause more runs.\n", ""},
		{"nobody", "set k 1 --dry-run", api.Effect{}, nil, "No run: no node has read it, or every reader would get the same answer.\n", ""},
		{"for programs", "set k 1 --dry-run --json", api.Effect{Runs: 1}, nil, "{\n  \"runs\": 1,\n  \"reactive\": false\n}\n", ""},
	} {
		server := &effectServer{effect: tc.effect}
		root := cli.NewRoot(cli.Deps{Connect: func(cli.Connection) (cli.Server, error) { return server, nil }})
		root.SetArgs(append([]string{"data"}, strings.Fields(tc.args)...))
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetIn(strings.NewReader(""))
		err := root.ExecuteContext(t.Context())
		said := ""
		if err != nil {
			said = err.Error()
		}
		if diff := cmp.Diff(tc.changed, server.changed) + cmp.Diff(tc.out, out.String()) + cmp.Diff(tc.err, said); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}
