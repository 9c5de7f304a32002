package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// storedFleet is compileFleet with a plan that runs web-01, which reads the exports of db-01.
const storedFleet = compileFleet + "  read: {steps: [{run: web-01}]}\n"

// pdb is a PuppetDB that stores a catalog only when the test says so. A pdb keeps the latest catalog of each node.
type pdb struct {
	queue []wire.ServedCatalog
	has   map[tutti.NodeName]wire.ServedCatalog
}

// The method `store` puts the next catalog of the queue into the PuppetDB.
func (p *pdb) store() {
	p.has[p.queue[0].For], p.queue = p.queue[0], p.queue[1:]
}

// The method `titles` returns the titles that a collector of all databases finds.
func (p *pdb) titles() []string {
	var out []string
	for name, c := range p.has {
		for _, e := range c.Exports {
			out = append(out, string(name)+" "+e.Title)
		}
	}
	slices.Sort(out)
	return out
}

// The method `catalogs` returns, for each exporter, the catalog that PuppetDB has.
func (p *pdb) catalogs() map[tutti.NodeName]wire.Stored {
	out := map[tutti.NodeName]wire.Stored{}
	for name, c := range p.has {
		if len(c.Exports) > 0 {
			out[name] = wire.Stored{Run: c.Run, CatalogUUID: c.CatalogUUID}
		}
	}
	return out
}

// The function `found` marks the nodes whose exports PuppetDB has also returned to the collector.
func found(catalogs map[tutti.NodeName]wire.Stored, names ...tutti.NodeName) map[tutti.NodeName]wire.Stored {
	for _, name := range names {
		stored := catalogs[name]
		stored.Found = true
		catalogs[name] = stored
	}
	return catalogs
}

// storedFixture has a PuppetDB, and a run of web-01 that is compiling.
type storedFixture struct {
	compileFixture
	pdb *pdb
	run tutti.RunID
}

func newStoredFixture(t *testing.T) storedFixture {
	t.Helper()
	f := storedFixture{newCompileFixture(t), &pdb{has: map[tutti.NodeName]wire.ServedCatalog{}}, ""}
	setFleet(t, f.Fleet, storedFleet)
	f.Start("read", tutti.ModeApply)
	f.run = f.web.MustClaim().Run
	return f
}

// The method `compile` lets the Puppet Server compile a catalog for db-01. If `run` is empty, Puppet's daemon has
// caused the compile.
func (f storedFixture) compile(t *testing.T, run tutti.RunID, names ...string) wire.ServedCatalog {
	t.Helper()
	if run == "" {
		run = servertest.NewRunID()
	}
	in := wire.ServedCatalog{For: "db-01", Gate: wire.Gate{Run: run}, CatalogUUID: string(servertest.NewRunID())}
	for _, name := range names {
		in.Exports = append(in.Exports, database(name))
	}
	f.compiled(t, in)
	f.pdb.queue = append(f.pdb.queue, in)
	return in
}

