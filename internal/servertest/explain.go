package servertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/wire"
)

const explainFleet = `
fleet: explain
environment: {name: production, path: ./code}
groups: {db: {nodes: [db-01]}, web: {nodes: [web-01]}, new: {nodes: [new-01]}}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true}]}
  - {to: web, read: [db/**]}
plans:
  deploy:
    steps: [{run: db}, {run: web}]
`

// These are the questions of the nodes.
var (
	askPort     = tutti.Query{Kind: tutti.QueryValue, Key: "db/port"}
	askDatabase = tutti.Query{Kind: tutti.QueryCollect, Type: "Database"}
	askMotd     = tutti.Query{Kind: tutti.QueryValue, Key: "shared/motd"} // of db-01
	askTune     = tutti.Query{Kind: tutti.QueryHiera, Key: "web::tune"}
)

const webReport = `{"resource_statuses": {"File[/etc/web.conf]": {"resource": "File[/etc/web.conf]",
	"file": "/x/web.pp", "line": 7, "time": "2026-01-02T03:04:05Z", "changed": true, "out_of_sync": true,
	"containment_path": ["Stage[main]", "Web", "Web::Site[main]", "File[/etc/web.conf]"],
	"events": [{"property": "content", "status": "success", "message": "content changed", "previous_value": "{md5}1", "desired_value": ["{md5}2"],
		"time": "2026-01-02T03:04:06Z", "corrective_change": true}]}}}`

// The method `end` sends the result of a run: an outcome, a record and a report.
func (n *Node) end(t *testing.T, r tutti.Result, rec tutti.Record, report string) {
	t.Helper()
	rec.Run, rec.Node = r.Run, n.Name
	raw, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	for blob, to := range map[string]*tutti.Digest{string(raw): &r.Record, report: &r.Report} {
		if _, err := n.Fleet.Handle(Operator(), n.Key, wire.OpBlobPut, []byte(blob)); err != nil {
			t.Fatal(err)
		}
		*to = tutti.DigestOf([]byte(blob))
	}
	n.must(t, wire.OpResult, r, nil)
}

// runDB is a run of db-01 that exports databases and publishes its port.
func runDB(t *testing.T, db *Node, port string, databases ...string) {
	t.Helper()
	o := db.MustClaim()
	gate := wire.Gate{Run: o.Run, CatalogReport: tutti.CatalogReport{Values: []string{"db/port"}}, Reads: []tutti.Read{db.Read(o.Run, askMotd)}}
	for _, title := range databases {
		gate.Exports = append(gate.Exports, tutti.Export{Type: "Database", Title: title, File: "/x/db.pp", Line: 3})
	}
	db.Gate(gate)
	if err := db.Publish(o.Run, "db/port", port); err != nil {
		t.Fatal(err)
	}
	db.end(t, Result(o.Run, tutti.Changed), tutti.Record{}, "{}")
}

// runWeb is a run of web-01 that asks questions of every kind.
func runWeb(t *testing.T, web *Node) {
	t.Helper()
	o := web.MustClaim()
	at := tutti.Place{Resource: "Class[Web]", File: "/x/web.pp", Line: 2}
	reads := []tutti.Read{web.Read(o.Run, askPort), web.Read(o.Run, askDatabase)}
	reads[0].At = at
	reads[1].At = tutti.Place{Resource: "Class[main]", File: "/x/site.pp", Line: 1}
	keys := []tutti.KeyRead{{Key: askTune.Key, At: tutti.Place{Resource: "Class[Web]", File: "/x/web.pp", Line: 4}}}
	if got := web.Gate(wire.Gate{Run: o.Run, Reads: reads, Keys: keys}); got.Verdict != tutti.GateGo {
		t.Fatalf("gate: %+v", got)
	}
	web.end(t, Result(o.Run, tutti.Changed), tutti.Record{Reads: reads, Keys: keys}, webReport)
}

