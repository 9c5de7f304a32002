package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `foreign` returns a foreign run and its report. Each number `i` gives another run. All these runs
// start after the runs of servertest.Result. A run with a larger number starts later.
func foreign(i int, outcome tutti.Outcome, change ...func(*tutti.Foreign)) (tutti.Foreign, []byte) {
	report := fmt.Appendf(nil, `{"status": %q, "puppet_version": "8.10.0", "logs": [{"level": "err", "message": "foreign %d"}]}`, outcome, i)
	result := servertest.Result(tutti.RunID(fmt.Sprintf("f0000000-0000-4000-8000-%012d", i)), outcome)
	result.StartedAt, result.EndedAt = result.StartedAt.Add(time.Duration(i)*time.Minute), result.EndedAt.Add(time.Duration(i)*time.Minute)
	result.Report = tutti.DigestOf(report)
	f := tutti.Foreign{Result: result, Environment: "production", Puppet: "8.10.0"}
	for _, c := range change {
		c(&f)
	}
	return f, report
}

func whole(f *tutti.Foreign) { f.Whole = true }

// The function `tell` makes a node report a foreign run.
func tell(t testing.TB, n *servertest.Node, f tutti.Foreign, report []byte) error {
	t.Helper()
	message, err := wire.EncodeForeign(f, report)
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Fleet.Handle(servertest.Operator(), n.Key, wire.OpForeign, message)
	return err
}

func mustTell(t testing.TB, n *servertest.Node, f tutti.Foreign, report []byte) {
	t.Helper()
	if err := tell(t, n, f, report); err != nil {
		t.Fatal(err)
	}
}

// TestAForeignRunIsTheLastOne checks that the details of the node and of the run show the foreign
// run, before and after a restart. After a later run of Tutti, the details show that run instead.
func TestAForeignRunIsTheLastOne(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	setFleet(t, f, agentFleet)
	mine := func(i int, outcome tutti.Outcome) {
		t.Helper()
		f.Start("puppet", tutti.ModeApply)
		run := db.MustClaim().Run
		db.Gate(wire.Gate{Run: run})
		result := servertest.Result(run, outcome)
		result.StartedAt, result.EndedAt = result.StartedAt.Add(time.Duration(i)*time.Minute), result.EndedAt.Add(time.Duration(i)*time.Minute)
		if err := db.Call(wire.OpResult, result, nil); err != nil {
			t.Fatal(err)
		}
	}
	setFleet(t, f, strings.Replace(agentFleet, "  apply:", "  puppet: {steps: [{run: db}]}\n  apply:", 1))
	mine(1, tutti.Changed)
	one, report := foreign(2, tutti.Failed, func(f *tutti.Foreign) { f.Result.Message = "1 resource failed" })
	mustTell(t, db, one, report)
	mustTell(t, db, one, report) // the node sends the report again, as after a lost answer
	check := func(f *servertest.Fleet) {
		t.Helper()
		ctx := servertest.Operator()
		n, err := f.ShowNode(ctx, "db-01")
		if err != nil {
			t.Fatal(err)
		}
		want := "foreign run " + string(one.Result.Run) + ": failed:resources: 1 resource failed"
		if !n.Foreign || n.LastRun != one.Result.Run || n.Outcome != tutti.Failed || n.LastJob != "" || !n.RunAt.Equal(one.Result.StartedAt) {
			t.Errorf("node %+v", n.NodeView)
		}
		if st := n.Standing; st.State != api.NodeFailed || st.Why != want || st.Run == nil || !st.Run.Foreign || st.Needs != "apply" {
			t.Errorf("it stands %+v", st)
		}
		run, err := f.RunReport(ctx, "db-01")
		if err != nil || !run.Foreign || run.Report == nil || run.Report.Status != "failed" || run.Environment != "production" || run.Puppet != "8.10.0" || run.Job != "" {
			t.Errorf("run %+v, %v", run, err)
		}
		var log []string
		err = f.RunLog(ctx, one.Result.Run, func(l api.LogLine) error { log = append(log, l.Message); return nil })
		if diff := cmp.Diff([]string{"foreign 2"}, log); diff != "" || err != nil {
			t.Errorf("log: %v, -want +got\n%s", err, diff)
		}
		kinds := 0
		for _, e := range f.Events() {
			if e.Body.Kind() == "run.foreign" {
				kinds++
			}
		}
		if kinds != 1 {
			t.Errorf("it is in the log %d times", kinds)
		}
	}
	check(f)
	_ = f.Stop()
	f = servertest.Resume(t, f.Log, f.Blobs)
	check(f)
	db = f.Node("db-01")
	mine(3, tutti.Unchanged)
	n, err := f.ShowNode(servertest.Operator(), "db-01")
	if err != nil || n.Foreign || n.LastJob != "puppet-2" || n.Standing.State != api.NodeGood {
		t.Errorf("after ours: %+v, %v", n, err)
	}
}

