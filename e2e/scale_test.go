//go:build e2e

package e2e_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/stage"
)

// This small cluster is like the Swift example, but takes only seconds. Storage nodes export their
// devices. The builder collects the devices, builds rings, publishes the digest of the rings, and
// exports the address for fetching the rings. If a device is no longer exported, it stays in the
// rings, as in Swift.
const (
	scaleFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  builder: {nodes: [node-01]}
  storage: {nodes: [node-02, node-03]}
grants:
  - {to: builder, write: [shared/rings/**], exports: [Ring::Sync]}
  - {to: storage, exports: [Ring::Device]}
`
	scaleSite = `
node 'node-01' {
	Ring::Device <<| |>>
	-> exec { '/bin/sh -c "cat /var/tmp/e2e-ring-* > /var/tmp/e2e-rings"': }
	-> tutti_value { 'shared/rings/object': source_file => '/var/tmp/e2e-rings' }
	@@ring::sync { 'object': from => 'node-01' }
}
node default {
	@@ring::device { $trusted['certname']: }
	$rings = tutti::value('shared/rings/object', undef)
	file { '/var/tmp/e2e-fetched': content => String($rings) }
	Ring::Sync <<| |>>
}
`
)

var scaleModule = map[string]string{
	"modules/ring/manifests/device.pp": "define ring::device() {\n  file { \"/var/tmp/e2e-ring-${title}\": content => $title }\n}\n",
	"modules/ring/manifests/sync.pp":   "define ring::sync(String $from) {\n  file { '/var/tmp/e2e-sync': content => $from }\n}\n",
}

// TestConvergeScale checks a fleet that keeps itself converged. A new storage node causes one run
// of itself and one run of the builder. A new storage node also causes one run of each storage node
// that must fetch the new rings. The removal of a storage node causes one run of the builder.
func TestConvergeScale(t *testing.T) {
	h := host(t, leaver)
	for _, h := range fleet.Nodes {
		sh(t, h, "rm -f /var/tmp/e2e-*")
		later(t, h, "rm -f /var/tmp/e2e-*")
	}
	gone := true
	t.Cleanup(func() { // other tests need this node, and need a fleet that does not react to changes
		ctx := context.WithoutCancel(t.Context())
		if _, err := fleet.Client.SetFleet(ctx, api.FleetSource{File: "tutti.yaml", Source: []byte(oneNode)}); err != nil {
			t.Error(err)
		}
		if gone {
			if _, err := stage.Output(ctx, h, nil, hostTutti, "leave", "--yes", "--offline"); err != nil {
				t.Error(err)
			}
			joinAgain(ctx, t, h)
		}
	})
	leave(t, h)
	checkReaction(t, fleet, "from nothing", map[tutti.NodeName]int{"node-01": 1, "node-02": 1}, func() {
		push(t, "reactive: true"+scaleFleet, scaleSite, scaleModule)
	})
	checkReaction(t, fleet, "node-03 joins", map[tutti.NodeName]int{"node-01": 1, "node-02": 1, leaver: 1}, func() {
		joinAgain(t.Context(), t, h)
		gone = false
	})
	checkReaction(t, fleet, "node-03 is removed", map[tutti.NodeName]int{"node-01": 1}, func() {
		gone = true
		if out, code := tuttiCLI(t, fleet, "node", "remove", leaver, "--yes"); code != 0 {
			t.Fatalf("node remove: exit code %d: %s", code, out)
		}
	})
}

// spareStorage is a storage node of the example that joins after the other nodes have converged.
const spareStorage = "storage-04"

// checkSwiftScales adds a storage node to a Swift fleet that keeps itself converged, and then
// removes the node. The devices of the node stay in the rings, because the packaged provider cannot
// remove devices. The digest of the rings therefore stays the same, and only the ring builder runs.
func checkSwiftScales(t *testing.T, f *stage.LabFleet) {
	t.Helper()
	h, err := f.Lab.Host(spareStorage)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.CopyIn(t.Context(), binary, hostTutti); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("../examples/swift/tutti.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(file), "storage-03]", "storage-03, "+spareStorage+"]", 1)
	if _, err := f.Client.SetFleet(t.Context(), api.FleetSource{File: "tutti.yaml", Source: []byte("reactive: true\n" + text)}); err != nil {
		t.Fatal(err)
	}
	builder := tutti.NodeName("proxy-01")
	checkReaction(t, f, "storage-04 joins", map[tutti.NodeName]int{spareStorage: 1, builder: 1, "storage-01": 1, "storage-02": 1, "storage-03": 1}, func() {
		if err := f.Join(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	})
	if devices := ringDevices(t, f, "storage-01"); devices != "4" {
		t.Errorf("the object ring has %s devices, want storage-04's too", devices)
	}
	checkReaction(t, f, "storage-04 is removed", map[tutti.NodeName]int{builder: 1}, func() {
		if out, code := tuttiCLI(t, f, "node", "remove", spareStorage, "--yes"); code != 0 {
			t.Fatalf("node remove: exit code %d: %s", code, out)
		}
	})
	if devices := ringDevices(t, f, "storage-01"); devices != "4" {
		t.Errorf("the object ring has %s devices, want storage-04's still: nobody can remove it", devices)
	}
}

// ringDevices returns the number of devices of a host in the object ring.
func ringDevices(t *testing.T, f *stage.LabFleet, host string) string {
	t.Helper()
	h, err := f.Lab.Host(host)
	if err != nil {
		t.Fatal(err)
	}
	return sh(t, h, `python3 -c 'from swift.common.ring import RingData; print(sum(d is not None for d in RingData.load("/etc/swift/object.ring.gz").devs))'`)
}

// checkReaction counts the runs of each node that the server begins by itself after a change.
// After these runs, no node may need another run.
func checkReaction(t *testing.T, f *stage.LabFleet, when string, want map[tutti.NodeName]int, do func()) {
	t.Helper()
	before := jobs(t, f)
	do()
	var reaction tutti.JobID
	eventually(t, "a job of the server's own, "+when, func() bool {
		for id := range jobs(t, f) {
			if !before[id] {
				reaction = id
			}
		}
		return reaction != ""
	})
	j := (&job{id: reaction, t: t, f: f}).end()
	t.Logf("%s: job %s", when, j.id)
	j.checkConverged(want)
	if again := converge(t, f).end(); again.Verdict != tutti.VerdictConverged || len(runsOf(again.Job)) != 0 {
		t.Errorf("%s: converging afterwards: %s (%s) with %d runs, want nothing to do", when, again.Verdict, again.Message, len(runsOf(again.Job)))
	}
	if more := len(jobs(t, f)) - len(before); more != 2 {
		t.Errorf("%s: %d jobs, want the server's one and ours", when, more)
	}
}

// jobs returns the ids of all jobs on the server of a fleet.
func jobs(t *testing.T, f *stage.LabFleet) map[tutti.JobID]bool {
	t.Helper()
	views, err := f.Client.ListJobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[tutti.JobID]bool{}
	for _, v := range views {
		out[v.Job] = true
	}
	return out
}