// TestExplains is the contract of api.Explains.
func TestExplains(t *testing.T, side Side) {
	f := Start(t)
	server, ctx := side(t, f), Operator()
	db, web := f.Join("db-01"), f.Join("web-01")
	f.Join("new-01")
	f.Push(explainFleet)
	f.Start("deploy", tutti.ModeApply)
	runDB(t, db, "5432", "main")
	runWeb(t, web)

	detail, err := server.ShowNode(ctx, "web-01")
	if err != nil || detail.Standing.State != api.NodeGood || len(detail.Reads) != 2 || detail.Keys != 1 || detail.Absent != 1 ||
		detail.LastJob != "deploy-1" || detail.Standing.Since.IsZero() || detail.Recorded == "" {
		t.Errorf("web-01: %+v, %v: want it good, with its record", detail, err)
	}
	why, err := server.ExplainNode(ctx, "new-01")
	if err != nil || why.Standing.State != api.NodeNew || why.Standing.Needs != "apply" || why.Standing.Since.IsZero() {
		t.Errorf("new-01: %+v, %v: want that it never ran", why, err)
	}
	testGraph(t, server)
	testStale(t, f, server, db)
	testValue(t, server)
	testResource(t, server)
	testWaiting(t, server, web)

	f.PushSite("notify { 'other': }")
	why, err = server.ExplainNode(ctx, "web-01")
	if err != nil || len(why.Before) != 1 || why.Before[0].Query.Key != "db/port" || !slices.Equal(why.Before[0].Publishers, []tutti.NodeName{"db-01"}) {
		t.Errorf("web-01 after db-01: %+v, %v: want that db-01 publishes db/port first", why.Before, err)
	}
	_, err = server.ShowNode(ctx, "nobody")
	wantCode(t, "show nobody", err, tutti.CodeNotFound)
	_, err = server.ExplainNode(ctx, "nobody")
	wantCode(t, "explain nobody", err, tutti.CodeNotFound)
}

func testGraph(t *testing.T, server API) {
	t.Helper()
	got, err := server.Graph(Operator(), "")
	want(t, "graph", api.Graph{
		Nodes: []api.GraphNode{{Node: "db-01", Good: true}, {Node: "new-01"}, {Node: "web-01", Good: true}},
		Edges: []api.GraphEdge{
			{From: []tutti.NodeName{"db-01"}, To: []tutti.NodeName{"web-01"}, Questions: []tutti.Query{askDatabase}},
			{From: []tutti.NodeName{"db-01"}, To: []tutti.NodeName{"web-01"}, Questions: []tutti.Query{askPort}, Hard: true},
		},
	}, got, err)
	got, err = server.Graph(Operator(), "new")
	want(t, "graph of a node without edges", api.Graph{Nodes: []api.GraphNode{{Node: "new-01"}}}, got, err)
	_, err = server.Graph(Operator(), "nobody")
	wantCode(t, "graph of nobody", err, tutti.CodeNotFound)
	testPicture(t, server)
}

// testPicture compares the picture with the states of `node list`.
func testPicture(t *testing.T, server API) {
	t.Helper()
	p, err := server.Picture(Operator(), "")
	if err != nil {
		t.Fatal(err)
	}
	states := map[tutti.NodeName]api.NodeState{}
	nodes, err := server.ListNodes(Operator())
	for _, n := range nodes {
		states[n.Node] = n.Stands
	}
	var notes, edges []string
	title := map[string]string{}
	for _, b := range p.Boxes {
		title[b.ID] = b.Title
		notes = append(notes, b.Title+": "+b.Note)
		want(t, "the state of "+b.Title, []api.PictureState{{State: states[b.Nodes[0]], Count: 1}}, b.States, err)
	}
	for _, e := range p.Edges {
		edges = append(edges, fmt.Sprint(title[e.From], " ", e.Kind, " ", title[e.To], " ", e.Label))
		if len(e.Points) < 2 || e.Points[0][0] >= e.Points[len(e.Points)-1][0] || p.W == 0 {
			t.Errorf("the edge %v does not lead to the right", e)
		}
	}
	want(t, "boxes", []string{"db-01: ", "new-01: its questions are not known yet", "web-01: "}, notes, nil)
	want(t, "edges", []string{"db-01 hard web-01 [db/port]", "db-01 soft web-01 [Database]"}, edges, nil)
	p, err = server.Picture(Operator(), "new")
	if err != nil || len(p.Boxes) != 1 || len(p.Edges) != 0 {
		t.Errorf("picture of a node without edges: %+v, %v", p, err)
	}
	_, err = server.Picture(Operator(), "nobody")
	wantCode(t, "picture of nobody", err, tutti.CodeNotFound)
}

