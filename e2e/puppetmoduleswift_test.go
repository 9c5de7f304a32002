//go:build e2e

package e2e_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/stage"
)

// compileFleet returns the fleet file of the example for these nodes. With the module on the Puppet
// Server, the fleet file needs `mode: agent` and compileGrant.
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
		"groups:\n", "groups:\n  servers: {nodes: [puppet]}\n  swift: {nodes: ["+strings.Join(swift, ", ")+"]}\n",
		"grants:\n", "grants:\n"+compileGrant,
	).Replace(string(example))
}

// withoutPuppetDB deploys the example with its unchanged code and grants, through the Puppet Server
// with the module. Tutti answers the collectors, and there is no PuppetDB. The stock daemon runs on
// all nodes during the test.
func (s *puppetSite) withoutPuppetDB(t *testing.T) {
	s.remove(t, storedSwift)
	s.setFleet(t, compileFleet(t, plannedSwift))
	s.manifest(t, "")
	sh(t, s.server, `mkdir -p /etc/puppet/code/environments/`+swiftEnvironment+`
		rm /etc/puppet/tutti-server.yaml /etc/puppet/routes.yaml /etc/puppet/puppetdb.conf
		systemctl reload puppetserver`)
	if got := sh(t, s.server, "systemctl is-active puppetdb || true"); got != "inactive" {
		t.Fatalf("PuppetDB is %s", got)
	}
	more := s.part(t, slices.Concat(plannedSwift, convergedSwift)...).Nodes
	s.join(t, more...)
	startDaemons(t, swiftEnvironment, more)
	t.Run("by the plan", func(t *testing.T) {
		f := s.part(t, plannedSwift...)
		// the number of replicas is 2 because there are two storage nodes
		s.set(t, "shared/hiera/profile::swift::ringbuilder::replicas", "2")
		deploySwift(t, s.server, swiftEnvironment, "")
		j := start(t, f, "deploy", tutti.ModeApply).end()
		j.checkSummary(tutti.VerdictSucceeded, 6, 0)
		daemonsRun(t, f, tutti.Unchanged) // the runs of the daemon must not undo anything
		checkSwift(t, f, j)
		s.reacts(t, nil)
	})
	t.Run("removed", func(t *testing.T) {
		s.remove(t, plannedSwift)
		s.setFleet(t, compileFleet(t, convergedSwift))
	})
	f := s.part(t, convergedSwift...)
	t.Run("converged, without a plan", func(t *testing.T) {
		if err := s.Client.UnsetValue(t.Context(), "shared/hiera/profile::swift::ringbuilder::replicas"); err != nil {
			t.Fatal(err)
		}
		// Each node has one run. All nodes compile. The ring builder applies when it has seen all
		// devices. After that the storage nodes apply, because they read the digests of the rings.
		j := s.reacts(t, map[tutti.NodeName]int{"storage-05": 1, "storage-06": 1, "storage-07": 1, "proxy-03": 1})
		j.checkSummary(tutti.VerdictConverged, 4, 0)
		checkSwift(t, f, j)
		s.reacts(t, nil)
	})
	t.Run("a device, of which the daemon hears first", func(t *testing.T) {
		s.set(t, "node/storage-05/hiera/profile::swift::storage::devices", `["d1", "d2"]`)
		first := s.part(t, "storage-05")
		daemonsRun(t, first, tutti.Changed)
		sh(t, first.Nodes[0], "test -d /srv/node/d2")
		n, err := s.Client.ShowNode(t.Context(), "storage-05")
		if err != nil || n.Standing.State != api.NodeStale {
			t.Errorf("%+v, %v: want it stale", n.Standing, err)
		}
		checkExports(t, n, "/d1]", 3)
		s.reacts(t, map[tutti.NodeName]int{"storage-05": 1, "storage-06": 1, "storage-07": 1, "proxy-03": 1})
		if n, err = s.Client.ShowNode(t.Context(), "storage-05"); err != nil {
			t.Fatal(err)
		}
		checkExports(t, n, "/d2]", 6)
		for _, h := range f.Nodes {
			if got := ringDevices(t, f, h.Name); got != "4" {
				t.Errorf("the ring on %s has %s devices, want both of storage-05's", h.Name, got)
			}
		}
	})
	t.Run("by itself", func(t *testing.T) {
		// this run is for the Puppet Server's own node, which had no run yet
		converge(t, s.LabFleet).end().checkSummary(tutti.VerdictConverged, 1, 0)
		s.setFleet(t, "reactive: true\n"+compileFleet(t, convergedSwift))
		checkReaction(t, s.LabFleet, "a user of the proxy", map[tutti.NodeName]int{"proxy-03": 1}, func() {
			s.set(t, "shared/hiera/profile::swift::proxy::users", `[
				{"account": "test", "user": "tester", "key": "testing", "groups": ["admin"]},
				{"account": "test", "user": "reader", "key": "reading", "groups": []}]`)
		})
		s.setFleet(t, compileFleet(t, convergedSwift))
	})
}

