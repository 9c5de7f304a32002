package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The type `tester` is a *testing.T or a *rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// The type `viewer` is a viewer of the fleet that applies the frames that it gets.
type viewer struct {
	views  map[string]string
	cursor string
	seq    uint64
	whole  bool
	resets int
}

var errCut = errors.New("the connection was cut")

// The method `watch` follows the fleet until the function `enough` returns true after a frame.
func (w *viewer) watch(ctx context.Context, f api.Overviews, enough func() bool, want ...string) error {
	err := f.WatchFleet(ctx, api.WatchFleet{Want: want, After: w.cursor}, func(frame api.FleetFrame) error {
		if frame.Reset {
			w.views, w.resets = map[string]string{}, w.resets+1
		}
		for _, item := range frame.Views {
			w.views[item.Key] = string(item.View)
		}
		for _, key := range frame.Gone {
			delete(w.views, key)
		}
		w.cursor, w.seq, w.whole = frame.Cursor, frame.Seq, frame.Whole
		if enough() {
			return errCut
		}
		return nil
	})
	if errors.Is(err, errCut) {
		return nil
	}
	return err
}

// The method `until` follows the fleet until the viewer has everything of an event, and a beat has come after it. The beat
// has what is in no event, such as the connections of the nodes.
func (w *viewer) until(t tester, f api.Overviews, seq uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(servertest.Operator(), time.Minute)
	defer cancel()
	later := time.Now().Add(5 * time.Second)
	if err := w.watch(ctx, f, func() bool { return w.whole && w.seq >= seq && !time.Now().Before(later) }); err != nil {
		t.Fatalf("until event %d: %v", seq, err)
	}
}

// viewsOf returns the views of one kind, by name.
func viewsOf[V any](t tester, w *viewer, kind string) map[string]V {
	t.Helper()
	out := map[string]V{}
	for key, raw := range w.views {
		if of, name, _ := strings.Cut(key, "/"); of == kind {
			var view V
			if err := json.Unmarshal([]byte(raw), &view); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			out[name] = view
		}
	}
	return out
}

// wantViews compares the views of a viewer with the answers of the calls that list nodes, causes and jobs.
func wantViews(t tester, f *servertest.Fleet, w *viewer) {
	t.Helper()
	nodes, err := f.ListNodes(servertest.Operator())
	if err != nil {
		t.Fatalf("%v", err)
	}
	listed, rows := map[string]api.NodeRow{}, viewsOf[api.NodeRow](t, w, api.ViewNode)
	states := map[api.NodeState]int{}
	for _, n := range nodes {
		row := rows[string(n.Node)]
		if n.Stands != api.NodeGood && (n.Why == "" || row.Cause == "") {
			t.Fatalf("node %s is %s without a reason: %q, cause %q", n.Node, n.Stands, n.Why, row.Cause)
		}
		why, err := f.ExplainNode(servertest.Operator(), n.Node)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if st := why.Standing; st.State != n.Stands || st.Why != n.Why || st.State != api.NodeGood && !st.Since.Equal(n.Since) {
			t.Fatalf("node %s: explained %+v; in the list it is %s since %s: %s", n.Node, st, n.Stands, n.Since, n.Why)
		}
		row.State, row.Why, row.Since, row.Groups, row.Connected = n.Stands, n.Why, n.Since, n.Groups, n.Connected
		row.Active, row.LastRun, row.LastJob, row.Outcome, row.RunAt = n.Active, n.LastRun, n.LastJob, n.Outcome, n.RunAt
		listed[string(n.Node)] = row
		states[n.Stands]++
	}
	if diff := cmp.Diff(listed, rows); diff != "" {
		t.Fatalf("nodes (-list +watched):\n%s", diff)
	}
	all, err := f.NodeCauses(servertest.Operator())
	if err != nil {
		t.Fatalf("%v", err)
	}
	causes, caused := viewsOf[api.NodeCause](t, w, api.ViewCause), map[string]int{}
	for _, row := range rows {
		if row.Cause != "" {
			caused[row.Cause]++
		}
	}
	if len(all) != len(causes) || len(caused) != len(causes) {
		t.Fatalf("%d causes listed, %d watched, %d in the rows of nodes", len(all), len(causes), len(caused))
	}
	for _, cause := range all {
		if diff := cmp.Diff(cause, causes[cause.ID]); diff != "" || cause.Text == "" {
			t.Fatalf("cause %s (-listed +watched):\n%s", cause.ID, diff)
		}
		if cause.Nodes != caused[cause.ID] || rows[string(cause.Some[0])].Cause != cause.ID {
			t.Fatalf("cause %+v has %d nodes", cause, caused[cause.ID])
		}
	}
	jobs, err := f.ListJobs(servertest.Operator())
	if err != nil {
		t.Fatalf("%v", err)
	}
	watched := viewsOf[api.JobView](t, w, api.ViewJob)
	if len(jobs) != len(watched) {
		t.Fatalf("%d jobs listed, %d watched", len(jobs), len(watched))
	}
	for _, j := range jobs {
		if diff := cmp.Diff(j, watched[string(j.Job)]); diff != "" {
			t.Fatalf("job %s (-listed +watched):\n%s", j.Job, diff)
		}
	}
	fleet := viewsOf[api.FleetView](t, w, api.ViewFleet)[""]
	if fleet.Nodes != len(nodes) || !maps.Equal(fleet.States, states) && len(states) > 0 {
		t.Fatalf("the fleet has %+v, the list %v", fleet, states)
	}
}

