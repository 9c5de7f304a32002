package server_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// A decoded list of empty objects needs forty times as much memory as its JSON.
func TestAGateThatGrowsInMemoryIsRefusedBeforeItDoes(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	many := strings.Repeat("{},", 5_000_000) + "{}"
	for _, list := range []string{"exports", "reads", "keys"} {
		var before, after runtime.MemStats
		payload := []byte(fmt.Sprintf(`{"run":%q,%q:[%s]}`, order.Run, list, many))
		runtime.ReadMemStats(&before)
		_, err := f.Handle(t.Context(), f.db.Key, wire.OpGate, payload)
		runtime.ReadMemStats(&after)
		wantCode(t, err, tutti.CodeInvalid, "more than")
		if used := after.TotalAlloc - before.TotalAlloc; used > 8*uint64(len(payload)) {
			t.Errorf("%s: %d bytes allocated for a message of %d", list, used, len(payload))
		}
	}
}

// A single export may also need much more memory than its JSON. The server must refuse such an
// export.
func TestAnExportThatGrowsInMemoryIsRefusedBeforeItDoes(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	const count = 150_000
	var parameters strings.Builder
	for i := range count {
		fmt.Fprintf(&parameters, `"%x":1,`, i)
	}
	for what, fields := range map[string]string{
		"tags":       `"tags":[` + strings.Repeat(`"",`, count) + `""]`,
		"sensitive":  `"sensitive":[` + strings.Repeat(`"",`, count) + `""]`,
		"parameters": `"parameters":{` + parameters.String() + `"z":1}`,
		"fields":     strings.Repeat(`"x":1,`, count) + `"x":1`,
	} {
		var before, after runtime.MemStats
		payload := []byte(fmt.Sprintf(`{"run":%q,"exports":[{"type":"Host","title":"x",%s}]}`, order.Run, fields))
		runtime.ReadMemStats(&before)
		_, err := f.Handle(t.Context(), f.db.Key, wire.OpGate, payload)
		runtime.ReadMemStats(&after)
		wantCode(t, err, tutti.CodeInvalid, "fields, parameters and tags")
		if used := after.TotalAlloc - before.TotalAlloc; used > 8*uint64(len(payload)) {
			t.Errorf("%s: %d bytes allocated for a message of %d", what, used, len(payload))
		}
	}
}

func TestAGateHasDigestsOrNone(t *testing.T) {
	good := tutti.DigestOf([]byte("x"))
	for _, tc := range []struct {
		reason   string
		compiled tutti.CatalogReport
		says     string
	}{
		{"all of them", tutti.CatalogReport{Catalog: good, Sources: good, Lib: good, Facts: good, Puppet: "8.10.0", Module: "0.1.0"}, ""},
		{"none", tutti.CatalogReport{}, ""},
		{"a catalog that is none", tutti.CatalogReport{Catalog: "x"}, "gate: catalog"},
		{"sources that are none", tutti.CatalogReport{Sources: "x"}, "gate: sources"},
		{"a lib that is none", tutti.CatalogReport{Lib: "sha256:12"}, "gate: lib"},
		{"facts that are none", tutti.CatalogReport{Facts: good + "0"}, "gate: facts"},
		{"a version that is a book", tutti.CatalogReport{Puppet: strings.Repeat("8", 101)}, "a version of 101 bytes"},
		{"another", tutti.CatalogReport{Module: strings.Repeat("8", 1000)}, "a version of 1000 bytes"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			err := f.db.Call(wire.OpGate, wire.Gate{Run: order.Run, CatalogReport: tc.compiled}, nil)
			if tc.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantCode(t, err, tutti.CodeInvalid, tc.says)
		})
	}
}

func TestAMessageIsAsLargeAsItsOperationNeeds(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	for op, in := range map[string]any{
		wire.OpClaim: nil, wire.OpHiera: wire.HieraQuestion{Run: order.Run}, wire.OpBeat: wire.Beat{Version: "1"},
		wire.OpAsk: wire.Question{Run: order.Run, Query: asksShared}, wire.OpLive: []tutti.Live{}, wire.OpResult: servertest.Result(order.Run, tutti.Changed),
		wire.OpCode: wire.CodeGet{Run: order.Run}, wire.OpBlobGet: wire.BlobGet{Run: order.Run}, wire.OpPublish: wire.Publish{Run: order.Run, Key: "db/x"},
	} {
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Handle(t.Context(), f.db.Key, op, append([]byte(strings.Repeat(" ", 2<<20)), raw...))
		wantCode(t, err, tutti.CodeInvalid, "at most")
	}
}

// The function `sets` makes db-01 export this many resources of one type.
func sets(t *testing.T, f fixture, count int) {
	t.Helper()
	exports := make([]tutti.Export, count)
	for i := range exports {
		exports[i] = database(fmt.Sprint(i))
	}
	f.db.Gate(wire.Gate{Run: f.active("db-01"), Exports: exports})
	f.db.Finish(f.active("db-01"))
}

