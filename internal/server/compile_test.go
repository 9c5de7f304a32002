package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// In this fleet the host puppet compiles the catalogs of all nodes.
const compileFleet = `
fleet: site
mode: agent
groups:
  servers: {nodes: [puppet]}
  db: {nodes: [db-01]}
  web: {nodes: [web-01, web-02]}
grants:
  - {to: servers, compile: true, dangerous: true}
  - {to: db, read: [db/**], write: [db/**], exports: [{type: Database, defined: true, most: 50000}]}
plans:
  deploy: {steps: [{run: db}]}
  own: {steps: [{run: db, mode: apply}]}
`

// compileFixture is a fleet with a compile host.
type compileFixture struct {
	*servertest.Fleet
	host, db, web *servertest.Node
}

func newCompileFixture(t *testing.T) compileFixture {
	t.Helper()
	f := servertest.Start(t)
	out := compileFixture{f, f.Join("puppet"), f.Join("db-01"), f.Join("web-01")}
	setFleet(t, f, compileFleet)
	return out
}

// The function `begun` returns a compileFixture with a claimed run of db-01.
func begun(t *testing.T) (compileFixture, tutti.RunID) {
	t.Helper()
	f := newCompileFixture(t)
	f.Start("deploy", tutti.ModeApply)
	return f, f.db.MustClaim().Run
}

// The method `read` asks a question for a node and returns the question and its answer in the form of a record.
func (f compileFixture) read(t *testing.T, run tutti.RunID, name tutti.NodeName, q tutti.Query) tutti.Read {
	t.Helper()
	var a wire.Answer
	if err := f.host.Call(wire.OpAsk, wire.Question{Run: run, For: name, Query: q}, &a); err != nil {
		t.Fatal(err)
	}
	return tutti.Read{Query: q, Found: a.Found, Digest: a.Digest, Seq: a.Seq}
}

// The method `compiled` reports the reads and exports of a compile for a node.
func (f compileFixture) compiled(t *testing.T, in wire.ServedCatalog) {
	t.Helper()
	if err := f.host.Call(wire.OpCompiled, in, nil); err != nil {
		t.Fatal(err)
	}
}

// A compile host gets the answers that the node itself would get: its hiera level, the values that it may read, and
// the exports of other nodes, but not the node's own exports.
func TestACompileHostIsAnsweredAsTheNode(t *testing.T) {
	f, run := begun(t)
	set(t, f.Fleet, "db/password", `"p"`)
	set(t, f.Fleet, "node/db-01/hiera/port", "1")
	set(t, f.Fleet, "node/puppet/hiera/port", "2")
	var compiling wire.ServedBegun
	if err := f.host.Call(wire.OpCompile, wire.BeginServed{Run: run, For: "db-01"}, &compiling); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wire.ServedBegun{Node: true, Recorded: true}, compiling); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	password := tutti.Query{Kind: tutti.QueryValue, Key: "db/password"}
	for _, q := range []tutti.Query{password, collects} {
		if diff := cmp.Diff(f.db.Read(run, q), f.read(t, run, "db-01", q)); diff != "" {
			t.Errorf("%s: -the node's +the compile host's\n%s", q, diff)
		}
	}
	for _, r := range []tutti.RunID{run, "", servertest.NewRunID()} { // also for compiles without a run of Tutti
		var level wire.HieraData
		if err := f.host.Call(wire.OpHiera, wire.HieraQuestion{Run: r, For: "db-01"}, &level); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]json.RawMessage{"port": []byte("1")}, level.Data); diff != "" {
			t.Errorf("run %q: -want +got\n%s", r, diff)
		}
	}
	// The compile host must not read, for a node, values that the node may not read.
	f.db.Gate(wire.Gate{Run: run})
	f.db.Finish(run)
	wantCode(t, f.host.Call(wire.OpAsk, wire.Question{For: "web-01", Query: password}, nil), tutti.CodeRefused, `node "web-01" (in web) may not read "db/password"`)
}

