package server_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

func TestAClaimFollowsItsAppendAndIsTheSameAgain(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	events := f.Events()
	last := events[len(events)-1]
	claimed, ok := last.Body.(*tutti.RunClaimed)
	if !ok || claimed.Run != order.Run || last.By != "node:db-01" {
		t.Fatalf("the last event after a claim is %s %+v, want RunClaimed of %s by the node", last.Body.Kind(), last.Body, order.Run)
	}
	if again := f.db.MustClaim(); !reflect.DeepEqual(again, order) {
		t.Errorf("claimed again: %+v, want the same order %+v", again, order)
	}
	if got := f.Since(len(events)); len(got) != 0 {
		t.Errorf("claiming again appended %v, want nothing", got)
	}
	if o := f.web1.Claim(); o != nil {
		t.Errorf("web-01 claims %+v before db has ended", *o)
	}
}

func TestNothingToClaimIsNoOrder(t *testing.T) {
	f := newFixture(t)
	if o := f.db.Claim(); o != nil {
		t.Errorf("claimed %+v without a job", *o)
	}
}

func TestResultsThatComeAgainOrLate(t *testing.T) {
	lose := func(f fixture) {
		if err := f.RemoveNode(servertest.Operator(), "db-01"); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason string
		before func(f fixture, run tutti.RunID)
		code   tutti.Code
		adds   []string // kinds of the events that the result adds
	}{
		"first":   {"it ends the run and lets the next begin", func(fixture, tutti.RunID) {}, "", []string{"run.finished", "run.wanted", "run.wanted"}},
		"twice":   {"the same message has no second effect", func(f fixture, run tutti.RunID) { f.db.Finish(run) }, "", nil},
		"removed": {"a node that was removed is nobody", func(f fixture, _ tutti.RunID) { lose(f) }, tutti.CodeUnauthenticated, []string{"audit.denied"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			f.db.Gate(wire.Gate{Run: order.Run})
			tc.before(f, order.Run)
			n := len(f.Events())
			err := f.db.Call(wire.OpResult, servertest.Result(order.Run, tutti.Changed), nil)
			wantCode(t, err, tc.code, "")
			if diff := cmp.Diff(tc.adds, f.Since(n)); diff != "" {
				t.Errorf("%s: appended -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestANodeSpeaksForItsOwnRunsOnly(t *testing.T) {
	ask := func(run tutti.RunID) any {
		return wire.Question{Run: run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"}}
	}
	cases := map[string]struct {
		op string
		in func(run tutti.RunID) any
	}{
		"result":  {wire.OpResult, func(run tutti.RunID) any { return servertest.Result(run, tutti.Changed) }},
		"gate":    {wire.OpGate, func(run tutti.RunID) any { return wire.Gate{Run: run} }},
		"ask":     {wire.OpAsk, ask},
		"hiera":   {wire.OpHiera, func(run tutti.RunID) any { return wire.HieraQuestion{Run: run} }},
		"publish": {wire.OpPublish, func(run tutti.RunID) any { return wire.Publish{Run: run, Key: "db/x", Value: []byte("1")} }},
		"code":    {wire.OpCode, func(run tutti.RunID) any { return wire.CodeGet{Run: run} }},
		"blobget": {wire.OpBlobGet, func(run tutti.RunID) any {
			return wire.BlobGet{Run: run, Digest: tutti.DigestOf([]byte(servertest.CodeContent))}
		}},
		"live": {wire.OpLive, func(run tutti.RunID) any { return []tutti.Live{{Run: run, Phase: "apply"}} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			n := len(f.Events())
			wantCode(t, f.web1.Call(tc.op, tc.in(order.Run), nil), tutti.CodeRefused, "is not a run of node web-01")
			if diff := cmp.Diff([]string{"audit.denied"}, f.Since(n)); diff != "" {
				t.Errorf("appended -want +got\n%s", diff)
			}
			// The server refuses a second attempt as well, but does not append another event.
			wantCode(t, f.web1.Call(tc.op, tc.in(order.Run), nil), tutti.CodeRefused, "")
			if got := f.Since(n + 1); len(got) != 0 {
				t.Errorf("the same attempt again appended %v, want nothing", got)
			}
		})
	}
}

func TestARunThatWasNotClaimedCannotBeSpokenFor(t *testing.T) {
	f := newFixture(t)
	f.Start("deploy", tutti.ModeApply)
	var wanted tutti.RunID
	for _, e := range f.Events() {
		if w, ok := e.Body.(*tutti.RunWanted); ok {
			wanted = w.Order.Run
		}
	}
	wantCode(t, f.db.Call(wire.OpGate, wire.Gate{Run: wanted}, nil), tutti.CodeRefused, "was not claimed")
	wantCode(t, f.db.Call(wire.OpResult, servertest.Result(wanted, tutti.Changed), nil), tutti.CodeRefused, "was not claimed")
}

func TestWhatComesAfterARunsEndChangesNothing(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	f.db.Gate(wire.Gate{Run: order.Run})
	f.db.Finish(order.Run)
	n := len(f.Events())
	for op, in := range map[string]any{
		wire.OpGate:  wire.Gate{Run: order.Run, Exports: []tutti.Export{}},
		wire.OpAsk:   wire.Question{Run: order.Run, Query: asksShared},
		wire.OpHiera: wire.HieraQuestion{Run: order.Run},
	} {
		wantCode(t, f.db.Call(op, in, nil), tutti.CodeConflict, "has ended")
	}
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("appended %v, want nothing", got)
	}
}

func TestAResultMustBeSound(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*tutti.Result)
		code   tutti.Code
	}{
		"outcome":  {"an unknown outcome says nothing", func(r *tutti.Result) { r.Outcome = "fine" }, tutti.CodeInvalid},
		"no why":   {"failed needs a reason", func(r *tutti.Result) { r.Outcome = tutti.Failed }, tutti.CodeInvalid},
		"time":     {"it ended before it began", func(r *tutti.Result) { r.EndedAt = r.StartedAt.Add(-1) }, tutti.CodeInvalid},
		"no blobs": {"what it names must be there first", func(r *tutti.Result) { r.Report = tutti.DigestOf([]byte("nowhere")) }, tutti.CodeConflict},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			n := len(f.Events())
			r := servertest.Result(order.Run, tutti.Changed)
			tc.change(&r)
			wantCode(t, f.db.Call(wire.OpResult, r, nil), tc.code, "")
			if got := f.Since(n); len(got) != 0 {
				t.Errorf("%s: appended %v, want nothing", tc.reason, got)
			}
		})
	}
}

func TestMessagesThatAreNoneAreRefused(t *testing.T) {
	f, _, _ := started(t, tutti.ModeApply)
	n := len(f.Events())
	for _, op := range []string{
		wire.OpClaim, wire.OpGate, wire.OpAsk, wire.OpHiera, wire.OpPublish, wire.OpResult, wire.OpBlobGet, wire.OpCode, wire.OpBeat, wire.OpLive,
	} {
		_, err := f.Handle(t.Context(), f.db.Key, op, []byte("{no json"))
		wantCode(t, err, tutti.CodeInvalid, op)
	}
	_, err := f.Handle(t.Context(), f.db.Key, "dance", nil)
	wantCode(t, err, tutti.CodeInvalid, "dance")
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("appended %v, want nothing", got)
	}
}

