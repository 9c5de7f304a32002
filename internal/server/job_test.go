package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

func TestWhatCannotStart(t *testing.T) {
	fleet := func(f *servertest.Fleet) { f.Push(twoSteps) }
	fleetOnly := func(f *servertest.Fleet) {
		if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(twoSteps)}); err != nil {
			panic(err)
		}
	}
	join := func(names ...tutti.NodeName) func(*servertest.Fleet) {
		return func(f *servertest.Fleet) {
			fleet(f)
			for _, n := range names {
				f.Join(n)
			}
		}
	}
	good := api.StartJob{Plan: "deploy", Mode: tutti.ModeApply}
	cases := map[string]struct {
		before func(*servertest.Fleet)
		in     api.StartJob
		code   tutti.Code
		says   string
	}{
		"all there":     {join("db-01", "web-01", "web-02"), good, "", ""},
		"no fleet file": {func(*servertest.Fleet) {}, good, tutti.CodeNotFound, "tutti code push"},
		"no code": {func(f *servertest.Fleet) {
			for _, n := range []tutti.NodeName{"db-01", "web-01", "web-02"} {
				f.Join(n)
			}
			fleetOnly(f)
		}, good, tutti.CodeNotFound, "no code was pushed"},
		"no such plan":   {fleet, api.StartJob{Plan: "deplyo", Mode: tutti.ModeApply}, tutti.CodeNotFound, "it has: deploy"},
		"not joined":     {join("web-02"), good, tutti.CodeConflict, "not joined: db-01, web-01"},
		"no mode":        {fleet, api.StartJob{Plan: "deploy"}, tutti.CodeInvalid, "mode"},
		"compile":        {fleet, api.StartJob{Plan: "deploy", Mode: tutti.ModeCompile}, tutti.CodeInvalid, "mode"},
		"a book of tags": {join("db-01"), api.StartJob{Runs: &api.NodeRuns{Nodes: []tutti.NodeName{"db-01"}, RunOptions: tutti.RunOptions{Tags: slices.Repeat([]string{"t"}, 101)}}, Mode: tutti.ModeNoop}, tutti.CodeInvalid, "101 tags"},
		"a limit":        {fleet, api.StartJob{Converge: &tutti.ConvergeStep{Limit: -1}, Mode: tutti.ModeNoop}, tutti.CodeInvalid, "below 0"},
		"a reaction":     {fleet, api.StartJob{Converge: &tutti.ConvergeStep{Reaction: true}, Mode: tutti.ModeNoop}, tutti.CodeInvalid, "reaction: only the server"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := servertest.Start(t)
			tc.before(f)
			n := len(f.Events())
			job, err := f.StartJob(servertest.Operator(), tc.in)
			wantCode(t, err, tc.code, tc.says)
			if err != nil && (job != "" || len(f.Since(n)) != 0) {
				t.Errorf("job %q, appended %v: want nothing", job, f.Since(n))
			}
		})
	}
}

func TestAJobToItsEnd(t *testing.T) {
	f, job, order := started(t, tutti.ModeApply)
	if job != "deploy-1" || f.Job("deploy-1").By != "operator:ada" {
		t.Errorf("job %q by %q", job, f.Job(job).By)
	}
	f.db.Gate(wire.Gate{Run: order.Run})
	f.db.Finish(order.Run)
	f.web1.Pass()
	last := f.web2.MustClaim()
	f.web2.Gate(wire.Gate{Run: last.Run})
	if err := f.web2.Call(wire.OpResult, servertest.Result(last.Run, tutti.Failed), nil); err != nil {
		t.Fatal(err)
	}
	got := f.Job(job)
	if got.Verdict != tutti.VerdictFailed || got.Runs != 3 || got.Failed != 1 || !strings.Contains(got.Message, "web") {
		t.Errorf("job %+v, want failed with one of three runs, by step web", got)
	}
	rings := map[tutti.NodeKey]int{}
	for _, r := range f.Bus.Rung() {
		rings[r.Key]++
	}
	if want := map[tutti.NodeKey]int{f.db.Key: 1, f.web1.Key: 2, f.web2.Key: 2}; !cmp.Equal(want, rings) {
		t.Errorf("doorbells %v, want one for each run, and one more for those whose turn came later", rings)
	}
}