// The server refuses a host without a grant. The server also refuses a run if it is not the active
// run of the certname, or does not compile now. Each refusal is in the audit trail.
func TestWhoMayCompile(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		begin  func(*testing.T) (compileFixture, tutti.RunID)
		by     func(compileFixture) *servertest.Node
		name   tutti.NodeName
		says   string
	}{
		"no grant":    {"a node compiles for nobody, not even for itself", begun, func(f compileFixture) *servertest.Node { return f.db }, "db-01", `may not compile for other nodes: no grant; to allow this, add to the grants of the fleet file: - {to: db, compile: true, dangerous: true}`},
		"another's":   {"a run has one certname", begun, nil, "web-01", `belongs to node db-01, but the catalog is for "web-01"`},
		"a longer":    {"names are whole", begun, nil, "db-01.example.net", `the catalog is for "db-01.example.net"`},
		"not claimed": {"nobody runs yet", notClaimed, nil, "db-01", "was not claimed by node db-01"},
		"by apply":    {"it compiles for itself", byApply, nil, "db-01", "compiles on the node itself"},
		"gated":       {"it has its catalog", gated, nil, "db-01", "has its catalog already"},
		"ended":       {"what comes late is of no run", ended, nil, "db-01", "has ended: changed"},
		"lost":        {"also if it was given up", gone, nil, "db-01", "was not claimed"},
	} {
		t.Run(name, func(t *testing.T) {
			for op, ask := range map[string]func(run tutti.RunID, name tutti.NodeName) any{
				wire.OpCompile:  func(r tutti.RunID, n tutti.NodeName) any { return wire.BeginServed{Run: r, For: n} },
				wire.OpAsk:      func(r tutti.RunID, n tutti.NodeName) any { return wire.Question{Run: r, For: n, Query: asksShared} },
				wire.OpHiera:    func(r tutti.RunID, n tutti.NodeName) any { return wire.HieraQuestion{Run: r, For: n} },
				wire.OpCompiled: func(r tutti.RunID, n tutti.NodeName) any { return wire.ServedCatalog{For: n, Gate: wire.Gate{Run: r}} },
			} {
				f, run := tc.begin(t)
				by := f.host
				if tc.by != nil {
					by = tc.by(f)
				}
				before := len(f.Events())
				wantCode(t, by.Call(op, ask(run, tc.name), nil), tutti.CodeRefused, tc.says)
				if diff := cmp.Diff([]string{"audit.denied"}, f.Since(before)); diff != "" {
					t.Errorf("%s: %s: -want +got\n%s", tc.reason, op, diff)
				}
			}
		})
	}
}

func notClaimed(t *testing.T) (compileFixture, tutti.RunID) {
	f := newCompileFixture(t)
	f.Start("deploy", tutti.ModeApply)
	for _, e := range f.Events() {
		if b, ok := e.Body.(*tutti.RunWanted); ok {
			return f, b.Order.Run
		}
	}
	t.Fatal("no run was wanted")
	return f, ""
}

func byApply(t *testing.T) (compileFixture, tutti.RunID) {
	f := newCompileFixture(t)
	f.Push("environment: {name: production}" + compileFleet)
	f.Start("own", tutti.ModeApply)
	return f, f.db.MustClaim().Run
}

func gated(t *testing.T) (compileFixture, tutti.RunID) {
	f, run := begun(t)
	f.db.Gate(wire.Gate{Run: run})
	return f, run
}

func ended(t *testing.T) (compileFixture, tutti.RunID) {
	f, run := gated(t)
	f.db.Finish(run)
	return f, run
}

