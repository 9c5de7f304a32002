//go:build e2e

package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/lab"
)

const (
	givenSecret   = "e2e-canary-given-7c1f"
	madeSecret    = "e2e-canary-made-7c1f"
	hieraSecret   = "e2e-canary-hiera-7c1f"
	rotatedSecret = "e2e-canary-rotated-7c1f"
)

// secretSites lets web-01 create a secret. web-02 reads this secret and two secrets of an operator.
const secretSites = `
case $trusted['certname'] {
  'web-01': {
    tutti_value { 'shared/made': value => Sensitive('` + madeSecret + `'), for => ['web', 'node:puppet'] }
  }
  'web-02': {
    $given = tutti::value('shared/given')
    $made = tutti::value('shared/made')
    $hiera = lookup('e2e::secret')
    unless [$given, $made, $hiera] =~ Array[Sensitive] { fail('in clear') }
    file { '/var/tmp/e2e-secrets': content => Sensitive("${given.unwrap} ${made.unwrap} ${hiera.unwrap}") }
  }
}
`

// withSecrets returns a fleet file with a recovery key of the operator.
func (s *puppetSite) withSecrets(t *testing.T, fleetFile string) string {
	t.Helper()
	var line struct{ Recovery string }
	out, code := tuttiCLI(t, s.LabFleet, "secret", "init", "--json")
	if code != 0 || json.Unmarshal([]byte(out), &line) != nil {
		t.Fatalf("secret init: exit code %d: %s", code, out)
	}
	return strings.Replace(fleetFile, "fleet: site\n", "fleet: site\nsecrets: {recovery: "+line.Recovery+"}\n", 1)
}

// setSecrets seals the operator's secrets to nodes for which the Puppet Server compiles. The Puppet Server's host opens
// the secrets, so the command must name this host.
func (s *puppetSite) setSecrets(t *testing.T) {
	t.Helper()
	set := []string{"data", "set", "--secret", "--yes", "--string", "shared/given", "--for", "group:web"}
	if said, err := sealed(t, s.LabFleet, givenSecret, set...); err == nil || !strings.Contains(said, "a Puppet Server compiles for node") {
		t.Errorf("a secret that the Puppet Server cannot open: %v: %s", err, said)
	}
	seal(t, s.LabFleet, givenSecret, append(set, "--for", "node:puppet")...)
	seal(t, s.LabFleet, hieraSecret, "data", "set", "--secret", "--yes", "--string", "shared/hiera/e2e::secret", "--for", "group:web", "--for", "node:puppet")
}

// rotateSecrets rotates the key of the Puppet Server's host, which must cause no run. rotateSecrets then changes the
// value of the hiera secret.
func (s *puppetSite) rotateSecrets(t *testing.T) {
	t.Helper()
	sh(t, s.server, "tutti agent rotate-key")
	if out, code := tuttiCLI(t, s.LabFleet, "secret", "trust", "puppet"); code != 0 {
		t.Fatalf("secret trust: exit code %d: %s", code, out)
	}
	seal(t, s.LabFleet, rotatedSecret, "secret", "rotate", "--string", "shared/hiera/e2e::secret")
}

// checkSecretsKept checks that only two kinds of files contain the secrets: files that Puppet must write, and the
// cached catalog of Puppet's agent.
func (s *puppetSite) checkSecretsKept(t *testing.T) {
	t.Helper()
	sh(t, s.web[1], "grep -qF "+rotatedSecret+" /var/cache/puppet/client_data/catalog/web-02.json")
	for _, h := range s.web {
		sh(t, h, "rm -r /var/cache/puppet/client_data/catalog")
	}
	for _, canary := range []string{givenSecret, madeSecret, hieraSecret, rotatedSecret} {
		if found := holders(t, canary, append([]*lab.Host{s.server, s.Server}, s.web...)...); len(found) > 0 {
			t.Errorf("%s is on %v", canary, found)
		}
	}
}