func TestCancel(t *testing.T) {
	cancel := func(f fixture, now bool) error {
		return f.CancelJob(servertest.Operator(), api.CancelJob{Job: "deploy-1", Reason: "lunch", Now: now})
	}
	t.Run("what applies ends by itself", func(t *testing.T) {
		f, job, order := started(t, tutti.ModeApply)
		f.db.Gate(wire.Gate{Run: order.Run})
		n := len(f.Bus.Rung())
		if err := cancel(f, false); err != nil {
			t.Fatal(err)
		}
		wantVerdict(t, f.Fleet, job, "")
		f.db.Finish(order.Run)
		wantVerdict(t, f.Fleet, job, tutti.VerdictCancelled)
		if got := f.Bus.Rung()[n:]; len(got) != 0 {
			t.Errorf("rang %v, want nobody", got)
		}
		wantCode(t, cancel(f, false), tutti.CodeConflict, "has ended: cancelled")
	})
	t.Run("what compiles is stopped", func(t *testing.T) {
		f, job, order := started(t, tutti.ModeApply)
		if err := cancel(f, false); err != nil {
			t.Fatal(err)
		}
		if got := f.db.Gate(wire.Gate{Run: order.Run}); got.Verdict != tutti.GateStop || got.Reason != "the job was cancelled" {
			t.Errorf("gate %+v, want a stop", got)
		}
		stopped := servertest.Result(order.Run, "")
		stopped.Stopped = true
		if err := f.db.Call(wire.OpResult, stopped, nil); err != nil {
			t.Fatal(err)
		}
		wantVerdict(t, f.Fleet, job, tutti.VerdictCancelled)
	})
	t.Run("the reason is a line", func(t *testing.T) {
		f := newFixture(t)
		f.Start("deploy", tutti.ModeApply)
		n := len(f.Events())
		if err := f.CancelJob(servertest.Operator(), api.CancelJob{Job: "deploy-1", Reason: "x\x1b[2J\n99  operator:ada"}); err != nil {
			t.Fatal(err)
		}
		if got := f.Events()[n].Body.(*tutti.JobCancelled).Reason; got != "x\uFFFD[2J 99 operator:ada" {
			t.Errorf("the reason is %q", got)
		}
	})
	t.Run("what nobody claimed never begins", func(t *testing.T) {
		f := newFixture(t)
		job := f.Start("deploy", tutti.ModeApply)
		if err := cancel(f, false); err != nil {
			t.Fatal(err)
		}
		wantVerdict(t, f.Fleet, job, tutti.VerdictCancelled)
		if o := f.db.Claim(); o != nil {
			t.Errorf("claimed %+v of a cancelled job", o)
		}
	})
	t.Run("now", func(t *testing.T) {
		f, _, order := started(t, tutti.ModeApply)
		if err := cancel(f, true); err != nil {
			t.Fatal(err)
		}
		rung := f.Bus.Rung()
		want := servertest.Ring{Key: f.db.Key, Op: wire.RingCancel, Run: order.Run}
		if last := rung[len(rung)-1]; last != want {
			t.Errorf("rang %+v, want %+v", last, want)
		}
	})
	t.Run("no such job", func(t *testing.T) {
		wantCode(t, cancel(newFixture(t), false), tutti.CodeNotFound, "tutti job list")
	})
}

