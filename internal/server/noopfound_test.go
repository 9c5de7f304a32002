package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The method `preview` makes db-01 do a noop run that finds these resources out of sync.
func (f *fenced) preview(found ...string) {
	f.t.Helper()
	f.reports(tutti.ModeNoop, "same", tutti.Unchanged, nil, found...)
}

// The method `reports` starts a job for db-01, with or without tags, and sends the result of the job's run. The
// digest of the catalog is the digest of the text `catalog`.
func (f *fenced) reports(mode tutti.Mode, catalog string, outcome tutti.Outcome, tags []string, found ...string) {
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
	result := servertest.Result(order.Run, outcome)
	result.Phase = "apply"
	f.report(order.Run, result, found...)
}

// The method `breaks` starts a converge job in which the run of db-01 fails before its gate and changes nothing.
func (f *fenced) breaks(mode tutti.Mode, reason tutti.Reason) {
	f.t.Helper()
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Mode: mode, Converge: &tutti.ConvergeStep{Prove: true}})
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() {
		if said := f.Job(job).Message; reason != tutti.BecauseMachinery && !strings.Contains(said, "no such class") {
			f.t.Errorf("the job says %q: want how its run failed", said)
		}
	}()
	result := servertest.Result(f.claim().Run, tutti.Failed)
	result.Reason, result.Message, result.Phase = reason, "no such class", "compile"
	if err := handOver(f.t, f.db, wire.Ended{Result: result}, 0); err != nil {
		f.t.Fatal(err)
	}
}

// The method `report` ends a run with a report. In the report these resources are out of sync and were not changed.
func (f *fenced) report(run tutti.RunID, result tutti.Result, found ...string) {
	f.t.Helper()
	ended := enclosing(run, `{"resource_statuses": {}}`, "log")
	result.Report, result.Log = ended.Report, ended.Log
	for _, resource := range found {
		result.Changes = append(result.Changes, tutti.Change{Resource: resource, Message: "content changed"})
	}
	result.Changes = result.Changes[:min(len(result.Changes), tutti.MaxFailures)]
	result.Counts.OutOfSync = len(found)
	ended.Result = result
	if err := handOver(f.t, f.db, ended, 0); err != nil {
		f.t.Fatal(err)
	}
}