func gone(t *testing.T) (compileFixture, tutti.RunID) {
	f, run := begun(t)
	if err := f.RemoveNode(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	return f, run
}

// A compile that belongs to no run of Tutti gets answers and leaves no trace. A compile for
// a machine that is not in the fleet gets no answers.
func TestCompilesOfOthers(t *testing.T) {
	f := newCompileFixture(t)
	run := servertest.NewRunID()
	for name, want := range map[tutti.NodeName]wire.ServedBegun{"db-01": {Node: true}, "stranger": {}} {
		var got wire.ServedBegun
		if err := f.host.Call(wire.OpCompile, wire.BeginServed{Run: run, For: name}, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	f.read(t, run, "db-01", collects)
	if denials := f.Denials(); denials != nil {
		t.Errorf("refused: %q", denials)
	}
	handed := wire.ServedCatalog{For: "db-01", Gate: wire.Gate{Run: run, Exports: []tutti.Export{database("a")}}}
	wantCode(t, f.host.Call(wire.OpCompiled, handed, nil), tutti.CodeRefused, "is not a run of node")
	wantCode(t, f.host.Call(wire.OpHiera, wire.HieraQuestion{For: "stranger"}, nil), tutti.CodeRefused, `"stranger" is not a node of this fleet`)
	if diff := cmp.Diff([]string{"node:puppet: compile for db-01", "node:puppet: compile for stranger"}, f.Denials()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// The reads and exports of the Puppet Server take effect at the gate of the node, also if
// the server restarts in between. The node's own report about reads and exports has no effect.
func TestAPuppetServersRecordIsTheRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		exports []tutti.Export
		between func(*testing.T, compileFixture)
		want    tutti.GateVerdict
		says    string
	}{
		"published": {"exports are there at go", []tutti.Export{database("a")}, nil, tutti.GateGo, ""},
		"restarted": {"the record is on disk", []tutti.Export{database("a")}, func(t *testing.T, f compileFixture) { *f.Fleet = *f.Restart() }, tutti.GateGo, ""},
		"nothing":   {"what is exported no more is withdrawn", nil, nil, tutti.GateGo, ""},
		"out of date": {"an answer has changed since", []tutti.Export{database("a")}, func(t *testing.T, f compileFixture) { set(t, f.Fleet, "shared/x", "2") },
			tutti.GateStop, `value "shared/x" has changed`},
		"groups": {"the groups of the node are a read", nil, func(_ *testing.T, f compileFixture) {
			f.Push("environment: {name: production}" + strings.Replace(compileFleet, "groups:", "groups:\n  canary: {nodes: [db-01]}", 1))
		}, tutti.GateStop, `the list of its groups has changed`},
		"a key appeared": {"absent keys are read, too", nil, func(t *testing.T, f compileFixture) { set(t, f.Fleet, "shared/hiera/port", "2") }, tutti.GateStop, `hiera key "port"`},
	} {
		t.Run(name, func(t *testing.T) {
			f, run := begun(t)
			set(t, f.Fleet, "shared/x", "1")
			in := wire.ServedCatalog{For: "db-01", Gate: wire.Gate{Run: run, Exports: tc.exports, Keys: []tutti.KeyRead{{Key: "port"}}}}
			in.Reads = []tutti.Read{f.read(t, run, "db-01", asksShared), f.read(t, run, "db-01", asksGroups)}
			f.compiled(t, in)
			if n := len(f.exports()); n != 0 {
				t.Errorf("%d exports are there before the gate", n)
			}
			if tc.between != nil {
				tc.between(t, f)
			}
			got := f.db.Gate(wire.Gate{Run: run, Exports: []tutti.Export{database("forged")}})
			if got.Verdict != tc.want {
				t.Fatalf("%s: %+v, want %s", tc.reason, got, tc.want)
			}
			wantContains(t, got.Reason, tc.says)
			want := tc.exports
			if tc.want == tutti.GateStop {
				want = nil
			}
			var titles, wanted []string
			for _, e := range f.exports() {
				titles = append(titles, string(e.Node)+" "+e.Title)
			}
			for _, e := range want {
				wanted = append(wanted, "db-01 "+e.Title)
			}
			if diff := cmp.Diff(wanted, titles); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// The method `exports` returns the exports that web-01 would collect.
func (f compileFixture) exports() []tutti.Export {
	var a wire.Answer
	if err := f.host.Call(wire.OpAsk, wire.Question{For: "web-01", Query: collects}, &a); err != nil {
		panic(err)
	}
	return a.Exports
}

// Exports need the grants of the node, not the grants of the compile host.
func TestExportsTakeTheNodesGrant(t *testing.T) {
	f := newCompileFixture(t)
	setFleet(t, f.Fleet, compileFleet+"  web: {steps: [{run: web-01}]}\n")
	f.Start("web", tutti.ModeApply)
	run := f.web.MustClaim().Run
	f.compiled(t, wire.ServedCatalog{For: "web-01", Gate: wire.Gate{Run: run, Exports: []tutti.Export{database("a")}}})
	wantCode(t, f.web.Call(wire.OpGate, wire.Gate{Run: run}, nil), tutti.CodeRefused, `node "web-01" (in web) may not export resources of type Database`)
}

// If a run gets no catalog because a question has no answer, the run waits for the answer. The server knows the reads
// of the run, so the answer wakes the run. A Deferred read of the node is added to these reads.
func TestACompileThatWaits(t *testing.T) {
	f, run := begun(t)
	wait := tutti.Wait{Query: asksShared, At: tutti.Place{File: "/x.pp", Line: 3}}
	f.compiled(t, wire.ServedCatalog{For: "db-01", Gate: wire.Gate{Run: run, Reads: []tutti.Read{f.read(t, run, "db-01", asksShared)}}, Waits: []tutti.Wait{wait}, Failed: true})
	result := servertest.Result(run, tutti.Failed)
	result.Reason, result.Message = tutti.BecauseCompile, "no value"
	if err := f.db.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
	events := f.Events()
	var got tutti.Result
	for _, e := range events {
		if b, ok := e.Body.(*tutti.RunFinished); ok {
			got = b.Result
		}
	}
	want := result
	want.Outcome, want.Reason, want.Waits = tutti.Waiting, "", []tutti.Wait{wait}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b tutti.Result) bool {
		return a.Outcome == b.Outcome && a.Reason == b.Reason && cmp.Equal(a.Waits, b.Waits)
	})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A converge job puts nodes into an order by the reads and exports that their Puppet Server
// reports. The job runs exactly the nodes that read a changed answer.
func TestConvergingByTheRecordsOfAPuppetServer(t *testing.T) {
	f := newCompileFixture(t)
	converge := func() tutti.JobID {
		job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{Target: "nodes"}, Mode: tutti.ModeApply})
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	setFleet(t, f.Fleet, "groups: {nodes: {nodes: [db-01, web-01]}, servers: {nodes: [puppet]}, db: {nodes: [db-01]}}\nfleet: site\nmode: agent\n"+
		"grants:\n  - {to: servers, compile: true, dangerous: true}\n  - {to: db, exports: [{type: Database, defined: true, most: 50000}]}\n")
	compile := func(n *servertest.Node, exports []tutti.Export, queries ...tutti.Query) (tutti.RunID, wire.Gated) {
		t.Helper()
		run := n.MustClaim().Run
		in := wire.ServedCatalog{For: n.Name, Gate: wire.Gate{Run: run, Exports: exports}}
		for _, q := range queries {
			in.Reads = append(in.Reads, f.read(t, run, n.Name, q))
		}
		f.compiled(t, in)
		return run, n.Gate(wire.Gate{Run: run})
	}
	job := converge()
	// Both nodes compile. The reader arrives at its gate first and waits for the exporter. Then the exporter goes first.
	web, held := compile(f.web, nil, collects)
	if held.Verdict != tutti.GateHold {
		t.Fatalf("the reader, alone: %+v, want hold", held)
	}
	db, _ := compile(f.db, []tutti.Export{database("a")}, asksShared)
	if got := f.db.Gate(wire.Gate{Run: db}); got.Verdict != tutti.GateGo {
		t.Fatalf("the exporter: %+v, want go", got)
	}
	if got := f.web.Gate(wire.Gate{Run: web}); got.Verdict != tutti.GateStop {
		t.Fatalf("the reader, which read too early: %+v, want stop", got)
	}
	stopped := servertest.Result(web, tutti.Skipped)
	stopped.Outcome, stopped.Stopped = "", true
	if err := f.web.Call(wire.OpResult, stopped, nil); err != nil {
		t.Fatal(err)
	}
	f.db.Finish(db)
	web, _ = compile(f.web, nil, collects)
	if got := f.web.Gate(wire.Gate{Run: web}); got.Verdict != tutti.GateGo {
		t.Fatalf("the reader, behind it: %+v, want go", got)
	}
	f.web.Finish(web)
	if got := f.Job(job); got.Verdict != tutti.VerdictConverged || got.Runs != 2 || got.Compiles != 1 {
		t.Fatalf("%s with %d runs, %d stopped; want converged with 2 and 1", got.Verdict, got.Runs, got.Compiles)
	}
	// The value changes, and only the exporter reads it. The exports of this node stay the
	// same, so the reader of the exports does not run.
	set(t, f.Fleet, "shared/x", "2")
	job = converge()
	db, _ = compile(f.db, []tutti.Export{database("a")}, asksShared)
	f.db.Gate(wire.Gate{Run: db})
	f.db.Finish(db)
	if got := f.Job(job); got.Verdict != tutti.VerdictConverged || got.Runs != 1 {
		t.Fatalf("after a change: %s with %d runs, want converged with 1", got.Verdict, got.Runs)
	}
}
