package explain

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

var update = flag.Bool("update", false, "write the golden files")

// The golden picture has all kinds of edges, all states of a node that Tutti runs, two cycles and a box without an edge. The
// command line's golden picture is drawn from the same file.
func TestPicture(t *testing.T) {
	web, db, lb, galera, monitoring, fresh := numbered("web", 8400), numbered("db", 12), numbered("lb", 1), numbered("galera", 3), numbered("monitoring", 2), numbered("new", 5)
	storage, proxy := numbered("storage", 3), numbered("proxy", 1)
	nodes, groups := nodesOf(web, db, lb, galera, monitoring, fresh, storage, proxy)
	for i, n := range web[:60] {
		nodes[n].state = api.NodeStale
		if i < 6 {
			nodes[n].state = api.NodeFailed
		}
	}
	nodes[db[3]].state, nodes[lb[0]].state, nodes[proxy[0]].state = api.NodeFailed, api.NodeWaiting, api.NodeSuspect
	for _, n := range fresh {
		nodes[n].state, nodes[n].known = api.NodeNew, false
	}
	var hosts []tutti.NodeName
	hosts = append(append(append(hosts, db...), lb...), web...)
	flows := []flow{
		valueFlow("db/port", db, web), exportFlow("Haproxy::Balancermember", "", web, lb), exportFlow("Nagios_host", "", hosts, monitoring),
		{from: galera, to: db, kind: api.PictureOrder, order: "galera before db"}, valueFlow("galera/cluster", galera, db),
		valueFlow("swift/rings/account", proxy, storage), valueFlow("swift/rings/container", proxy, storage), valueFlow("swift/rings/object", proxy, storage),
		valueFlow("swift/rings/policy-1", proxy, storage), exportFlow("Swift::Ringsync", "", proxy, storage), exportFlow("Ring_account_device", "", storage, proxy),
		valueFlow("swift/url", proxy, monitoring), valueFlow("db/a-long-name-that-does-not-fit-into-the-picture", db, storage),
	}
	for _, n := range galera {
		flows = append(flows, valueFlow("galera/"+string(n)+"/address", []tutti.NodeName{n}, galera))
	}
	q, err := newQuotient(nodes, flows)
	if err != nil {
		t.Fatal(err)
	}
	p, err := drawn(q, groups)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/picture.json"
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
