package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/server/nodes"
	"github.com/tutti-project/tutti/wire"
)

// The function `host` returns a resource with the parameter target, for which no node has a grant.
func host(title, comment string) tutti.Export {
	return tutti.Export{Type: "Host", Title: title, Parameters: map[string]json.RawMessage{"target": json.RawMessage(`"x"`), "comment": json.RawMessage(`"` + comment + `"`)}}
}

// If the server refuses large gates of a run, their bytes count against a limit. The limit is higher than an honest
// run needs. Above the limit the server refuses large gates of the run without reading them. A small gate costs
// almost nothing, so the server reads it.
func TestALargeGateIsRefusedSoOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, order := started(t, tutti.ModeApply)
		gate := func(size int) error {
			return f.db.Call(wire.OpGate, wire.Gate{Run: order.Run, Exports: []tutti.Export{host("x", strings.Repeat("x", size))}}, nil)
		}
		wantCode(t, gate(100_000), tutti.CodeRefused, "may not export")
		f.WasRefused(f.db.Key, order.Run, nodes.MaxTried-150_000)
		wantCode(t, gate(100_000), tutti.CodeRefused, "the server reads at most")
		wantCode(t, gate(100), tutti.CodeRefused, "may not export")
		f.WasRefused(f.db.Key, "another", nodes.MaxTried) // refused gates of an earlier run
		wantCode(t, gate(100_000), tutti.CodeRefused, "may not export")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// A grant limits how many bytes of one type a node may export. The node gets the error at its own gate, and other
// nodes see no effect.
func TestOneNodeDoesNotFillTheAnswersOfAll(t *testing.T) {
	f := newFixture(t)
	setFleet(t, f.Fleet, strings.Replace(twoSteps, "most: 50000", "most_mib: 1", 1))
	f.Start("deploy", tutti.ModeApply)
	order := f.db.MustClaim()
	gate := wire.Gate{Run: order.Run}
	for i := range 2 {
		e := database(fmt.Sprint(i))
		e.Parameters["x"] = json.RawMessage(`"` + strings.Repeat("x", 600_000) + `"`)
		gate.Exports = append(gate.Exports, e)
	}
	wantCode(t, f.db.Call(wire.OpGate, gate, nil), tutti.CodeRefused, "at most 1 MiB are granted")
	gate.Exports = gate.Exports[:1]
	if got := f.db.Gate(gate); got.Verdict != tutti.GateGo {
		t.Errorf("%+v", got)
	}
	f.db.Finish(order.Run)
	if err := f.web1.Call(wire.OpAsk, wire.Question{Run: f.web1.MustClaim().Run, Query: collects}, nil); err != nil {
		t.Error(err)
	}
}

// The server reads the exports that a Puppet Server has reported for a node again at each
// gate of the node. So the node pays for them from its share (package share).
func TestServedExportsArePaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, run := begun(t)
		var exports []tutti.Export
		for i := range 300 {
			exports = append(exports, database(fmt.Sprint(i)))
		}
		raw, err := json.Marshal(exports)
		if err != nil {
			t.Fatal(err)
		}
		f.compiled(t, wire.ServedCatalog{For: "db-01", Gate: wire.Gate{Run: run, Exports: exports}})
		f.SpendAllBut(f.db.Key, server.CostOfServed(len(raw), len(exports))*3/4)
		gate := wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Catalog: tutti.DigestOf(nil)}}
		wantCode(t, f.db.Call(wire.OpGate, gate, nil), tutti.CodeUnavailable, "ask again in")
		time.Sleep(time.Second)
		if got := f.db.Gate(gate); got.Verdict != tutti.GateGo {
			t.Errorf("after a second: %+v", got)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// A node's full share is enough for the largest report that its Puppet Server can send.
func TestTheMostThatIsServedCanBePaidFor(t *testing.T) {
	if got := server.CostOfServed(server.LargestGate, data.MaxExports); got > server.CostAtOnce {
		t.Errorf("it costs %d, and a node has %d", got, server.CostAtOnce)
	}
}
