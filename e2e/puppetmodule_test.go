//go:build e2e

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
)

// moduleFleet is the fleet file of the site, with the Puppet Server as a node.
var moduleFleet = strings.Replace(siteFleet, "plans:\n", `  servers: {nodes: [puppet]}
grants:
`+compileGrant+`  - {to: web, exports: [File], write: [shared/port, shared/made], dangerous: true}
plans:
  second: {steps: [{run: web-02}]}
`, 1)

// moduleSite lets web-02 collect an export of web-01 and read a value of web-01. Without the value
// web-02 has no catalog. secretSites is added to the manifest.
const moduleSite = `
case $trusted['certname'] {
  'web-01': {
    $motd = tutti::value('shared/motd', 'none')
    @@file { '/var/tmp/e2e-peer': content => "of web-01: ${motd}\n", tag => 'peer' }
    tutti_value { 'shared/port': value => 5432 }
  }
  'web-02': {
    File <<| tag == 'peer' |>>
    file { '/var/tmp/e2e-port': content => String(tutti::value('shared/port')) }
    file { '/var/tmp/e2e-hiera': content => lookup('e2e::key') }
  }
}
`

// withModule installs the module on the stopped Puppet Server. The last runs of the nodes have failed. After
// the installation, Tutti uses the reads and exports of compiles to order the runs and to wake readers, as
// with `puppet apply`. Forbidden requests to the module's socket must get no answer.
func (s *puppetSite) withModule(t *testing.T) {
	s.setFleet(t, s.withSecrets(t, moduleFleet)) // the server's host has joined before
	s.manifest(t, moduleSite+secretSites)
	s.installModule(t)
	sh(t, s.server, "systemctl start --no-block puppetserver")
	s.set(t, "shared/hiera/e2e::key", `"from tutti"`)
	s.setSecrets(t)
	second := s.web[1]
	check := func(t *testing.T, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for file := range want {
			got[file] = sh(t, second, "cat /var/tmp/"+file+" || true")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	converges := func(t *testing.T, nodes ...tutti.NodeName) {
		t.Helper()
		j := convergeOn(t, s.LabFleet, "web").end()
		var passed []tutti.NodeName
		for _, r := range runsOf(j.Job) {
			t.Logf("%s attempt %d: gate %s (%s), %s", r.Node, r.Attempt, r.Gate, r.GateWhy, r.Outcome())
			if r.Passed() {
				passed = append(passed, r.Node)
			}
		}
		slices.Sort(passed)
		if j.Verdict != tutti.VerdictConverged || !slices.Equal(passed, nodes) {
			t.Errorf("%s (%s): runs of %q, want converged with %q", j.Verdict, j.Message, passed, nodes)
		}
	}
	failing := func(t *testing.T, says string) {
		t.Helper()
		j := s.execute(t, "second")
		j.expect(j.last(j.Steps[0].Name, "web-02"), tutti.Failed, tutti.BecauseCompile, says)
	}

	t.Run("nobody else is answered", s.answersNobodyElse)
	sh(t, s.server, "systemctl start puppetserver") // systemctl waits until the Puppet Server has started
	// web-02 has no catalog before web-01 has published the value.
	t.Run("from nothing", func(t *testing.T) {
		converges(t, "web-01", "web-02")
		check(t, map[string]string{
			"e2e-peer": "of web-01: none", "e2e-port": "5432", "e2e-hiera": "from tutti",
			"e2e-secrets": givenSecret + " " + madeSecret + " " + hieraSecret,
		})
	})
	t.Run("a change runs its readers", func(t *testing.T) {
		converges(t)
		s.rotateSecrets(t)
		converges(t, "web-02")
		s.set(t, "shared/hiera/e2e::key", `"changed"`)
		s.set(t, "shared/motd", `"hello"`) // web-01 reads the value, and exports it to web-02
		converges(t, "web-01", "web-02")
		check(t, map[string]string{
			"e2e-peer": "of web-01: hello", "e2e-port": "5432", "e2e-hiera": "changed",
			"e2e-secrets": givenSecret + " " + madeSecret + " " + rotatedSecret,
		})
		s.checkSecretsKept(t)
	})
	t.Run("a run that others start gets the same catalog", func(t *testing.T) {
		sh(t, second, "puppet agent --test")
		converges(t)
	})
	t.Run("a comparison of environments gets the same answers", func(t *testing.T) {
		sh(t, s.server, `cd /etc/puppet/code/environments; rm -rf branch; cp -r production branch; sed -i 's/of web-01:/from web-01:/' branch/manifests/site.pp`)
		out, code := s.diff(t, "production..branch", "puppet")
		if code != cli.ExitDiffers || !strings.Contains(out, "equal: 1; differ: 1; not compared: 0") || !strings.Contains(out, "of web-01: hello") {
			t.Errorf("exit code %d: %s", code, out)
		}
		converges(t)
	})
	t.Run("without its agent there is no catalog", func(t *testing.T) {
		sh(t, s.server, "systemctl stop tutti-agent")
		failing(t, "without its answers there is no catalog")
		sh(t, s.server, "systemctl start tutti-agent")
		converges(t, "web-02")
	})
	t.Run("without the grant there is none", func(t *testing.T) {
		s.setFleet(t, strings.Replace(moduleFleet, compileGrant, "", 1))
		failing(t, "may not compile for other nodes")
	})
}

// answersNobodyElse sends forbidden requests to the module's socket. The requests come from the
// wrong user, are for a run that has ended, or do not name the run's node.
func (s *puppetSite) answersNobodyElse(t *testing.T) {
	hello := `{"op":"hello","protocol":1,"run":"` + string(lastRun(t, s, "web-01")) + `","certname":"%s"}`
	ask := func(user, certname string) string {
		script := fmt.Sprintf(`s = UNIXSocket.new('/run/tutti-agent/compile.sock'); s.puts('`+hello+`'); puts s.gets`, certname)
		return sh(t, s.server, "setpriv --reuid "+user+" --regid "+user+" --clear-groups ruby -rsocket -e \""+strings.ReplaceAll(script, `"`, `\"`)+"\" 2>&1 || true")
	}
	for _, tc := range []struct{ reason, user, certname, says string }{
		{"root is not the Puppet Server", "root", "web-01", `"code":"refused"`},
		{"another user cannot connect", "daemon", "web-01", "Permission denied"},
		{"a run that has ended", "puppet", "web-01", "has ended"},
		{"another certname than the run's", "puppet", "web-02", "belongs to node web-01, but the catalog is for"},
	} {
		if got := ask(tc.user, tc.certname); !strings.Contains(got, tc.says) {
			t.Errorf("%s: %s, want %q", tc.reason, got, tc.says)
		}
	}
}

// lastRun returns the run that ended last among all runs of a node.
func lastRun(t *testing.T, s *puppetSite, node tutti.NodeName) tutti.RunID {
	t.Helper()
	nodes, err := s.Client.ListNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Node == node && n.LastRun != "" {
			return n.LastRun
		}
	}
	t.Fatalf("%s has no run", node)
	return ""
}
