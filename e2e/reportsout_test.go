//go:build e2e

package e2e_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// reportedFleet runs storage-01 without the Puppet Server.
const reportedFleet = `
fleet: site
environment: {name: production, path: ./code}
inventory: {facts: true}
groups:
  storage: {nodes: [storage-01]}
plans:
  one: {steps: [{run: storage-01, mode: apply}]}
  look: {steps: [{run: storage-01, mode: apply, noop: true}]}
`

const reportedSite = `
file { '/var/tmp/e2e-reported': content => 'WORD' }
file { '/var/tmp/e2e-secret': content => Sensitive('hunter2') }
`

// storedReport is a part of what PuppetDB says about a report.
type storedReport struct {
	Run    tutti.RunID `json:"transaction_uuid"`
	Status string      `json:"status"`
	Noop   bool        `json:"noop"`
	Events struct {
		Data []struct {
			Title  string `json:"resource_title"`
			Status string `json:"status"`
			New    string `json:"new_value"`
		} `json:"data"`
	} `json:"resource_events"`
}

// reportsToPuppetDB sends reports of runs in mode apply to PuppetDB. Each run must be there once, also after PuppetDB was
// away, after the server was killed, and if a report is sent again.
func (s *puppetSite) reportsToPuppetDB(t *testing.T) {
	later(t, s.server, "rm -rf /var/lib/tutti/server/reports.yaml; systemctl restart tutti-server")
	if err := s.Push(t.Context(), write(t, reportedFleet, reportedSite)); err != nil {
		t.Fatal(err)
	}
	sh(t, s.server, `
		systemctl start puppetdb
		printf 'destinations:\n  pdb:\n    puppetdb: http://localhost:8080\n    timeout: 20s\n' > /var/lib/tutti/server/reports.yaml
		tutti server reports check
		systemctl restart tutti-server
		until tutti server reports list --json | grep -q '"name"'; do sleep 0.1; done
		until test -s /var/lib/tutti/server/reports-out/pdb.json; do sleep 0.1; done`)
	run := func(plan tutti.PlanName) tutti.RunID {
		t.Helper()
		j := s.execute(t, plan)
		var id tutti.RunID
		for _, r := range runsOf(j.Job) {
			id = r.Run
		}
		return id
	}
	stored := func(want ...tutti.RunID) []storedReport {
		t.Helper()
		all := `require "net/http"; require "json"
q = URI.encode_www_form(query: JSON.generate(["=", "certname", "storage-01"]), order_by: JSON.generate([{field: "start_time"}]))
loop do
  all = JSON.parse(Net::HTTP.get(URI("http://localhost:8080/pdb/query/v4/reports?#{q}"))) rescue []
  (puts JSON.generate(all); break) if all.any? { |r| r["transaction_uuid"] == ARGV[0] }
  sleep 0.2
end`
		raw := sh(t, s.server, "ruby -e '"+all+"' "+string(want[len(want)-1]))
		var out []storedReport
		if err := json.Unmarshal([]byte(raw), &out); err != nil {
			t.Fatal(err)
		}
		var got []tutti.RunID
		for _, r := range out {
			got = append(got, r.Run)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("PuppetDB has these reports: -want +got\n%s", diff)
		}
		return out
	}
	first := run("one")
	// Facts that a Puppet Server sends contain `trusted`, and facts of Tutti do not.
	sh(t, s.server, `
		until grep -q '"facts": *[1-9]' /var/lib/tutti/server/reports-out/pdb.json; do sleep 0.1; done
		facts() { ruby -rnet/http -e 'puts Net::HTTP.get(URI("http://localhost:8080/pdb/query/v4/nodes/storage-01/facts/#{ARGV[0]}")).strip' $1; }
		until facts kernel | grep -q Linux && test "$(facts trusted | tr -d '[:space:]')" = '[]'; do sleep 0.1; done`)
	look := run("look")
	got := stored(first, look)
	events := map[string]string{}
	for _, e := range got[0].Events.Data {
		events[e.Title+" "+e.Status] = e.New
	}
	if _, made := events["/var/tmp/e2e-reported success"]; !made || got[0].Status != "changed" || got[0].Noop || !got[1].Noop {
		t.Errorf("%+v", got)
	}
	// PuppetDB is away. The server dies after it has sent a report, and before it has written this down.
	sh(t, s.server, "systemctl stop puppetdb; cp /var/lib/tutti/server/reports-out/pdb.json /run/e2e-cursor")
	again := run("one")
	sh(t, s.server, `until tutti server reports list --json | grep -q '"waiting": 1'; do sleep 0.1; done; systemctl start puppetdb
		until tutti server reports list --json | grep -q '"waiting": 0'; do sleep 0.1; done`)
	stored(first, look, again)
	sh(t, s.server, `systemctl kill --signal=KILL --kill-whom=main tutti-server; systemctl stop tutti-server
		cp /run/e2e-cursor /var/lib/tutti/server/reports-out/pdb.json; systemctl start tutti-server
		until tutti server reports list --json | grep -q '"sent": 3'; do sleep 0.1; done`)
	last := run("one")
	stored(first, look, again, last)
}
