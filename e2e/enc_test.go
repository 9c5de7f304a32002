//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
)

// TestENC checks that the server, within the limits of its unit, runs the site's ENC, and that real Puppet declares its
// classes and sets its parameters. If the script fails, the last answer stays. The code also reads the node's groups.
func TestENC(t *testing.T) {
	const enc = "/usr/local/bin/e2e-enc"
	s, h := fleet.Server, host(t, "node-01")
	sh(t, h, "rm -f /run/e2e-enc /run/e2e-groups")
	push(t, oneNode, `
		class e2e_role(Integer $port = 80) { file { '/run/e2e-enc': content => "${port} ${e2e_site}" } }
		file { '/run/e2e-groups': content => join(tutti::groups(), ',') }
	`)
	later(t, s, "rm -f /var/lib/tutti/server/enc.yaml "+enc+"; systemctl restart tutti-server")
	later(t, h, "rm -f /run/e2e-enc /run/e2e-groups")
	answer := func(text string) {
		t.Helper()
		sh(t, s, "printf '%s\\n' '#!/bin/sh' '"+text+"' > "+enc+".new; chmod 755 "+enc+".new; mv "+enc+".new "+enc)
	}
	shown := func(what string) {
		t.Helper()
		eventually(t, "node show says "+what, func() bool {
			out, _ := tuttiCLI(t, fleet, "node", "show", "node-01")
			return strings.Contains(out, what)
		})
	}
	ran := func(want string) {
		t.Helper()
		j := start(t, fleet, "one", tutti.ModeApply).end()
		for _, r := range runsOf(j.Job) {
			if r.Outcome() != tutti.Changed {
				t.Errorf("run of %s: %s %+v, want changed", r.Node, r.Outcome(), r.Result)
			}
		}
		if got := sh(t, h, "cat /run/e2e-enc; echo; cat /run/e2e-groups"); got != want+"\none" {
			t.Errorf("the node has %q, want %q and its group", got, want)
		}
	}
	answer(`echo "{classes: {e2e_role: {port: 8080}}, parameters: {e2e_site: ber}}"`)
	sh(t, s, "printf 'command: "+enc+"\\nevery: 1s\\n' > /var/lib/tutti/server/enc.yaml; systemctl restart tutti-server")
	shown("classes e2e_role; parameters e2e_site")
	ran("8080 ber")
	answer(`echo "{classes: [e2e_role], parameters: {e2e_site: ham}}"`)
	shown("the answer of the ENC has changed")
	ran("80 ham")
	answer(`echo "no inventory" >&2; exit 3`)
	shown("so the last answer stays: " + enc + ": exit status 3: no inventory")
	if out, _ := tuttiCLI(t, fleet, "explain", "node", "node-01"); !strings.HasPrefix(out, "node-01 is good") {
		t.Errorf("while the script fails: %s", out)
	}
}
