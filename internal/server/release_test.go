package server_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const heldReaction = "reactive: true\nreaction: {code: confirm, ask_above: 7}\n"

// If the fleet file says so, the server holds new code until an operator releases it. A restart of the server does
// not release the code. Before the release, nodes use the previous code.
func TestHeldCode(t *testing.T) {
	f := newFixture(t)
	first := f.Push(twoSteps + heldReaction)
	if first.Held {
		t.Errorf("%+v: held, and the server had no fleet file that says so", first)
	}
	held := f.PushSite("notify { 'two': }\n")
	if !held.Held || held.Released != first.Code {
		t.Errorf("%+v, want held, and that nodes go on with %s", held, first.Code)
	}
	f.Fleet = f.Restart()
	third := f.PushSite("notify { 'three': }\n")
	if diff := cmp.Diff([]tutti.Digest{held.Code}, third.PassedOver); diff != "" || third.Released != first.Code {
		t.Errorf("%+v passes over: -want +got\n%s", third, diff)
	}
	released, err := f.ReleaseCode(servertest.Operator(), "")
	if err != nil || released.Code != third.Code {
		t.Errorf("released %+v, %v, want %s", released, err, third.Code)
	}
	f.Fleet = f.Restart()
	if _, err := f.ReleaseCode(servertest.Operator(), "production"); tutti.CodeOf(err) != tutti.CodeConflict {
		t.Errorf("released twice: %v", err)
	}
	if again := f.PushSite("notify { 'four': }\n"); again.Released != third.Code || len(again.PassedOver) > 0 {
		t.Errorf("%+v, want that nodes go on with %s", again, third.Code)
	}
	if back := f.PushSite("notify { 'three': }\n"); back.Held {
		t.Errorf("%+v: held, and nodes have it", back)
	}
}

// If a fleet file is pushed together with code, this new file decides how nodes react to the code.
func TestHeldByTheFleetFileThatComesWithIt(t *testing.T) {
	f := newFixture(t)
	f.Push(twoSteps)
	pushed := f.PushHeld("# two\n", tutti.CodeReaction{Canary: 2})
	if !pushed.Held || pushed.Canary != 2 {
		t.Errorf("%+v, want held for two canaries", pushed)
	}
}

// An operator can see the effect of a push before the push.
func TestPushEffect(t *testing.T) {
	f := newFixture(t)
	pushed := f.Push(twoSteps + heldReaction)
	f.StartJob(servertest.Operator(), api.StartJob{Plan: "deploy", Mode: tutti.ModeApply}) //nolint:errcheck // MustClaim reports the error
	order := f.db.MustClaim()
	f.db.Gate(wire.Gate{Run: order.Run, Exports: []tutti.Export{database("main")}, CatalogReport: tutti.CatalogReport{Values: []string{"db/a"}}})
	if err := f.db.Publish(order.Run, "db/a", "1"); err != nil {
		t.Fatal(err)
	}
	f.db.Finish(order.Run)
	n := len(f.Events())
	ask := func(code tutti.Digest, file string) api.PushEffect {
		t.Helper()
		got, err := f.PushEffect(servertest.Operator(), api.PushQuery{Code: code, Fleet: api.FleetSource{File: "tutti.yaml", Source: []byte(file)}})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	other := tutti.DigestOf([]byte("other"))
	reactive := api.PushEffect{Reactive: true, Reaction: tutti.CodeReaction{Confirm: true}, AskAbove: 7}
	same := reactive
	same.Same = true
	if diff := cmp.Diff(same, ask(pushed.Code, twoSteps+heldReaction)); diff != "" {
		t.Errorf("the same again: -want +got\n%s", diff)
	}
	names := []tutti.NodeName{"db-01", "web-01", "web-02"}
	want := api.PushEffect{Runs: len(names), Nodes: names}
	if diff := cmp.Diff(want, ask(other, twoSteps)); diff != "" {
		t.Errorf("other code, by a fleet file that does not react: -want +got\n%s", diff)
	}
	want = api.PushEffect{Runs: 1, Nodes: []tutti.NodeName{"db-01"}, Withdrawn: []tutti.Withdrawal{{Node: "db-01", Values: []string{"db/a"}, Exports: 1, Types: []string{"Database"}}}}
	if diff := cmp.Diff(want, ask(pushed.Code, strings.Replace(twoSteps, "write: [db/**], exports: [{type: Database, defined: true, most: 50000}]", "read: [x]", 1))); diff != "" {
		t.Errorf("a grant less: -want +got\n%s", diff)
	}
	if len(f.Events()) != n {
		t.Errorf("%v was appended", f.Since(n))
	}
}

// While code is held, it is compared with the code that nodes use. Code that is not held is compared
// with the code of the previous push.
func TestShowCode(t *testing.T) {
	f := newFixture(t)
	ctx := servertest.Operator()
	first := f.Push(twoSteps + heldReaction)
	passed := f.PushSite("notify { 'two': }\n")
	held := f.PushFiles(map[string]string{"manifests/new.pp": ""})
	check := func(reason string, pushed, before tutti.CodePushed, goes tutti.Digest, changes ...api.CodeChange) {
		t.Helper()
		got, err := f.ShowCode(ctx, api.CodeQuery{})
		if err != nil || got.Before == nil {
			t.Fatalf("%s: %+v, %v", reason, got, err)
		}
		if got.Pushed.Code != pushed.Code || got.Pushed.By != "operator:ada" || got.Pushed.At.IsZero() || got.Before.Code != before.Code || got.Goes != goes {
			t.Errorf("%s: %+v, before %+v", reason, got, got.Before)
		}
		if diff := cmp.Diff(changes, got.Changes); diff != "" || got.Unknown != "" {
			t.Errorf("%s: %s; -want +got\n%s", reason, got.Unknown, diff)
		}
	}
	moved := []api.CodeChange{{Path: "manifests/new.pp", Change: api.FileAdded}, {Path: servertest.CodePath, Change: api.FileRemoved}}
	check("held", held, first, first.Code, moved...)
	if _, err := f.ReleaseCode(ctx, ""); err != nil {
		t.Fatal(err)
	}
	f.Fleet = f.Restart()
	check("released", held, passed, held.Code, moved...)
	back := f.PushSite("notify { 'two': }\n")
	check("pushed again", back, held, held.Code, api.CodeChange{Path: "manifests/new.pp", Change: api.FileRemoved}, api.CodeChange{Path: servertest.CodePath, Change: api.FileAdded})
	if read, err := f.ReadCode(ctx, api.CodeQuery{Path: "manifests", Before: true}); err != nil || len(read.Below) != 1 || read.Code != held.Code {
		t.Errorf("%+v, %v", read, err)
	}
}