// inBubble runs a function with the clock of synctest. If the function panics, as a *rapid.T does, inBubble panics in the
// goroutine of the caller.
func inBubble(t *testing.T, f func(t *testing.T)) {
	var failed any
	synctest.Test(t, func(t *testing.T) {
		defer func() { failed = recover() }()
		f(t)
	})
	if failed != nil {
		panic(failed)
	}
}

// TestWatchedIsSnapshot checks, for random histories, that a viewer that was cut off at random places has the same views
// as a viewer that has just come, and that these views are what the other calls return. Every node that is not good has
// a reason.
func TestWatchedIsSnapshot(t *testing.T) {
	kept, notGood := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func(t *testing.T) {
			f := servertest.Start(t, func(o *server.Options) {
				o.Keep, o.Logger, o.Silence = engine.Keep{Jobs: 2, Runs: 3}, slog.New(slog.DiscardHandler), time.Hour
			})
			defer func() { _ = f.Stop() }()
			a := &anything{Fleet: f, machines: map[tutti.NodeName]int{}}
			a.join("db-01", time.Hour)
			a.Push(anyFleet)
			old := &viewer{}
			for range rapid.IntRange(1, 6).Draw(rt, "looks") {
				for range rapid.IntRange(0, 8).Draw(rt, "steps") {
					a.step(rt)
				}
				if frames := rapid.IntRange(0, 2).Draw(rt, "frames"); frames > 0 { // then the connection is cut
					ctx, cancel := context.WithTimeout(servertest.Operator(), time.Minute)
					if err := old.watch(ctx, f, func() bool { frames--; return frames == 0 }); err != nil {
						rt.Fatal(err)
					}
					cancel()
				}
			}
			seq := uint64(len(f.Everything()))
			old.until(rt, f, seq)
			fresh := &viewer{}
			fresh.until(rt, f, seq)
			if diff := cmp.Diff(fresh.views, old.views); diff != "" {
				rt.Fatalf("the viewer that came back (-fresh +old):\n%s", diff)
			}
			if old.resets != 1 {
				rt.Fatalf("the viewer began %d times", old.resets)
			}
			wantViews(rt, f, old)
			kept++
			for _, row := range viewsOf[api.NodeRow](rt, old, api.ViewNode) {
				if row.State != api.NodeGood {
					notGood++
				}
			}
		})
	})
	if notGood < kept/2 {
		t.Errorf("%d nodes were not good in %d histories: this test has lost its edge", notGood, kept)
	}
}

// TestASlowViewer checks that a viewer that does not read delays neither other viewers nor writes.
func TestASlowViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		f.Join("db-01")
		f.Push(suiteOf("db-01"))
		ctx, cancel := context.WithCancel(servertest.Operator())
		stuck, ended := make(chan struct{}), make(chan error)
		go func() {
			ended <- f.WatchFleet(ctx, api.WatchFleet{}, func(api.FleetFrame) error {
				close(stuck)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-stuck
		if err := f.SetValue(servertest.Operator(), "shared/x", json.RawMessage("1")); err != nil {
			t.Error(err)
		}
		(&viewer{}).until(t, f, uint64(len(f.Everything())))
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the slow viewer ended with %v", err)
		}
		err := f.WatchFleet(ctx, api.WatchFleet{}, func(api.FleetFrame) error { return nil })
		if tutti.CodeOf(err) != tutti.CodeUnavailable {
			t.Errorf("a stream whose time is over ended with %v, want it unavailable", err)
		}
	})
}