// The method `remove` cuts the power of hosts and removes their nodes from the fleet.
func (s *puppetSite) remove(t *testing.T, nodes []string) {
	t.Helper()
	for _, h := range s.part(t, nodes...).Nodes {
		if err := h.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if out, code := tuttiCLI(t, s.LabFleet, "node", "remove", h.Name, "--yes"); code != 0 {
			t.Fatalf("node remove %s: exit code %d: %s", h.Name, code, out)
		}
	}
}

// The method `reacts` converges the example. Each node must have the wanted number of runs, and no
// run may fail.
func (s *puppetSite) reacts(t *testing.T, want map[tutti.NodeName]int) *job {
	t.Helper()
	j := convergeOn(t, s.LabFleet, "swift").end()
	j.checkConverged(want)
	return j
}

// checkSwift checks that the cluster works and that the daemons run. Tutti must also know which
// node has exported each resource that another node has collected.
func checkSwift(t *testing.T, f *stage.LabFleet, j *job) {
	t.Helper()
	if err := f.StoreAndFetch(t.Context(), []byte("all together"), t.Logf); err != nil {
		t.Error(err)
	}
	last := len(f.Nodes) - 1
	storage, proxy := f.Nodes[:last], f.Nodes[last]
	runs := map[tutti.RunID]*engine.Run{}
	for _, r := range runsOf(j.Job) {
		runs[r.Run] = r
	}
	exported := func(collector, resource, exporter string) {
		t.Helper()
		e, err := f.Client.ExplainResource(t.Context(), api.ExplainResource{Node: tutti.NodeName(collector), Resource: resource})
		if err != nil || len(e.Exported) != 1 || e.Exported[0].Run == nil {
			t.Errorf("%s on %s: %+v, %v: want the run of %s that exports it", resource, collector, e, err, exporter)
			return
		}
		run := runs[e.Exported[0].Run.Run]
		if e.Exported[0].Node != tutti.NodeName(exporter) || run == nil || run.Node != tutti.NodeName(exporter) {
			t.Errorf("%s on %s is exported by %s, run %+v; want a run of %s in this job", resource, collector, e.Exported[0].Node, e.Exported[0].Run, exporter)
		}
	}
	var readers []tutti.NodeName
	for _, h := range storage {
		exported(proxy.Name, "Ring_object_device["+h.Address.String()+":6200/d1]", h.Name)
		exported(h.Name, "Swift::Ringsync[object]", proxy.Name)
		readers = append(readers, tutti.NodeName(h.Name))
	}
	v, err := f.Client.ExplainValue(t.Context(), "swift/rings/object")
	if err != nil || v.Run == nil || v.Run.Node != tutti.NodeName(proxy.Name) || !slices.Equal(v.Readers, readers) {
		t.Errorf("the rings' digest: %+v, %v; want it of %s's run, read by %q", v, err, proxy.Name, readers)
	}
	for _, h := range f.Nodes {
		if got := sh(t, h, "systemctl is-active puppet"); got != "active" {
			t.Errorf("the daemon of %s is %s", h.Name, got)
		}
	}
}

// checkExports counts the exports of a node. One export for each of the three rings must contain
// the given text.
func checkExports(t *testing.T, n api.NodeDetail, like string, want int) {
	t.Helper()
	found := 0
	for _, e := range n.Exports {
		if strings.HasSuffix(e, like) {
			found++
		}
	}
	if found != 3 || len(n.Exports) != want {
		t.Errorf("%s exports %q, want %d, one of each ring with %s", n.Node, n.Exports, want, like)
	}
}

// daemonsRun starts a run of the stock daemon on all nodes at once, and waits until the server has
// the reports.
func daemonsRun(t *testing.T, f *stage.LabFleet, outcome tutti.Outcome) {
	t.Helper()
	before := map[string]string{}
	for _, h := range f.Nodes {
		before[h.Name] = lastReport(t, h)
		sh(t, h, "kill -USR1 $(systemctl show -p MainPID --value puppet)")
	}
	for _, h := range f.Nodes {
		if n := foreignRun(t, f, h, before[h.Name]); n.Outcome != outcome {
			t.Errorf("the daemon's run on %s ended %s:%s: %s, want %s", h.Name, n.Outcome, n.Reason, n.Message, outcome)
		}
	}
}
