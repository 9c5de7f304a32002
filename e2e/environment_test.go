//go:build e2e

package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/cli"
)

const branchFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  all:     {nodes: [node-01, node-02]}
  testers: {nodes: [node-02], environment: canary}
plans:
  all:
    steps:
      - run: all
  look:
    steps:
      - {run: node-01, environment: canary, noop: true}
  try:
    steps:
      - {run: node-01, environment: canary}
`

// branchFile is a file with the name of the environment in which Puppet has compiled.
const branchFile = "/var/tmp/e2e-environment"

// TestEnvironments runs Puppet in two environments: by groups, by a step in noop mode, and by a step that applies.
func TestEnvironments(t *testing.T) {
	defer func() { // no node may stay in another environment
		push(t, oneNode, "notify { 'nothing': }\n")
		if _, err := fleet.Client.RetireCode(t.Context(), api.RetireCode{Environment: "canary", Remove: true}); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"node-01", "node-02"} {
			sh(t, host(t, name), "rm -f "+branchFile)
		}
	}()
	pushBranch(t, "canary", "file { '"+branchFile+"': content => \"canary says ${environment}\" }\n")
	push(t, branchFleet, "file { '"+branchFile+"': content => \"production says ${environment}\" }\n")
	has := func(node, want string) {
		t.Helper()
		if got := sh(t, host(t, node), "cat "+branchFile); got != want {
			t.Errorf("%s has %q, want %q", node, got, want)
		}
	}
	stands := func(node tutti.NodeName, want api.NodeState, why string) {
		t.Helper()
		n, err := fleet.Client.ShowNode(t.Context(), node)
		if err != nil || n.Standing.State != want || n.Standing.Why != why {
			t.Errorf("%s is %s %q, %v; want %s %q", node, n.Standing.State, n.Standing.Why, err, want, why)
		}
	}
	execute(t, "all", tutti.ModeApply)
	has("node-01", "production says production")
	has("node-02", "canary says canary")
	stands("node-01", api.NodeGood, "")
	stands("node-02", api.NodeGood, "")

	noop := execute(t, "look", tutti.ModeApply)
	if r := noop.last("run-node-01", "node-01").Result; r == nil || !r.NoopPending {
		t.Errorf("a noop run of the branch: %+v, want a file that would change", r)
	}
	has("node-01", "production says production")
	stands("node-01", api.NodeGood, "")

	execute(t, "try", tutti.ModeApply)
	has("node-01", "canary says canary")
	stands("node-01", api.NodeSuspect, "its last run was of environment canary, it has production now")
	back := convergeOn(t, fleet, "node-01").end()
	if back.Verdict != tutti.VerdictConverged {
		t.Errorf("converge ends %s: %s", back.Verdict, back.Message)
	}
	has("node-01", "production says production")
	stands("node-01", api.NodeGood, "")
}

// pushBranch pushes code with one manifest to an environment.
func pushBranch(t *testing.T, environment, site string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifests/site.pp"), []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := app.Commands().Push(t.Context(), fleet.Client, fleet.Conn, cli.PushCode{Dir: dir, Environment: environment}); err != nil {
		t.Fatal(err)
	}
}
