package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// inPart makes db-01 run with tags. The digest of the run's catalog is the digest of the text `catalog`.
func (f *fenced) inPart(catalog string, result tutti.Result) tutti.RunID {
	f.t.Helper()
	return f.runs(tutti.ModeApply, []string{"part"}, catalog, result)
}

func (f *fenced) runs(mode tutti.Mode, tags []string, catalog string, result tutti.Result) tutti.RunID {
	f.t.Helper()
	_, err := f.StartJob(servertest.Operator(), api.StartJob{Mode: mode, Runs: &api.NodeRuns{
		Nodes: []tutti.NodeName{"db-01"}, RunOptions: tutti.RunOptions{Tags: tags},
	}})
	if err != nil {
		f.t.Fatal(err)
	}
	order := f.claim()
	gate := full(order.Run)
	gate.Catalog = tutti.DigestOf([]byte(catalog))
	f.db.Gate(gate)
	result.Run = order.Run
	if err := f.db.Call(wire.OpResult, result, nil); err != nil {
		f.t.Fatal(err)
	}
	return order.Run
}

// TestARunWithTagsThatChangedANode checks a run with tags that changed the node, and whose catalog differs
// from the catalog of the last full run. Only another full run makes the node good again.
func TestARunWithTagsThatChangedANode(t *testing.T) {
	changed := servertest.Result("", tutti.Changed)
	changed.Counts.Changed = 1
	failed := servertest.Result("", tutti.Failed)
	failed.Counts.Failed = 1
	for _, tc := range []struct {
		reason, catalog string
		result          tutti.Result
		want            string // a part of the reason
	}{
		{"it changed nothing", "other", servertest.Result("", tutti.Unchanged), "good: "},
		{"it repaired, with the catalog of the full run", "same", changed, "good: "},
		{"it applied a part of another catalog", "other", changed, "with tags, has changed the node since its last full run: resources changed: 1"},
		{"it failed", "same", failed, "with tags, was failed"},
	} {
		f := newFenced(t)
		f.pass()
		f.inPart(tc.catalog, tc.result)
		check := func(when string) { t.Helper(); f.wantWhy(tc.reason+", "+when, tc.want) }
		check("at once")
		f.inPart("same", servertest.Result("", tutti.Unchanged))
		check("after another one")
		f.restart()
		check("after a start")
		if tc.want != "good: " {
			f.applies(tc.reason, tc.want)
		}
	}
}

// TestANoopRunThatChangedANode checks a noop run of an older agent. The agent let Puppet change a resource with
// `noop => false`. Only a full run makes the node good again.
func TestANoopRunThatChangedANode(t *testing.T) {
	changed := servertest.Result("", tutti.Changed)
	changed.Counts.Changed = 1
	const want = "in noop mode, has changed the node since its last full run: resources changed: 1"
	for _, tc := range []struct {
		reason, catalog string
		tags            []string
		result          tutti.Result
		want            string
	}{
		{"it changed nothing", "other", nil, servertest.Result("", tutti.Unchanged), "good: "},
		{"it repaired, with the catalog of the full run", "same", nil, changed, "good: "},
		{"it applied another catalog", "other", nil, changed, want},
		{"it applied a part of another catalog", "other", []string{"part"}, changed, want},
	} {
		f := newFenced(t)
		f.restart(func(o *server.Options) { o.Keep = engine.Keep{Jobs: 1, Runs: 1} })
		f.pass()
		f.runs(tutti.ModeNoop, tc.tags, tc.catalog, tc.result)
		check := func(when string) { t.Helper(); f.wantWhy(tc.reason+", "+when, tc.want) }
		check("at once")
		for range 3 { // the server forgets the run's job and keeps the run
			f.runs(tutti.ModeNoop, []string{"part"}, "same", servertest.Result("", tutti.Unchanged))
		}
		check("after others")
		events := f.Events()
		if err := server.Hydrate(f.Blobs, events); err != nil {
			t.Fatal(err)
		}
		if diff := server.Fold(events).Diff(server.Fold(needed(events)), events[len(events)-1].At); diff != "" {
			t.Errorf("%s: -whole +from a snapshot\n%s", tc.reason, diff)
		}
		f.restart()
		check("after a start")
		if tc.want != "good: " {
			f.applies(tc.reason, tc.want)
		}
	}
}

// TestManyRunsWithTags checks how many runs with tags the server keeps per node. A node with so many runs since its
// last full run is not good.
func TestManyRunsWithTags(t *testing.T) {
	f := newFenced(t)
	f.pass()
	for i := range 12 {
		if why := f.why(); strings.HasPrefix(why, "good: ") != (i < 10) {
			t.Errorf("after %d: %s", i, why)
		}
		f.inPart("same", servertest.Result("", tutti.Unchanged))
	}
	f.pass()
	if why := f.why(); !strings.HasPrefix(why, "good: ") {
		t.Error(why)
	}
}

