//go:build e2e

package e2e_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// environments is the directory in which r10k deploys the branches of the control repository.
const environments = "/etc/puppet/code/environments"

// leadCode is the code of the site. WORD is different on each branch. Each db node exports a file, and each web node
// collects these files from PuppetDB. On a web node with the file `broken` a resource fails.
const leadCode = `
file { '/etc/site': ensure => directory }
file { '/etc/site/word': content => "WORD\n" }
case $trusted['hostname'] {
  /^db-/: {
    @@file { "/etc/site/${trusted['hostname']}": content => "WORD\n", tag => 'db' }
  }
  default: {
    File <<| tag == 'db' |>>
    MEND
    exec { '/bin/false': onlyif => '/usr/bin/test -e /etc/site/broken' }
  }
}
CLASS
`

// mend is the change of code that repairs the web nodes.
const mend = "file { '/etc/site/broken': ensure => absent } -> Exec['/bin/false']"

// A branch is the code of the site with different words.
type branch struct{ word, mend, class string }

// A leadSite is a site with a Puppet Server, PuppetDB and four nodes.
type leadSite struct {
	*stage.LabFleet
	server     *lab.Host
	web1, web2 *lab.Host
	db1, db2   *lab.Host
	op         *leadOperator
	fleetFile  string // the fleet file of section 1
	class      string // the class of the page, with the values of the site
	production branch
	reports    map[string]int     // the number of reports that PuppetDB must have, by certname
	before     map[string]listing // by host
	started    map[string]string  // the starts of the site's services, by host
}

func leadLab() string { return labName("e2e-lead") }

