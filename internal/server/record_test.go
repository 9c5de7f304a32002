package server_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `applied` ends a run with a report and with this record.
func applied(t *testing.T, n *servertest.Node, run tutti.RunID, record tutti.Record) {
	t.Helper()
	record.Run, record.Node = run, n.Name
	raw, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	report := []byte(`{"resource_statuses": {}}`)
	for _, blob := range [][]byte{raw, report} {
		if _, err := n.Fleet.Handle(servertest.Operator(), n.Key, wire.OpBlobPut, blob); err != nil {
			t.Fatal(err)
		}
	}
	result := servertest.Result(run, tutti.Changed)
	result.Record, result.Report = tutti.DigestOf(raw), tutti.DigestOf(report)
	if err := n.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
}

// The record that people see has the reads and exports of the run's Puppet Server, and the reads of the
// node itself. The record does not have the exports that the node reports. An explanation of a resource
// finds its exporter, also after a foreign run and after a restart of the server.
func TestTheRecordOfAPuppetServerIsShown(t *testing.T) {
	f := newCompileFixture(t)
	setFleet(t, f.Fleet, compileFleet+"  web: {steps: [{run: web-01}]}\n")
	set(t, f.Fleet, "shared/x", "1")
	set(t, f.Fleet, "shared/hiera/port", "2")

	f.Start("deploy", tutti.ModeApply)
	db := f.db.MustClaim().Run
	f.compiled(t, wire.ServedCatalog{For: "db-01", Gate: wire.Gate{Run: db, Exports: []tutti.Export{database("a"), database("b")}}})
	f.db.Gate(wire.Gate{Run: db})
	applied(t, f.db, db, tutti.Record{Exports: []string{"Database[forged]"}})

	f.Start("web", tutti.ModeApply)
	web := f.web.MustClaim().Run
	in := wire.ServedCatalog{For: "web-01", Gate: wire.Gate{Run: web, Keys: []tutti.KeyRead{{Key: "motd"}, {Key: "port", Found: true}}}}
	for _, q := range []tutti.Query{collects, asksHiera, asksShared} {
		in.Reads = append(in.Reads, f.read(t, web, "web-01", q))
	}
	f.compiled(t, in)
	f.web.Gate(wire.Gate{Run: web})
	deferred := f.web.Read(web, asksShared) // the node reads the value again
	deferred.At = tutti.Place{File: "/x.pp", Line: 3}
	applied(t, f.web, web, tutti.Record{Reads: []tutti.Read{deferred}})

	check := func(t *testing.T) {
		t.Helper()
		ctx := servertest.Operator()
		record, err := f.RunRecord(ctx, web)
		if err != nil {
			t.Fatal(err)
		}
		node, err := f.ShowNode(ctx, "web-01")
		if err != nil {
			t.Fatal(err)
		}
		var shown []tutti.Read
		for _, r := range node.Reads {
			shown = append(shown, r.Read)
		}
		for name, reads := range map[string][]tutti.Read{"the run's record": record.Reads, "the node's": shown} {
			got := map[string]string{}
			for _, r := range reads {
				got[r.Query.String()] = r.At.File
			}
			want := map[string]string{collects.String(): "", asksHiera.String(): "", asksShared.String(): "/x.pp"}
			if diff := cmp.Diff(want, got); diff != "" || len(reads) != len(want) {
				t.Errorf("%s: %d reads, -want +got\n%s", name, len(reads), diff)
			}
		}
		if node.Keys != 2 || node.Absent != 1 || node.Recorded != web {
			t.Errorf("web-01: %+v, want two keys, one of them absent", node)
		}
		if node, err = f.ShowNode(ctx, "db-01"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"Database[a]", "Database[b]"}, node.Exports); diff != "" {
			t.Errorf("exports of db-01: -want +got\n%s", diff)
		}
		got, err := f.ExplainResource(ctx, api.ExplainResource{Node: "web-01", Resource: "Database[a]"})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Exported) != 1 || got.Exported[0].Node != "db-01" || got.Exported[0].Run == nil || got.Exported[0].Run.Run != db {
			t.Errorf("Database[a] is exported by %+v, want the run of db-01", got.Exported)
		}
	}
	t.Run("of a run", check)
	*f.Fleet = *f.Restart()
	t.Run("after a start", check)
	other, report := foreign(5, tutti.Unchanged)
	mustTell(t, f.web, other, report)
	t.Run("behind a run that others started", check)
}

// A record comes from a node, and may be as large as a blob. So people see only the first part of a record.
func TestTheRecordThatIsShownIsBounded(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	f.db.Gate(wire.Gate{Run: order.Run})
	published := map[string]tutti.Digest{}
	for i := range 6_000 {
		published[fmt.Sprintf("db/%d", i)] = ""
	}
	applied(t, f.db, order.Run, tutti.Record{
		Reads: make([]tutti.Read, 30_000), Keys: make([]tutti.KeyRead, 110_000), Exports: make([]string, 2_000_000), Published: published,
	})
	record, err := f.RunRecord(servertest.Operator(), order.Run)
	if err != nil {
		t.Fatal(err)
	}
	got := []int{len(record.Reads), len(record.Keys), len(record.Exports), len(record.Published)}
	if diff := cmp.Diff([]int{20_000, 100_000, 50_000, 5_000}, got); diff != "" {
		t.Errorf("reads, keys, exports and values: -want +got\n%s", diff)
	}
	if record.Node != "db-01" || record.Run != order.Run {
		t.Errorf("of node %q, run %q", record.Node, record.Run)
	}
}
