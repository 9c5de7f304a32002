package server_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `zipped` returns a text in gzip.
func zipped(text string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write([]byte(text)) // a buffer takes everything
	_ = w.Close()
	return out.String()
}

// The function `answers` returns the answer of a query, one text for each row and reason.
func answers(t testing.TB, f *servertest.Fleet, in api.Query) []string {
	t.Helper()
	var out []string
	err := f.Query(servertest.Operator(), in, func(n api.QueriedNode) error {
		for _, row := range n.Rows {
			text := string(n.Node) + " " + row.Name
			for _, value := range row.Values {
				text += " " + string(value)
			}
			out = append(out, text)
		}
		if n.Unknown != "" {
			out = append(out, string(n.Node)+" unknown: "+n.Unknown)
		}
		return nil
	})
	if err != nil {
		out = append(out, err.Error())
	}
	return out
}

// TestQueriesOfWhatNodesSent: a damaged or hostile content makes only its own node unknown.
func TestQueriesOfWhatNodesSent(t *testing.T) {
	f := servertest.Start(t)
	f.Push(holdsAll)
	bomb := `{"resources":[` + strings.Repeat(" ", tutti.MaxCatalogJSON) + `]}`
	for name, catalog := range map[string]string{
		"a-good":   zipped(`{"resources":[{"type":"File","title":"/a","parameters":{"mode":"0600"}},{"type":"Class","title":"Web"}]}`),
		"b-bomb":   zipped(bomb),
		"c-plain":  "no gzip",
		"d-cut":    zipped(`{"resources":[{"type":"File","title":"/a","parameters":{}},`),
		"e-other":  zipped(`{"facts":[]}`),
		"f-escape": zipped(`{"resources":[{"type":"File","title":"\u001b[31mred"}]}`),
	} {
		mustHold(t, f.Join(tutti.NodeName(name)), tutti.InventoryCatalog, catalog)
	}
	left := f.Join("g-left")
	if err := hold(t, left, tutti.InventoryCatalog, "", func(in *wire.Inventory) {
		in.Blob, in.Left = "", "the node has more than 32 MiB of catalog"
	}); err != nil {
		t.Fatal(err)
	}
	f.Join("h-none")
	want := []string{
		`a-good File[/a] "0600"`,
		`a-good Class[Web] null`,
		"b-bomb unknown: the node has sent a damaged catalog: it is too large",
		"c-plain unknown: the node has sent a damaged catalog: unexpected EOF",
		"d-cut unknown: the node has sent a damaged catalog: unexpected end of JSON input",
		"e-other unknown: the node has sent a damaged catalog: it has no resources",
		"f-escape File[\ufffd[31mred] null",
		"g-left unknown: the node has more than 32 MiB of catalog",
		"h-none unknown: the node has sent nothing yet: a node sends its catalog after its next run in mode apply",
	}
	if diff := cmp.Diff(want, answers(t, f, api.Query{Of: api.QueryResources, Show: []string{"parameters.mode"}})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a-good Web {}"}, answers(t, f, api.Query{Of: api.QueryClasses, On: `node == "a-good"`, Show: []string{"parameters"}})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestQueriesSayWhatIsOld: a node that was removed has no rows. A conflicted node, an observed node and a node that ran
// without Tutti have their rows, and the answer says that they are old.
func TestQueriesSayWhatIsOld(t *testing.T) {
	f := servertest.Start(t)
	holds := suiteOf("db-01") + "inventory: {facts: true, resources: true}\n"
	f.Push(holds)
	one, gone := f.Join("db-01"), f.Join("gone-01")
	for _, n := range []*servertest.Node{one, gone} {
		mustHold(t, n, tutti.InventoryFacts, zipped(`{"os":"Debian"}`))
	}
	if err := f.RemoveNode(servertest.Operator(), "gone-01"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`db-01  "Debian"`}, answers(t, f, api.Query{Of: api.QueryFacts, Show: []string{"os"}})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	old := func() (text string) {
		t.Helper()
		err := f.Query(servertest.Operator(), api.Query{Of: api.QueryFacts, Where: `facts.os == "none"`}, func(n api.QueriedNode) error {
			if len(n.Rows) > 1 || time.Since(n.At) > time.Hour {
				t.Errorf("%+v", n)
			}
			text = n.Old
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := old(); got != "" {
		t.Errorf("a fresh answer: %q", got)
	}
	later := func(f *tutti.Foreign) { f.Result.StartedAt, f.Result.EndedAt = time.Now(), time.Now() }
	run, report := foreign(1, tutti.Changed, later)
	mustTell(t, one, run, report)
	if got := old(); got != "Puppet has run since without Tutti" {
		t.Errorf("a foreign run: %q", got)
	}
	f.Start("deploy", tutti.ModeNoop) // a run of Tutti that applies nothing does not make the facts fresh
	noop := one.MustClaim().Run
	one.Gate(wire.Gate{Run: noop})
	one.Finish(noop)
	if got := old(); got != "Puppet has run since without Tutti" {
		t.Errorf("a noop run after a foreign run: %q", got)
	}
	setFleet(t, f, holds+"mode: observe\n")
	if got := old(); got == "" {
		t.Errorf("an observed node: %q", got)
	}
}

// BenchmarkQuery asks 500 nodes, each with 60 KB of facts and a catalog of 1,000 resources. The time is that of one node.
func BenchmarkQuery(b *testing.B) {
	f := servertest.Start(b)
	f.Push(holdsAll)
	var facts, catalog strings.Builder
	facts.WriteString(`{"os":{"name":"Debian","release":{"full":"13.1"}}`)
	for i := range 600 {
		fmt.Fprintf(&facts, `,"fact_%d":{"address":"10.0.%d.%d","netmask":"255.255.255.0","mtu":1500,"scope":"global"}`, i, i/250, i%250)
	}
	facts.WriteString("}")
	catalog.WriteString(`{"resources":[`)
	for i := range 1000 {
		if i > 0 {
			catalog.WriteString(",")
		}
		fmt.Fprintf(&catalog, `{"type":"File","title":"/etc/app/%d.conf","tags":["app","class","file","role","web"],"file":"modules/app/manifests/init.pp","line":%d,`+
			`"parameters":{"ensure":"file","group":"root","mode":"0644","owner":"root","path":"/etc/app/%d.conf"},"hidden":["content"]}`, i, i, i)
	}
	catalog.WriteString("]}")
	const nodes = 500
	for i := range nodes {
		n := f.Join(tutti.NodeName(fmt.Sprintf("node-%03d", i)))
		mustHold(b, n, tutti.InventoryFacts, zipped(facts.String()))
		mustHold(b, n, tutti.InventoryCatalog, zipped(catalog.String()))
	}
	for name, in := range map[string]api.Query{
		"facts":     {Of: api.QueryFacts, Where: `facts.os.release.full == "13.1"`, Show: []string{"os.name"}},
		"resources": {Of: api.QueryResources, Where: `resource.title == "/etc/app/7.conf"`, Show: []string{"parameters.mode"}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if got := len(answers(b, f, in)); got != nodes {
					b.Fatal(got)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/nodes, "us/node")
		})
	}
}
