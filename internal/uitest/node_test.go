//go:build ui

package uitest

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const shop = `
fleet: shop
environment: {name: production, path: ./code}
groups: {db: {nodes: [db-01]}, web: {nodes: [web-01, web-02]}, new: {nodes: [new-01]}}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true}]}
  - {to: web, read: [db/**, app/**]}
plans:
  deploy:
    steps: [{run: db}, {run: web}]
`

// finish ends a run with a record.
func finish(t *testing.T, n *servertest.Node, r tutti.Result, rec tutti.Record) {
	t.Helper()
	rec.Run, rec.Node = r.Run, n.Name
	raw, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	for blob, to := range map[string]*tutti.Digest{string(raw): &r.Record, "{}": &r.Report} {
		if _, err := n.Fleet.Handle(servertest.Operator(), n.Key, wire.OpBlobPut, []byte(blob)); err != nil {
			t.Fatal(err)
		}
		*to = tutti.DigestOf([]byte(blob))
	}
	if err := n.Call(wire.OpResult, r, nil); err != nil {
		t.Fatal(err)
	}
}

// shopOf returns a fleet with a stale node, a failed node and a node that never ran.
func shopOf(t *testing.T) *servertest.Fleet {
	t.Helper()
	f := servertest.Start(t)
	ctx := servertest.Operator()
	db, web, second := f.Join("db-01"), f.Join("web-01"), f.Join("web-02")
	f.Join("new-01")
	f.Push(shop)
	if err := f.SetValue(ctx, "app/motd", json.RawMessage(`"hello"`)); err != nil {
		t.Fatal(err)
	}
	f.Start("deploy", tutti.ModeApply)
	o := db.MustClaim()
	db.Gate(wire.Gate{Run: o.Run, CatalogReport: tutti.CatalogReport{Values: []string{"db/port"}}, Exports: []tutti.Export{{Type: "Database", Title: "main", File: "/x/db.pp", Line: 3}}})
	if err := db.Publish(o.Run, "db/port", "5432"); err != nil {
		t.Fatal(err)
	}
	finish(t, db, servertest.Result(o.Run, tutti.Changed), tutti.Record{Published: map[string]tutti.Digest{"db/port": tutti.DigestOf([]byte("5432"))}, Exports: []string{"Database[main]"}})
	o = web.MustClaim()
	at := tutti.Place{Resource: "Class[Web]", File: "/x/web.pp", Line: 2}
	var reads []tutti.Read
	for _, q := range []tutti.Query{{Kind: tutti.QueryValue, Key: "app/motd"}, {Kind: tutti.QueryValue, Key: "db/port"}, {Kind: tutti.QueryCollect, Type: "Database"}} {
		r := web.Read(o.Run, q)
		r.At = at
		reads = append(reads, r)
	}
	web.Gate(wire.Gate{Run: o.Run, Reads: reads})
	finish(t, web, servertest.Result(o.Run, tutti.Changed), tutti.Record{Reads: reads})
	o = second.MustClaim()
	second.Gate(wire.Gate{Run: o.Run})
	failed := servertest.Result(o.Run, tutti.Failed)
	failed.Reason = tutti.BecauseResources
	failed.Failures = []tutti.Failure{{Resource: "Exec[mkfs]", File: "/x/disk.pp", Line: 9, Message: "no such disk"}}
	finish(t, second, failed, tutti.Record{})
	if err := f.SetValue(ctx, "app/motd", json.RawMessage(`"bye"`)); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNode(t *testing.T) {
	f := shopOf(t)
	b := of(t, f)
	row := func(state api.NodeState) frame {
		return frame{Seq: 1, Reset: true, Whole: true, Cursor: "1", Views: []view{
			{"fleet", api.FleetView{Fleet: "shop", Nodes: 4}}, {"node/web-01", api.NodeRow{Node: "web-01", State: state, Connected: true}},
		}}
	}
	s := newStream(row(api.NodeStale))
	b.watch = s.ServeHTTP
	d := openDoor(t, b, "nodes/web-01")
	p := newTab(t, nil)
	p.loud = true // for the node that does not exist
	p.open(d.url, "Changed since it was read")
	p.shows("web-01 ↻ stale", `value "app/motd" has changed since it was read`, `asked at /x/web.pp:2, in Class[Web]`, `value "app/motd" set by ada`, "in job deploy-1", "Reads 3 (1 changed)",
		"Database <<| |>>", "next a run", "tutti explain node web-01", "groups", "environment")
	if got := get[string](p, `document.title`); got != "web-01 stale · Tutti" {
		t.Errorf("the title is %q", got)
	}
	p.commands()
	p.shoot("node")
	p.accessible()
	p.do(chromedp.Reload())
	p.wait("Changed since it was read")

	// the value comes back, and the stream says that the node has changed
	if err := f.SetValue(servertest.Operator(), "app/motd", json.RawMessage(`"hello"`)); err != nil {
		t.Fatal(err)
	}
	s.send(row(api.NodeGood))
	p.wait("web-01 ✓ good")
	p.shows("nothing that it read has changed")

	p.open(d.origin+"/ui/nodes/web-02", "Exec[mkfs]: no such disk (/x/disk.pp:9)")
	p.shoot("node-failed")
	p.open(d.origin+"/ui/nodes/new-01", "never ran")
	p.shows("No run of this node has passed its gate yet")
	p.open(d.origin+"/ui/nodes/db-01", `value "db/port"`)
	p.shows("Publishes 2", "Database[main]")
	p.open(d.origin+"/ui/nodes/nobody", "Try again")
	p.shows("nobody") // the server's sentence
	p.press(kb.Escape)
	p.until(`location.pathname == "/ui/"`)
	p.open(d.origin+"/ui/jobs/x", "No such page")
}
