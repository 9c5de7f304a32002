package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// A node may lie in every field. The texts of a node must not fill the log, and must reach
// the terminal of an operator only as plain words.
func TestWhatANodeSaysIsBounded(t *testing.T) {
	long := strings.Repeat("\x1b]0;<&>", 2_000)
	ask := func(q tutti.Query) func(run tutti.RunID) (string, any) {
		return func(run tutti.RunID) (string, any) { return wire.OpAsk, wire.Question{Run: run, Query: q} }
	}
	cases := map[string]struct {
		reason string
		say    func(run tutti.RunID) (op string, in any)
		code   tutti.Code
	}{
		"run id": {"the audit log quotes it", func(tutti.RunID) (string, any) {
			return wire.OpHiera, wire.HieraQuestion{Run: tutti.RunID(long)}
		}, tutti.CodeRefused},
		"digest": {"the audit log quotes it", func(run tutti.RunID) (string, any) {
			return wire.OpBlobGet, wire.BlobGet{Run: run, Digest: tutti.Digest(long)}
		}, tutti.CodeRefused},
		"code": {"the audit log quotes it", func(run tutti.RunID) (string, any) {
			return wire.OpCode, wire.CodeGet{Run: run, Code: tutti.Digest(long)}
		}, tutti.CodeRefused},
		"key":  {"a key has at most 512 bytes", ask(tutti.Query{Kind: tutti.QueryValue, Key: long}), tutti.CodeInvalid},
		"kind": {"there are four", ask(tutti.Query{Kind: tutti.QueryKind(long)}), tutti.CodeInvalid},
		"message": {"people read it", func(run tutti.RunID) (string, any) {
			r := servertest.Result(run, tutti.Changed)
			r.Message, r.Phase = long, long
			return wire.OpResult, r
		}, ""},
		"failures": {"people read them", func(run tutti.RunID) (string, any) {
			r := servertest.Result(run, tutti.Failed)
			r.Failures = []tutti.Failure{{Resource: long, File: long, Message: long}}
			return wire.OpResult, r
		}, ""},
		"size": {"nobody honest sends so much but blobs and exports", func(run tutti.RunID) (string, any) {
			r := servertest.Result(run, tutti.Changed)
			r.Message = strings.Repeat("x", 5<<20)
			return wire.OpResult, r
		}, tutti.CodeInvalid},
		"read of the gate": {"the gate's answer quotes it", func(run tutti.RunID) (string, any) {
			return wire.OpGate, wire.Gate{Run: run, Reads: []tutti.Read{{Query: tutti.Query{Kind: tutti.QueryCollect, Type: long}, Found: true}}}
		}, tutti.CodeInvalid},
		"values of the gate": {"no key can be so", func(run tutti.RunID) (string, any) {
			return wire.OpGate, wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Values: []string{long, "db/x"}}}
		}, ""},
		"many values of the gate": {"no catalog has so many", func(run tutti.RunID) (string, any) {
			return wire.OpGate, wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Values: make([]string, 5001)}}
		}, tutti.CodeInvalid},
		"many reads of the gate": {"each is answered again", func(run tutti.RunID) (string, any) {
			return wire.OpGate, wire.Gate{Run: run, Reads: make([]tutti.Read, 20_001)}
		}, tutti.CodeInvalid},
		"catalog of the gate": {"it is a digest", func(run tutti.RunID) (string, any) {
			return wire.OpGate, wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Catalog: tutti.Digest(long)}}
		}, tutti.CodeInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			n := len(f.Events())
			op, in := tc.say(order.Run)
			wantCode(t, f.db.Call(op, in, nil), tc.code, "")
			for _, e := range f.Events()[n:] {
				raw, err := json.Marshal(e)
				if err != nil || len(raw) > 64<<10 || strings.Contains(string(raw), `\u001b`) {
					t.Errorf("%s: %s of %d bytes, %v: %.80s…", tc.reason, e.Body.Kind(), len(raw), err, raw)
				}
			}
		})
	}
}