// The method `collect` asks Tutti the question of a compile for web-01, after PuppetDB has answered it.
func (f storedFixture) collect(t *testing.T, stored map[tutti.NodeName]wire.Stored) wire.Answer {
	t.Helper()
	var a wire.Answer
	if err := f.host.Call(wire.OpAsk, wire.Question{Run: f.run, For: "web-01", Query: collects, Stored: stored}, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// The method `tuttis` returns Tutti's answer to the question that `collect` asks.
func (f storedFixture) tuttis() []string {
	var out []string
	for _, e := range f.exports() {
		out = append(out, string(e.Node)+" "+e.Title)
	}
	slices.Sort(out)
	return out
}

// PuppetDB may store a catalog before, between or after its two answers and Tutti's answer. In each case
// the compile gets exactly the exports of Tutti's digest, or the answer names an exporter that lags.
func TestALagIsNeverMissed(t *testing.T) {
	f := newStoredFixture(t)
	lagged := 0
	for _, next := range [][][]string{ // the exports of the next two catalogs
		{{"a"}, {"b"}}, {{"a", "b"}, {"a"}}, {{"a"}, nil}, {nil, {"a"}}, {{"b"}, {"b"}}, {nil, nil},
	} {
		for one := range 4 {
			for two := one; two < 4; two++ {
				f.compile(t, "", next[0]...)
				f.compile(t, "", next[1]...)
				at := func(slot int) {
					for _, s := range []int{one, two} {
						if s == slot {
							f.pdb.store()
						}
					}
				}
				at(0)
				catalogs := f.pdb.catalogs()
				at(1)
				given := f.pdb.titles()
				if len(given) > 0 {
					catalogs = found(catalogs, "db-01")
				}
				at(2)
				a := f.collect(t, catalogs)
				at(3)
				if len(a.Lags) > 0 {
					lagged++
					continue
				}
				if diff := cmp.Diff(f.tuttis(), given); diff != "" {
					t.Errorf("%v stored at %d and %d: nobody lags, and: -Tutti's +PuppetDB's\n%s", next, one, two, diff)
				}
			}
		}
	}
	if lagged < 20 || lagged == 60 {
		t.Errorf("somebody lagged %d times of 60", lagged)
	}
}

// The server compares only nodes whose catalogs the Puppet Server compiles, and only types that these
// nodes may export. Other nodes have exports only in PuppetDB or only in Tutti, so a comparison would
// always fail.
func TestWhomPuppetDBIsBehind(t *testing.T) {
	const other = "00000000-0000-4000-8000-00000000000a"
	for name, tc := range map[string]struct {
		reason  string
		exports []string // exports of db-01; nil if db-01 was not compiled
		stored  func(is wire.ServedCatalog) map[tutti.NodeName]wire.Stored
		fleet   string
		lags    bool
	}{
		"the same": {"it is up to date", []string{"a"}, func(is wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return found(map[tutti.NodeName]wire.Stored{"db-01": {Run: is.Run, CatalogUUID: is.CatalogUUID}}, "db-01")
		}, "", false},
		"another catalog of the run": {"one run may compile twice", []string{"a"}, func(is wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return found(map[tutti.NodeName]wire.Stored{"db-01": {Run: is.Run, CatalogUUID: other}}, "db-01")
		}, "", true},
		"another run": {"a catalog is of one run", []string{"a"}, func(is wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return found(map[tutti.NodeName]wire.Stored{"db-01": {Run: other, CatalogUUID: is.CatalogUUID}}, "db-01")
		}, "", true},
		"nothing stored": {"its first export is to come", []string{"a"}, func(wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return map[tutti.NodeName]wire.Stored{}
		}, "", true},
		"taken back": {"PuppetDB still has it", []string{}, func(wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return found(map[tutti.NodeName]wire.Stored{"db-01": {Run: other, CatalogUUID: other}}, "db-01")
		}, "", true},
		"taken back long ago": {"neither has any", []string{}, func(wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return map[tutti.NodeName]wire.Stored{"db-01": {Run: other, CatalogUUID: other}}
		}, "", false},
		"never compiled": {"what PuppetDB has is of before the module", nil, func(wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return found(map[tutti.NodeName]wire.Stored{"db-01": {Run: other, CatalogUUID: other}}, "db-01")
		}, "", true},
		"a stranger": {"what is no node is PuppetDB's own", []string{}, func(wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return found(map[tutti.NodeName]wire.Stored{"stranger": {Run: other, CatalogUUID: other}}, "stranger")
		}, "", false},
		"no grant": {"what it may not export is PuppetDB's own", []string{}, func(wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return found(map[tutti.NodeName]wire.Stored{"web-02": {Run: other, CatalogUUID: other}}, "web-02")
		}, "", false},
		"the asker": {"nobody collects his own", []string{}, func(wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return found(map[tutti.NodeName]wire.Stored{"web-01": {Run: other, CatalogUUID: other}}, "web-01")
		}, "", false},
		"by apply": {"who compiles for himself has no catalog there", nil, func(wire.ServedCatalog) map[tutti.NodeName]wire.Stored {
			return found(map[tutti.NodeName]wire.Stored{"db-01": {Run: other, CatalogUUID: other}}, "db-01")
		}, "mode: apply", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStoredFixture(t)
			f.Join("web-02")
			if tc.fleet != "" {
				setFleet(t, f.Fleet, "environment: {name: production}"+strings.Replace(storedFleet, "db: {nodes: [db-01]}", "db: {nodes: [db-01], "+tc.fleet+"}", 1))
			}
			var is wire.ServedCatalog
			var want []tutti.Lag
			if tc.exports != nil {
				is = f.compile(t, "", tc.exports...)
			}
			if tc.lags {
				want = []tutti.Lag{{Node: "db-01", Run: is.Run}}
			}
			*f.Fleet = *f.Restart() // everything is in the log
			a := f.collect(t, tc.stored(is))
			if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(a.Lags)); diff != "" || a.Lags == nil {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if a.Exports != nil || f.collect(t, nil).Lags != nil {
				t.Errorf("exports %v, and lags of a question that PuppetDB was not asked", a.Exports)
			}
		})
	}
}

// The exports that go to PuppetDB become the exports of the node before PuppetDB has them. It does not matter who
// started the run and how the run ends. A run that Tutti did not start has no other effect.
func TestExportsThatGoToPuppetDB(t *testing.T) {
	f := newStoredFixture(t)
	check := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, f.tuttis()); diff != "" {
			t.Errorf("%s: -want +got\n%s", what, diff)
		}
	}
	f.Start("deploy", tutti.ModeNoop)
	run := f.db.MustClaim().Run
	f.compile(t, run, "a")
	check("a noop run, at its gate", "db-01 a")
	before := len(f.Events())
	if got := f.db.Gate(wire.Gate{Run: run}); got.Verdict != tutti.GateGo {
		t.Fatalf("%+v", got)
	}
	if kinds := f.Since(before); slices.Contains(kinds, "exports.set") {
		t.Errorf("the gate set exports again: %q", kinds)
	}
	f.db.Finish(run)
	again := f.compile(t, "", "a", "b")
	check("a run of others", "db-01 a", "db-01 b")
	before = len(f.Events())
	f.compiled(t, again) // the host sends the same report a second time
	if kinds := f.Since(before); len(kinds) > 0 {
		t.Errorf("told again: %q", kinds)
	}
	same := f.compile(t, "", "a", "b")
	if a := f.collect(t, found(map[tutti.NodeName]wire.Stored{"db-01": {Run: same.Run, CatalogUUID: same.CatalogUUID}}, "db-01")); len(a.Lags) > 0 {
		t.Errorf("the same by another catalog, which PuppetDB has: %v", a.Lags)
	}
	failed := again
	failed.CatalogUUID, failed.Failed, failed.Exports = string(servertest.NewRunID()), true, nil
	f.compiled(t, failed)
	check("no catalog takes nothing back", "db-01 a", "db-01 b")
	f.compile(t, "")
	check("taken back")
	before = len(f.Events())
	f.compile(t, "")
	if kinds := f.Since(before); len(kinds) > 0 {
		t.Errorf("nothing as before: %q", kinds)
	}
	// If a node lacks a grant for an export, its run of Tutti gets no catalog. In a run that Tutti
	// did not start, the export goes only to PuppetDB.
	mark := tutti.Export{Type: "Mark", Title: "m"}
	in := wire.ServedCatalog{For: "web-01", CatalogUUID: string(run), Gate: wire.Gate{Run: f.run, Exports: []tutti.Export{mark}}}
	wantCode(t, f.host.Call(wire.OpCompiled, in, nil), tutti.CodeRefused, "may not export resources of type Mark")
	in.For, in.Run, in.Exports = "db-01", servertest.NewRunID(), []tutti.Export{mark, database("c")}
	f.compiled(t, in)
	check("with the grant for some", "db-01 c")
	events := f.Events()
	if b, ok := events[len(events)-1].Body.(*tutti.ExportsSet); !ok || b.Count != 1 {
		t.Errorf("%+v, want what is granted alone", events[len(events)-1].Body)
	}
	in.CatalogUUID = "../x"
	wantCode(t, f.host.Call(wire.OpCompiled, in, nil), tutti.CodeInvalid, "catalog_uuid")
	in.CatalogUUID, in.Run = string(run), "x"
	wantCode(t, f.host.Call(wire.OpCompiled, in, nil), tutti.CodeInvalid, "not a UUID")
}

