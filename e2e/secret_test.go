//go:build e2e

package e2e_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/lab"
)

const secretFleet = `
fleet: e2e
groups:
  out: {nodes: [node-01]}
  in:  {nodes: [node-02]}
  bad: {nodes: [node-03]}
grants:
  - {to: out, exports: [{type: Kinds, defined: true}]}
  - {to: bad, write: [shared/secret/**]}
plans:
  secret:
    steps:
      - {run: out, accept: [failed:resources]}
      - run: in
      - {run: bad, after: []}
`

// secretSite exports every type of the language, and uses a secret in everything that Puppet logs
// or reports.
const secretSite = `
node 'node-01' {
  $secret = Sensitive(strip(file('/root/e2e-secret')))
  $clear = strip(file('/root/e2e-clear'))
  @@kinds { 'all':
    string     => "äöü ${clear}",
    integer    => 42,
    float      => 1.5,
    boolean    => false,
    one        => ['a'],
    empty      => [],
    hash       => { 'a' => { 'b' => 1 } },
    numbered   => { 1 => 'x' },
    regexp     => /a.b/,
    nothing    => default,
    timestamp  => Timestamp('2024-01-01T00:00:00 UTC'),
    timespan   => Timespan('0-01:30:00'),
    version    => SemVer('1.2.3'),
    range      => SemVerRange('>=1.0.0 <2.0.0'),
    binary     => Binary('AP8='),
    type       => Integer[1, 2],
    reference  => File['/x'],
    references => [Notify['x'], Notify['y']],
    uri        => URI('http://example.net/a'),
    secret     => $secret,
    nested     => { 'pw' => $secret },
    absent     => undef,
    tag        => ['Ring'],
    require    => Notify['x'],
  }
  file { '/root/e2e-written': content => $secret, show_diff => true }
  file { '/nowhere/at/all': content => $secret }
  notify { 'told': message => $secret }
  exec { 'spoken':
    command => Sensitive("/bin/sh -c 'echo ${secret.unwrap}; exit 3'"),
  }
}
node 'node-02' {
  Kinds <<| tag == 'ring' |>>
  file { '/x': ensure => file, path => '/run/e2e-x' }
  notify { ['x', 'y']: }
}
node 'node-03' {
  tutti_value { 'shared/secret/refused': value => Sensitive(strip(file('/root/e2e-secret'))) }
}
`

// TestSecret checks that exports keep every type of the language. The clear text of a Sensitive may
// be only in the file on its own node. The clear text may not be on the server or another node, or
// in a log, report or record.
func TestSecret(t *testing.T) {
	const secret, clear = "e2e-hunter2-77b1", "e2e-in-clear-77b1"
	one, two := host(t, "node-01"), host(t, "node-02")
	for _, h := range []*lab.Host{one, host(t, "node-03")} {
		sh(t, h, fmt.Sprintf("umask 077; echo %s > /root/e2e-secret; echo %s > /root/e2e-clear", secret, clear))
		later(t, h, "rm -f /root/e2e-*")
	}
	later(t, two, "rm -f /run/e2e-*")
	kinds, err := os.ReadFile("../puppet/spec/fixtures/modules/kinds/manifests/init.pp")
	if err != nil {
		t.Fatal(err)
	}
	push(t, secretFleet, secretSite, map[string]string{"modules/kinds/manifests/init.pp": string(kinds)})
	j := execute(t, "secret", tutti.ModeApply)
	out := j.last("run-out", "node-01")
	j.expect(out, tutti.Failed, tutti.BecauseResources, "/nowhere/at/all")
	j.expect(out, tutti.Failed, tutti.BecauseResources, "[command redacted]")
	j.expect(j.last("run-in", "node-02"), tutti.Changed, "", "")
	j.expect(j.last("run-bad", "node-03"), tutti.Failed, tutti.BecauseCatalog, "is Sensitive")
	if got := sh(t, one, "cat /root/e2e-written"); got != secret {
		t.Errorf("the node's own file has %q", got)
	}
	said := sh(t, two, fmt.Sprintf(`grep -h '"defined .message. as .42 ' %s/%s/log.jsonl`, runs, j.last("run-in", "node-02").Run))
	const want = "42 1.5 false [a] [] {a => {b => 1}} /a.b/ 0-01:30:00.0 1.2.3 Integer[1, 2] File[/x] secret true"
	if !strings.Contains(said, want) {
		t.Errorf("the collector saw %s, want %s", said, want)
	}
	if diff := cmp.Diff([]string{"node-01", "node-02", "tutti"}, holders(t, clear, everybody()...)); diff != "" {
		t.Errorf("who knows what was exported in clear: -want +got (if nobody, this test sees nothing)\n%s", diff)
	}
	if found := holders(t, secret, everybody()...); len(found) > 0 {
		t.Errorf("the secret is on %v", found)
	}
}

// The function `everybody` returns all hosts of the fleet.
func everybody() []*lab.Host { return append(slices.Clone(fleet.Nodes), fleet.Server) }

// The function `holders` returns those hosts on which a text is in the journal or in a file of
// Tutti or Puppet.
func holders(t *testing.T, text string, hosts ...*lab.Host) []string {
	t.Helper()
	var found []string
	for _, h := range hosts {
		files := sh(t, h, "grep -rlF "+text+" /var/lib/tutti /var/log /var/cache/puppet /run --exclude-dir=systemd --exclude=e2e-* 2> /dev/null || true")
		lines := sh(t, h, "journalctl --no-pager -o export | grep -caF "+text+" || true")
		if files != "" || lines != "0" {
			t.Logf("%s is on %s: %s (%s lines of the journal)", text, h.Name, files, lines)
			found = append(found, h.Name)
		}
	}
	return found
}
