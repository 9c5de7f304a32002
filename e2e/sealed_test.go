//go:build e2e

package e2e_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/stage"
)

const sealedFleet = `
fleet: e2e
secrets: {recovery: RECOVERY}
groups:
  out:    {nodes: [node-01]}
  in:     {nodes: [INSIDE]}
  others: {nodes: [node-03]}
grants:
  - {to: out, write: [shared/sealed/**]}
plans:
  sealed: {steps: [{run: out}, {run: in}]}
  others: {steps: [{run: others}]}
`

const sealedSite = `
node 'node-01' {
  tutti_value { 'shared/sealed/made': value => Sensitive(strip(file('/root/e2e-made'))), for => 'in' }
}
node 'node-02', 'node-03' {
  if $facts['networking']['hostname'] == 'node-03' {
    $given = tutti::value('shared/sealed/given', Sensitive('none'))
    $made = Sensitive('none')
  } else {
    $given = tutti::value('shared/sealed/given')
    $made = tutti::value('shared/sealed/made')
  }
  unless $given =~ Sensitive { fail('in clear') }
  file { '/root/e2e-given': content => $given, mode => '0600' }
  file { '/root/e2e-made-there': content => $made, mode => '0600' }
  include e2e_sealed
}
`

const sealedClass = `
class e2e_sealed(Sensitive[String] $password = Sensitive('a default')) {
  file { '/root/e2e-hiera': content => $password, mode => '0600' }
  if find_file('/root/e2e-fails') {
    exec { 'fails': command => Sensitive("/bin/sh -c 'echo ${password.unwrap} >&2; exit 3'") }
  }
}
`

