//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// siteFleet needs no environment, because the Puppet Server has the code.
const siteFleet = `
fleet: site
mode: agent
inventory: {facts: true, resources: true}
groups:
  web: {nodes: [web-01, web-02]}
plans:
  deploy: {steps: [{run: web}]}
  first: {steps: [{run: web-01}]}
  alone: {exclusive: {reason: new kernel, lease: 20s}, steps: [{run: web}]}
  other: {steps: [{run: web-01, mode: agent, environment: staging}]}
  look: {steps: [{run: web-01, noop: true}]}
  tagged: {steps: [{run: web-01, tags: [base]}]}
`

// newPlainSite boots a Puppet Server and two nodes. The Puppet Server has no files of Tutti.
func newPlainSite(t *testing.T) *puppetSite {
	t.Helper()
	spec := mustReadSpec(t, "puppetserver.yaml")
	spec.Name = siteLab()
	s := newSite(t, siteSpec{Spec: spec, tutti: "tutti", units: []string{"puppetserver"}, nodes: []string{"web-01", "web-02"}})
	s.web = s.Nodes
	s.setFleet(t, siteFleet)
	return s
}

// TestPuppetServer adds Tutti to a site with a Puppet Server, without changing the site. Tutti must
// report each way in which a run of `puppet agent` can end. The last case installs the module on
// the Puppet Server.
func TestPuppetServer(t *testing.T) {
	s := newPlainSite(t)
	first := s.web[0]
	run := func(j *job) *engine.Run { return j.last(j.Steps[0].Name, "web-01") }

	t.Run("as it is", func(t *testing.T) {
		sh(t, first, "rm /var/tmp/e2e-site")
		j := s.execute(t, "deploy")
		j.checkSummary(tutti.VerdictSucceeded, 2, 0)
		j.expect(run(j), tutti.Changed, "", "")
		if got := sh(t, first, "cat /var/tmp/e2e-site"); got != "web-01" {
			t.Errorf("the file has %q", got)
		}
		// Puppet's own report has the id of the run, and went to the Puppet Server.
		id := string(run(j).Run)
		report := sh(t, first, "grep -E '^(job_id|transaction_uuid):' $(puppet config print lastrunreport --section agent) | sort | awk '{print $2}' | tr -d \"'\" | uniq")
		if report != id {
			t.Errorf("the last report is of %s, the run was %s", report, id)
		}
		queried(t, s.LabFleet, api.Query{Of: api.QueryFacts, Where: `facts.os.family == "Debian"`, Show: []string{"networking.hostname"}}, `web-01 ["web-01"]`, `web-02 ["web-02"]`)
		queried(t, s.LabFleet, api.Query{Of: api.QueryResources, Where: `resource.type == "File" && resource.title == "/var/tmp/e2e-site"`, Show: []string{"hidden"}},
			`web-01 [["content"]]`, `web-02 [["content"]]`)
	})

	t.Run("a node joins with its certificate", s.joinsByCertificate)

	t.Run("the class installs the agent", s.installsTheAgent)

	t.Run("the remote control", func(t *testing.T) { checkRemoteControl(t, s) })

	t.Run("a compile error is no old catalog", func(t *testing.T) {
		s.manifest(t, "fail('not today')")
		sh(t, first, "rm /var/tmp/e2e-site")
		j := s.execute(t, "deploy")
		j.expect(run(j), tutti.Failed, tutti.BecauseCompile, "not today (file: /etc/puppet/code/environments/production/manifests/site.pp, line: 2")
		j.checkSummary(tutti.VerdictFailed, 0, 2)
		if got := sh(t, first, "ls /var/tmp/e2e-site || true"); got != "" {
			t.Errorf("the cached catalog was applied: %s", got)
		}
		s.manifest(t, "")
	})

	t.Run("disabled is skipped and stays so", func(t *testing.T) {
		sh(t, first, "puppet agent --disable 'new kernel, ask jo'")
		j := s.execute(t, "first")
		j.expect(run(j), tutti.Skipped, "", "Puppet is disabled on the node: new kernel, ask jo")
		file := sh(t, first, "cat $(puppet config print agent_disabled_lockfile --section agent)")
		if diff := cmp.Diff(`{"disabled_message":"new kernel, ask jo"}`, file); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		sh(t, first, "puppet agent --enable")
	})

	t.Run("an environment that is not there", func(t *testing.T) {
		j := s.execute(t, "other")
		j.expect(run(j), tutti.Failed, tutti.BecauseCompile, "Environment 'staging' not found on server")
	})

	t.Run("another environment than asked for", func(t *testing.T) {
		sh(t, s.server, "cp -r /etc/puppet/code/environments/production /etc/puppet/code/environments/staging; echo 'environment: production' > /etc/puppet/enc.yaml")
		j := s.execute(t, "other")
		j.expect(run(j), tutti.Failed, tutti.BecauseCompile, "does not match agent specified environment 'staging'")
	})

	t.Run("noop and tags change nothing", func(t *testing.T) {
		s.manifest(t, "file { '/var/tmp/e2e-more': content => 'x' }")
		j := s.execute(t, "look")
		if r := run(j); !r.Result.NoopPending || r.Mode != tutti.ModeNoop {
			t.Errorf("noop: %+v", r.Result)
		}
		j = s.execute(t, "tagged")
		if r := run(j); r.Result.Counts.Skipped != r.Result.Counts.Total {
			t.Errorf("no resource has the tag: %+v", r.Result)
		}
		if got := sh(t, first, "ls /var/tmp/e2e-more || true"); got != "" {
			t.Errorf("it was made: %s", got)
		}
	})

	t.Run("plugins that come with the run", s.plugins)

	t.Run("behind a run that cron started", func(t *testing.T) {
		s.manifest(t, "exec { '/bin/sh -c \"touch /run/e2e-cron; until test -e /run/e2e-release; do sleep 0.1; done\"': creates => '/run/e2e-release' }")
		sh(t, first, "systemd-run --quiet --unit e2e-cron puppet agent --onetime --no-daemonize; until test -e /run/e2e-cron; do sleep 0.1; done")
		j := start(t, s.LabFleet, "first", tutti.ModeApply)
		j.until(func(w api.Watched) bool {
			return w.Live != nil && w.Live.Node == "web-01" && strings.Contains(w.Live.Message, "puppet agent")
		})
		sh(t, first, "touch /run/e2e-release")
		j.end()
		j.expect(run(j), tutti.Unchanged, "", "")
		if got := sh(t, first, "systemctl show -p Result --value e2e-cron"); got != "success" {
			t.Errorf("cron's run ended with %s", got)
		}
	})

	t.Run("exclusive", func(t *testing.T) { exclusiveJobs(t, s) })

	t.Run("converged", func(t *testing.T) {
		s.manifest(t, "fail('not today')")
		s.execute(t, "deploy").checkSummary(tutti.VerdictFailed, 0, 2)
		s.manifest(t, "")
		j := converge(t, s.LabFleet).end()
		j.checkSummary(tutti.VerdictConverged, 2, 0)
		again := converge(t, s.LabFleet).end()
		again.checkSummary(tutti.VerdictConverged, 0, 0)
	})

	t.Run("runs that others start", s.foreignRuns)

	t.Run("two environments are compared", s.comparesEnvironments)

	t.Run("the Puppet Server stops in the middle", func(t *testing.T) {
		s.manifest(t, "exec { '/bin/sh -c \"touch /run/e2e-mid; until test -e /run/e2e-go; do sleep 0.1; done\"': creates => '/run/e2e-go' } -> file { '/var/tmp/e2e-end': content => 'x' }")
		j := start(t, s.LabFleet, "deploy", tutti.ModeApply)
		sh(t, first, "until test -e /run/e2e-mid; do sleep 0.1; done")
		sh(t, s.server, "systemctl stop puppetserver")
		for _, h := range s.web {
			sh(t, h, "touch /run/e2e-go")
		}
		j.end()
		// the catalog is complete, and the report reaches Tutti but not the Puppet Server
		j.expect(run(j), tutti.Changed, "", "")
		j = s.execute(t, "deploy")
		j.expect(run(j), tutti.Failed, tutti.BecauseCompile, "Failed to open TCP connection to puppet:8140")
	})
	t.Run("with the module", s.withModule)
}