// A node does not apply a catalog that was compiled before PuppetDB had stored the catalog of
// another node. The test checks this in a plan and in a converge job. If the run got no catalog for
// this reason, it also counts as stopped.
func TestARunThatPuppetDBIsBehindOf(t *testing.T) {
	const says = "PuppetDB has not stored run 00000000-0000-4000-8000-00000000000a of node db-01 yet"
	lags := []tutti.Lag{{Node: "db-01", Run: "00000000-0000-4000-8000-00000000000a"}}
	for name, in := range map[string]api.StartJob{
		"plan":     {Plan: "read", Mode: tutti.ModeApply},
		"converge": {Converge: &tutti.ConvergeStep{Target: "web-01"}, Mode: tutti.ModeApply},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCompileFixture(t)
			setFleet(t, f.Fleet, storedFleet)
			job, err := f.StartJob(servertest.Operator(), in)
			if err != nil {
				t.Fatal(err)
			}
			run := f.web.MustClaim().Run
			f.compiled(t, wire.ServedCatalog{For: "web-01", CatalogUUID: string(run), Lags: lags, Gate: wire.Gate{Run: run}})
			if got := f.web.Gate(wire.Gate{Run: run}); got.Verdict == tutti.GateHold {
				got = f.web.Gate(wire.Gate{Run: run})
				wantContains(t, string(got.Verdict)+" "+got.Reason, "stop "+says)
			} else {
				wantContains(t, string(got.Verdict)+" "+got.Reason, "stop "+says)
			}
			stopped := servertest.Result(run, "")
			stopped.Stopped = true
			if err := f.web.Call(wire.OpResult, stopped, nil); err != nil {
				t.Fatal(err)
			}
			if o := f.web.Claim(); o != nil {
				t.Errorf("it compiles again at once: %+v", o)
			}
			if got := f.Job(job); got.Verdict != "" {
				t.Errorf("job %s: %s", got.Verdict, got.Message)
			}
		})
	}
	t.Run("no catalog", func(t *testing.T) {
		f := newStoredFixture(t)
		f.compiled(t, wire.ServedCatalog{For: "web-01", Lags: lags, Failed: true, Gate: wire.Gate{Run: f.run}})
		result := servertest.Result(f.run, tutti.Failed)
		result.Reason, result.Message = tutti.BecauseCompile, "no File[/x]"
		if err := f.web.Call(wire.OpResult, result, nil); err != nil {
			t.Fatal(err)
		}
		for _, e := range f.Events() {
			if b, ok := e.Body.(*tutti.RunFinished); ok {
				if got := b.Result; !got.Stopped || got.Outcome != "" || got.Message != says+": no File[/x]" {
					t.Errorf("%+v", got)
				}
			}
		}
		if o := f.web.Claim(); o != nil {
			t.Errorf("it compiles again at once: %+v", o)
		}
	})
}

// If PuppetDB has exports of a node whose catalog Tutti does not know, the message names the node and says what to do.
func TestWhatALagSays(t *testing.T) {
	got := tutti.Lag{Node: "db-01"}.String()
	wantContains(t, got, "PuppetDB has exports of node db-01, but the node was not compiled since its Puppet Server got the module")
}