// TestSealed checks secrets of an operator (a value and a hiera key) and of a node. The secrets must arrive as
// Sensitive on the right nodes. A node that comes later waits. The new node runs after the secrets were sealed to
// it. Sealing makes no other node run. Only the files that Puppet must write may contain the clear text, after
// success, failure and kill.
func TestSealed(t *testing.T) {
	const given, made, hiera, rotated = "e2e-canary-given-5d2e", "e2e-canary-made-5d2e", "e2e-canary-hiera-5d2e", "e2e-canary-rotated-5d2e"
	canaries := []string{given, made, hiera, rotated}
	one, two, three := host(t, "node-01"), host(t, "node-02"), host(t, "node-03")
	sh(t, one, "umask 077; echo "+made+" > /root/e2e-made")
	for _, h := range fleet.Nodes {
		later(t, h, "rm -f /root/e2e-*")
	}
	var line struct{ Recovery string }
	out, code := tuttiCLI(t, fleet, "secret", "init", "--json")
	if code != 0 || json.Unmarshal([]byte(out), &line) != nil {
		t.Fatalf("secret init: exit code %d: %s", code, out)
	}
	files := map[string]string{"modules/e2e_sealed/manifests/init.pp": sealedClass}
	fleetOf := func(inside string) string {
		return strings.NewReplacer("RECOVERY", line.Recovery, "INSIDE", inside).Replace(sealedFleet)
	}
	push(t, fleetOf("node-02"), sealedSite, files)
	seal(t, fleet, given, "data", "set", "--secret", "--yes", "--string", "shared/sealed/given", "--for", "group:in")
	seal(t, fleet, hiera, "data", "set", "--secret", "--yes", "--string", "shared/hiera/e2e_sealed::password", "--for", "group:in")
	read := func(node, file string) string {
		t.Helper()
		return sh(t, host(t, node), "cat /root/e2e-"+file)
	}
	want := func(node, given, made, hiera string) {
		t.Helper()
		if diff := cmp.Diff([]string{given, made, hiera}, []string{read(node, "given"), read(node, "made-there"), read(node, "hiera")}); diff != "" {
			t.Errorf("%s: -want +got\n%s", node, diff)
		}
	}
	clear := func(when string) {
		t.Helper()
		for _, canary := range canaries {
			if found := holders(t, canary, everybody()...); len(found) > 0 {
				t.Errorf("%s: %s is on %v", when, canary, found)
			}
		}
	}

	j := execute(t, "sealed", tutti.ModeApply)
	j.expect(j.last("run-out", "node-01"), tutti.Changed, "", "")
	j.expect(j.last("run-in", "node-02"), tutti.Changed, "", "")
	want("node-02", given, made, hiera)
	j = execute(t, "others", tutti.ModeApply)
	j.expect(j.last("run-others", "node-03"), tutti.Changed, "", "")
	want("node-03", "none", "none", "a default")
	j = execute(t, "sealed", tutti.ModeApply)
	j.expect(j.last("run-out", "node-01"), tutti.Unchanged, "", "")
	j.expect(j.last("run-in", "node-02"), tutti.Unchanged, "", "")
	clear("after success")

	// A new node of the group waits, and does not use the default value.
	push(t, fleetOf("node-02, node-03"), sealedSite, files)
	j = execute(t, "others", tutti.ModeApply)
	j.expect(j.last("run-others", "node-03"), tutti.Waiting, "", "")
	if list, _ := tuttiCLI(t, fleet, "secret", "list"); !strings.Contains(list, "node-03") {
		t.Errorf("secret list names no node that waits:\n%s", list)
	}
	if out, code := tuttiCLI(t, fleet, "secret", "reseal", "--yes"); code != 0 || strings.Count(out, "to 1 node") != 3 {
		t.Errorf("secret reseal: exit code %d:\n%s", code, out)
	}
	j = execute(t, "others", tutti.ModeApply)
	j.expect(j.last("run-others", "node-03"), tutti.Changed, "", "")
	want("node-03", given, "none", hiera)
	if shown, err := fleet.Client.ShowNode(t.Context(), "node-02"); err != nil || shown.Standing.State != api.NodeGood {
		t.Errorf("node-02: %+v, %v: want that a newcomer changes nothing for it", shown.Standing, err)
	}

	// The next cases are another value, a run that fails while it has the secret, and an agent that is killed while it
	// has the secret.
	seal(t, fleet, rotated, "secret", "rotate", "--string", "shared/hiera/e2e_sealed::password")
	sh(t, two, "touch /root/e2e-fails")
	j = execute(t, "sealed", tutti.ModeApply)
	j.expect(j.last("run-in", "node-02"), tutti.Failed, tutti.BecauseResources, "")
	want("node-02", given, made, rotated)
	clear("after a failure")
	sh(t, three, "rm -f /root/e2e-hiera /root/e2e-given")
	j = start(t, fleet, "others", tutti.ModeApply)
	j.until(func(w api.Watched) bool {
		if w.Event == nil {
			return false
		}
		_, gated := w.Event.Body.(*tutti.RunGated)
		return gated
	})
	sh(t, three, "systemctl kill --signal=KILL --kill-whom=main tutti-agent")
	j.end()
	want("node-03", given, "none", rotated)
	clear("after a kill")
	for _, h := range fleet.Nodes { // the brackets in the pattern prevent grep from finding its own arguments
		if found := sh(t, h, "grep -la 'e2e-canar[y]-' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null || true"); found != "" {
			t.Errorf("%s has a secret in arguments or environment: %s", h.Name, found)
		}
	}
}

// The function `seal` runs a command that seals a secret.
func seal(t *testing.T, f *stage.LabFleet, secret string, args ...string) {
	t.Helper()
	if said, err := sealed(t, f, secret, args...); err != nil || !strings.HasPrefix(said, "sealed ") {
		t.Fatalf("tutti %s: %v: %s", strings.Join(args, " "), err, said)
	}
}

// The function `sealed` runs a command that reads a secret from standard input, and returns the output
// of the command.
func sealed(t *testing.T, f *stage.LabFleet, secret string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"--operator", f.Conn.OperatorDir}, args...)...)
	cmd.Stdin = strings.NewReader(secret + "\n")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
