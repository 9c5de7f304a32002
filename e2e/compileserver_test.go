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
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/lab"
)

// compileGrant lets the Puppet Server's host compile for all others.
const compileGrant = "  - {to: servers, compile: true, dangerous: true}\n"

// compileFleet is the fleet file of the example, for these of its nodes: with the module
// on the Puppet Server it needs `mode: agent` and compileGrant. The two other nodes
// are a fleet of their own in it.
func compileFleet(t *testing.T, swift []string) string {
	t.Helper()
	example, err := os.ReadFile("../examples/swift/tutti.yaml")
	if err != nil {
		t.Fatal(err)
	}
	storage, proxy := swift[:len(swift)-1], swift[len(swift)-1]
	return strings.NewReplacer(
		"environment: {name: production, path: ./code}\n", "mode: agent\n",
		"storage-01, storage-02, storage-03", strings.Join(storage, ", "),
		"proxy-01", proxy,
		"groups:\n", "groups:\n  servers: {nodes: [puppet]}\n  web: {nodes: [web-01, web-02]}\n  swift: {nodes: ["+strings.Join(swift, ", ")+"]}\n",
		"grants:\n", "grants:\n"+compileGrant+"  - {to: web, exports: [File], write: [shared/port], dangerous: true}\n",
		"plans:\n", "plans:\n  second: {steps: [{run: web-02}]}\n",
	).Replace(string(example))
}

