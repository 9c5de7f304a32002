package server_test

import (
	"bytes"
	"compress/gzip"
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
func answers(t *testing.T, f *servertest.Fleet, in api.Query) []string {
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
	f.Push(holdsAll)
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
		err := f.Query(servertest.Operator(), api.Query{Of: api.QueryFacts}, func(n api.QueriedNode) error {
			if len(n.Rows) != 1 || time.Since(n.At) > time.Hour {
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
	setFleet(t, f, holdsAll+"mode: observe\n")
	if got := old(); got != "the node is observed now" {
		t.Errorf("an observed node: %q", got)
	}
}