func TestANodeStoresForItsRunsOnly(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	put := func(content string) error {
		_, err := f.Handle(t.Context(), f.db.Key, wire.OpBlobPut, []byte(content))
		return err
	}
	wantCode(t, put("report"), "", "")
	big := strings.Repeat("x", 60<<20) // four of these fit into the limit
	for i := range 4 {
		wantCode(t, put(fmt.Sprint(i)+big), "", "")
		wantCode(t, put(fmt.Sprint(i)+big), "", "") // the node sends the same content again
	}
	wantCode(t, put("5"+big), tutti.CodeRefused, "since its last result")
	f.db.Gate(wire.Gate{Run: order.Run})
	result := servertest.Result(order.Run, tutti.Changed)
	result.Log = tutti.DigestOf([]byte("report"))
	wantCode(t, f.db.Call(wire.OpResult, result, nil), "", "")
	wantCode(t, put("more"), tutti.CodeRefused, "already has its result")
	wantCode(t, put("report"), "", "") // the node may not have received the answer to its result, so it may send the content again
	// A node that guesses the content of others must not learn whether the server has this content.
	wantCode(t, put("0"+big), tutti.CodeRefused, "already has its result")
	guess := func(content string) error {
		_, err := f.Handle(t.Context(), f.web1.Key, wire.OpBlobPut, []byte(content))
		return err
	}
	wantCode(t, guess("report"), tutti.CodeRefused, "never claimed a run")
}

func TestARunCannotFillTheLogWithValues(t *testing.T) {
	cases := map[string]struct {
		reason string
		value  func(i int) string
		within int
	}{
		"often": {"to and fro, each time an event", func(i int) string { return fmt.Sprint(i % 2) }, 10_001},
		"much":  {"large ones", func(i int) string { return fmt.Sprintf(`"%d%s"`, i, strings.Repeat("x", 120<<10)) }, 100},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			f.db.Gate(wire.Gate{Run: order.Run})
			var err error
			for i := 0; i < tc.within && err == nil; i++ {
				err = f.db.Publish(order.Run, "node/db-01/x", tc.value(i))
			}
			wantCode(t, err, tutti.CodeRefused, "at most")
			f.db.Finish(order.Run)
		})
	}
}

func TestExportsAreKeptOfWhoMayHandThemOver(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	set := []tutti.Export{{Type: "Database", Title: "secret"}}
	stored := func() bool {
		t.Helper()
		has, err := f.Blobs.Has(t.Context(), storedAs(t, set))
		if err != nil {
			t.Fatal(err)
		}
		return has
	}
	wantCode(t, f.web1.Call(wire.OpGate, wire.Gate{Run: order.Run, Exports: set}, nil), tutti.CodeRefused, "is not a run of")
	if stored() {
		t.Error("exports of a run of another node are kept")
	}
	f.db.Gate(wire.Gate{Run: order.Run})
	f.db.Gate(wire.Gate{Run: order.Run, Exports: set})
	if stored() {
		t.Error("exports are kept that came after the gate had answered")
	}
}

func storedAs(t *testing.T, set []tutti.Export) tutti.Digest {
	t.Helper()
	raw, err := json.Marshal([]tutti.Export{{Type: set[0].Type, Title: set[0].Title}})
	if err != nil {
		t.Fatal(err)
	}
	return tutti.DigestOf(raw)
}

func TestWhatAKeyHoldsIsToldToItsOwnerOnly(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	set(t, f.Fleet, "secret/x", `"hunter2"`)
	f.db.Gate(wire.Gate{Run: order.Run, CatalogReport: tutti.CatalogReport{Values: []string{"db/x"}}})
	wantCode(t, f.db.Publish(order.Run, "db/x", "1"), "", "")
	for key, want := range map[string]string{"secret/x": "", "db/x": "1", "a\x1bb": ""} {
		if got := f.db.Ask(order.Run, tutti.Query{Kind: tutti.QueryPublished, Key: key}); got.Found != (want != "") || string(got.Value) != want {
			t.Errorf("%s: told %+v, want %q", key, got, want)
		}
	}
}