// TestAForeignRunBesideOurs checks a foreign run that began before a run of Tutti and ended after it. After such a
// foreign run the node is not good. But if the foreign run had Puppet's lock while the run of Tutti waited, the
// node is good.
func TestAForeignRunBesideOurs(t *testing.T) {
	for _, tc := range []struct {
		reason     string
		overlapped bool
		lasts      time.Duration
		good       bool
	}{
		{"it took no lock and ended later", true, time.Hour, false},
		{"it took no lock and ended before", true, time.Minute, true},
		{"ours waited for it", false, time.Hour, true},
	} {
		f := newFenced(t)
		f.pass()
		f.Push(strings.Replace(oneNode, "\n", "\nplans: {deploy: {steps: [{run: db-01}]}}\n", 1))
		f.Start("deploy", tutti.ModeApply)
		order := f.claim()
		f.db.Gate(full(order.Run))
		ours := servertest.Result(order.Run, tutti.Unchanged)
		ours.StartedAt, ours.EndedAt, ours.Overlapped = ours.StartedAt.Add(30*time.Minute), ours.EndedAt.Add(30*time.Minute), tc.overlapped
		if err := f.db.Call(wire.OpResult, ours, nil); err != nil {
			t.Fatal(err)
		}
		run, report := foreign(1, tutti.Changed, func(f *tutti.Foreign) {
			f.Result.Counts.Changed = 1
			f.Result.EndedAt = f.Result.StartedAt.Add(tc.lasts)
		})
		mustTell(t, f.db, run, report)
		if why := f.why(); strings.HasPrefix(why, "good: ") != tc.good {
			t.Errorf("%s: %s", tc.reason, why)
		}
	}
}

// TestAGateConfirmsNoGuess checks a node that names reads of values without a grant, with the digests of guesses. The
// gate gives the same refusal to a right guess and to a wrong one.
func TestAGateConfirmsNoGuess(t *testing.T) {
	f := newFenced(t)
	if err := f.SetValue(servertest.Operator(), "db/pin", []byte(`"4711"`)); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, guess := range []string{`"1234"`, `"4711"`, ""} {
		for _, kind := range []tutti.QueryKind{tutti.QueryValue, tutti.QueryPublished} {
			f.converge()
			order := f.claim()
			gate := full(order.Run)
			gate.Reads = []tutti.Read{{Query: tutti.Query{Kind: kind, Key: "db/pin"}}}
			if guess != "" {
				gate.Reads[0].Found, gate.Reads[0].Digest = true, tutti.DigestOf([]byte(guess))
			}
			err := f.db.Call(wire.OpGate, gate, nil)
			if kind == tutti.QueryValue {
				wantCode(t, err, tutti.CodeRefused, `may not read "db/pin": no grant`)
			}
			said = append(said, fmt.Sprint(kind, ": ", err))
			f.db.Finish(order.Run)
		}
	}
	slices.Sort(said)
	if said = slices.Compact(said); len(said) != 2 {
		t.Errorf("the gate tells guesses apart: %q", said)
	}
	denied := false
	for _, e := range f.Events() {
		d, is := e.Body.(*tutti.Denied)
		denied = denied || is && d.What == "read db/pin"
	}
	if !denied {
		t.Error("the audit log does not have the refusal")
	}
}

// TestAReadThatIsNotGrantedAnyMore checks a node whose grant for a value was removed after the node had read the
// value. With the present grants the code would not compile. When the grant comes back, the node is good again.
func TestAReadThatIsNotGrantedAnyMore(t *testing.T) {
	const granted = oneNode + "grants:\n  - {to: db, read: [truth/**]}\n"
	f := newFenced(t)
	f.Push(granted)
	f.converge()
	order := f.claim()
	// No value exists, so the only change is the removal of the grant.
	query := tutti.Query{Kind: tutti.QueryValue, Key: "truth/x"}
	answer := f.db.Ask(order.Run, query)
	gate := full(order.Run)
	gate.Reads = []tutti.Read{{Query: query, Digest: answer.Digest}}
	f.db.Gate(gate)
	f.db.Finish(order.Run)
	for _, want := range []struct{ fleet, why string }{
		{granted, "good: "},
		{oneNode, `stale: it read "truth/x", but no grant allows this any more`},
		{granted, "good: "},
	} {
		f.Push(want.fleet)
		if why := f.why(); !strings.HasPrefix(why, want.why) {
			t.Errorf("%s, want %s", why, want.why)
		}
	}
}
