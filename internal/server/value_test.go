package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `applying` returns a fixture in which db-01 is applying.
func applying(t *testing.T) (fixture, tutti.Order) {
	t.Helper()
	f, _, order := started(t, tutti.ModeApply)
	f.db.Gate(wire.Gate{Run: order.Run})
	return f, order
}

func TestWhatARunMayPublish(t *testing.T) {
	cases := map[string]struct {
		reason string
		before func(*testing.T, fixture)
		in     wire.Publish
		code   tutti.Code
		adds   []string
	}{
		"granted":  {"the grant covers the key", nil, wire.Publish{Key: "db/x", Value: []byte("1")}, "", []string{"value.set"}},
		"its own":  {"node/NAME/** is the node's", nil, wire.Publish{Key: "node/db-01/x", Value: []byte("1")}, "", []string{"value.set"}},
		"others'":  {"another node's", nil, wire.Publish{Key: "node/web-01/x", Value: []byte("1")}, tutti.CodeRefused, []string{"audit.denied"}},
		"dotted":   {"a name is no prefix", nil, wire.Publish{Key: "node/db-01.example.net/x", Value: []byte("1")}, tutti.CodeRefused, []string{"audit.denied"}},
		"shared":   {"no grant", nil, wire.Publish{Key: "shared/x", Value: []byte("1")}, tutti.CodeRefused, []string{"audit.denied"}},
		"bad key":  {"no key", nil, wire.Publish{Key: "db/../x", Value: []byte("1")}, tutti.CodeInvalid, nil},
		"no JSON":  {"no value", nil, wire.Publish{Key: "db/x"}, tutti.CodeInvalid, nil},
		"null":     {"null is no value", nil, wire.Publish{Key: "db/x", Value: []byte("null")}, tutti.CodeInvalid, nil},
		"withdraw": {"what is not there need not go", nil, wire.Publish{Key: "db/x", Withdraw: true}, "", nil},
		"operator's": {"a key has one owner", func(t *testing.T, f fixture) { set(t, f.Fleet, "db/x", "2") },
			wire.Publish{Key: "db/x", Value: []byte("1")}, tutti.CodeConflict, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, order := applying(t)
			if tc.before != nil {
				tc.before(t, f)
			}
			n := len(f.Events())
			tc.in.Run = order.Run
			wantCode(t, f.db.Call(wire.OpPublish, tc.in, nil), tc.code, "")
			if diff := cmp.Diff(tc.adds, f.Since(n)); diff != "" {
				t.Errorf("%s: appended -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPublishingTheSameIsNoEvent(t *testing.T) {
	f, order := applying(t)
	publish := func(value string) int {
		t.Helper()
		n := len(f.Events())
		if err := f.db.Publish(order.Run, "db/x", value); err != nil {
			t.Fatal(err)
		}
		return len(f.Since(n))
	}
	for i, step := range []struct {
		value string
		adds  int
	}{{`{"a":1,"b":2}`, 1}, {`{"b":2, "a":1}`, 0}, {`{"a":1}`, 1}} {
		if got := publish(step.value); got != step.adds {
			t.Errorf("step %d, %s: %d events, want %d", i, step.value, got, step.adds)
		}
	}
	asked := f.db.Ask(order.Run, tutti.Query{Kind: tutti.QueryPublished, Key: "db/x"})
	if !asked.Found || string(asked.Value) != `{"a":1}` {
		t.Errorf("published: %+v", asked)
	}
	for range 2 {
		if err := f.db.Call(wire.OpPublish, wire.Publish{Run: order.Run, Key: "db/x", Withdraw: true}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if asked := f.db.Ask(order.Run, tutti.Query{Kind: tutti.QueryPublished, Key: "db/x"}); asked.Found {
		t.Errorf("withdrawn and found: %+v", asked)
	}
}

func TestAnOlderRunNeverReplacesANewerOnes(t *testing.T) {
	f, _, _ := started(t, tutti.ModeApply)
	old := f.db.MustClaim()
	f.db.Gate(wire.Gate{Run: old.Run})
	if err := f.db.Publish(old.Run, "db/x", "1"); err != nil {
		t.Errorf("the latest run: %v", err)
	}
	f.db.Finish(old.Run)
	// A node sends its result last. If a value arrives after the result, the node has sent the value before the
	// result, or sends it again.
	wantCode(t, f.db.Publish(old.Run, "db/x", "1"), tutti.CodeConflict, "has ended")
	f.web1.Pass()
	f.web2.Pass()
	f.Start("deploy", tutti.ModeApply)
	f.db.Pass()
	n := len(f.Events())
	wantCode(t, f.db.Publish(old.Run, "db/x", "2"), tutti.CodeConflict, "is not its latest")
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("appended %v, want nothing", got)
	}
}

func TestBeforeItsGateARunPublishesNothing(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	wantCode(t, f.db.Publish(order.Run, "db/x", "1"), tutti.CodeRefused, "is not applying")
}

func TestReadingNeedsAGrant(t *testing.T) {
	f, order := applying(t)
	set(t, f.Fleet, "secret/x", "1")
	set(t, f.Fleet, "shared/x", "2")
	if got := f.db.Ask(order.Run, asksShared); !got.Found || string(got.Value) != "2" {
		t.Errorf("shared/x: %+v", got)
	}
	err := f.db.Call(wire.OpAsk, wire.Question{Run: order.Run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "secret/x"}}, nil)
	wantCode(t, err, tutti.CodeRefused, "no grant")
	if diff := cmp.Diff([]string{"node:db-01: read secret/x"}, f.Denials()); diff != "" {
		t.Errorf("audit -want +got\n%s", diff)
	}
}

func TestHieraIsTheSharedLevelAndTheNodesOwn(t *testing.T) {
	f, order := applying(t)
	set(t, f.Fleet, "shared/hiera/port", "1")
	set(t, f.Fleet, "shared/hiera/host", `"a"`)
	set(t, f.Fleet, "node/db-01/hiera/port", "2")
	set(t, f.Fleet, "node/web-01/hiera/other", "3")
	var got wire.HieraData
	if err := f.db.Call(wire.OpHiera, wire.HieraQuestion{Run: order.Run}, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Data) != 2 || string(got.Data["port"]) != "2" || string(got.Data["host"]) != `"a"` {
		t.Errorf("hiera %s", got.Data)
	}
	if want := f.db.Ask(order.Run, asksHiera).Digest; got.Digests["port"] != want || want == "" {
		t.Errorf("digest of port %q, asked for alone %q", got.Digests["port"], want)
	}
}

func TestOperatorsValues(t *testing.T) {
	f := newFixture(t)
	set(t, f.Fleet, "shared/b", "1")
	set(t, f.Fleet, "shared/a", "2")
	n := len(f.Events())
	set(t, f.Fleet, "shared/a", " 2 ")
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("setting the same appended %v", got)
	}
	values, err := f.ListValues(servertest.Operator(), "shared")
	if err != nil || len(values) != 2 || values[0].Key != "shared/a" || values[0].By != "operator:ada" {
		t.Errorf("values %+v, %v", values, err)
	}
	wantCode(t, f.UnsetValue(servertest.Operator(), "shared/c"), tutti.CodeNotFound, "tutti data list")
	wantCode(t, f.UnsetValue(servertest.Operator(), "/"), tutti.CodeInvalid, "key")
	if err := f.UnsetValue(servertest.Operator(), "shared/a"); err != nil {
		t.Error(err)
	}
}

// If an operator withdraws a value that a node has published, the node must run again, but it keeps its exports.
func TestWhatAnOperatorTakesFromANode(t *testing.T) {
	const fleet = `
fleet: test
environment: {name: production, path: ./code}
groups: {db: {nodes: [db-01]}}
grants: [{to: db, write: [shared/db], exports: [Sshkey]}]
`
	for name, take := range map[string]func(f *fenced) error{
		"unset": func(f *fenced) error { return f.UnsetValue(servertest.Operator(), "shared/db") },
		"set":   func(f *fenced) error { return f.SetValue(servertest.Operator(), "shared/db", []byte("2")) },
	} {
		f := newFenced(t)
		f.Push(fleet)
		run := func() {
			t.Helper()
			f.converge()
			order := f.claim()
			if order == nil {
				t.Fatalf("%s: it does not run", name)
			}
			gate := full(order.Run)
			gate.Exports = []tutti.Export{{Type: "Sshkey", Title: "db-01", Parameters: map[string]json.RawMessage{"key": []byte(`"x"`)}}}
			gate.Values = []string{"shared/db"}
			f.db.Gate(gate)
			if gated := f.db.Gate(gate); gated.Verdict != tutti.GateGo {
				t.Fatalf("%s: the gate says %+v", name, gated)
			}
			if err := f.db.Publish(order.Run, "shared/db", "1"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			f.db.Finish(order.Run)
			if why := f.why(); !strings.HasPrefix(why, "good: ") {
				t.Fatalf("%s: after its run it is %s", name, why)
			}
		}
		run()
		set(t, f.Fleet, "shared/db", "1")
		if why := f.why(); !strings.HasPrefix(why, "good: ") {
			t.Errorf("%s: with the same value set it is %s", name, why)
		}
		if err := take(f); err != nil {
			t.Fatal(err)
		}
		f.restart()
		if why := f.why(); !strings.Contains(why, "an operator took it back") {
			t.Errorf("%s: it is %s", name, why)
		}
		if exports := f.State().Exports("db-01"); len(exports) != 1 {
			t.Errorf("%s: it exports %v", name, exports)
		}
		if name == "unset" {
			run()
		}
	}
}
