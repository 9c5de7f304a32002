package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const anyFleet = `
fleet: any
environment: {name: production, path: ./code}
groups:
  all: {joined: true}
  db: {nodes: [db-01, db-02]}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true, most: 50000}]}
plans:
  one:
    steps:
      - run: db-01
  both:
    steps:
      - {name: first, run: db, accept: ["failed:resources", lost]}
      - {wait: {value: db/ready}}
      - {name: second, run: db, limit: 1}
`

// The type `anything` lets people and machines make random calls to a server that keeps only few old events.
type anything struct {
	*servertest.Fleet
	machines map[tutti.NodeName]int // how often another machine has taken the name
	operator int
}

func (a *anything) node(name tutti.NodeName) *servertest.Node {
	return &servertest.Node{Name: name, Key: servertest.Key(fmt.Sprintf("%s %d", name, a.machines[name])), Fleet: a.Fleet}
}

// The method `step` makes one random call. The server may refuse most of these calls. A refused call has no effect.
func (a *anything) step(t *rapid.T) {
	name := rapid.SampledFrom([]tutti.NodeName{"db-01", "db-02"}).Draw(t, "node")
	key := rapid.SampledFrom([]string{"db/ready", "db/x", "shared/hiera/k"}).Draw(t, "key")
	ctx := tutti.WithActor(context.Background(), "operator:"+rapid.SampledFrom([]string{"ada", "bob", "eve", "local"}).Draw(t, "by"))
	switch rapid.SampledFrom([]string{
		"join", "replace", "remove", "push", "start", "start", "cancel", "set", "unset", "lose", "foreign", "foreign", "revoke", "operator", "diff",
		"work", "work", "work", "work", "work", "work", "work", "work",
	}).Draw(t, "what") {
	case "join":
		a.join(name, rapid.SampledFrom([]time.Duration{time.Second, time.Hour}).Draw(t, "ttl"))
	case "replace":
		if a.ReplaceNode(ctx, name) == nil && rapid.Bool().Draw(t, "another machine") {
			a.machines[name]++
			a.join(name, time.Hour)
		}
	case "remove":
		_ = a.RemoveNode(ctx, name)
	case "push":
		a.PushSite(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "code"))
	case "start":
		plan := rapid.SampledFrom([]tutti.PlanName{"one", "both"}).Draw(t, "plan")
		_, _ = a.StartJob(ctx, api.StartJob{Plan: plan, Mode: rapid.SampledFrom([]tutti.Mode{tutti.ModeApply, tutti.ModeNoop}).Draw(t, "mode")})
	case "diff":
		_, _ = a.StartDiff(rapid.SampledFrom([]string{"a", "d"}).Draw(t, "code"), name)
	case "cancel":
		_ = a.CancelJob(ctx, api.CancelJob{})
	case "set":
		_ = a.SetValue(ctx, key, json.RawMessage(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")))
	case "unset":
		_ = a.UnsetValue(ctx, key)
	case "lose":
		if o := a.node(name).Claimed(); o != nil {
			_ = a.Emit(&tutti.RunLost{Run: o.Run, Reason: "silent"})
			_ = a.node(name).Call(wire.OpPublish, wire.Publish{Run: o.Run, Key: "db/x", Value: json.RawMessage("3")}, nil)
			if rapid.Bool().Draw(t, "late result") {
				_ = a.node(name).Call(wire.OpResult, servertest.Result(o.Run, tutti.Changed), nil)
			}
		}
	case "revoke":
		token, err := a.CreateToken(ctx, api.CreateToken{Name: "x"})
		if err == nil {
			_ = a.Emit(&tutti.TokenRevoked{Token: token.Token})
		}
	case "operator":
		a.operator++
		_ = a.Emit(&tutti.OperatorIssued{Operator: "ada", Serial: fmt.Sprint(a.operator)})
		if rapid.Bool().Draw(t, "revoked") {
			_ = a.Emit(&tutti.OperatorRevoked{Operator: "ada"})
		}
	case "foreign": // as an event, because a node may send only one foreign run in ten seconds
		_ = a.Emit(&tutti.RunForeign{Node: name, Foreign: a.anyForeign(t)})
	case "work":
		a.work(t, a.node(name))
	}
}

// anyForeign returns a random foreign run. The run may have lasted some time, and the node may report it late.
func (a *anything) anyForeign(t *rapid.T) tutti.Foreign {
	f, _ := foreign(rapid.IntRange(0, 12).Draw(t, "began"), rapid.SampledFrom([]tutti.Outcome{tutti.Unchanged, tutti.Changed, tutti.Failed}).Draw(t, "outcome"))
	r := &f.Result
	r.Run = tutti.RunID(string(r.Run[:24]) + fmt.Sprintf("%012d", len(a.Events())))
	r.EndedAt = r.EndedAt.Add(time.Duration(rapid.IntRange(0, 10).Draw(t, "lasts")) * time.Minute)
	if r.Outcome == tutti.Changed {
		r.Counts.Changed = 1
	}
	if rapid.Bool().Draw(t, "counted") {
		line := fmt.Sprintf("c0000000-0000-4000-8000-%012d", rapid.IntRange(0, 1).Draw(t, "line"))
		r.Clock = tutti.Clock{Line: line, Count: uint64(len(a.Events()))}
	}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		f.Whole, f.Ago = r.Outcome.Good(), time.Nanosecond
	case 1:
		f.Unwatched = true
	case 2:
		f.Noop = true
	case 3:
		f.Local = &tutti.Local{Away: rapid.Bool().Draw(t, "away"), Unpublished: [][]string{nil, {"db/x"}}[rapid.IntRange(0, 1).Draw(t, "unpublished")]}
	case 4:
		f.Local = &tutti.Local{As: r.Run}
	}
	return f
}