// TestALocalRun checks that people see a local run as a run that no server ordered. TestALocalRun checks runs with
// and without a report, and with each outcome.
func TestALocalRun(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	setFleet(t, f, "fleet: test\ngroups: {db: {nodes: [db-01]}}\n")
	local := &tutti.Local{Safety: true, Away: true, Code: tutti.DigestOf([]byte("code"))}
	waiting, _ := foreign(1, tutti.Waiting, func(f *tutti.Foreign) {
		f.Local, f.Result.Report = local, ""
		f.Result.Waits = []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryValue, Key: "db/x"}}}
	})
	mustTell(t, db, waiting, nil)
	n, err := f.ShowNode(servertest.Operator(), "db-01")
	if err != nil || n.LastRun != waiting.Result.Run || n.Outcome != tutti.Waiting || n.Local == nil || !n.Local.Safety {
		t.Errorf("node %+v, %v", n.NodeView, err)
	}
	r, err := f.RunReport(servertest.Operator(), string(waiting.Result.Run))
	if err != nil || r.Local == nil || r.Missing == nil || r.Missing.Why != api.ReportNotSent {
		t.Errorf("run %+v, %v", r, err)
	}
	for _, spoil := range []func(f *tutti.Foreign){
		func(f *tutti.Foreign) { f.Local = nil },
		func(f *tutti.Foreign) { f.Whole = true },
		func(f *tutti.Foreign) { f.Result.Stopped = true },
		func(f *tutti.Foreign) { f.Local = &tutti.Local{As: "no id"} },
		func(f *tutti.Foreign) { f.Local = &tutti.Local{Code: "no digest"} },
		func(f *tutti.Foreign) { f.Local = &tutti.Local{Unpublished: []string{"no key\n"}} },
		func(f *tutti.Foreign) { f.Local = &tutti.Local{Unpublished: slices.Repeat([]string{"db/x"}, 21)} },
	} {
		bad, _ := foreign(2, tutti.Failed, func(f *tutti.Foreign) { f.Local, f.Result.Report = local, "" }, spoil)
		wantCode(t, tell(t, db, bad, nil), tutti.CodeInvalid, "")
	}
}

func TestAForeignRunThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		one, report := foreign(1, tutti.Changed)
		mustTell(t, f.db, one, report)
		f.Start("deploy", tutti.ModeApply)
		order := f.db.MustClaim()
		as := func(i int, change func(*tutti.Foreign)) tutti.Foreign {
			out, _ := foreign(i, tutti.Changed, change)
			return out
		}
		_, second := foreign(2, tutti.Changed)
		future, later := foreign(62, tutti.Unchanged)
		none := func(*tutti.Foreign) {}
		for _, tc := range []struct {
			reason string
			node   *servertest.Node
			run    tutti.Foreign
			report []byte
			code   tutti.Code
			says   string
		}{
			{"the run of another node", f.web1, as(1, none), report, tutti.CodeRefused, "is not a run of node web-01"},
			{"one of ours is none", f.db, as(1, func(f *tutti.Foreign) { f.Result.Run = order.Run }), report, "", ""},
			{"a second at once", f.db, as(2, none), second, tutti.CodeUnavailable, "at most one each 10s"},
			{"not its report", f.web1, as(2, none), report, tutti.CodeConflict, "send it again"},
			{"cut off", f.web1, as(2, none), second[:9], tutti.CodeConflict, "send it again"},
			{"no report", f.web1, as(2, func(f *tutti.Foreign) { f.Result.Report = "" }), nil, tutti.CodeInvalid, "no report"},
			{"no uuid", f.web1, as(2, func(f *tutti.Foreign) { f.Result.Run = "2" }), second, tutti.CodeInvalid, "not a UUID"},
			{"stopped at a gate", f.web1, as(2, func(f *tutti.Foreign) { f.Result.Stopped = true }), second, tutti.CodeInvalid, "it has a gate"},
			{"waiting", f.web1, as(2, func(f *tutti.Foreign) { f.Result.Outcome = tutti.Waiting }), second, tutti.CodeInvalid, "outcome"},
			{"of the future", f.web1, future, later, tutti.CodeInvalid, "began at 2000-01-01T01:02:00Z by the clock of node web-01, but by the server's clock it is only 2000-01-01T00:0"},
			{"lost", f.web1, as(2, func(f *tutti.Foreign) { f.Result.Outcome = tutti.Lost }), second, tutti.CodeInvalid, "outcome"},
		} {
			before := len(f.Events())
			wantCode(t, tell(t, tc.node, tc.run, tc.report), tc.code, tc.says)
			for _, e := range f.Events()[before:] {
				if e.Body.Kind() != "audit.denied" {
					t.Errorf("%s: %s is in the log", tc.reason, e.Body.Kind())
				}
			}
		}
		if r := f.db.Call(wire.OpResult, servertest.Result(one.Result.Run, tutti.Unchanged), nil); tutti.CodeOf(r) != tutti.CodeRefused {
			t.Errorf("a result of a foreign run: %v", r)
		}
		time.Sleep(10 * time.Second)
		run, report := foreign(2, tutti.Changed)
		mustTell(t, f.db, run, report)
		if n, err := f.ShowNode(servertest.Operator(), "db-01"); err != nil || n.Active != order.Run || n.LastRun != run.Result.Run {
			t.Errorf("%+v, %v: want our run to go on", n, err)
		}
		for i := range 10 { // after these runs, all stored foreign runs are later than the run `old`
			time.Sleep(10 * time.Second)
			run, report := foreign(10+i, tutti.Unchanged)
			mustTell(t, f.db, run, report)
		}
		before := len(f.Events())
		old, report := foreign(3, tutti.Unchanged)
		mustTell(t, f.db, old, report)
		if got := f.Since(before); len(got) != 0 {
			t.Errorf("an old one is noted: %v", got)
		}
	})
}

// TestAForeignRunOfTheFutureThatMakesItsNodeWorse: the clock of a node is hours ahead. The server keeps a run that
// changed the node or failed, because without this run the node would count as good.
func TestAForeignRunOfTheFutureThatMakesItsNodeWorse(t *testing.T) {
	changed := func(f *tutti.Foreign) { f.Result.Counts.Changed = 1 }
	unwatched := func(f *tutti.Foreign) { f.Unwatched = true }
	for reason, run := range map[string]func() (tutti.Foreign, []byte){
		"it changed something": func() (tutti.Foreign, []byte) { return foreign(600, tutti.Changed, changed) },
		"it failed":            func() (tutti.Foreign, []byte) { return foreign(600, tutti.Failed) },
		"others ran unseen":    func() (tutti.Foreign, []byte) { return foreign(600, tutti.Unchanged, unwatched) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := servertest.Start(t)
			db := f.Join("db-01")
			one, report := run()
			if err := tell(t, db, one, report); err != nil {
				t.Fatalf("%s: %v", reason, err)
			}
			if n, err := f.ShowNode(servertest.Operator(), "db-01"); err != nil || n.LastRun != one.Result.Run {
				t.Errorf("%s: the last run is %q, %v: want %s", reason, n.LastRun, err, one.Result.Run)
			}
		})
	}
}