// testStale changes everything that web-01 has read. A run of db-01 and the operator ada make these
// changes.
func testStale(t *testing.T, f *Fleet, server API, db *Node) {
	t.Helper()
	ctx := Operator()
	if err := server.SetValue(ctx, "shared/motd", json.RawMessage("1")); err != nil {
		t.Fatal(err)
	}
	f.Start("deploy", tutti.ModeApply)
	runDB(t, db, "5433", "other")
	for _, v := range []string{"1", "2"} {
		if err := server.SetValue(ctx, "shared/hiera/web::tune", json.RawMessage(v)); err != nil {
			t.Fatal(err)
		}
	}
	why, err := server.ExplainNode(ctx, "web-01")
	if err != nil {
		t.Fatal(err)
	}
	if why.Standing.State != api.NodeStale || why.Active == nil || why.Active.Job != "deploy-2" || why.Reads != 2 {
		t.Errorf("web-01 is %+v, runs %+v, has %d reads", why.Standing, why.Active, why.Reads)
	}
	type cause struct {
		Question, By, Key, Job, Starter string
		Added, Removed                  []string
	}
	var got []cause
	for _, c := range why.Changed {
		for _, e := range c.Causes {
			one := cause{Question: c.Query.Key + c.Query.Type, By: e.By, Key: e.Key, Added: e.Added, Removed: e.Removed}
			if e.Run != nil {
				one.Job, one.Starter = string(e.Run.Job), e.Run.By
				want(t, "the questions that caused this run", []tutti.Query{askMotd}, e.Run.Because, nil)
			}
			got = append(got, one)
		}
		if c.At.File == "" {
			t.Errorf("%+v: want the place of the question", c)
		}
	}
	const tune = "shared/hiera/web::tune"
	want(t, "who changed what web-01 read", []cause{
		{"Database", "node:db-01", "", "deploy-2", "operator:ada", []string{"Database[other]"}, []string{"Database[main]"}},
		{"db/port", "node:db-01", "db/port", "deploy-2", "operator:ada", nil, nil},
		{"web::tune", "operator:ada", tune, "", "", nil, nil},
		{"web::tune", "operator:ada", tune, "", "", nil, nil},
	}, got, nil)
	first := why.Changed[0].Causes[0].At
	for _, c := range why.Changed {
		if c.Causes[0].At.Before(first) {
			first = c.Causes[0].At
		}
	}
	detail, err := server.ShowNode(ctx, "web-01")
	if err != nil || !detail.Standing.Since.Equal(first) || len(detail.Reads) != 3 {
		t.Fatalf("web-01: %+v, %v: want it stale since %s", detail, err, first)
	}
	for _, r := range detail.Reads {
		if !r.Changed || r.ChangedAt.IsZero() {
			t.Errorf("read %+v: want when it changed", r)
		}
	}
}

func testValue(t *testing.T, server API) {
	t.Helper()
	ctx := Operator()
	got, err := server.ExplainValue(ctx, "db/port")
	if err != nil || got.Value == nil || got.Value.Owner != "db-01" || got.Run == nil || got.Run.Job != "deploy-2" || len(got.Versions) != 2 ||
		string(got.Versions[0].Value) != "5433" || string(got.Versions[1].Value) != "5432" || got.Versions[1].Job != "deploy-1" {
		t.Errorf("db/port: %+v, %v", got, err)
	}
	want(t, "readers", []tutti.NodeName{"web-01"}, got.Readers, err)
	want(t, "declared", []tutti.NodeName{"db-01"}, got.Declared, err)
	got, err = server.ExplainValue(ctx, "shared/hiera/web::tune")
	want(t, "hiera", &api.HieraFeed{Key: "web::tune", Readers: []tutti.NodeName{"web-01"}}, got.Hiera, err)
	if err := server.UnsetValue(ctx, "shared/hiera/web::tune"); err != nil {
		t.Fatal(err)
	}
	got, err = server.ExplainValue(ctx, "shared/hiera/web::tune")
	if err != nil || got.Value != nil || len(got.Versions) != 3 || !got.Versions[0].Unset {
		t.Errorf("unset: %+v, %v", got, err)
	}
	_, err = server.ExplainValue(ctx, "never/was")
	wantCode(t, "explain no value", err, tutti.CodeNotFound)
	_, err = server.ExplainValue(ctx, "a/../b")
	wantCode(t, "explain a bad key", err, tutti.CodeInvalid)
}

