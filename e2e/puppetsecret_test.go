//go:build e2e

package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/lab"
)

// compiledSecrets: web-01 makes a secret, web-02 reads it and two of an operator's.
const compiledSecrets = `
case $trusted['certname'] {
  'web-01': {
    tutti_value { 'shared/made': value => Sensitive('e2e-canary-made-7c1f'), for => ['web', 'node:puppet'] }
  }
  'web-02': {
    $given = tutti::value('shared/given')
    $made = tutti::value('shared/made')
    $hiera = lookup('e2e::secret')
    unless [$given, $made, $hiera] =~ Array[Sensitive] { fail('in clear') }
    file { '/var/tmp/e2e-secret-given': content => $given }
    file { '/var/tmp/e2e-secret-made': content => $made }
    file { '/var/tmp/e2e-secret-hiera': content => $hiera }
  }
}
`

// secrets gives secrets to a node that the Puppet Server compiles for: the server's host opens them, and is to be named.
// No file has them but those that Puppet writes, and the catalog that Puppet's agent keeps.
func (s *puppetSite) secrets(t *testing.T, converges func(*testing.T, ...tutti.NodeName)) {
	const given, made, hiera, rotated = "e2e-canary-given-7c1f", "e2e-canary-made-7c1f", "e2e-canary-hiera-7c1f", "e2e-canary-rotated-7c1f"
	var line struct{ Recovery string }
	out, code := tuttiCLI(t, s.LabFleet, "secret", "init", "--json")
	if code != 0 || json.Unmarshal([]byte(out), &line) != nil {
		t.Fatalf("secret init: exit code %d: %s", code, out)
	}
	s.setFleet(t, strings.NewReplacer("fleet: site\n", "fleet: site\nsecrets: {recovery: "+line.Recovery+"}\n", "shared/port", "shared/**").Replace(moduleFleet))
	s.manifest(t, moduleSite+compiledSecrets)
	check := func(given string) {
		t.Helper()
		got := sh(t, s.web[1], "cd /var/tmp && for f in given made hiera; do cat e2e-secret-$f; echo; done")
		if diff := cmp.Diff(strings.Join([]string{given, made, hiera}, "\n"), got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}

	set := []string{"data", "set", "--secret", "--string", "shared/given", "--for", "group:web"}
	if said, err := sealed(t, s.LabFleet, given, set...); err == nil || !strings.Contains(said, "a Puppet Server compiles for node") {
		t.Errorf("a secret that the Puppet Server cannot open: %v: %s", err, said)
	}
	seal(t, s.LabFleet, given, append(set, "--for", "node:puppet")...)
	seal(t, s.LabFleet, hiera, "data", "set", "--secret", "--string", "shared/hiera/e2e::secret", "--for", "group:web", "--for", "node:puppet")
	for _, plan := range []tutti.PlanName{"first", "second"} { // nobody tells Tutti of other code on the Puppet Server
		s.execute(t, plan).checkSummary(tutti.VerdictSucceeded, 1, 0)
	}
	check(given)

	sh(t, s.server, "tutti agent rotate-key")
	if out, code := tuttiCLI(t, s.LabFleet, "secret", "trust", "puppet"); code != 0 {
		t.Fatalf("secret trust: exit code %d: %s", code, out)
	}
	seal(t, s.LabFleet, rotated, "secret", "rotate", "--string", "shared/given")
	converges(t, "web-02") // by the new value; the new key runs nobody
	check(rotated)

	// Puppet's agent keeps the catalog, in clear.
	sh(t, s.web[1], "grep -qF "+rotated+" /var/cache/puppet/client_data/catalog/web-02.json")
	for _, h := range s.web {
		sh(t, h, "rm -r /var/cache/puppet/client_data/catalog")
	}
	for _, canary := range []string{given, made, hiera, rotated} {
		if found := holders(t, canary, append([]*lab.Host{s.server, s.Server}, s.web...)...); len(found) > 0 {
			t.Errorf("%s is on %v", canary, found)
		}
	}
}
