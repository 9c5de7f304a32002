package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server"
)

// host is a resource of which nothing grants the parameter target.
func host(title, comment string) tutti.Export {
	return tutti.Export{Type: "Host", Title: title, Parameters: map[string]json.RawMessage{"target": json.RawMessage(`"x"`), "comment": json.RawMessage(`"` + comment + `"`)}}
}

// What is decided on a gate beside the writer is what the writer takes, as long as the grants are the same.
func TestWhatMayBePublishedIsDecidedOnceBesideTheWriter(t *testing.T) {
	f := newFixture(t)
	for _, tc := range []struct {
		reason        string
		export        tutti.Export
		between       string // the fleet file that is pushed
		beside, taken bool   // refused
		same          bool   // one decision
	}{
		{"refused", host("x", ""), "", true, true, true},
		{"admitted", database("x"), "", false, false, true},
		{"refused, and the same file", host("x", ""), twoSteps, true, true, true},
		{"refused, and another file", host("x", ""), twoSteps + "# another\n", true, true, false},
		{"admitted, and taken out meanwhile", database("x"), strings.Replace(twoSteps, "type: Database", "type: Other", 1), false, true, false},
		{"granted meanwhile", database("x"), twoSteps, true, false, false},
	} {
		beside, taken := f.Decides(t.Context(), "db-01", []tutti.Export{tc.export}, func() {
			if tc.between != "" {
				setFleet(t, f.Fleet, tc.between)
			}
		})
		if (beside != nil) != tc.beside || (taken != nil) != tc.taken {
			t.Errorf("%s: %v beside the writer, then %v", tc.reason, beside, taken)
		}
		if tc.same != (beside == taken) { //nolint:errorlint // the same error, not one like it
			t.Errorf("%s: one decision %v, want %v", tc.reason, beside == taken, tc.same) //nolint:errorlint // as above
		}
	}
}

// A run is refused its gate as often as an honest one can be, and then unread. A small gate costs nothing and is read.
func TestALargeGateIsRefusedSoOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, order := started(t, tutti.ModeApply)
		gate := func(size int) error {
			return f.db.Call(tutti.OpGate, tutti.Gate{Run: order.Run, Exports: []tutti.Export{host("x", strings.Repeat("x", size))}}, nil)
		}
		wantCode(t, gate(100_000), tutti.CodeRefused, "may not export")
		f.WasRefused(f.db.Key, order.Run, server.MaxTried-150_000)
		wantCode(t, gate(100_000), tutti.CodeRefused, "are looked at")
		wantCode(t, gate(100), tutti.CodeRefused, "may not export")
		f.WasRefused(f.db.Key, "another", server.MaxTried) // of a run before
		wantCode(t, gate(100_000), tutti.CodeRefused, "may not export")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// A run hands over so many bytes of a type. It is told at its gate, and nobody else notices.
func TestOneNodeDoesNotFillTheAnswersOfAll(t *testing.T) {
	f := newFixture(t)
	setFleet(t, f.Fleet, strings.Replace(twoSteps, "most: 50000", "most_mib: 1", 1))
	f.Start("deploy", tutti.ModeApply)
	order := f.db.MustClaim()
	gate := tutti.Gate{Run: order.Run}
	for i := range 2 {
		e := database(fmt.Sprint(i))
		e.Parameters["x"] = json.RawMessage(`"` + strings.Repeat("x", 600_000) + `"`)
		gate.Exports = append(gate.Exports, e)
	}
	wantCode(t, f.db.Call(tutti.OpGate, gate, nil), tutti.CodeRefused, "at most 1 MiB are granted")
	gate.Exports = gate.Exports[:1]
	if got := f.db.Gate(gate); got.Verdict != tutti.GateGo {
		t.Errorf("%+v", got)
	}
	f.db.Finish(order.Run)
	if err := f.web1.Call(tutti.OpAsk, tutti.Ask{Run: f.web1.MustClaim().Run, Query: collects}, nil); err != nil {
		t.Error(err)
	}
}