// TestANoopRunThatFoundSomething checks a noop run with the present code and the present answers. This run finds
// resources out of sync. The node of such a run is not good, and a proof does not change that. Resources that the
// last full run left out of sync on purpose (noop => true) do not count.
func TestANoopRunThatFoundSomething(t *testing.T) {
	const file, kept = "File[/x]", "File[/kept]"
	for _, tc := range []struct {
		reason string
		after  func(f *fenced)
		want   string // a part of the reason
	}{
		{"it found nothing", func(f *fenced) { f.preview() }, "good: "},
		{"it found a change", func(f *fenced) { f.preview(kept, file) }, "has found that File[/x] is not as the code says"},
		{"it found what is noop by itself", func(f *fenced) { f.preview(kept) }, "good: "},
		{"it found a message", func(f *fenced) { f.preview("Notify[hello]") }, "good: "},
		{"a later one found nothing", func(f *fenced) { f.preview(file); f.preview() }, "good: "},
		{"it had other code, which was taken back", func(f *fenced) {
			f.PushSite("# other")
			f.reports(tutti.ModeNoop, "other", tutti.Unchanged, nil, file)
			f.Push(oneNode)
		}, "good: "},
		{"a later one had other code, which was taken back", func(f *fenced) {
			f.preview(file)
			f.PushSite("# other")
			f.reports(tutti.ModeNoop, "other", tutti.Unchanged, nil)
			f.Push(oneNode)
		}, "has found that File[/x] is not as the code says"},
		{"many later ones had other codes, and the first comes back", func(f *fenced) {
			f.preview(file)
			for i := range 6 {
				f.PushSite(fmt.Sprintf("# other %d", i))
				f.reports(tutti.ModeNoop, fmt.Sprint("other", i), tutti.Unchanged, nil)
			}
			f.Push(oneNode)
		}, "has found that File[/x] is not as the code says"},
		{"after one with other code, a later one found nothing", func(f *fenced) {
			f.preview(file)
			f.PushSite("# other")
			f.reports(tutti.ModeNoop, "other", tutti.Unchanged, nil)
			f.Push(oneNode)
			f.preview()
		}, "good: "},
		{"a later one with tags found nothing", func(f *fenced) {
			f.preview(file)
			f.reports(tutti.ModeNoop, "same", tutti.Unchanged, []string{"part"})
		}, "File[/x] is not as the code says"},
		{"a part was applied", func(f *fenced) {
			f.preview(file)
			f.reports(tutti.ModeApply, "same", tutti.Unchanged, []string{"part"})
		}, "File[/x] is not as the code says"},
		{"a later one was cut off", func(f *fenced) { f.preview(file); f.reports(tutti.ModeNoop, "same", tutti.Interrupted, nil) },
			"File[/x] is not as the code says"},
		{"unrelated code was pushed", func(f *fenced) { f.preview(file); f.PushSite("# a comment") }, "File[/x] is not as the code says"},
		{"behind a proof it found what is noop by itself", func(f *fenced) { f.PushSite("# c"); f.prove(); f.preview(kept) }, "good: "},
		{"behind a proof it found a change", func(f *fenced) { f.PushSite("# c"); f.prove(); f.preview(kept, file) }, "File[/x] is not as the code says"},
		{"it did not compile", func(f *fenced) { f.breaks(tutti.ModeNoop, tutti.BecauseCompile) }, "has shown that a run fails now: failed:compile: no such class"},
		{"nor did a compile", func(f *fenced) { f.breaks(tutti.ModeCompile, tutti.BecauseCompile) }, "has shown that a run fails now: failed:compile: no such class"},
		{"it was refused", func(f *fenced) { f.breaks(tutti.ModeNoop, tutti.BecauseRefused) }, "has shown that a run fails now: failed:refused"},
		{"the disk was full", func(f *fenced) { f.breaks(tutti.ModeNoop, tutti.BecauseMachinery) }, "good: "},
		{"it failed, and a later one was cut off", func(f *fenced) {
			f.breaks(tutti.ModeNoop, tutti.BecauseCompile)
			f.reports(tutti.ModeNoop, "same", tutti.Interrupted, nil)
		}, "failed:compile"},
		{"it failed, and a later one found nothing", func(f *fenced) { f.breaks(tutti.ModeNoop, tutti.BecauseCompile); f.preview() }, "good: "},
		{"it failed, and a proof compiled", func(f *fenced) {
			f.breaks(tutti.ModeNoop, tutti.BecauseCompile)
			f.PushSite("# c")
			f.prove()
		}, "good: "},
		{"it failed with other code, which was taken back", func(f *fenced) {
			f.PushSite("# other")
			f.breaks(tutti.ModeNoop, tutti.BecauseCompile)
			f.Push(oneNode)
		}, "good: "},
		{"it found more than a result names", func(f *fenced) {
			var many []string
			for i := range tutti.MaxFailures + 1 {
				many = append(many, fmt.Sprintf("Notify[%d]", i))
			}
			f.preview(many...)
		}, "21 resources are not as the code says"},
	} {
		f := newFenced(t)
		f.converge()
		order := f.claim()
		f.db.Gate(full(order.Run))
		f.report(order.Run, servertest.Result(order.Run, tutti.Changed), kept)
		tc.after(f)
		check := func(when string) { t.Helper(); f.wantWhy(tc.reason+", "+when, tc.want) }
		check("at once")
		f.restart()
		check("after a start")
		if tc.want != "good: " {
			f.applies(tc.reason, tc.want)
		}
	}
}

// TestACompileDoesNotUndoWhatANoopRunFound checks two pushes. The second push restores the first code. A compile with
// this code gives the catalog of the last full run, but the node is still not good.
func TestACompileDoesNotUndoWhatANoopRunFound(t *testing.T) {
	f := newFenced(t)
	f.pass()
	f.PushSite("# other")
	f.preview("File[/x]")
	f.converge()
	order := f.claim()
	f.db.Gate(full(order.Run))
	if gated := f.db.Gate(full(order.Run)); gated.Verdict != tutti.GateGo {
		t.Errorf("the gate says %+v: want it to go", gated)
	}
}

