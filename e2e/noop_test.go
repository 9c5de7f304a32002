//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
)

const noopFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  first:  {nodes: [node-01]}
  second: {nodes: [node-02]}
grants:
  - {to: first, exports: [{type: Mark, defined: true}], write: [shared/noop/**]}
plans:
  both:
    steps:
      - run: first
      - run: second
  second:
    steps:
      - run: second
`

const noopSite = `
node 'node-01' {
  @@mark { 'noop': num => 1 }
  tutti_value { 'shared/noop/value': value => 1 }
}
node 'node-02' {
  Mark <<| |>>
}
`

// TestNoop checks that a noop job changes nothing and publishes nothing. The second stage of the
// job must see the exports that its first stage would publish.
func TestNoop(t *testing.T) {
	// The job would also see exports of earlier tests, so the test removes these exports first.
	push(t, noopFleet, "notify { 'nothing': }\n", map[string]string{"modules/mark/manifests/init.pp": mark})
	execute(t, "both", tutti.ModeApply)
	push(t, noopFleet, noopSite, map[string]string{"modules/mark/manifests/init.pp": mark})

	noop := execute(t, "both", tutti.ModeNoop)
	if noop.Verdict != tutti.VerdictSucceeded {
		t.Fatal(noop.Message)
	}
	second := noop.last("run-second", "node-02").Result
	if !second.NoopPending || second.Counts.OutOfSync != 1 {
		t.Errorf("the second stage: %+v, want one resource that would change", second)
	}
	values, err := fleet.Client.ListValues(t.Context(), "shared/noop")
	if err != nil || len(values) != 0 {
		t.Errorf("a noop job published %+v (%v)", values, err)
	}
	alone := execute(t, "second", tutti.ModeApply)
	if got := alone.last("run-second", "node-02"); got.Outcome() != tutti.Unchanged {
		t.Errorf("after it, the second stage alone is %s, want unchanged: nothing is exported", got.Outcome())
	}
}

// TestBareApply runs Puppet by hand on a node that has the module.
func TestBareApply(t *testing.T) {
	h := host(t, "node-01")
	push(t, oneNode, "notify { 'there is a module now': }\n")
	execute(t, "one", tutti.ModeApply)
	out := sh(t, h, `puppet apply --modulepath "$(echo /var/lib/tutti/agent/module/*)" -e '
		$v = tutti::value("shared/bare", "by default")
		notify { "v is ${v}": }
		tutti_value { "shared/bare": value => 1 }' 2>&1`)
	for _, want := range []string{"v is by default", "Warning: ", "nothing is published"} {
		if !strings.Contains(out, want) {
			t.Errorf("puppet apply by hand does not say %q:\n%s", want, out)
		}
	}
	if values, err := fleet.Client.ListValues(t.Context(), "shared/bare"); err != nil || len(values) != 0 {
		t.Errorf("it published %+v (%v)", values, err)
	}
}
