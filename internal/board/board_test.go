package board

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The type `viewer` is a viewer that applies what it gets.
type viewer struct {
	has   map[string]string
	stamp Stamp
}

func all(string) bool { return true }

// The method `read` gets at most `most` bytes. It reports whether the viewer has everything now.
func (v *viewer) read(t *Table, wants func(string) bool, most int) bool {
	rows, now, reset := t.Since(v.stamp, wants, most)
	if reset || v.has == nil {
		v.has = map[string]string{}
	}
	for _, r := range rows {
		if r.View == nil {
			delete(v.has, r.Key)
		} else {
			v.has[r.Key] = string(r.View)
		}
	}
	v.stamp = now
	return now == t.Stamp()
}

func (v *viewer) catchUp(t *Table, wants func(string) bool, most int) {
	for !v.read(t, wants, most) { // each read moves the stamp
	}
}

// TestViewersHaveTheTable checks that a viewer has the table when it has read everything, whenever it has read parts of
// earlier changes.
func TestViewersHaveTheTable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		table, views := New(), map[string]json.RawMessage{}
		viewers := []*viewer{{}, {}, {}}
		wants := func(key string) bool { return !strings.HasSuffix(key, "3") }
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0, 1:
				for range rapid.IntRange(0, 5).Draw(rt, "changes") {
					key := fmt.Sprintf("node/%d", rapid.IntRange(0, 9).Draw(rt, "key"))
					if rapid.IntRange(0, 2).Draw(rt, "gone") == 0 {
						delete(views, key)
					} else {
						views[key] = json.RawMessage(fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "view")))
					}
				}
				table.Set(maps.Clone(views))
			case 2:
				rapid.SampledFrom(viewers).Draw(rt, "viewer").read(table, wants, rapid.IntRange(1, 30).Draw(rt, "most"))
			case 3:
				*rapid.SampledFrom(viewers).Draw(rt, "new viewer") = viewer{}
			}
		}
		want := map[string]string{}
		for key, view := range views {
			if wants(key) {
				want[key] = string(view)
			}
		}
		for i, v := range viewers {
			v.catchUp(table, wants, 10)
			if v.has == nil {
				v.has = map[string]string{}
			}
			if diff := cmp.Diff(want, v.has); diff != "" {
				rt.Fatalf("viewer %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// TestForgottenKeys checks that a viewer gets a reset if the table has forgotten which keys are gone, and that the
// table does not grow with the keys that are gone.
func TestForgottenKeys(t *testing.T) {
	table := New()
	table.Set(map[string]json.RawMessage{"stays": json.RawMessage("1")})
	early := &viewer{}
	early.catchUp(table, all, 1000)
	for i := range MaxGone + 10 {
		table.Set(map[string]json.RawMessage{"stays": json.RawMessage("1"), fmt.Sprint(i): json.RawMessage("1")})
		if i == 0 {
			early.catchUp(table, all, 1000)
		}
	}
	table.Set(map[string]json.RawMessage{"stays": json.RawMessage("1")})
	if n := len(table.rows); n != MaxGone+1 || table.order.Len() != n {
		t.Errorf("the table has %d rows, want %d that are gone, and one more", n, MaxGone)
	}
	late := *early
	if _, _, reset := table.Since(late.stamp, all, 1000); !reset {
		t.Error("the viewer has a row that the table has forgotten: there must be a reset")
	}
	early.catchUp(table, all, 1000)
	if diff := cmp.Diff(map[string]string{"stays": "1"}, early.has); diff != "" {
		t.Error(diff)
	}
	if _, _, reset := table.Since(table.Stamp()+1, all, 1000); !reset {
		t.Error("a stamp that the table does not have: there must be a reset")
	}
}

// TestAMessageIsBounded checks the size of one message. A row that is larger alone is sent alone.
func TestAMessageIsBounded(t *testing.T) {
	table := New()
	table.Set(map[string]json.RawMessage{"a": json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`), "b": json.RawMessage("1"), "c": json.RawMessage("2")})
	v := &viewer{}
	sizes := map[int]int{}
	for last := false; !last; {
		rows, _, _ := table.Since(v.stamp, all, 10)
		sizes[len(rows)]++
		last = v.read(table, all, 10)
	}
	if len(v.has) != 3 || sizes[3] > 0 {
		t.Errorf("the viewer has %v; messages by rows: %v", v.has, sizes)
	}
}