// TestASnapshotKeepsWhatANoopRunFound checks that a snapshot keeps what a noop run found, and the resources that the
// last full run left out of sync. The snapshot must keep this data even if the jobs are retired.
func TestASnapshotKeepsWhatANoopRunFound(t *testing.T) {
	f := newFenced(t)
	f.converge()
	order := f.claim()
	f.db.Gate(full(order.Run))
	f.report(order.Run, servertest.Result(order.Run, tutti.Changed), "File[/kept]")
	f.PushSite("# two")
	f.prove()
	f.preview("File[/kept]", "File[/x]")
	f.reports(tutti.ModeApply, "same", tutti.Unchanged, []string{"part"})
	f.restart(func(o *server.Options) { o.Keep = engine.Keep{Jobs: 1, Runs: 1} })
	for range 2 {
		f.reports(tutti.ModeApply, "same", tutti.Unchanged, []string{"part"})
	}
	if why := f.why(); !strings.Contains(why, "File[/x] is not as the code says") {
		t.Errorf("after its job was retired: %s", why)
	}
	events := f.Events()
	if err := server.Hydrate(f.Blobs, events); err != nil {
		t.Fatal(err)
	}
	if diff := server.Fold(events).Diff(server.Fold(needed(events)), events[len(events)-1].At); diff != "" {
		t.Errorf("-whole +from a snapshot\n%s", diff)
	}
}

// TestAnOlderJobTakesNoCodeBack checks a job that goes on while another job brings newer code to one of the first
// job's nodes. The first job must not run this node again with the older code.
func TestAnOlderJobTakesNoCodeBack(t *testing.T) {
	f := servertest.Start(t)
	db, web := f.Join("db-01"), f.Join("web-01")
	f.Push("fleet: test\ngroups:\n  db: {nodes: [db-01]}\n  web: {nodes: [web-01]}\n")
	older := startConverge(t, f, "")
	of := map[*servertest.Node]tutti.Order{db: db.MustClaim(), web: web.MustClaim()}
	for range 2 {
		for n, order := range of {
			n.Gate(full(order.Run))
		}
	}
	db.Finish(of[db].Run)
	pushed := f.PushSite("# newer")
	newer := startConverge(t, f, "db")
	order := db.MustClaim()
	if order.Code != pushed.Code {
		t.Fatalf("the run has code %s, want the newer one", order.Code)
	}
	gate := full(order.Run)
	gate.Catalog = tutti.DigestOf([]byte("newer"))
	db.Gate(gate)
	db.Gate(gate)
	db.Finish(order.Run)
	wantVerdict(t, f, newer, tutti.VerdictConverged)
	if again := db.Claim(); again != nil {
		t.Errorf("the older job runs it again: %+v", again)
	}
	web.Finish(of[web].Run)
	wantVerdict(t, f, older, tutti.VerdictConverged)
}

// TestANoopRunOfAnotherEnvironment checks that a noop run of another environment does not change whether the node is
// good.
func TestANoopRunOfAnotherEnvironment(t *testing.T) {
	f := &fenced{Fleet: servertest.Start(t), t: t}
	f.db = f.Join("db-01")
	f.db.Agent = wire.Claim{Version: "now", Knows: tutti.Capabilities(), Begun: &tutti.Fence{}}
	setFleet(t, f.Fleet, agentFleet)
	run := func(mode tutti.Mode, environment string, found ...string) {
		t.Helper()
		_, err := f.StartJob(servertest.Operator(), api.StartJob{Mode: mode, Runs: &api.NodeRuns{
			Nodes: []tutti.NodeName{"db-01"}, RunOptions: tutti.RunOptions{Environment: environment},
		}})
		if err != nil {
			t.Fatal(err)
		}
		order := f.claim()
		gate := full(order.Run)
		gate.Catalog = tutti.DigestOf([]byte("of " + environment))
		f.db.Gate(gate)
		result := servertest.Result(order.Run, tutti.Unchanged)
		result.Phase = "apply"
		f.report(order.Run, result, found...)
	}
	run(tutti.ModeApply, "")
	run(tutti.ModeNoop, "staging", "File[/only-staging]")
	f.wantWhy("staging is not as its code says", "good: ")
	run(tutti.ModeNoop, "", "File[/x]")
	f.wantWhy("a resource is not as the code says", "File[/x]")
	run(tutti.ModeNoop, "staging")
	f.wantWhy("staging is as its code says", "File[/x]")
}