// filterOf returns a filter with this many terms. Each number gives different terms.
func filterOf(terms, number int) json.RawMessage {
	parts := make([]string, terms)
	for i := range parts {
		parts[i] = fmt.Sprintf(`["=","a",%d]`, number*terms+i)
	}
	return json.RawMessage(`["or",` + strings.Join(parts, ",") + "]")
}

func TestAQuestionCostsWhatAnHonestOneCosts(t *testing.T) {
	cases := map[string]struct {
		reason string
		terms  int
		reads  int // number of reads, each with different terms; if the number is negative, all reads have the same terms
		ask    tutti.Code
		gate   tutti.Code
	}{
		"honest":      {"twenty collectors of some terms", 10, 20, "", ""},
		"long filter": {"nobody writes so many terms; each export is compared with each", 4000, 1, tutti.CodeRefused, ""},
		"many reads":  {"each alone is honest", 1000, 12, "", tutti.CodeRefused},
		"same reads":  {"equal questions are compared once", 1000, -12, "", ""},
		"much text":   {"to read the filters takes its time", 4000, 40, tutti.CodeRefused, tutti.CodeInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, _, _ := started(t, tutti.ModeApply)
			sets(t, f, 2000)
			web := f.web1.MustClaim()
			q := tutti.Query{Kind: tutti.QueryCollect, Type: "Database", Filter: filterOf(tc.terms, 0)}
			wantCode(t, f.web1.Call(wire.OpAsk, wire.Question{Run: web.Run, Query: q}, nil), tc.ask, "")
			gate := wire.Gate{Run: web.Run}
			for i := range max(tc.reads, -tc.reads) {
				if tc.reads > 0 && i > 0 {
					q.Filter = filterOf(tc.terms, i)
				}
				gate.Reads = append(gate.Reads, tutti.Read{Query: q, Found: true})
			}
			wantCode(t, f.web1.Call(wire.OpGate, gate, nil), tc.gate, "")
		})
	}
}

// refuseLarge makes a log refuse the same appends as the bus (natsbus/embed, MaxBatch).
func refuseLarge(events []tutti.Event) error {
	if len(events) > 20_000 {
		return fmt.Errorf("%d events in one append", len(events))
	}
	return nil
}

func TestAPlanOfMoreNodesThanAnAppendTakesEvents(t *testing.T) {
	const count = 20_500
	log := memory.NewLog()
	events := make([]tutti.Event, count)
	for i := range events {
		name := fmt.Sprintf("n%d", i)
		events[i].Body = &tutti.NodeEnrolled{Node: tutti.NodeName(name), Key: servertest.Key(name), Groups: []tutti.GroupName{"all"}}
	}
	if _, err := log.Append(t.Context(), 0, events); err != nil {
		t.Fatal(err)
	}
	log.Fault(refuseLarge)
	// The server decides 20,500 runs, which may take long. The nodes send nothing in that time.
	f := servertest.Resume(t, log, memory.NewBlobs(), func(o *server.Options) { o.Silence, o.SnapshotEvery = time.Hour, 10*count })
	f.Push("fleet: test\ngroups: {all: {joined: true}}\nplans: {p: {steps: [{run: all}]}}\n")
	f.Start("p", tutti.ModeApply)
	if wanted := len(f.Events()) - count - len([]string{"code.pushed", "fleet.set", "job.started"}); wanted != count {
		t.Errorf("%d runs are wanted, want %d", wanted, count)
	}
	f.Node("n7").MustClaim()
}

func TestANodeCannotOwnMoreThanARunMayWithdraw(t *testing.T) {
	f, job, order := started(t, tutti.ModeApply)
	f.Log.Fault(refuseLarge)
	var err error
	for round := 0; round < 3 && err == nil; round++ {
		f.db.Gate(wire.Gate{Run: order.Run})
		for i := 0; i < 9_000 && err == nil; i++ {
			err = f.db.Publish(order.Run, fmt.Sprintf("node/db-01/%d/%d", round, i), "1")
		}
		if err := f.db.Call(wire.OpResult, servertest.Result(order.Run, tutti.Failed), nil); err != nil {
			t.Fatal(err)
		}
		wantVerdict(t, f.Fleet, job, tutti.VerdictFailed)
		job = f.Start("deploy", tutti.ModeApply)
		order = f.db.MustClaim()
	}
	wantCode(t, err, tutti.CodeRefused, "5000 published values")
	f.db.Gate(wire.Gate{Run: order.Run})
	f.db.Finish(order.Run)
	if values, err := f.ListValues(t.Context(), ""); err != nil || len(values) != 0 {
		t.Errorf("%d values after a run that declares none, %v", len(values), err)
	}
}