// newLeadSite boots the site, and Tutti's server on a host of its own. The nodes have their certificates, and have
// run. Nothing of Tutti is on the site.
func newLeadSite(t *testing.T) *leadSite {
	t.Helper()
	spec := mustReadSpec(t, "puppetserver.yaml")
	puppet := spec.Hosts[slices.IndexFunc(spec.Hosts, func(h lab.HostSpec) bool { return h.Name == "puppet" })]
	puppet.Packages = append(puppet.Packages, "puppetdb", "puppet-terminus-puppetdb", "postgresql")
	puppet.Prepare += addPuppetDB
	spec.Name, spec.Hosts = leadLab(), []lab.HostSpec{{Name: "tutti"}, puppet}
	for _, name := range []string{"web-01", "web-02", "db-01", "db-02"} {
		spec.Hosts = append(spec.Hosts, lab.HostSpec{Name: name, Packages: []string{"cron", "faketime"}})
	}
	running := bootLab(t, spec)
	s := &leadSite{production: branch{word: "one"}, reports: map[string]int{}, before: map[string]listing{}, started: map[string]string{}}
	for name, at := range map[string]**lab.Host{"puppet": &s.server, "web-01": &s.web1, "web-02": &s.web2, "db-01": &s.db1, "db-02": &s.db2} {
		var err error
		if *at, err = running.Host(name); err != nil {
			t.Fatal(err)
		}
	}
	s.deploy(t, "production", s.production)
	s.deploy(t, "feature_x", branch{word: "branch"})
	sh(t, s.server, "echo 'reports = puppetdb' >> /etc/puppet/puppet.conf; systemctl enable --quiet puppetserver puppetdb && systemctl start puppetserver puppetdb")
	s.runPuppet(t)

	own := *running
	own.Hosts = slices.DeleteFunc(slices.Clone(running.Hosts), func(h *lab.Host) bool { return h.Name != "tutti" })
	var err error
	if s.LabFleet, err = app.StartLabFleet(t.Context(), &own, "tutti", binary, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	s.Lab = running
	s.op = newLeadOperator(t, s.Conn.OperatorDir)
	return s
}

// The method `deploy` writes a branch of the control repository, as r10k does.
func (s *leadSite) deploy(t *testing.T, name string, b branch) {
	t.Helper()
	text := strings.NewReplacer("WORD", b.word, "MEND", b.mend, "CLASS", b.class).Replace(leadCode)
	script := `cd ` + environments + ` && mkdir -p "$0/manifests" "$0/modules" && cat > "$0/manifests/site.pp"
		printf 'modulepath = modules:$basemodulepath\n' > "$0/environment.conf"
		printf '{"name": "%s", "deploy_success": true}\n' "$0" > "$0/.r10k-deploy.json"`
	if _, err := stage.Output(t.Context(), s.server, []byte(text), "sh", "-euc", script, name); err != nil {
		t.Fatal(err)
	}
}

// The method `runPuppet` sets up the Puppet of each node, and waits for its first run. web-01 runs by cron and db-01 by
// a timer of systemd, which both run it again only half an hour later. web-02 and db-02 have the stock daemon. The run
// of db-01 was 25 minutes ago, the run of web-02 has failed, and somebody has disabled Puppet on db-02.
func (s *leadSite) runPuppet(t *testing.T) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for _, h := range s.nodes() {
		group.Go(func() error {
			_, err := stage.Output(ctx, h, nil, "sh", "-euc", `systemctl enable --now --quiet cron
				printf '[main]\nserver = puppet\n[agent]\nenvironment = production\n' > /etc/puppet/puppet.conf
				puppet ssl bootstrap --waitforcert 1`)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	const daemon = "systemctl enable --now --quiet puppet" // the daemon runs Puppet at once
	sh(t, s.db1, `printf '[Service]\nType=oneshot\nExecStart=/usr/bin/puppet agent --onetime --no-daemonize\n' > /etc/systemd/system/puppet-run.service
		printf '[Timer]\nOnActiveSec=30m\nOnUnitActiveSec=30m\n[Install]\nWantedBy=timers.target\n' > /etc/systemd/system/puppet-run.timer
		systemctl daemon-reload
		systemctl enable --now --quiet puppet-run.timer
		systemd-run --quiet --collect faketime '25 minutes ago' puppet agent --onetime --no-daemonize`)
	sh(t, s.db2, daemon)
	s.ran(t, s.db1, "")
	s.ran(t, s.db2, "") // the web nodes collect what the others export
	sh(t, s.db2, "puppet agent --disable 'kernel update'")
	sh(t, s.web2, "mkdir /etc/site && touch /etc/site/broken && "+daemon)
	sh(t, s.web1, `m=$(($(date +%M | sed s/^0//) % 30)); printf "$(((m + 29) % 30)),$(((m + 29) % 30 + 30)) * * * * root puppet agent --onetime --no-daemonize\n" > /etc/cron.d/puppet`)
	s.cronNow(t)
	s.ran(t, s.web2, "")
}

func (s *leadSite) nodes() []*lab.Host { return []*lab.Host{s.web1, s.web2, s.db1, s.db2} }

func (s *leadSite) hosts() []*lab.Host { return append(s.nodes(), s.server) }

// certname returns the name of a host's Puppet certificate, and so the name of its node.
func certname(h *lab.Host) string { return h.Names[0] }

// The method `ran` waits until a node has the report of a run after the run `before`.
func (s *leadSite) ran(t *testing.T, h *lab.Host, before string) {
	t.Helper()
	began := time.Now()
	within(t, patience, h.Name+" has run", func() bool { r := report(t, h); return r != "" && r != before })
	s.reports[certname(h)]++
	t.Logf("%s has run after %s", h.Name, time.Since(began).Round(time.Second))
}

// The function `report` returns the id of the last run that the host's report names.
func report(t *testing.T, h *lab.Host) string {
	t.Helper()
	return sh(t, h, `awk '$1 == "transaction_uuid:" {print $2}' /var/cache/puppet/state/last_run_report.yaml 2>/dev/null | tr -d "'\"" || true`)
}

// The method `again` lets the running daemon of web-02 run Puppet.
func (s *leadSite) again(t *testing.T) {
	t.Helper()
	before := report(t, s.web2)
	sh(t, s.web2, "kill -USR1 $(systemctl show -P MainPID puppet)")
	s.ran(t, s.web2, before)
}

// The method `cron` lets cron run Puppet on web-01 at the next full minute, and once only.
func (s *leadSite) cron(t *testing.T) {
	t.Helper()
	before := report(t, s.web1)
	sh(t, s.web1, `sed 's/^[0-9,]* /* /' /etc/cron.d/puppet > /etc/cron.d/once
		until journalctl -q -u cron --since @$(date +%s -r /etc/cron.d/once) | grep -q 'CMD (puppet agent'; do sleep 0.2; done
		rm /etc/cron.d/once`)
	s.ran(t, s.web1, before)
}

// The method `cronNow` runs Puppet on web-01 with the command line of cron.
func (s *leadSite) cronNow(t *testing.T) {
	t.Helper()
	before := report(t, s.web1)
	sh(t, s.web1, `sh -c "$(sed 's/.* root //' /etc/cron.d/puppet)"`)
	s.ran(t, s.web1, before)
}

// The method `checkPuppetDB` waits until PuppetDB has stored all reports. PuppetDB must have no other reports, and one
// catalog of each node.
func (s *leadSite) checkPuppetDB(t *testing.T) {
	t.Helper()
	count := func(path string) map[string]int {
		t.Helper()
		n := map[string]int{}
		for _, r := range s.query(t, path) {
			n[r.Certname]++
		}
		return n
	}
	var got map[string]int
	for limit := time.Now().Add(time.Minute); !maps.Equal(got, s.reports) && time.Now().Before(limit); got = count("reports") {
		<-time.After(200 * time.Millisecond) // PuppetDB stores reports later
	}
	if diff := cmp.Diff(s.reports, got); diff != "" {
		t.Errorf("PuppetDB has these reports: -want +got\n%s", diff)
	}
	catalogs := map[string]int{}
	for name := range s.reports {
		catalogs[name] = 1
	}
	if diff := cmp.Diff(catalogs, count("catalogs")); diff != "" {
		t.Errorf("PuppetDB has these catalogs: -want +got\n%s", diff)
	}
}

// storedRow is a report or a catalog in PuppetDB.
type storedRow struct {
	Certname    string `json:"certname"`
	Environment string `json:"environment"`
}

// The method `query` asks PuppetDB for all reports or catalogs.
func (s *leadSite) query(t *testing.T, path string) []storedRow {
	t.Helper()
	out := sh(t, s.server, `ruby -rnet/http -e 'puts Net::HTTP.get(URI("http://localhost:8080/pdb/query/v4/`+path+`"))'`)
	var rows []storedRow
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatalf("PuppetDB: %v: %s", err, out)
	}
	return rows
}

// The method `checkCatalog` checks of which environment the catalog of web-01 in PuppetDB is.
func (s *leadSite) checkCatalog(t *testing.T, want string) {
	t.Helper()
	if all := s.query(t, "catalogs"); !slices.Contains(all, storedRow{certname(s.web1), want}) {
		t.Errorf("PuppetDB has the catalogs %v, want one of %s for web-01", all, want)
	}
}

// The function `starts` returns an id for each start of the site's own services on a host.
func starts(t *testing.T, h *lab.Host) string {
	t.Helper()
	return sh(t, h, `for unit in puppet cron puppet-run.timer puppetserver puppetdb postgresql@17-main; do
		echo "$unit $(systemctl show -P InvocationID $unit) $(systemctl show -P ActiveState $unit)"; done`)
}

// The method `remember` keeps the files and services of all hosts.
func (s *leadSite) remember(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts() {
		s.before[h.Name], s.started[h.Name] = readListing(t, h), starts(t, h)
	}
}

// The method `checkStarts` checks that nobody has started a service of the site again.
func (s *leadSite) checkStarts(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts() {
		if diff := cmp.Diff(s.started[h.Name], starts(t, h)); diff != "" {
			t.Errorf("services of %s: -before +after\n%s", h.Name, diff)
		}
	}
}

// checkWord checks the file that the code of the site writes on a node.
func checkWord(t *testing.T, h *lab.Host, want string) {
	t.Helper()
	if got := sh(t, h, "cat /etc/site/word"); got != want {
		t.Errorf("%s has the word %q, want %q", h.Name, got, want)
	}
}

// The method `installModule` gives the Puppet Server the module and the program, and returns the program's digest.
func (s *leadSite) installModule(t *testing.T) string {
	t.Helper()
	if err := s.server.CopyIn(t.Context(), binary, environments+"/production/modules/profile/files/tutti"); err != nil {
		t.Fatal(err)
	}
	return sh(t, s.server, `cd `+environments+`/production/modules
		profile/files/tutti module install . > /dev/null
		chmod -R a+rX . && chmod 644 profile/files/tutti
		sha256sum < profile/files/tutti | cut -d' ' -f1`)
}

// The method `classFor` returns code that declares the class of the page on the nodes that match a pattern.
func (s *leadSite) classFor(nodes string) string {
	return fmt.Sprintf("if $trusted['hostname'] =~ /%s/ {\n%s}\n", nodes, s.class)
}
