//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
)

// TestRootNeedsTheWord checks exports that give root, because a collecting node applies foreign exports as root. A
// node with a harmless grant must not be able to get root (finding F6). One node exports a resource of another
// type, and the other node exports a function call as a value. The gate must refuse both exports. If the grant has
// the word `dangerous`, the function call runs on the collecting node.
func TestRootNeedsTheWord(t *testing.T) {
	const fleetFile = `fleet: e2e
groups: {all: {nodes: [node-01, node-02, node-03]}, sends: {nodes: [node-01, node-02]}, collects: {nodes: [node-03]}}
grants:
  - {to: all, exports: [Sshkey], GRANT}
plans:
  send: {steps: [{run: sends}, {run: collects}]}
`
	const site = `
node 'node-01' {
  @@service { 'e2e-root': ensure => running, provider => base, start => '/bin/sh -c "touch /run/e2e-root-service"', status => '/bin/false' }
}
node 'node-02' {
  @@sshkey { 'e2e-root': ensure => present, type => 'ssh-rsa', key => Deferred('generate', ['/bin/touch', '/run/e2e-root-call']) }
}
node 'node-03' {
  Sshkey <<| |>>
  Service <<| |>>
}
`
	collector := host(t, "node-03")
	later(t, collector, "rm -f /run/e2e-root-* /etc/ssh/ssh_known_hosts")
	push(t, strings.Replace(fleetFile, "GRANT", "read: [e2e/x]", 1), site)
	j := execute(t, "send", tutti.ModeApply)
	j.expect(j.last("run-sends", "node-01"), tutti.Failed, tutti.BecauseRefused, "may not export resources of type Service: no grant")
	j.expect(j.last("run-sends", "node-02"), tutti.Failed, tutti.BecauseRefused, `the value of "key" contains more than data, so it could call functions on the collecting node`)
	if got := sh(t, collector, "ls /run | grep e2e-root || true"); got != "" {
		t.Errorf("on the collector there is %s", got)
	}

	// Only the gate prevents the call. Therefore the grant needs the word `dangerous`.
	push(t, strings.Replace(fleetFile, "GRANT", "dangerous: true", 1), `
node 'node-02' {
  @@sshkey { 'e2e-root': ensure => present, type => 'ssh-rsa', key => Deferred('generate', ['/bin/touch', '/run/e2e-root-call']) }
}
node 'node-03' { Sshkey <<| |>> }
node default {}
`)
	execute(t, "send", tutti.ModeApply)
	if got := sh(t, collector, "ls /run | grep e2e-root || true"); got != "e2e-root-call" {
		t.Errorf("with the word there is %q on the collector, want e2e-root-call", got)
	}
}
