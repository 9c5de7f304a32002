package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
)

type pushServer struct {
	cli.Server
	effect api.PushEffect
	set    bool
}

func (s *pushServer) PushEffect(context.Context, api.PushQuery) (api.PushEffect, error) {
	return s.effect, nil
}

func (s *pushServer) SetFleet(context.Context, api.FleetSource) (tutti.Fleet, error) {
	s.set = true
	return tutti.Fleet{}, nil
}

// TestCodeCheck checks what people see of the problems in code, and the exit code.
func TestCodeCheck(t *testing.T) {
	problems := []tutti.CodeProblem{
		{Level: tutti.ProblemError, File: "manifests/site.pp", Line: 3, Message: "Syntax error"},
		{Level: tutti.ProblemWarning, File: "modules/a/metadata.json", Message: "another\nversion"},
	}
	for _, tc := range []struct {
		problems []tutti.CodeProblem
		out, err string
	}{
		{problems, "code/manifests/site.pp:3: error: Syntax error\ncode/modules/a/metadata.json: warning: another\\nversion\n", "1 error in the code"},
		{problems[1:], "code/modules/a/metadata.json: warning: another\\nversion\nNo errors, 1 warning.\n", ""},
	} {
		root := cli.NewRoot(cli.Deps{CheckCode: func(_ context.Context, dir string, modules []string) ([]tutti.CodeProblem, error) {
			if dir != "code" || len(modules) != 1 {
				t.Errorf("checks %s with %v", dir, modules)
			}
			return slices.Clone(tc.problems), nil
		}})
		root.SetArgs([]string{"code", "check", "--path", "code", "--modules", "/usr/share/puppet/modules"})
		var out bytes.Buffer
		root.SetOut(&out)
		said := ""
		if err := root.ExecuteContext(t.Context()); err != nil {
			said = err.Error()
		}
		if diff := cmp.Diff(tc.out, out.String()) + cmp.Diff(tc.err, said); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

// TestWidePushesWantAYes checks that a push asks if more nodes than ask_above
// would begin to run by themselves.
func TestWidePushesWantAYes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tutti.yaml")
	if err := os.WriteFile(file, []byte("fleet: test\nenvironment: {name: production, path: code}\nreactive: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wide := api.PushEffect{Runs: 9, Nodes: []tutti.NodeName{"a", "b", "c", "d", "e"}, Reactive: true, AskAbove: 7}
	narrow, passive, confirmed, canary := wide, wide, wide, wide
	narrow.AskAbove, passive.Reactive, confirmed.Reaction.Confirm, canary.Reaction.Canary = 9, false, true, 2
	withdraws := passive
	withdraws.Runs, withdraws.Nodes = 1, []tutti.NodeName{"a"}
	withdraws.Withdrawn = []tutti.Withdrawal{{Node: "a", Values: []string{"db/a"}, Exports: 2, Types: []string{"Sshkey"}}}
	const pushed, nine = "Environment production is sha256:1: 1 files, 2 bytes.\n", "9 nodes need a run: a, b, c, d, e, 4 more; "
	for _, tc := range []struct {
		reason, args string
		effect       api.PushEffect
		pushes       bool
		out, err     string
	}{
		{"a wide push", "", wide, false, "", "push: 9 nodes begin to run by themselves: not confirmed; add --yes"},
		{"confirmed", "--yes", wide, true, pushed + nine + "they run by themselves now.\n", ""},
		{"one that is not wide", "", narrow, true, pushed + nine + "they run by themselves now.\n", ""},
		{"nodes do not run by themselves", "", passive, true, pushed + nine + "they run with the next `tutti converge`.\n", ""},
		{"held for a person", "", confirmed, true, pushed + nine + "they run after `tutti code release`.\n", ""},
		{"held for canaries", "", canary, true, pushed + nine + "2 of them run first, the others run when these are good.\n", ""},
		{"what it would cause", "--dry-run", wide, false, nine + "they run by themselves now.\n", ""},
		{"nothing", "--dry-run", api.PushEffect{}, false, "No node needs a run: nodes have this code, and nothing is withdrawn.\n", ""},
		{"what is withdrawn", "--dry-run", withdraws, false, "1 node needs a run: a; they run with the next `tutti converge`.\n" +
			"  withdrawn, no grant covers it: db/a, 2 exported resources of Sshkey of a\n", ""},
	} {
		server, sent := &pushServer{effect: tc.effect}, false
		root := cli.NewRoot(cli.Deps{
			Connect:    func(cli.Connection) (cli.Server, error) { return server, nil },
			CodeDigest: func(string, string) (tutti.Digest, error) { return "sha256:1", nil },
			SignFleet:  func(context.Context, cli.Server, cli.Connection, []byte) (*tutti.Statement, error) { return nil, nil },
			Push: func(context.Context, cli.Server, cli.Connection, cli.PushCode) (tutti.CodePushed, error) {
				sent = true
				return tutti.CodePushed{Environment: "production", Code: "sha256:1", Files: 1, Bytes: 2}, nil
			},
		})
		root.SetArgs(append([]string{"code", "push", "--file", file}, strings.Fields(tc.args)...))
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetIn(strings.NewReader(""))
		said := ""
		if err := root.ExecuteContext(t.Context()); err != nil {
			said = err.Error()
		}
		if diff := cmp.Diff(tc.out, out.String()) + cmp.Diff(tc.err, said); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
		if sent != tc.pushes || server.set != tc.pushes {
			t.Errorf("%s: code sent %t, fleet file %t, want %t", tc.reason, sent, server.set, tc.pushes)
		}
	}
}
