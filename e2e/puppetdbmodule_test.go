//go:build e2e

package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/stage"
)

// storedFleet lets the Puppet Server of the site compile for its nodes.
const storedFleet = `
fleet: site
mode: agent
groups:
  servers: {nodes: [puppet]}
  parts:   {nodes: [storage-01, proxy-01]}
grants:
  - {to: servers, compile: true, dangerous: true}
  - {to: parts, exports: ["E2e::Entry"]}
plans:
  both:  {steps: [{run: storage-01}, {run: proxy-01}]}
  alone: {steps: [{run: storage-01}]}
`

// storedSite gives proxy-01 one file for each entry that storage-01 exports, and no other files.
const storedSite = `
define e2e::entry($list, $table, $of, $secret = undef) {
  file { "/var/tmp/e2e-entries/${title}": content => "${list} ${table} ${of}" }
}
case $trusted['certname'] {
  'storage-01': {
    $names = tutti::value('shared/two', true) ? { true => ['one', 'two'], default => ['one'] }
    $names.each |$name| {
      @@e2e::entry { $name:
        list   => tutti::value('shared/list', ['a']),
        table  => tutti::value('shared/table', {'k' => 1}),
        of     => File[tutti::value('shared/of', '/x')],
        secret => Sensitive(tutti::value('shared/secret', 's')),
        tag    => ['e2e', 'CODE'],
      }
    }
    file { ['/x', '/y']: ensure => file }
  }
  'proxy-01': {
    file { '/var/tmp/e2e-entries': ensure => directory, recurse => true, purge => true }
    E2e::Entry <<| tag == 'e2e' |>>
  }
}
`

// storedCode deploys the code of the site with a certain word in its exports.
func (s *puppetSite) storedCode(t *testing.T, word string) {
	t.Helper()
	const environment = "/etc/puppet/code/environments/production"
	text := strings.ReplaceAll(storedSite, "CODE", word)
	script := "rm -rf " + environment + "; mkdir -p " + environment + "/manifests; cat > " + environment + "/manifests/site.pp; chmod -R a+rX " + environment
	if _, err := stage.Output(t.Context(), s.server, []byte(text), "sh", "-euc", script); err != nil {
		t.Fatal(err)
	}
}

