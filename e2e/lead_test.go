//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
)

// soon is the longest time from the installation of the last agent to the first true verdict of each node.
const soon = 10 * time.Minute

// TestLead follows docs/howto/adopt.md beside a Puppet Server with PuppetDB: it observes four nodes, looks at a branch
// on one of them, converges one group, and takes Tutti out again. The test compares all files of all hosts, the services
// of the site and the reports in PuppetDB.
func TestLead(t *testing.T) {
	s := newLeadSite(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"before", s.remembers},
		{"observe", s.observes},
		{"a branch on one node", s.looksAtABranch},
		{"one group converges", s.convergesAGroup},
		{"out again", s.goesOut},
	} {
		if !t.Run(step.name, step.do) {
			t.FailNow() // each step needs the one before
		}
	}
}

func (s *leadSite) remembers(t *testing.T) {
	s.checkPuppetDB(t)
	s.remember(t)
}

// observes is section 1 of the page. Two agents come by the class, and two by the package, because Puppet does not run
// on their nodes now. All verdicts come from reports that are older than the agents.
func (s *leadSite) observes(t *testing.T) {
	page := readGuide(t, "1")
	dir := sh(t, s.server, "puppet config print cadir --section server")
	for _, file := range []string{"ca_crt.pem", "ca_crl.pem"} {
		s.op.write(t, file, sh(t, s.server, "cat "+dir+"/"+file)+"\n")
	}
	s.fleetFile = page.block(t, "yaml", 0)
	s.op.write(t, "tutti.yaml", s.fleetFile)
	var said string
	for _, command := range page.commands() {
		if strings.Contains(command, "trust-ca") {
			command += " --yes" // the page shows what a person does on a terminal
		}
		said = s.op.run(t, command, 0)
	}
	values := map[string]string{"digest": s.installModule(t)}
	for name, re := range optionRE {
		values[name] = re.FindStringSubmatch(said)[1]
	}
	s.class = fillClass(page.block(t, "puppet", 0), values)

	began := time.Now()
	s.production.class = s.classFor("^web-01$")
	s.deploy(t, "production", s.production)
	s.cronNow(t)
	s.production.class = s.classFor("^web-")
	s.deploy(t, "production", s.production)
	s.again(t)
	debs := t.TempDir()
	buildDeb(t, newVersion, debs)
	for _, h := range []*lab.Host{s.db1, s.db2} {
		copyIn(t, h, debs, newVersion)
		sh(t, h, "dpkg -i /root/tutti_"+newVersion+".deb && rm /root/tutti_"+newVersion+".deb")
		sh(t, h, fmt.Sprintf("tutti join --puppet-certificate --server %s --pin %s", values["server"], values["pin"]))
	}
	t.Logf("the agents were installed in %s", time.Since(began).Round(time.Second))

	s.expect(t, map[*lab.Host]verdict{
		s.web1: {api.NodeGood, ""}, s.web2: {api.NodeFailed, "resources: 1 resource failed"},
		s.db1: {api.NodeGood, ""}, s.db2: {api.NodeDisabled, "Puppet is disabled by root: kernel update"},
	})
	s.checkFirstVerdicts(t, time.Now())
	if got := s.op.run(t, "tutti status", 1); !strings.Contains(got, "2 good, 1 failed, 1 disabled") {
		t.Errorf("tutti status: %s", got)
	}
	if n := s.node(t, s.db1); time.Since(n.Since) < 25*time.Minute {
		t.Errorf("db-01 is good since %s, but its run was 25 minutes ago", n.Since)
	}
	s.checkPuppetDB(t)
	s.checkStarts(t)
	for _, h := range []*lab.Host{s.web1, s.web2} {
		checkFiles(t, h, s.before[h.Name], byAgent, byClass, byPluginsync, byPuppet)
	}
	for _, h := range []*lab.Host{s.db1, s.db2} {
		checkFiles(t, h, s.before[h.Name], byAgent, byPackage)
	}
	checkFiles(t, s.server, s.before["puppet"], byDeploy, byTheServer)
}

// looksAtABranch is section 2 of the page.
func (s *leadSite) looksAtABranch(t *testing.T) {
	s.cronNow(t) // the site goes on: the node has a run that began after its agent
	s.expect(t, map[*lab.Host]verdict{s.web1: {api.NodeGood, ""}})
	page := readGuide(t, "2")
	s.op.write(t, "tutti.yaml", amend(s.fleetFile, page.block(t, "yaml", 0)))
	before, was := readListing(t, s.web1), s.node(t, s.web1)
	var said string
	for _, command := range page.commands() {
		if !strings.HasPrefix(command, "tutti diff ") { // it needs an agent on the Puppet Server, which stays untouched here
			said += s.op.run(t, command, 0)
		}
	}
	if !strings.Contains(said, "File[/etc/site/word]") {
		t.Errorf("the job does not show what the branch would change: %s", said)
	}
	s.reports[certname(s.web1)]++
	s.checkPuppetDB(t)
	s.checkCatalog(t, "feature_x") // Puppet Server stores each catalog that it compiles
	checkWord(t, s.web1, "one")
	checkFiles(t, s.web1, before, byAgent, byPluginsync, byPuppet)
	if n := s.node(t, s.web1); n.Stands != was.Stands || n.Observed {
		t.Errorf("web-01 stands %s: %s, and stood %s before; observed %v", n.Stands, n.Why, was.Stands, n.Observed)
	}
	s.cron(t)
	if got := sh(t, s.web1, "sed -n 's/^environment: //p' /var/cache/puppet/state/last_run_report.yaml"); got != "production" {
		t.Errorf("cron's run was of environment %s", got)
	}
	checkWord(t, s.web1, "one")
	checkFiles(t, s.web1, before, byAgent, byPluginsync, byPuppet)
	s.expect(t, map[*lab.Host]verdict{s.web1: {api.NodeGood, ""}})
	s.checkPuppetDB(t)
	s.checkCatalog(t, "production")
	s.checkStarts(t)
}

