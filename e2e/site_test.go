//go:build e2e

package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// puppetSite is a fleet with a Puppet Server, to which Tutti was added.
type puppetSite struct {
	*stage.LabFleet
	server *lab.Host // the host of the Puppet Server
	web    []*lab.Host
}

// siteSpec describes the hosts of a site.
type siteSpec struct {
	lab.Spec          // contains the host `puppet`
	tutti    string   // the host on which Tutti's server runs
	units    []string // units of the host puppet that the test starts
	nodes    []string // nodes are the hosts that join. On these hosts the stock daemon runs, and has already run once.
}

// newSite boots a site. The site's Puppet Server is Debian's package and signs every certificate
// request. Only the hosts that the spec names have Tutti.
func newSite(t *testing.T, spec siteSpec) *puppetSite {
	t.Helper()
	running := bootLab(t, spec.Spec)
	s := &puppetSite{}
	var err error
	if s.server, err = running.Host("puppet"); err != nil {
		t.Fatal(err)
	}
	s.manifest(t, "")
	units := strings.Join(spec.units, " ")
	sh(t, s.server, "systemctl start --no-block "+units)
	members := *running
	members.Hosts = slices.DeleteFunc(slices.Clone(running.Hosts), func(h *lab.Host) bool {
		return h.Name != spec.tutti && !slices.Contains(spec.nodes, h.Name)
	})
	if s.LabFleet, err = startFleet(t.Context(), &members, spec.tutti, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	s.Lab = running
	sh(t, s.server, "systemctl start "+units) // this command waits until all units are started
	startDaemons(t, "production", s.Nodes)
	return s
}

// The method `manifest` writes the manifest of the site on the Puppet Server. The manifest contains
// one file for each node, and the given text.
func (s *puppetSite) manifest(t *testing.T, more string) {
	t.Helper()
	const dir = "/etc/puppet/code/environments/production/manifests"
	text := `file { '/var/tmp/e2e-site': content => $trusted['certname'] }` + "\n" + more
	if _, err := stage.Output(t.Context(), s.server, []byte(text), "sh", "-c", "mkdir -p "+dir+" && cat > "+dir+"/site.pp"); err != nil {
		t.Fatal(err)
	}
}

// execute runs a plan of the site to its end.
func (s *puppetSite) execute(t *testing.T, plan tutti.PlanName) *job {
	t.Helper()
	return start(t, s.LabFleet, plan, tutti.ModeApply).end()
}

// convergeOn converges a target.
func convergeOn(t *testing.T, f *stage.LabFleet, target string) *job {
	t.Helper()
	id, err := f.Client.StartJob(t.Context(), api.StartJob{Converge: &tutti.ConvergeStep{Target: target}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	return &job{id: id, t: t, f: f}
}

// The method `part` returns the fleet with only some of its nodes.
func (s *puppetSite) part(t *testing.T, names ...string) *stage.LabFleet {
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

// The method `join` lets further hosts of the site join.
func (s *puppetSite) join(t *testing.T, hosts ...*lab.Host) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for _, h := range hosts {
		group.Go(func() error {
			if err := h.CopyIn(ctx, binary, "/usr/local/bin/tutti"); err != nil {
				return err
			}
			return s.Join(ctx, h)
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// setFleet sends another fleet file to the server.
func (s *puppetSite) setFleet(t *testing.T, text string) {
	t.Helper()
	if _, err := s.Client.SetFleet(t.Context(), api.FleetSource{File: "tutti.yaml", Source: []byte(text)}); err != nil {
		t.Fatal(err)
	}
}

// The method `set` stores the value of a key, as an operator does.
func (s *puppetSite) set(t *testing.T, key, value string) {
	t.Helper()
	if err := s.Client.SetValue(t.Context(), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// startDaemons starts the stock daemon of Puppet on the hosts of an environment. startDaemons waits
// for the end of the first run of each daemon, which gets the certificate. startDaemons starts all
// daemons at once, because Puppet's agent waits half a minute for its certificate. startDaemons
// copies the plugins of the packages on the host, so that Puppet need not fetch these plugins one
// by one.
func startDaemons(t *testing.T, environment string, hosts []*lab.Host) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for _, h := range hosts {
		group.Go(func() error {
			const script = `mkdir -p /var/cache/puppet/lib
				for lib in /usr/share/puppet/modules/*/lib/; do
					test ! -d "$lib" || cp -r "$lib." /var/cache/puppet/lib
				done
				printf '[main]\ncertname = %s\nserver = puppet\n[agent]\nenvironment = %s\n' "$(hostname)" "$0" > /etc/puppet/puppet.conf
				systemctl start puppet
				until test -e /var/cache/puppet/state/last_run_report.yaml; do sleep 0.2; done`
			_, err := stage.Output(ctx, h, nil, "sh", "-euc", script, environment)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// compileGrant lets the Puppet Server's host compile for all other nodes.
const compileGrant = "  - {to: servers, compile: true, dangerous: true}\n"

// installModule installs the module on the Puppet Server, which reads it at a start or reload. The
// host of the Puppet Server has joined the fleet before.
func (s *puppetSite) installModule(t *testing.T) {
	t.Helper()
	sh(t, s.server, `tutti puppet-server install
		sed -i 's#^ *ruby-load-path: .*#    ruby-load-path: [/usr/lib/puppetserver/ruby/vendor_ruby, /etc/puppet/code/modules/tutti/lib]#' /etc/puppet/puppetserver/conf.d/puppetserver.conf
		printf 'version: 5\nhierarchy:\n  - {name: Tutti, lookup_key: tutti::hiera}\n' > /etc/puppet/hiera.yaml
		sed -i '/^storeconfigs/d' /etc/puppet/puppet.conf
		printf 'storeconfigs = true\nstoreconfigs_backend = tutti\n' >> /etc/puppet/puppet.conf
		systemctl restart tutti-agent`)
}
