package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// The function `refusals` counts the entries about refused grants, and returns the size of the largest entry.
func refusals(t *testing.T, events []tutti.Event) (count, largest int) {
	t.Helper()
	for _, e := range events {
		if refused, is := e.Body.(*tutti.RunRefused); is {
			raw, err := json.Marshal(refused)
			if err != nil {
				t.Fatal(err)
			}
			count, largest = count+1, max(largest, len(raw))
		}
	}
	return count, largest
}

// The entries about refused grants are for people. A node must not fill the log with them, no matter which
// names it uses.
func TestWhatARunIsRefusedIsBounded(t *testing.T) {
	exports := func(round, bytes int) (out []tutti.Export) {
		for i := range 60 {
			parameters := map[string]json.RawMessage{}
			for j := range 10 {
				parameters[fmt.Sprintf("p%d_%d_%s", round, j, strings.Repeat("a", bytes))] = json.RawMessage("1")
			}
			out = append(out, tutti.Export{Type: fmt.Sprintf("Cr%c%c", 'a'+i/26, 'a'+i%26), Title: "x", Parameters: parameters})
		}
		return out
	}
	types := func(count int) (out []tutti.Export) {
		for i := range count {
			out = append(out, tutti.Export{Type: fmt.Sprintf("Ty%c%c", 'a'+i/26, 'a'+i%26), Title: "x"})
		}
		return out
	}
	values := func(round int) (out []string) {
		for i := range 100 {
			out = append(out, fmt.Sprintf("a%09d/x", 900_000_000-round*100-i))
		}
		return out
	}
	for _, tc := range []struct {
		reason string
		say    func(run tutti.RunID, round int) (op string, in any)
		code   tutti.Code
	}{
		{"parameters with names of a kilobyte", func(run tutti.RunID, round int) (string, any) {
			return wire.OpGate, wire.Gate{Run: run, Exports: exports(round, 1_000)}
		}, tutti.CodeInvalid},
		{"parameters with long names", func(run tutti.RunID, round int) (string, any) {
			return wire.OpGate, wire.Gate{Run: run, Exports: exports(round, 200)}
		}, tutti.CodeRefused},
		{"more types than are noted", func(run tutti.RunID, round int) (string, any) {
			return wire.OpGate, wire.Gate{Run: run, Exports: slices.Concat(exports(round, 1), types(110+round))}
		}, tutti.CodeRefused},
		{"other values each time", func(run tutti.RunID, round int) (string, any) {
			return wire.OpGate, wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Values: values(round)}}
		}, tutti.CodeRefused},
		{"another question each time", func(run tutti.RunID, round int) (string, any) {
			return wire.OpAsk, wire.Question{Run: run, Query: tutti.Query{Kind: tutti.QueryValue, Key: fmt.Sprintf("secret/x%04d", 9000-round)}}
		}, tutti.CodeRefused},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _, order := started(t, tutti.ModeApply)
				for round := range 14 {
					op, in := tc.say(order.Run, round)
					wantCode(t, f.db.Call(op, in, nil), tc.code, "")
				}
				count, largest := refusals(t, f.Events())
				if count > 10 || largest > 32<<10 {
					t.Errorf("%d entries in a minute, the largest of %d bytes", count, largest)
				}
				if err := f.Stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The log gets only a limited number of entries about refused grants in a minute. If the server refuses the same
// grant again in a later minute, the log gets the missing entry.
func TestWhatARunIsRefusedIsNotedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, order := started(t, tutti.ModeApply)
		ask := func(i int) {
			in := wire.Question{Run: order.Run, Query: tutti.Query{Kind: tutti.QueryValue, Key: fmt.Sprintf("secret/x%02d", i)}}
			wantCode(t, f.db.Call(wire.OpAsk, in, nil), tutti.CodeRefused, "")
		}
		for i := range 12 {
			ask(i)
		}
		before, _ := refusals(t, f.Events())
		for range 7 {
			time.Sleep(10 * time.Second)
			wantCode(t, f.db.Call(wire.OpBeat, wire.Beat{}, nil), "", "")
		}
		ask(11)
		after, _ := refusals(t, f.Events())
		if before != 10 || after != 11 {
			t.Errorf("%d entries, and %d later, want 10 and 11", before, after)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}
