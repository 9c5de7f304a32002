//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

const dataFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  first:  {nodes: [node-01]}
  second: {nodes: [node-02]}
  third:  {nodes: [node-03]}
grants:
  - {to: first, exports: [{type: Probe, defined: true}, {type: Mark, defined: true}], write: [shared/e2e/**]}
plans:
  data:
    steps:
      - run: first
      - run: second
  refused:
    steps:
      - run: third
`

// The type `probe` gives each parameter the type of the exported value. If a value arrives with
// another type, the compile on the collecting node fails.
const probe = `
define probe(
  Integer $int, Float $float, Boolean $flag, Hash $hash, Array $list, Regexp $re, Timestamp $time,
  String $text, Type $kind, Optional[String] $none = undef, Sensitive[String] $secret = Sensitive('left out'),
) {
  file { "/tmp/e2e-probe-${title}":
    content => "${int} ${float} ${flag} ${hash} ${list} ${text} ${secret.unwrap}\n",
  }
}
`

const mark = `
define mark(Integer $num = 0, Optional[String] $word = undef) {
  file { "/tmp/e2e-mark/${title}": content => "${num}\n" }
}
`

const dataSite = `
node 'node-01' {
  @@probe { 'types':
    int => 7, float => 1.5, flag => false, hash => { 'a' => { 'b' => 1 } }, list => [1, 'two', [3]], re => /x+/,
    time => Timestamp('2026-01-01T00:00:00Z'), text => $facts['networking']['ip'], kind => Integer[1, 2],
    secret => Sensitive(file('/root/e2e-secret')),
  }
  @@mark { 'one': num => 1, tag => 'Blue' }
  @@mark { 'two': num => 2, tag => ['blue', 'green'], word => 'x' }
  @@mark { 'three': num => 3 }
  tutti_value { 'shared/e2e/list': value => [1, 'two', { 'three' => false }] }
  tutti_value { 'shared/e2e/file': source_file => '/root/e2e-secret' }
}
node 'node-02' {
  file { '/tmp/e2e-mark': ensure => directory, purge => true, recurse => true }
  Probe <<| |>>
  Mark <<| tag == 'BLUE' and num != 1 |>>
  Mark <<| title == 'three' or word == 'X' |>>
  Mark <<| num == '1' |>>
  $list = tutti::value('shared/e2e/list')
  unless $list == [1, 'two', { 'three' => false }] { fail("the list is ${list}") }
  unless $e2e_hiera::answer == 42 { fail('hiera') }
  include e2e_hiera
}
node 'node-03' {
  @@mark { 'never': }
}
`

// TestData checks several things. Values, hiera data and exports of all types go from node to node.
// Filters mean the same as in PuppetDB. A refusal names the line that would allow the request. A
// secret never leaves its node.
func TestData(t *testing.T) {
	const secret = "e2e-hunter2-0f3a"
	sh(t, host(t, "node-01"), "umask 077; printf %s "+secret+" > /root/e2e-secret")
	site := strings.Replace(dataSite, "  unless $e2e_hiera::answer == 42 { fail('hiera') }\n", "", 1)
	push(t, dataFleet, site, map[string]string{
		"modules/probe/manifests/init.pp":     probe,
		"modules/mark/manifests/init.pp":      mark,
		"modules/e2e_hiera/manifests/init.pp": "class e2e_hiera(Integer $answer) { file { '/tmp/e2e-hiera': content => \"${answer}\\n\" } }\n",
	})
	if err := fleet.Client.SetValue(t.Context(), "node/node-02/hiera/e2e_hiera::answer", []byte("42")); err != nil {
		t.Fatal(err)
	}
	j := execute(t, "data", tutti.ModeApply)
	if j.Verdict != tutti.VerdictSucceeded {
		j.expect(j.last("run-second", "node-02"), tutti.Changed, "", "")
		t.Fatal(j.Message)
	}
	got := sh(t, host(t, "node-02"), "cat /tmp/e2e-probe-types; ls /tmp/e2e-mark; cat /tmp/e2e-hiera")
	want := "7 1.5 false {a => {b => 1}} [1, two, [3]] " + host(t, "node-01").Address.String() + " left out\nthree\ntwo\n42"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, h := range fleet.Lab.Hosts {
		found := sh(t, h, "grep -rl "+secret+" /var/lib/tutti || true; journalctl --no-pager | grep -c "+secret+" || true")
		if found != "0" {
			t.Errorf("the secret is on %s: %s", h.Name, found)
		}
	}
	refused := execute(t, "refused", tutti.ModeApply)
	refused.expect(refused.last("run-third", "node-03"), tutti.Failed, tutti.BecauseRefused, "may not export resources of type Mark: no grant; to allow this, add to the grants of the fleet file: - {to: third, exports: [Mark], dangerous: true}")
}

// TestWithdrawn checks that the next good run removes a value which the catalog no longer declares.
// Values of other owners stay.
func TestWithdrawn(t *testing.T) {
	push(t, oneNode, "tutti_value { 'shared/w/a': value => 1 }\ntutti_value { 'shared/w/b': value => 2 }\n")
	execute(t, "one", tutti.ModeApply)
	push(t, oneNode, "tutti_value { 'shared/w/b': value => 2 }\n")
	execute(t, "one", tutti.ModeApply)
	values, err := fleet.Client.ListValues(t.Context(), "shared/w")
	if err != nil {
		t.Fatal(err)
	}
	if len(values) != 1 || values[0].Key != "shared/w/b" {
		t.Errorf("left are %+v, want shared/w/b alone", values)
	}
}