func TestANodeWithoutARunStoresNothing(t *testing.T) {
	f, _, _ := started(t, tutti.ModeApply)
	_, err := f.Handle(t.Context(), f.web1.Key, wire.OpBlobPut, []byte("junk"))
	wantCode(t, err, tutti.CodeRefused, "never claimed a run")
	if has, err := f.Blobs.Has(t.Context(), tutti.DigestOf([]byte("junk"))); has || err != nil {
		t.Errorf("the blob is there: %v, %v", has, err)
	}
	if _, err := f.Handle(t.Context(), f.db.Key, wire.OpBlobPut, []byte("report")); err != nil {
		t.Errorf("a node with a run: %v", err)
	}
}

// TestWhatANodeDoesAlone checks that the answer to a claim has the rules of the fleet file for the time without a
// server. A paused node must not run in that time.
func TestWhatANodeDoesAlone(t *testing.T) {
	f := servertest.Start(t)
	db, web := f.Join("db-01"), f.Join("web-01")
	check := func(n *servertest.Node, safety time.Duration, why string) {
		t.Helper()
		var got wire.Claimed
		if err := n.Call(wire.OpClaim, wire.Claim{Version: "1", Knows: tutti.Capabilities()}, &got); err != nil {
			t.Fatal(err)
		}
		if got.Alone == nil || got.Alone.Safety != safety || !strings.Contains(got.Alone.Why, why) {
			t.Errorf("%s: %+v, want %s, %s", n.Name, got.Alone, safety, why)
		}
	}
	const groups = `
groups:
  db: {nodes: [db-01], safety_when_away: 2h}
  late: {nodes: [db-01], safety_when_away: 5h}
  web: {nodes: [web-01]}
`
	for _, tt := range []struct {
		fleet   string
		db, web time.Duration
		why     string
	}{
		{"fleet: test" + groups, 5 * time.Hour, 0, "only people start runs"},
		{"fleet: test\nreactive: true" + groups, 5 * time.Hour, 12 * time.Hour, "the default"},
		{"fleet: test\nsafety_when_away: 3h" + groups, 5 * time.Hour, 3 * time.Hour, "the fleet file says so"},
		{"fleet: test\nreactive: true\nsafety_when_away: never" + groups, 5 * time.Hour, 0, "the fleet file says never"},
		{"fleet: test" + strings.Replace(groups, "2h", "never", 1), 0, 0, "only people start runs"},
	} {
		setFleet(t, f, tt.fleet)
		check(db, tt.db, "the fleet file says")
		check(web, tt.web, tt.why)
	}
	setFleet(t, f, "fleet: test\nsafety_when_away: 3h"+groups)
	for _, p := range []api.Pause{{Target: "db", Reason: "disk", For: time.Hour}, {Target: "db-01", Reason: "new disk"}} {
		if _, err := f.Pause(servertest.Operator(), p); err != nil {
			t.Fatal(err)
		}
	}
	check(db, 0, "new disk") // a pause without an end
	check(web, 3*time.Hour, "")
	if err := f.Unpause(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	check(db, 0, "the node is paused by ")
}