// overPuppetDB collects exports from PuppetDB, with the module on the Puppet Server. PuppetDB may
// store exports late. No node may be good before PuppetDB has stored the exports that the node
// collects.
func (s *puppetSite) overPuppetDB(t *testing.T) {
	s.join(t, s.server)
	s.setFleet(t, storedFleet)
	s.storedCode(t, "first")
	s.installModule(t)
	sh(t, s.server, "echo 'exports: puppetdb' > /etc/puppet/tutti-server.yaml; systemctl reload puppetserver")
	set := func(t *testing.T, values map[string]string) {
		t.Helper()
		for key, value := range values {
			if err := s.Client.SetValue(t.Context(), "shared/"+key, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries := func(t *testing.T, want string) {
		t.Helper()
		h, err := s.Lab.Host("proxy-01")
		if err != nil {
			t.Fatal(err)
		}
		got := sh(t, h, `cd /var/tmp/e2e-entries; for f in *; do printf '%s: %s; ' "$f" "$(cat "$f")"; done`)
		if diff := cmp.Diff(want, strings.TrimSuffix(strings.TrimSpace(got), ";")); diff != "" {
			t.Errorf("proxy-01 has: -want +got\n%s", diff)
		}
	}
	passed := func(t *testing.T, j *job, verdict tutti.Verdict, want ...tutti.NodeName) {
		t.Helper()
		var nodes []tutti.NodeName
		for _, r := range runsOf(j.Job) {
			t.Logf("%s attempt %d: gate %s (%s), %s", r.Node, r.Attempt, r.Gate, r.GateWhy, r.Outcome())
			if r.Passed() {
				nodes = append(nodes, r.Node)
			}
		}
		slices.Sort(nodes)
		if j.Verdict != verdict || !slices.Equal(nodes, want) {
			t.Errorf("%s (%s): runs of %q, want %s with %q", j.Verdict, j.Message, nodes, verdict, want)
		}
	}
	// The function `late` watches a job until proxy-01 was stopped twice because PuppetDB was late.
	late := func(j *job) *job {
		return j.until(func(api.Watched) bool {
			stops := 0
			if j.Job != nil {
				for _, r := range runsOf(j.Job) {
					if r.Node == "proxy-01" && r.Ended() && strings.HasPrefix(r.GateWhy, "PuppetDB has not stored run ") && strings.HasSuffix(r.GateWhy, " of node storage-01 yet") {
						stops++
					}
				}
			}
			return stops >= 2
		})
	}
	converges := func(t *testing.T, nodes ...tutti.NodeName) {
		t.Helper()
		passed(t, convergeOn(t, s.LabFleet, "parts").end(), tutti.VerdictConverged, nodes...)
	}

	t.Run("from nothing", func(t *testing.T) {
		// Run the plan first. The nodes were good before the test installed the module, and Tutti does
		// not notice new code on the Puppet Server. So a converge would start no runs.
		passed(t, start(t, s.LabFleet, "both", tutti.ModeApply).end(), tutti.VerdictSucceeded, "proxy-01", "storage-01")
		entries(t, "one: [a] {k => 1} File[/x]; two: [a] {k => 1} File[/x]")
		converges(t)
	})
	t.Run("a list, while PuppetDB is late", func(t *testing.T) {
		end := s.lag(t)
		set(t, map[string]string{"list": `["a", "b"]`})
		j := late(convergeOn(t, s.LabFleet, "parts"))
		entries(t, "one: [a] {k => 1} File[/x]; two: [a] {k => 1} File[/x]")
		end()
		passed(t, j.end(), tutti.VerdictConverged, "proxy-01", "storage-01")
		entries(t, "one: [a, b] {k => 1} File[/x]; two: [a, b] {k => 1} File[/x]")
		converges(t)
	})
	t.Run("taken back, by a plan that does not wait", func(t *testing.T) {
		end := s.lag(t)
		set(t, map[string]string{"two": "false"})
		j := late(start(t, s.LabFleet, "both", tutti.ModeApply))
		end()
		passed(t, j.end(), tutti.VerdictSucceeded, "proxy-01", "storage-01")
		entries(t, "one: [a, b] {k => 1} File[/x]")
		converges(t)
	})
	t.Run("a hash, a reference and a secret", func(t *testing.T) {
		end := s.lag(t)
		set(t, map[string]string{"table": `{"k": 2}`, "of": `"/y"`, "secret": `"t"`})
		j := late(convergeOn(t, s.LabFleet, "parts"))
		end()
		passed(t, j.end(), tutti.VerdictConverged, "proxy-01", "storage-01")
		entries(t, "one: [a, b] {k => 2} File[/y]")
	})
	t.Run("a run that others start", func(t *testing.T) {
		h, err := s.Lab.Host("storage-01")
		if err != nil {
			t.Fatal(err)
		}
		sh(t, h, "puppet agent --onetime --no-daemonize")
		converges(t) // the node exports the same resources with another catalog
		end := s.lag(t)
		s.storedCode(t, "second")
		sh(t, h, "puppet agent --onetime --no-daemonize")
		j := late(convergeOn(t, s.LabFleet, "parts"))
		end()
		passed(t, j.end(), tutti.VerdictConverged, "proxy-01")
		converges(t)
	})
	t.Run("without PuppetDB there is no catalog", func(t *testing.T) {
		sh(t, s.server, "systemctl stop puppetdb")
		j := start(t, s.LabFleet, "alone", tutti.ModeApply).end()
		j.expect(j.last(j.Steps[0].Name, "storage-01"), tutti.Failed, tutti.BecauseCompile, "puppet:8081")
	})
}