// TestWhatAViewerMaySee checks the verbs of viewers. An operator who may only view gets no texts of nodes. If the verbs
// change, the viewer begins again, or the stream ends.
func TestWhatAViewerMaySee(t *testing.T) {
	const fleet = `
fleet: shop
groups: {db: {nodes: [db-01]}}
plans: {deploy: {steps: [{run: db}]}}
`
	ways := func(may string) string {
		if may == "" {
			return fleet + "access:\n  - {to: ada, may: admin}\n"
		}
		return fleet + "access:\n  - {to: ada, may: admin}\n  - {to: bob, may: " + may + "}\n"
	}
	synctest.Test(t, func(t *testing.T) {
		f := &shop{servertest.Start(t), t}
		f.Join("db-01")
		for _, name := range []string{"ada", "bob"} {
			if err := f.Emit(&tutti.OperatorIssued{Operator: name, Serial: "serial", Expires: time.Now().AddDate(0, 0, 30)}); err != nil {
				t.Fatal(err)
			}
		}
		f.Push(ways("read"))
		set := func(may string) {
			if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(ways(may))}); err != nil {
				t.Error(err)
			}
		}
		f.Start("deploy", tutti.ModeApply)
		failed := servertest.Result(f.Node("db-01").MustClaim().Run, tutti.Failed)
		failed.Message = "the password is hunter2"
		if err := f.Node("db-01").Call(wire.OpResult, failed, nil); err != nil {
			t.Fatal(err)
		}
		bob, cancel := context.WithTimeout(f.as("bob", tutti.VerbView), time.Hour)
		defer cancel()
		w, frames := &viewer{}, 0
		sees := func() bool {
			return strings.Contains(strings.Join(slices.Collect(maps.Values(w.views)), " "), "hunter2")
		}
		var seen []bool
		err := w.watch(bob, f, func() bool {
			if !w.whole {
				return false
			}
			frames++
			seen = append(seen, sees())
			switch frames {
			case 1:
				set("view")
			case 2:
				set("")
			}
			return frames > 2
		})
		if tutti.CodeOf(err) != tutti.CodeRefused {
			t.Errorf("after the verb was taken away: %v, want a refusal", err)
		}
		if diff := cmp.Diff([]bool{true, false}, seen); diff != "" || w.resets != 2 {
			t.Errorf("bob sees the text of the failure (-want +got), %d beginnings, want 2:\n%s", w.resets, diff)
		}
	})
}

// TestWhatDoesNotExistIsNotWatched checks the error for a kind of views that does not exist.
func TestWhatDoesNotExistIsNotWatched(t *testing.T) {
	f := servertest.Start(t)
	err := f.WatchFleet(servertest.Operator(), api.WatchFleet{Want: []string{"nodes"}}, func(api.FleetFrame) error { return nil })
	if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), `"nodes"; there are: fleet, group, cause, node, job`) {
		t.Errorf("%v", err)
	}
}

// causesFleet lets many nodes run one plan and read values.
const causesFleet = `
fleet: shop
environment: {name: production, path: ./code}
groups: {web: {joined: true}}
grants: [{to: web, read: [db/**]}]
plans: {deploy: {steps: [{run: web}]}}
`