func TestARecordIsFoundByItsRun(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	_, err := f.RunRecord(servertest.Operator(), order.Run)
	wantCode(t, err, tutti.CodeNotFound, "no record")
	record := tutti.Record{Run: order.Run, Node: "db-01", Reads: []tutti.Read{{Query: asksShared}}}
	raw, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Handle(t.Context(), f.db.Key, wire.OpBlobPut, raw); err != nil {
		t.Fatal(err)
	}
	result := servertest.Result(order.Run, tutti.Changed)
	result.Record = tutti.DigestOf(raw)
	if err := f.db.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
	got, err := f.RunRecord(servertest.Operator(), order.Run)
	if err != nil || !cmp.Equal(record, got) {
		t.Errorf("record %+v, %v, want %+v", got, err, record)
	}
}

// The function `watch` returns everything that a watcher receives, and calls the function `told`
// after each item.
func watch(ctx context.Context, f *servertest.Fleet, in api.WatchJob, told func(api.Watched)) ([]api.Watched, error) {
	var out []api.Watched
	err := f.WatchJob(ctx, in, func(w api.Watched) error {
		out = append(out, w)
		if told != nil {
			told(w)
		}
		return nil
	})
	return out, err
}

func TestAWatcherMissesNothing(t *testing.T) {
	f, job, order := started(t, tutti.ModeApply)
	f.Start("deploy", tutti.ModeNoop) // another job, whose events the watcher does not want
	steps := map[string]func(){       // what the nodes do when the watcher has seen the first event of this kind
		"run.claimed": func() { f.db.Gate(wire.Gate{Run: order.Run}) },
		"run.gated":   func() { f.db.Finish(order.Run) },
		"run.finished": func() {
			f.web1.Pass()
			f.web2.Pass()
		},
	}
	var pending []func()
	got, err := watch(t.Context(), f.Fleet, api.WatchJob{Job: job, Follow: true}, func(w api.Watched) {
		if w.Event == nil {
			return
		}
		if do := steps[w.Event.Body.Kind()]; do != nil {
			delete(steps, w.Event.Body.Kind())
			pending = append(pending, do)
		}
		for _, do := range pending {
			do()
		}
		pending = nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, w := range got {
		if w.Event != nil {
			kinds = append(kinds, w.Event.Body.Kind())
		}
	}
	want := []string{
		"job.started", "run.wanted", "run.claimed", "run.compiled", "run.gated", "run.finished", "run.wanted", "run.wanted",
		"run.claimed", "run.compiled", "run.gated", "run.finished", "run.claimed", "run.compiled", "run.gated", "run.finished", "job.finished",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if again, err := watch(t.Context(), f.Fleet, api.WatchJob{Job: job}, nil); err != nil || len(again) != len(want) {
		t.Errorf("asked again: %d events, %v, want the same %d", len(again), err, len(want))
	}
}

func TestAWatcherSeesWhatHappensInRuns(t *testing.T) {
	f, job, order := started(t, tutti.ModeApply)
	done := errors.New("seen")
	err := f.WatchJob(t.Context(), api.WatchJob{Job: job, Follow: true}, func(w api.Watched) error {
		switch {
		case w.Event != nil && w.Event.Body.Kind() == "run.claimed":
			return f.db.Call(wire.OpLive, []tutti.Live{{Run: order.Run, Node: "web-01", Resource: "File[/x]"}}, nil)
		case w.Live != nil:
			if w.Live.Node != "db-01" || w.Live.Resource != "File[/x]" {
				t.Errorf("live %+v, want the resource, of the node that said it", w.Live)
			}
			return done
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Errorf("watch ended with %v", err)
	}
}

func TestAWatchThatBreaksOffIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		f.Join("db-01")
		f.Join("web-01")
		f.Join("web-02")
		f.Push(twoSteps)
		job := f.Start("deploy", tutti.ModeApply)
		for _, tc := range []struct {
			name string
			end  func(context.CancelFunc)
		}{
			{"the connection ends", func(cancel context.CancelFunc) { cancel() }},
			{"the server ends", func(context.CancelFunc) { _ = f.Stop() }},
		} {
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error)
			go func() {
				_, err := watch(ctx, f, api.WatchJob{Job: job, Follow: true}, nil)
				ended <- err
			}()
			synctest.Wait()
			tc.end(cancel)
			if err := <-ended; tutti.CodeOf(err) != tutti.CodeUnavailable {
				t.Errorf("%s: %v, want unavailable: the watcher is to come back", tc.name, err)
			}
			cancel()
		}
		_, err := watch(context.Background(), f, api.WatchJob{Job: job}, nil)
		wantCode(t, err, tutti.CodeUnavailable, "")
	})
}

func TestASilentNodesRunIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		db := f.Join("db-01")
		f.Join("web-01")
		f.Join("web-02")
		f.Push(twoSteps)
		job := f.Start("deploy", tutti.ModeApply)
		order := db.MustClaim()
		db.Gate(wire.Gate{Run: order.Run})
		for range 3 { // the node beats, so it counts as connected
			time.Sleep(20 * time.Second)
			if err := db.Call(wire.OpBeat, wire.Beat{}, nil); err != nil {
				t.Fatal(err)
			}
		}
		wantVerdict(t, f, job, "")
		// A server that has just started waits for the whole deadline before it gives up a node.
		f = f.Restart()
		db.Fleet = f
		time.Sleep(29 * time.Second)
		wantVerdict(t, f, job, "")
		time.Sleep(2 * time.Second)
		wantVerdict(t, f, job, tutti.VerdictFailed)
		if err := db.Publish(order.Run, "db/x", "1"); err != nil {
			t.Errorf("what it published while it was cut off: %v", err)
		}
		n := len(f.Events())
		if err := db.Call(wire.OpResult, servertest.Result(order.Run, tutti.Failed), nil); err != nil {
			t.Errorf("the result that comes late: %v", err)
		}
		if diff := cmp.Diff([]string{"run.finished"}, f.Since(n)); diff != "" {
			t.Errorf("it is the node's record still: -want +got\n%s", diff)
		}
		nodes, err := f.ListNodes(servertest.Operator())
		if err != nil || nodes[0].Node != "db-01" || nodes[0].Outcome != tutti.Failed || !strings.Contains(nodes[0].Message, "the result came later") {
			t.Errorf("%+v, %v: want how the run of db-01 ended, though that came late", nodes, err)
		}
		wantVerdict(t, f, job, tutti.VerdictFailed)
		told := 0
		err = f.WatchJob(servertest.Operator(), api.WatchJob{Job: job}, func(w api.Watched) error {
			if b, ok := w.Event.Body.(*tutti.RunFinished); ok && b.Result.Run == order.Run {
				told++
			}
			return nil
		})
		if err != nil || told != 1 {
			t.Errorf("who looks at the job afterwards is told %d results of the run, %v, want one", told, err)
		}
	})
}

// If a good result arrives after the server has given up the run, the server still accepts
// it. The server also withdraws the values that the catalog no longer declares.
func TestALateResultWithdrawsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		db := f.Join("db-01")
		f.Join("web-01")
		f.Join("web-02")
		f.Push(twoSteps)
		f.Start("deploy", tutti.ModeApply)
		first := db.MustClaim()
		db.Gate(wire.Gate{Run: first.Run, CatalogReport: tutti.CatalogReport{Values: []string{"db/x"}}})
		if err := db.Publish(first.Run, "db/x", "1"); err != nil {
			t.Fatal(err)
		}
		db.Finish(first.Run)
		job := f.Start("deploy", tutti.ModeApply)
		second := db.MustClaim()
		db.Gate(wire.Gate{Run: second.Run})
		time.Sleep(time.Minute)
		wantVerdict(t, f, job, tutti.VerdictFailed)
		n := len(f.Events())
		if err := db.Call(wire.OpResult, servertest.Result(second.Run, tutti.Changed), nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"value.unset", "run.finished"}, f.Since(n)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	})
}