func (a *anything) join(name tutti.NodeName, ttl time.Duration) {
	token, err := a.CreateToken(servertest.Operator(), api.CreateToken{Name: string(name), TTL: ttl, Groups: []tutti.GroupName{"all"}})
	if err == nil {
		_, _ = a.Enrol(context.Background(), a.node(name).Request(token))
	}
}

// The method `work` lets a node go on with its run as far as possible.
func (a *anything) work(t *rapid.T, n *servertest.Node) {
	o := n.Claimed()
	if o == nil || rapid.Bool().Draw(t, "only claims") {
		return
	}
	gate := wire.Gate{Run: o.Run, CatalogReport: tutti.CatalogReport{Values: []string{"db/ready"}}}
	for _, title := range []string{"a", "b"} {
		if rapid.Bool().Draw(t, "exports "+title) {
			gate.Exports = append(gate.Exports, database(title))
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "outdated") == 0 {
		gate.Reads = []tutti.Read{{Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/never"}, Found: true, Digest: tutti.DigestOf(nil)}}
	}
	var gated wire.Gated
	if n.Call(wire.OpGate, gate, &gated) != nil {
		return
	}
	result := servertest.Result(o.Run, rapid.SampledFrom([]tutti.Outcome{tutti.Changed, tutti.Changed, tutti.Failed}).Draw(t, "outcome"))
	if rapid.Bool().Draw(t, "reports") {
		if _, err := n.Fleet.Handle(context.Background(), n.Key, wire.OpBlobPut, []byte("report")); err == nil {
			result.Report = tutti.DigestOf([]byte("report"))
		}
	}
	if gated.Verdict == tutti.GateStop {
		result.Outcome, result.Reason, result.Stopped = "", "", true
	} else {
		for _, key := range []string{"db/ready", "db/x", "db/ready"} {
			if rapid.Bool().Draw(t, "publishes") {
				value := json.RawMessage(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value"))
				_ = n.Call(wire.OpPublish, wire.Publish{Run: o.Run, Key: key, Value: value, Withdraw: rapid.IntRange(0, 3).Draw(t, "withdraws") == 0}, nil)
			}
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "ends") > 0 {
		_ = n.Call(wire.OpResult, result, nil)
	}
}

// anyLog returns the log of a server after random calls.
func anyLog(t *testing.T, rt *rapid.T) []tutti.Event {
	t.Helper()
	f := servertest.Start(t, func(o *server.Options) {
		o.Keep, o.Logger, o.Silence = engine.Keep{Jobs: 2, Runs: 3}, slog.New(slog.DiscardHandler), time.Hour
	})
	defer func() { _ = f.Stop() }()
	a := &anything{Fleet: f, machines: map[tutti.NodeName]int{}}
	a.join("db-01", time.Hour)
	a.join("db-02", time.Hour)
	a.Push(anyFleet)
	for range rapid.IntRange(1, 80).Draw(rt, "steps") {
		a.step(rt)
	}
	events := f.Events()
	if err := server.Hydrate(f.Blobs, events); err != nil {
		t.Fatal(err)
	}
	return events
}

// The function `needed` returns the events that a snapshot of these events contains. The event snapshot.taken comes
// last.
func needed(events []tutti.Event) []tutti.Event {
	l := retain.New()
	for _, e := range events {
		l.Add(e)
	}
	var out []tutti.Event
	for _, e := range events {
		if l.Needs(e) {
			out = append(out, e)
		}
	}
	taken := &tutti.SnapshotTaken{Operators: server.Operators(events)}
	return append(out, tutti.Event{Seq: events[len(events)-1].Seq, At: events[len(events)-1].At, Body: taken})
}

// TestASnapshotIsTheLog checks a snapshot of the beginning of a log. The snapshot and the rest of the log
// together fold to the same state as the whole log. TestASnapshotIsTheLog checks the same for a snapshot of a
// snapshot.
func TestASnapshotIsTheLog(t *testing.T) {
	kinds, kept := map[string]bool{}, map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		events := anyLog(t, rt)
		want := func() server.State { return server.Fold(events) }
		now := events[len(events)-1].At
		for _, e := range events {
			kinds[e.Body.Kind()] = true
		}
		for range 6 {
			first := rapid.IntRange(1, len(events)-1).Draw(rt, "cut")
			second := rapid.IntRange(first, len(events)-1).Draw(rt, "next cut")
			once := needed(events[:first])
			if diff := want().Diff(server.Fold(once, events[first:]), now); diff != "" {
				rt.Fatalf("a snapshot at %d of %d: -whole +from the snapshot\n%s\nlog: %v", first, len(events), diff, describeAll(events))
			}
			twice := needed(slices.Concat(once, events[first:second]))
			if diff := want().Diff(server.Fold(twice, events[second:]), now); diff != "" {
				rt.Fatalf("a snapshot at %d, of the one at %d and what came after it: -whole +from the snapshot\n%s", second, first, diff)
			}
			kept["of"] += first
			kept["needed"] += len(once) - 1 // for snapshot.taken
		}
	})
	for _, kind := range []string{"job.retired", "run.lost", "node.removed", "exports.set", "value.unset", "token.revoked", "node.replaceable", "run.finished"} {
		if !kinds[kind] {
			t.Errorf("no log had a %s event: this test has lost its edge", kind)
		}
	}
	if kept["needed"]*10 > kept["of"]*9 {
		t.Errorf("%d of %d events are needed: nothing is let go", kept["needed"], kept["of"])
	}
}

// TestASnapshotBelowADiff checks a snapshot where a job for a diff compiles old code, and the last job that ordered this
// code was retired later.
func TestASnapshotBelowADiff(t *testing.T) {
	f := servertest.Start(t, func(o *server.Options) { o.Keep = engine.Keep{Jobs: 2, Runs: 3} })
	a := &anything{Fleet: f}
	a.join("db-01", time.Hour)
	f.Push(anyFleet)
	plan := func() {
		t.Helper()
		id, err := f.StartJob(servertest.Operator(), api.StartJob{Plan: "one", Mode: tutti.ModeApply})
		if err == nil {
			err = f.CancelJob(servertest.Operator(), api.CancelJob{Job: id})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f.PushSite("a")
	plan()
	f.PushSite("b")
	if _, err := f.StartDiff("a", "db-01"); err != nil { // ends at once, because no agent is there
		t.Fatal(err)
	}
	plan()

	events := f.Events()
	if !slices.ContainsFunc(events, func(e tutti.Event) bool { return e.Body.Kind() == "job.retired" }) {
		t.Fatalf("no job was retired: %v", describeAll(events))
	}
	if diff := server.Fold(events).Diff(server.Fold(needed(events)), events[len(events)-1].At); diff != "" {
		t.Errorf("-whole +from the snapshot\n%s", diff)
	}
}

// TestASnapshotOfAValueThatIsGone checks a snapshot where a value was published by two nodes, one after the other, and is
// gone with the second one. The first node has begun no run since.
func TestASnapshotOfAValueThatIsGone(t *testing.T) {
	f := servertest.Start(t)
	one, two := f.Join("db-01"), f.Join("db-02")
	f.Push(anyFleet)
	f.Start("both", tutti.ModeApply)
	for _, n := range []*servertest.Node{one, two} {
		o := n.MustClaim()
		n.Gate(wire.Gate{Run: o.Run, CatalogReport: tutti.CatalogReport{Values: []string{"db/ready"}}})
		if err := n.Publish(o.Run, "db/ready", `"`+string(n.Name)+`"`); err != nil {
			t.Fatal(err)
		}
		n.Finish(o.Run)
		if n == one {
			if err := f.UnsetValue(servertest.Operator(), "db/ready"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.RemoveNode(servertest.Operator(), "db-02"); err != nil {
		t.Fatal(err)
	}
	cut := len(f.Events())
	f.PushSite("b")
	events := f.Events()
	if err := server.Hydrate(f.Blobs, events); err != nil {
		t.Fatal(err)
	}
	if diff := server.Fold(events).Diff(server.Fold(needed(events[:cut]), events[cut:]), events[len(events)-1].At); diff != "" {
		t.Errorf("-whole +from the snapshot\n%s", diff)
	}
}

func describeAll(events []tutti.Event) []string {
	var out []string
	for _, e := range events {
		raw, _ := json.Marshal(e.Body)
		out = append(out, fmt.Sprintf("\n%d %s %.200s", e.Seq, e.Body.Kind(), raw))
	}
	return out
}
