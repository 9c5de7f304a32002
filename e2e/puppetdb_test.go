//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// swiftSiteFleet has the plan of the example, for runs through the Puppet Server. The plans `rings`
// and `hasty` are the beginning of this plan, with and without waiting for PuppetDB.
const swiftSiteFleet = `
fleet: swift
mode: agent
groups:
  storage:     {nodes: [storage-01, storage-02]}
  ringbuilder: {nodes: [proxy-01]}
  proxy:       {nodes: [proxy-01]}
order:
  - {first: storage, then: ringbuilder}
plans:
  deploy:
    steps:
      - run: storage
      - wait: {puppetdb: "http://localhost:8080", timeout: 2m}
      - run: ringbuilder
      - wait: {puppetdb: "http://localhost:8080", timeout: 2m}
      - run: storage
      - run: proxy
      - wait: {http: "http://proxy-01:8080/healthcheck", timeout: 60s}
  rings: {steps: [{run: storage}, {wait: {puppetdb: "http://localhost:8080", timeout: 2m}}, {run: ringbuilder}]}
  hasty: {steps: [{run: storage}, {run: ringbuilder}]}
`

// swiftSiteData is the difference from the example: two storage nodes, and no module of Tutti on
// the Puppet Server.
const swiftSiteData = `
profile::swift::ring_digests: false
profile::swift::ringbuilder::replicas: 2
`

// deployCode copies the code of the example to the Puppet Server, with data of the site.
func (s *puppetSite) deployCode(t *testing.T, data string) {
	t.Helper()
	deploySwift(t, s.server, "production", swiftSiteData+data)
}

// The method `lag` delays PuppetDB's writes until the test calls the returned function. During this
// time PuppetDB answers with the data that it has.
func (s *puppetSite) lag(t *testing.T) (end func()) {
	t.Helper()
	sh(t, s.server, `
		rm -f /tmp/e2e-lagging /tmp/e2e-go
		printf '%s\n' 'begin; lock table catalogs in exclusive mode;' '\! touch /tmp/e2e-lagging; until test -e /tmp/e2e-go; do sleep 0.1; done' 'commit;' > /tmp/e2e-lag.sql
		systemd-run --quiet --collect --unit e2e-lag --uid postgres psql -q -f /tmp/e2e-lag.sql puppetdb
		until test -e /tmp/e2e-lagging; do sleep 0.1; done`)
	return func() {
		sh(t, s.server, "touch /tmp/e2e-go; while systemctl is-active --quiet e2e-lag; do sleep 0.1; done")
	}
}

// throughPuppetDB deploys the example through a Puppet Server. The exported resources go through
// the PuppetDB of this server. The test then changes an export.
func (s *puppetSite) throughPuppetDB(t *testing.T) {
	s.setFleet(t, swiftSiteFleet)
	t.Run("deployed by the plan", func(t *testing.T) {
		s.deployCode(t, "")
		s.execute(t, "deploy").checkSummary(tutti.VerdictSucceeded, 6, 0)
		if err := s.StoreAndFetch(t.Context(), []byte("all together"), t.Logf); err != nil {
			t.Error(err)
		}
		for _, h := range s.Nodes {
			if got := sh(t, h, "systemctl is-active puppet"); got != "active" {
				t.Errorf("the daemon of %s is %s", h.Name, got)
			}
		}
	})

	t.Run("converged, without a word of what changed", func(t *testing.T) {
		s.deployCode(t, "profile::swift::storage::devices: [d1, d2]\n")
		converge(t, s.LabFleet).end().checkSummary(tutti.VerdictConverged, 0, 0)
	})

	t.Run("what is collected lags behind", func(t *testing.T) {
		end := s.lag(t)
		s.execute(t, "hasty").checkSummary(tutti.VerdictSucceeded, 3, 0)
		end()
		if got := ringDevices(t, s.LabFleet, "proxy-01"); got != "2" {
			t.Errorf("the ring has %s devices, though PuppetDB did not know of any new one", got)
		}
	})

	t.Run("the plan waits for it", func(t *testing.T) {
		s.deployCode(t, "profile::swift::storage::devices: [d1, d2, d3]\n")
		end := s.lag(t)
		j := start(t, s.LabFleet, "rings", tutti.ModeApply)
		j.until(func(api.Watched) bool { return j.Job != nil && j.Steps[1].State != engine.Pending })
		end()
		j.end().checkSummary(tutti.VerdictSucceeded, 3, 0)
		if got := ringDevices(t, s.LabFleet, "proxy-01"); got != "6" {
			t.Errorf("the ring has %s devices, want three of each storage node", got)
		}
	})

	t.Run("without PuppetDB nothing is compiled", func(t *testing.T) {
		sh(t, s.server, "systemctl stop puppetdb")
		j := s.execute(t, "deploy")
		j.checkSummary(tutti.VerdictFailed, 0, 2)
		j.expect(j.last("run-storage", "storage-01"), tutti.Failed, tutti.BecauseCompile, "puppet:8081")
		sh(t, s.server, "systemctl start puppetdb")
		converge(t, s.LabFleet).end().checkSummary(tutti.VerdictConverged, 2, 0) // two nodes run, because their last runs have failed
		converge(t, s.LabFleet).end().checkSummary(tutti.VerdictConverged, 0, 0)
	})
}
