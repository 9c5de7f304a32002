//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/tutti-project/tutti"
)

// TestGate changes a value after a compile has read it, but before the run's gate. Puppet must not
// apply this compile, and the node must compile again.
func TestGate(t *testing.T) {
	const key = "shared/gate"
	h := host(t, "node-01")
	sh(t, h, "rm -f /run/e2e-*")
	if err := fleet.Client.SetValue(t.Context(), key, []byte(`"old"`)); err != nil {
		t.Fatal(err)
	}
	// Puppet 8 evaluates the file from top to bottom, so it first reads the value.
	push(t, oneNode, `
		$v = tutti::value('shared/gate')
		$wait = generate('/bin/sh', '-c', 'touch /run/e2e-read; while [ ! -e /run/e2e-go ]; do sleep 0.1; done')
		file { "/run/e2e-applied-${v}": content => '' }
	`)
	j := start(t, fleet, "one", tutti.ModeApply)
	eventually(t, "the compile has read", func() bool { return sh(t, h, "ls /run | grep e2e-read || true") != "" })
	if err := fleet.Client.SetValue(t.Context(), key, []byte(`"new"`)); err != nil {
		t.Fatal(err)
	}
	sh(t, h, "touch /run/e2e-go")
	j.end()
	s := j.Summary(j.EndedAt)
	if s.Outcome != tutti.VerdictSucceeded || s.Runs != 1 || s.Compiles != 1 {
		t.Errorf("summary %+v, want one run after one stopped compile", s)
	}
	if got := sh(t, h, "ls /run | grep e2e-applied"); got != "e2e-applied-new" {
		t.Errorf("applied %q, want only what the second compile read", got)
	}
}