// compileSite: web-02 collects what web-01 exports, and reads what it publishes,
// without which it has no catalog.
const compileSite = `
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

// newCompileSite boots a Puppet Server with the module, beside which the Tutti server
// runs, two nodes, and those of the example in an environment of their own, which
// nothing is deployed on. All have the stock daemon running. The hosts are made of the
// bases of TestPuppetDB, with PuppetDB asleep.
func newCompileSite(t *testing.T) *puppetSite {
	t.Helper()
	spec := mustReadSpec(t, "puppetdb.yaml")
	spec.Name = compileLab()
	spec.Hosts = append(spec.Hosts, swiftHosts(t, "web-01", "web-02")...)
	spec.Hosts = append(spec.Hosts, swiftHosts(t, slices.Concat(plannedSwift, convergedSwift)...)...)
	running := bootLab(t, spec)
	s := &puppetSite{}
	var err error
	if s.LabFleet, err = startFleet(t.Context(), running, "puppet", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	s.server, s.web = s.Server, s.part(t, "web-01", "web-02").Nodes
	if err := s.Join(t.Context(), s.server); err != nil {
		t.Fatal(err)
	}
	s.setFleet(t, compileFleet(t, plannedSwift))
	s.manifest(t, "")
	sh(t, s.server, `printf '[main]\ncertname = puppet\nserver = puppet\n[server]\nautosign = true\nstoreconfigs = true\nstoreconfigs_backend = tutti\n' > /etc/puppet/puppet.conf
		mkdir -p /etc/puppet/code/environments/`+swiftEnvironment+`
		echo 'modulepath = /etc/puppet/code/modules' > /etc/puppet/code/environments/production/environment.conf
		tutti puppet-server install
		sed -i 's#^ *ruby-load-path: .*#    ruby-load-path: [/usr/lib/puppetserver/ruby/vendor_ruby, /etc/puppet/code/modules/tutti/lib]#' /etc/puppet/puppetserver/conf.d/puppetserver.conf
		printf 'version: 5\nhierarchy:\n  - {name: Tutti, lookup_key: tutti::hiera}\n' > /etc/puppet/hiera.yaml
		sed -i 's/-Xms1g -Xmx1g/-Xms512m -Xmx768m -XX:TieredStopAtLevel=1/' /etc/default/puppetserver
		systemctl restart tutti-agent
		systemctl start puppetserver`)
	startDaemons(t, map[string][]*lab.Host{
		"production": s.web, swiftEnvironment: s.part(t, slices.Concat(plannedSwift, convergedSwift)...).Nodes,
	})
	return s
}

// part is the fleet with some of its nodes only.
func (s *puppetSite) part(t *testing.T, names ...string) *app.LabFleet {
	t.Helper()
	f := *s.LabFleet
	f.Nodes = nil
	for _, name := range names {
		h, err := f.Lab.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		f.Nodes = append(f.Nodes, h)
	}
	return &f
}

// setFleet gives the fleet another fleet file.
func (s *puppetSite) setFleet(t *testing.T, text string) {
	t.Helper()
	if _, err := s.Client.SetFleet(t.Context(), tutti.FleetSource{File: "tutti.yaml", Source: []byte(text)}); err != nil {
		t.Fatal(err)
	}
}

// set gives a value to a key, as an operator.
func (s *puppetSite) set(t *testing.T, key, value string) {
	t.Helper()
	if err := s.Client.SetValue(t.Context(), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// TestPuppetServerModule: with the module on the Puppet Server, what its compiles
// read and export orders runs and wakes readers, as with `puppet apply`; and it
// answers nobody else.
func TestPuppetServerModule(t *testing.T) {
	s := newCompileSite(t)
	s.manifest(t, compileSite)
	s.set(t, "shared/hiera/e2e::key", `"from tutti"`)
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

	// web-02 has no catalog before web-01 has published.
	t.Run("from nothing", func(t *testing.T) {
		converges(t, "web-01", "web-02")
		check(t, map[string]string{"e2e-peer": "of web-01: none", "e2e-port": "5432", "e2e-hiera": "from tutti"})
	})
	t.Run("a change runs its readers", func(t *testing.T) {
		converges(t)
		s.set(t, "shared/hiera/e2e::key", `"changed"`)
		converges(t, "web-02")
		s.set(t, "shared/motd", `"hello"`) // web-01 reads it, and exports it to web-02
		converges(t, "web-01", "web-02")
		check(t, map[string]string{"e2e-peer": "of web-01: hello", "e2e-port": "5432", "e2e-hiera": "changed"})
	})
	t.Run("a run that others start gets the same catalog", func(t *testing.T) {
		sh(t, second, "puppet agent --test")
		converges(t)
	})
	t.Run("nobody else is answered", func(t *testing.T) {
		hello := `{"op":"hello","protocol":1,"run":"` + string(lastRun(t, s, "web-01")) + `","certname":"%s"}`
		ask := func(user, certname string) string {
			script := fmt.Sprintf(`s = UNIXSocket.new('/run/tutti-agent/compile.sock'); s.puts('`+hello+`'); puts s.gets`, certname)
			return sh(t, s.server, "setpriv --reuid "+user+" --regid "+user+" --clear-groups ruby -rsocket -e \""+strings.ReplaceAll(script, `"`, `\"`)+"\" 2>&1 || true")
		}
		for _, tc := range []struct{ reason, user, certname, says string }{
			{"root is not the Puppet Server", "root", "web-01", `"code":"refused"`},
			{"another user cannot connect", "daemon", "web-01", "Permission denied"},
			{"a run that has ended", "puppet", "web-01", "has ended"},
			{"another certname than the run's", "puppet", "web-02", "is of node web-01, the catalog is for"},
		} {
			if got := ask(tc.user, tc.certname); !strings.Contains(got, tc.says) {
				t.Errorf("%s: %s, want %q", tc.reason, got, tc.says)
			}
		}
	})
	t.Run("swift", s.swift)
	t.Run("without its agent there is no catalog", func(t *testing.T) {
		sh(t, s.server, "systemctl stop tutti-agent")
		failing(t, "without its answers there is no catalog")
		sh(t, s.server, "systemctl start tutti-agent")
		converges(t, "web-02")
	})
	t.Run("without the grant there is none", func(t *testing.T) {
		s.setFleet(t, strings.Replace(compileFleet(t, convergedSwift), compileGrant, "", 1))
		failing(t, "may not compile for other nodes")
	})
}

// lastRun returns the run of a node that ended last.
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

// convergeOn converges a target.
func convergeOn(t *testing.T, f *app.LabFleet, target string) *job {
	t.Helper()
	id, err := f.Client.StartJob(t.Context(), tutti.StartJob{Converge: &tutti.ConvergeStep{Target: target}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	return &job{id: id, t: t, f: f}
}
