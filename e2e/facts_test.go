//go:build e2e

package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/stage"
)

const factsFleet = `
fleet: e2e
environment: {name: production, path: ./code}
inventory: {facts: true, resources: true}
groups:
  keyed: {nodes: [node-01]}
  debian: {where: 'facts.os.family == "Debian" && facts.os.release.major in ["12", "13"]'}
  role-db: {where: 'has(facts.e2e_role) && facts.e2e_role == "db"'}
grants:
  - {to: keyed, exports: [{type: Marked, defined: true}]}
plans:
  keyed:
    steps:
      - run: keyed
`

// factsSite has a node whose run creates a fact, like a package that generates host keys. Another
// node collects an export that contains this fact.
const factsSite = `
define marked() {
  file { "/var/tmp/e2e-marked-${title}": content => "x\n" }
}
node 'node-01' {
  file { ['/etc/facter', '/etc/facter/facts.d']: ensure => directory }
  -> file { '/etc/facter/facts.d/e2e_key.txt': content => "e2e_key=made\n" }
  file { '/var/tmp/e2e-role': content => pick($facts['e2e_role'], 'none') }
  if $facts['e2e_key'] {
    @@marked { $facts['e2e_key']: }
  }
}
node 'node-02' {
  Marked <<| |>>
}
node 'node-03' {
}
`

// factsPick has the Puppet function `pick` of the module stdlib, because the hosts of this lab do
// not have stdlib.
const factsPick = `
Puppet::Functions.create_function(:pick) { dispatch(:pick) { repeated_param 'Any', :all }; def pick(*all) all.compact.first end }
`

// TestFacts checks that the server sees a fact after the run that created it, in the same job. In this job, the node
// creates the fact, runs a second time and exports the fact. Then the collecting node runs. If somebody writes a fact
// for a role, the node becomes suspect by itself. If a person starts a run directly after the fact was written, the run
// already has the fact.
func TestFacts(t *testing.T) {
	clean := func() {
		for _, name := range []string{"node-01", "node-02"} {
			sh(t, host(t, name), "rm -rf /etc/facter/facts.d/e2e_* /var/tmp/e2e-marked-* /var/tmp/e2e-role")
		}
	}
	clean()
	defer clean()
	push(t, factsFleet, factsSite, map[string]string{"modules/e2e/lib/puppet/functions/pick.rb": factsPick})
	converge(t, fleet).end().checkGood()
	if got := sh(t, host(t, "node-02"), "ls /var/tmp | grep e2e-marked || true"); got != "e2e-marked-made" {
		t.Errorf("node-02 has %q of what node-01's new fact makes", got)
	}
	again := converge(t, fleet).end()
	again.checkSummary(tutti.VerdictConverged, 0, 0)

	role := func(word string) {
		sh(t, host(t, "node-01"), "echo e2e_role="+word+" > /etc/facter/facts.d/e2e_role.txt")
	}
	role("web")
	eventually(t, "the node to be suspect", func() bool {
		d, err := fleet.Client.ShowNode(t.Context(), "node-01")
		return err == nil && d.Standing.State == api.NodeSuspect
	})
	converge(t, fleet).end().checkConverged(map[tutti.NodeName]int{"node-01": 1})
	if got := sh(t, host(t, "node-01"), "cat /var/tmp/e2e-role"); got != "web" {
		t.Errorf("after converging the role is %q", got)
	}
	role("db")
	execute(t, "keyed", tutti.ModeApply)
	if got := sh(t, host(t, "node-01"), "cat /var/tmp/e2e-role"); got != "db" {
		t.Errorf("after a run that was ordered at once the role is %q", got)
	}
	queried(t, fleet, api.Query{Of: api.QueryFacts, Where: `has(facts.e2e_role)`, Show: []string{"e2e_role"}}, `node-01 ["db"]`)
	queried(t, fleet, api.Query{Of: api.QueryResources, Where: `resource.title == "/var/tmp/e2e-role"`, Show: []string{"file", "hidden"}},
		`node-01 ["manifests/site.pp" ["content"]]`)
	queried(t, fleet, api.Query{Of: api.QueryClasses, On: `facts.os.family == "Debian"`, Where: `class.name == "main"`, Show: []string{"name"}},
		`node-01 ["main"]`, `node-02 ["main"]`, `node-03 ["main"]`)
	queried(t, fleet, api.Query{Of: api.QueryFacts, On: `"role-db" in groups`, Show: []string{"e2e_role"}}, `node-01 ["db"]`)
	queried(t, fleet, api.Query{Of: api.QueryFacts, On: `"debian" in groups`, Show: []string{"os.family"}},
		`node-01 ["Debian"]`, `node-02 ["Debian"]`, `node-03 ["Debian"]`)
	id, err := fleet.Client.StartJob(t.Context(), api.StartJob{Converge: &tutti.ConvergeStep{Target: "role-db"}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	(&job{id: id, t: t, f: fleet}).end().checkGood()
}

// The function `queried` waits until the nodes have sent what the query needs, and compares the answer.
func queried(t *testing.T, f *stage.LabFleet, in api.Query, want ...string) {
	t.Helper()
	var got []string
	eventually(t, "an answer to a query", func() bool {
		got = nil
		err := f.Client.Query(t.Context(), in, func(n api.QueriedNode) error {
			for _, row := range n.Rows {
				got = append(got, fmt.Sprintf("%s %s", n.Node, row.Values))
			}
			if n.Unknown != "" {
				got = append(got, string(n.Node)+" unknown: "+n.Unknown)
			}
			return nil
		})
		return err == nil && slices.Equal(got, want)
	})
	t.Log(got)
}

// checkGood checks that a job converged.
func (j *job) checkGood() {
	j.t.Helper()
	if j.Verdict != tutti.VerdictConverged {
		j.t.Fatalf("job %s: %s: %s", j.id, j.Verdict, j.Message)
	}
}