// convergesAGroup is section 3 of the page. The code changes on the Puppet Server.
func (s *leadSite) convergesAGroup(t *testing.T) {
	page := readGuide(t, "3")
	s.op.write(t, "tutti.yaml", amend(s.fleetFile, page.block(t, "yaml", 0)))
	s.production.word, s.production.mend = "two", mend
	s.deploy(t, "production", s.production)
	others := map[*lab.Host]listing{s.db1: readListing(t, s.db1), s.db2: readListing(t, s.db2)}
	for _, command := range page.commands() {
		s.countRuns(t, s.op.run(t, command, 0))
	}
	for _, h := range []*lab.Host{s.web1, s.web2} {
		checkWord(t, h, "two")
	}
	s.expect(t, map[*lab.Host]verdict{s.web1: {api.NodeGood, ""}, s.web2: {api.NodeGood, ""}})
	for h, was := range others {
		if n := s.node(t, h); !n.Observed || !n.Foreign && n.LastRun != "" || n.LastJob != "" {
			t.Errorf("%s had a run of Tutti: %+v", h.Name, n)
		}
		checkFiles(t, h, was, byAgent)
	}
}

// countRuns counts the runs of the jobs in a command's output, because each run sends a report to PuppetDB.
func (s *leadSite) countRuns(t *testing.T, said string) {
	t.Helper()
	jobs := jobRE.FindAllStringSubmatch(said, -1)
	for _, m := range jobs {
		for _, r := range runsOf((&job{id: tutti.JobID(m[1]), t: t, f: s.LabFleet}).end().Job) {
			s.reports[string(r.Node)]++
		}
	}
}

var jobRE = regexp.MustCompile(`(?m) job (\S+): plan converge, apply`)

// goesOut is section 4 of the page. The class takes Tutti from the web nodes, and the package from the others.
func (s *leadSite) goesOut(t *testing.T) {
	present := s.class
	s.class = strings.Replace(s.class, "class { 'tutti::agent':", "class { 'tutti::agent':\n  ensure => absent,", 1)
	if s.class == present {
		t.Fatal("the class is as before")
	}
	s.production.class = s.classFor("^web-")
	s.deploy(t, "production", s.production)
	s.cronNow(t)
	s.again(t)
	for _, h := range []*lab.Host{s.db1, s.db2} {
		sh(t, h, "tutti leave --yes && dpkg --purge tutti")
	}
	nodes, err := s.Client.ListNodes(t.Context())
	if err != nil || len(nodes) > 0 {
		t.Errorf("nodes: %v, %v", nodes, err)
	}
	sh(t, s.server, "cd "+environments+"/production/modules && rm -r tutti profile")
	s.production = branch{word: "one"}
	s.deploy(t, "production", s.production)
	s.cronNow(t)
	s.again(t)
	for _, h := range []*lab.Host{s.web1, s.web2} {
		checkFiles(t, h, s.before[h.Name], byPuppet, byTheSite)
	}
	for _, h := range []*lab.Host{s.db1, s.db2} {
		checkFiles(t, h, s.before[h.Name])
	}
	checkFiles(t, s.server, s.before["puppet"], byDeploy, byTheServer)
	s.checkStarts(t)
	s.checkPuppetDB(t)
}

// A verdict is the state of a node, and a part of the reason.
type verdict struct {
	state api.NodeState
	why   string
}

func (s *leadSite) node(t *testing.T, h *lab.Host) api.NodeView {
	t.Helper()
	nodes, err := s.Client.ListNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if string(n.Node) == certname(h) {
			return n
		}
	}
	t.Fatalf("no node %s", certname(h))
	return api.NodeView{}
}

// The method `expect` waits until each node stands as wanted.
func (s *leadSite) expect(t *testing.T, want map[*lab.Host]verdict) {
	t.Helper()
	for h, v := range want {
		eventually(t, fmt.Sprintf("%s to be %s %q", h.Name, v.state, v.why), func() bool {
			n := s.node(t, h)
			return n.Stands == v.state && strings.Contains(n.Why, v.why)
		})
	}
}

// checkFirstVerdicts measures the time from the join of each node to its first run in the server's log. A node with a
// disabled Puppet is judged by what its agent says, which is not in the log. Its verdict was there at the time `seen`.
func (s *leadSite) checkFirstVerdicts(t *testing.T, seen time.Time) {
	t.Helper()
	joined, told := map[tutti.NodeName]time.Time{}, map[tutti.NodeName]time.Time{}
	err := s.Client.ReadAudit(t.Context(), api.ReadAudit{}, func(e api.AuditEntry) error {
		if e.Raw == nil {
			return nil
		}
		var event tutti.Event
		if err := json.Unmarshal(e.Raw, &event); err != nil {
			return err
		}
		switch b := event.Body.(type) {
		case *tutti.NodeEnrolled:
			joined[b.Node] = event.At
		case *tutti.RunForeign:
			if told[b.Node].IsZero() {
				told[b.Node] = event.At
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range s.nodes() {
		node := tutti.NodeName(certname(h))
		t.Logf("%s joined at %s, first run in the log after %s, verdict seen after at most %s", node, joined[node].Format(time.TimeOnly),
			told[node].Sub(joined[node]).Round(time.Millisecond), seen.Sub(joined[node]).Round(time.Millisecond))
		if joined[node].IsZero() || told[node].IsZero() || told[node].Sub(joined[node]) > soon || seen.Sub(joined[node]) > soon {
			t.Errorf("%s has no verdict within %s", node, soon)
		}
	}
}