// The function `causesOf` starts a fleet with nodes that have read the same two values. The fleet's job has ended.
func causesOf(t *testing.T, nodes int, result func(i int, r *tutti.Result)) *servertest.Fleet {
	t.Helper()
	f := servertest.Start(t)
	name := func(i int) tutti.NodeName { return tutti.NodeName(fmt.Sprintf("web-%04d", i)) }
	f.Push(causesFleet)
	for i := range nodes {
		f.Join(name(i), "web")
	}
	f.Start("deploy", tutti.ModeApply)
	for i := range nodes {
		n := f.Node(name(i))
		o := n.MustClaim()
		var reads []tutti.Read
		for _, key := range []string{"db/port", "db/host"} {
			reads = append(reads, n.Read(o.Run, tutti.Query{Kind: tutti.QueryValue, Key: key}))
		}
		n.Gate(wire.Gate{Run: o.Run, Reads: reads})
		r := servertest.Result(o.Run, tutti.Changed)
		result(i, &r)
		if err := n.Call(wire.OpResult, r, nil); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func allCauses(t *testing.T, f *servertest.Fleet) []api.NodeCause {
	t.Helper()
	out, err := f.NodeCauses(servertest.Operator())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheFirstChangeIsTheCause checks which of several changes is the reason that nodes are stale.
func TestTheFirstChangeIsTheCause(t *testing.T) {
	f := causesOf(t, 3, func(int, *tutti.Result) {})
	if got := allCauses(t, f); len(got) != 0 {
		t.Fatalf("all nodes are good: %+v", got)
	}
	for _, key := range []string{"db/host", "db/port"} { // the nodes asked for the port first
		if err := f.SetValue(servertest.Operator(), key, json.RawMessage("1")); err != nil {
			t.Fatal(err)
		}
	}
	got := allCauses(t, f)
	if len(got) != 1 || got[0].Nodes != 3 || got[0].Kind != api.CauseAnswer || got[0].Key != "db/host" || got[0].By != "operator:ada" || got[0].Change != "value.set" {
		t.Fatalf("want one cause, db/host: %+v", got)
	}
	if got[0].Since.IsZero() || !got[0].Since.Equal(got[0].At) {
		t.Errorf("since %s, and the change was at %s", got[0].Since, got[0].At)
	}
}

// TestCausesAreGrouped checks that nodes with the same failure are one cause, and nodes with another failure are another
// cause. New code makes the good nodes suspect, for one reason.
func TestCausesAreGrouped(t *testing.T) {
	f := causesOf(t, 8, func(i int, r *tutti.Result) {
		if i < 5 {
			r.Outcome, r.Reason, r.Message = tutti.Failed, "resources", "1 resource failed"
			r.Failures = []tutti.Failure{{Resource: "Exec[mkfs]", Message: fmt.Sprintf("no such disk %d", i/4)}}
		}
	})
	if err := f.SetValue(servertest.Operator(), "db/port", json.RawMessage("1")); err != nil {
		t.Fatal(err)
	}
	var stale []string
	for _, c := range allCauses(t, f) {
		stale = append(stale, fmt.Sprintf("%s %s %d", c.State, c.Kind, c.Nodes))
	}
	if diff := cmp.Diff([]string{"stale answer 3", "failed failure 4", "failed failure 1"}, stale); diff != "" {
		t.Errorf("a failed node stays failed for its failure (-want +got):\n%s", diff)
	}
	if err := f.UnsetValue(servertest.Operator(), "db/port"); err != nil {
		t.Fatal(err)
	}
	f.PushSite("notify { 'other': }\n")
	var got []string
	for _, c := range allCauses(t, f) {
		got = append(got, fmt.Sprintf("%s %s %d %s", c.State, c.Kind, c.Nodes, c.Some[0]))
	}
	want := []string{"suspect code 3 web-0005", "failed failure 4 web-0000", "failed failure 1 web-0004"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCausesAreBounded checks that a list has a bounded number of causes. The last one stands for the rest.
func TestCausesAreBounded(t *testing.T) {
	const nodes = api.MaxCauses + 20
	f := causesOf(t, nodes, func(i int, r *tutti.Result) {
		r.Outcome, r.Reason = tutti.Failed, "resources"
		r.Failures = []tutti.Failure{{Resource: "Exec[mkfs]", Message: fmt.Sprintf("no such disk %d", i)}}
	})
	all, sum := allCauses(t, f), 0
	for _, c := range all {
		sum += c.Nodes
		if len(c.Some) > api.MaxSome {
			t.Errorf("%d names in %+v", len(c.Some), c)
		}
	}
	if len(all) != api.MaxCauses+1 || sum != nodes || all[0].Kind != api.CauseMore || all[0].Nodes != 20 {
		t.Errorf("%d causes with %d nodes, the first %+v", len(all), sum, all[0])
	}
}
