package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestEndedRunsAreReadOnce checks which runs a sender of reports gets, and where it continues after a snapshot.
func TestEndedRunsAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		ended := p.Ended()
		p.reported(t, false)
		at, err := ended.Place(servertest.Operator(), tutti.Position{})
		if err != nil {
			t.Fatal(err)
		}
		run := p.reported(t, false)
		other, raw := foreign(1, tutti.Changed)
		mustTell(t, p.db, other, raw)
		p.Start("deploy", tutti.ModeApply) // this run has no report
		bare := p.db.MustClaim().Run
		p.db.Gate(wire.Gate{Run: bare})
		if err := p.db.Call(wire.OpResult, servertest.Result(bare, tutti.Changed), nil); err != nil {
			t.Fatal(err)
		}
		read := func(after uint64) (got []past.Ended, through uint64) {
			t.Helper()
			through, err := ended.Read(servertest.Operator(), after, func(e past.Ended) error { got = append(got, e); return nil })
			if err != nil {
				t.Fatal(err)
			}
			return got, through
		}
		type is struct {
			Run     tutti.RunID
			Node    tutti.NodeName
			Ordered bool
		}
		got, through := read(at.Seq)
		var runs []is
		for _, e := range got {
			runs = append(runs, is{e.Run, e.Node, e.Ordered})
			if report, err := ended.Report(servertest.Operator(), e.Report); err != nil || tutti.DigestOf(report) != e.Report || e.At.IsZero() {
				t.Errorf("%+v: %s, %v", e, report, err)
			}
		}
		if diff := cmp.Diff([]is{{run, "db-01", true}, {other.Result.Run, "db-01", false}}, runs); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if rest, _ := read(got[0].Seq); len(rest) != 1 {
			t.Errorf("after the first one: %+v", rest)
		}
		if none, again := read(through); len(none) != 0 || again != through {
			t.Errorf("at the end: %+v, %d and %d", none, through, again)
		}
		// A cursor of an earlier epoch, or one ahead of the log, does not skip later runs.
		if now, err := ended.Place(servertest.Operator(), tutti.Position{Epoch: at.Epoch, Seq: 1 << 40}); err != nil || now.Seq < through || now.Seq > through+10 {
			t.Errorf("ahead of the log: %+v, %v; the log ends at %d", now, err, through)
		}
	})
}

// TestFactsAreReadForOtherSystems checks that a sender gets the facts that the server holds now, and no earlier ones.
func TestFactsAreReadForOtherSystems(t *testing.T) {
	f := servertest.Start(t)
	f.Push(holdsAll)
	db, web, gone := f.Join("db-01"), f.Join("web-01"), f.Join("gone-01")
	mustHold(t, db, tutti.InventoryFacts, "one")
	mustHold(t, db, tutti.InventoryFacts, "two")
	mustHold(t, db, tutti.InventoryCatalog, "a catalog is no facts")
	mustHold(t, web, tutti.InventoryCatalog, "a catalog is no facts")
	mustHold(t, gone, tutti.InventoryFacts, "gone")
	if err := f.RemoveNode(servertest.Operator(), "gone-01"); err != nil {
		t.Fatal(err)
	}
	var got []string
	_, err := f.Ended().Read(servertest.Operator(), 0, func(e past.Ended) error {
		raw, err := f.Ended().Report(servertest.Operator(), e.Facts)
		got = append(got, string(e.Node)+" "+string(raw)+" "+e.Environment)
		return err
	})
	if diff := cmp.Diff([]string{"db-01 two production", "db-01 two production"}, got); err != nil || diff != "" { // once more with the catalog
		t.Errorf("%v: -want +got\n%s", err, diff)
	}
}