func testResource(t *testing.T, server API) {
	t.Helper()
	ctx := Operator()
	got, err := server.ExplainResource(ctx, api.ExplainResource{Node: "web-01", Resource: "file[/etc/web.conf]"})
	if err != nil || !got.Reported || got.Status != "changed" || got.Place.Line != 7 || got.Run.Job != "deploy-1" {
		t.Errorf("resource: %+v, %v", got, err)
	}
	want(t, "containers", []string{"Class[Web]", "Web::Site[main]"}, got.Containers, err)
	if len(got.Events) != 1 || got.Events[0].Old != "{md5}1" || got.Events[0].New != `["{md5}2"]` || !got.Events[0].Corrective {
		t.Errorf("events %+v", got.Events)
	}
	if len(got.Reads) != 1 || got.Reads[0].Query.Key != "db/port" || len(got.Keys) != 1 {
		t.Errorf("reads %+v, keys %+v: want those of Class[Web]", got.Reads, got.Keys)
	}
	got, err = server.ExplainResource(ctx, api.ExplainResource{Node: "web-01", Resource: "Database[other]"})
	if err != nil || got.Reported || len(got.Exported) != 1 || got.Exported[0].Node != "db-01" || got.Exported[0].Run.Job != "deploy-2" || got.Exported[0].Place.Line != 3 {
		t.Errorf("collected resource: %+v, %v", got, err)
	}
	_, err = server.ExplainResource(ctx, api.ExplainResource{Node: "web-01", Resource: "motd"})
	wantCode(t, "explain no reference", err, tutti.CodeInvalid)
	_, err = server.ExplainResource(ctx, api.ExplainResource{Node: "nobody", Resource: "File[x]"})
	wantCode(t, "explain a resource of an unknown node", err, tutti.CodeNotFound)
	_, err = server.ExplainResource(ctx, api.ExplainResource{Node: "new-01", Resource: "File[x]"})
	wantCode(t, "explain a resource of a node that never ran", err, tutti.CodeNotFound)
}

// testWaiting lets web-01 wait for its port, after ada has unset it.
func testWaiting(t *testing.T, server API, web *Node) {
	t.Helper()
	ctx := Operator()
	if err := server.UnsetValue(ctx, "db/port"); err != nil {
		t.Fatal(err)
	}
	o := web.MustClaim()
	read := web.Read(o.Run, askPort)
	r := Result(o.Run, tutti.Waiting)
	r.Message, r.Waits = `value "db/port" has no answer`, []tutti.Wait{{Query: askPort, At: tutti.Place{File: "/x/web.pp", Line: 2}}}
	web.end(t, r, tutti.Record{Reads: []tutti.Read{read}}, "{}")
	why, err := server.ExplainNode(ctx, "web-01")
	if err != nil || why.Standing.State != api.NodeWaiting || len(why.Waits) != 1 {
		t.Fatalf("web-01: %+v, %v: want that it waits", why, err)
	}
	w := why.Waits[0]
	want(t, "who could provide it", []tutti.NodeName{"db-01"}, w.Publishers, nil)
	if w.Answered || len(w.Before) != 2 || w.Before[0].By != "node:db-01" || w.Before[0].Run == nil || w.Before[0].Run.Job != "deploy-2" {
		t.Errorf("it waits for %+v: want the node that provided the answer before", w)
	}
	if err := server.SetValue(ctx, "db/port", json.RawMessage("1")); err != nil {
		t.Fatal(err)
	}
	if why, err = server.ExplainNode(ctx, "web-01"); err != nil || !why.Waits[0].Answered {
		t.Errorf("web-01: %+v, %v: want that there is an answer by now", why, err)
	}
}