// TestAForeignRunAfterTheServersClockWasSetBack checks that the server accepts a new foreign run at
// once. The server must not wait until its clock has again reached the time of the previous run.
func TestAForeignRunAfterTheServersClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		db := f.Join("db-01")
		last := f.Events()[len(f.Events())-1].Seq
		_ = f.Stop()
		one, _ := foreign(1, tutti.Changed)
		told := tutti.Event{At: time.Now().Add(24 * time.Hour), By: "node:db-01", Body: &tutti.RunForeign{Node: db.Name, Foreign: one}}
		if _, err := f.Log.Append(t.Context(), last, []tutti.Event{told}); err != nil {
			t.Fatal(err)
		}
		f = servertest.Resume(t, f.Log, f.Blobs)
		two, report := foreign(2, tutti.Changed)
		mustTell(t, f.Node("db-01"), two, report)
		if n, err := f.ShowNode(servertest.Operator(), "db-01"); err != nil || n.LastRun != two.Result.Run {
			t.Errorf("%+v, %v: want the second", n.NodeView, err)
		}
	})
}

// TestReportsOfForeignRunsAreLetGo checks how long reports of foreign runs stay. They stay as long as their runs, and
// not longer than other reports. Reports of foreign runs do not displace reports of Tutti's runs.
func TestReportsOfForeignRunsAreLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t, func(o *server.Options) {
			o.Keep.Jobs, o.KeepReports = 10, retain.Reports{Most: 1, For: 24 * time.Hour}
		})
		mine := p.reported(t, false)
		for i := range 8 {
			time.Sleep(time.Minute)
			run, report := foreign(i, tutti.Unchanged)
			mustTell(t, p.db, run, report)
		}
		sweep := func(want ...bool) {
			t.Helper()
			time.Sleep(2 * time.Hour)
			if err := p.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []bool
			for i := range 8 {
				_, report := foreign(i, tutti.Unchanged)
				has, err := p.Blobs.Has(t.Context(), tutti.DigestOf(report))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, has)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +kept\n%s", diff)
			}
		}
		sweep(false, false, false, true, true, true, true, true)
		if got := p.kept(t, mine); got != "report log record" {
			t.Errorf("of ours is kept: %s", got)
		}
		time.Sleep(24 * time.Hour)
		sweep(make([]bool, 8)...)
		run, err := p.RunReport(servertest.Operator(), "f0000000-0000-4000-8000-000000000007")
		if err != nil || run.Outcome != tutti.Unchanged || run.Missing == nil || run.Missing.Why != api.ReportNotKept {
			t.Errorf("%+v, %v: want what became of it, and why there is no report", run, err)
		}
		if _, err := p.RunReport(servertest.Operator(), "f0000000-0000-4000-8000-000000000001"); tutti.CodeOf(err) != tutti.CodeNotFound {
			t.Errorf("one that is not kept: %v", err)
		}
		p.wantWhole(t)
	})
}

// TestAForeignRunIsNoInterruption checks that a foreign run does not change a job that waits for its node.
func TestAForeignRunIsNoInterruption(t *testing.T) {
	f, job, order := started(t, tutti.ModeApply)
	run, report := foreign(1, tutti.Failed)
	mustTell(t, f.db, run, report)
	f.db.Gate(wire.Gate{Run: order.Run})
	f.db.Finish(order.Run)
	for _, n := range []*servertest.Node{f.web1, f.web2} {
		o := n.MustClaim()
		n.Gate(wire.Gate{Run: o.Run})
		n.Finish(o.Run)
	}
	wantVerdict(t, f.Fleet, job, tutti.VerdictSucceeded)
}

// TestAForeignRunSpeaksToNoTerminal checks that control characters in a foreign run reach
// no terminal, because a node may lie in every field.
func TestAForeignRunSpeaksToNoTerminal(t *testing.T) {
	const bad = "a\x1b[2J\u009b\u202e"
	f := newFixture(t)
	run, report := foreign(1, tutti.Failed, func(f *tutti.Foreign) {
		f.Environment, f.Puppet, f.Result.Message = bad, bad, bad
		f.Result.Failures = []tutti.Failure{{Resource: bad, File: bad, Message: bad}}
	})
	mustTell(t, f.db, run, report)
	got, err := f.RunReport(servertest.Operator(), string(run.Result.Run))
	node, nodeErr := f.ShowNode(servertest.Operator(), "db-01")
	raw, jsonErr := json.Marshal([]any{got, node})
	if text := fmt.Sprintf("%+v %+v %s", *got.Result, node, raw); err != nil || nodeErr != nil || jsonErr != nil || strings.ContainsAny(text, "\x1b\u009b\u202e") {
		t.Errorf("it speaks to a terminal: %v %q", err, text)
	}
}
