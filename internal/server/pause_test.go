package server_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const reactive = `
fleet: test
environment: {name: production, path: ./code}
groups:
  db: {nodes: [db-01]}
  web: {nodes: [web-01, web-02]}
  all: {joined: true}
reactive: true
reaction: {safety: never}
grants:
  - {to: web, read: [db/**]}
plans:
  deploy:
    steps: [{run: web}]
`

func pauseFor(t *testing.T, f *servertest.Fleet, target string, d time.Duration) {
	t.Helper()
	if _, err := f.Pause(servertest.Operator(), api.Pause{Target: target, Reason: "lunch", For: d}); err != nil {
		t.Fatal(err)
	}
}

// The function `pass` lets a node claim a run, read the value of `key` if the key is not empty, pass the gate
// and end the run.
func pass(t *testing.T, n *servertest.Node, key string) tutti.Order {
	t.Helper()
	o := n.MustClaim()
	in := wire.Gate{Run: o.Run}
	if key != "" {
		in.Reads = []tutti.Read{n.Read(o.Run, tutti.Query{Kind: tutti.QueryValue, Key: key})}
	}
	n.Gate(in)
	if got := n.Gate(in); got.Verdict != tutti.GateGo {
		t.Fatalf("%s is told %+v, want go", n.Name, got)
	}
	n.Finish(o.Run)
	return o
}

// The function `idle` waits for the time `d`. The nodes `names` stay connected.
func idle(t *testing.T, f *servertest.Fleet, d time.Duration, names ...tutti.NodeName) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, n := range names {
			if err := f.Node(n).Call(wire.OpBeat, wire.Beat{}, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(min(10*time.Second, time.Until(end)))
	}
	synctest.Wait()
}

// The function `claimants` lets these nodes claim, and returns the nodes that get work.
func claimants(f *servertest.Fleet, names ...tutti.NodeName) []tutti.NodeName {
	var out []tutti.NodeName
	for _, n := range names {
		if f.Node(n).Claimed() != nil {
			out = append(out, n)
		}
	}
	return out
}

// TestPausedNodesAreLeftAlone checks that converging does not run paused nodes. A plan runs paused nodes if a
// person has started the plan.
func TestPausedNodesAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		pauseFor(t, f.Fleet, "web", time.Hour)
		pauseFor(t, f.Fleet, "web-01", time.Minute)
		pauseFor(t, f.Fleet, "web-02", 2*time.Hour)
		in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
		says := []string{
			"web-01 is paused by operator:ada until " + in(time.Hour) + ": lunch",
			"web-02 is paused by operator:ada until " + in(2*time.Hour) + ": lunch",
		}
		job := startConverge(t, f.Fleet, "")
		if diff := cmp.Diff([]tutti.NodeName{"db-01"}, claimants(f.Fleet, "db-01", "web-01", "web-02")); diff != "" {
			t.Errorf("who converges: -want +got\n%s", diff)
		}
		pass(t, f.db, "")
		wantVerdict(t, f.Fleet, job, tutti.VerdictPartial)
		for _, s := range says {
			wantContains(t, f.Job(job).Message, s)
		}

		plan := f.Start("deploy", tutti.ModeApply)
		f.db.Pass()
		f.web1.Pass()
		f.web2.Pass()
		wantVerdict(t, f.Fleet, plan, tutti.VerdictSucceeded)
	})
}

// TestAPauseStopsWhatIsHeld checks a pause during runs. A run that has not passed its gate stops at
// the gate, and a run that has passed its gate goes on to its end.
func TestAPauseStopsWhatIsHeld(t *testing.T) {
	f := orderedFleet(t)
	job := startConverge(t, f, "app") // both-01 and both-02 are first in the order
	runs := map[tutti.NodeName]tutti.RunID{}
	for _, n := range []tutti.NodeName{"app-01", "both-01", "both-02"} {
		runs[n] = f.Node(n).MustClaim().Run
		f.Node(n).Gate(wire.Gate{Run: runs[n]})
	}
	pauseFor(t, f, "app", 0)
	got := map[tutti.NodeName]tutti.GateVerdict{}
	for n, run := range runs {
		got[n] = f.Node(n).Gate(wire.Gate{Run: run}).Verdict
	}
	want := map[tutti.NodeName]tutti.GateVerdict{"app-01": tutti.GateStop, "both-01": tutti.GateGo, "both-02": tutti.GateGo}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	f.Node("both-01").Finish(runs["both-01"])
	f.Node("both-02").Finish(runs["both-02"])
	if err := f.Node("app-01").Call(wire.OpResult, tutti.Result{Run: runs["app-01"], Stopped: true}, nil); err != nil {
		t.Fatal(err)
	}
	wantVerdict(t, f, job, tutti.VerdictPartial)
	wantContains(t, f.Job(job).Message, "app-01 is paused by operator:ada: lunch")
}

// TestAPauseEndsByItself checks that a pause ends without an event, also after a restart. A
// node runs when all its pauses have ended. Changes during the pause are not lost.
func TestAPauseEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		all := []tutti.NodeName{"web-01", "web-02"}
		for _, n := range all {
			f.Join(n, "all")
		}
		f.Push(reactive)
		idle(t, f, 3*time.Second, all...)
		for _, n := range all {
			f.Node(n).MustClaim()
		}
		for _, n := range all { // first both nodes compile, then both pass their gates
			o := f.Node(n).MustClaim()
			f.Node(n).Gate(wire.Gate{Run: o.Run, Reads: []tutti.Read{f.Node(n).Read(o.Run, tutti.Query{Kind: tutti.QueryValue, Key: "db/x"})}})
		}
		for _, n := range all {
			pass(t, f.Node(n), "db/x")
		}
		pauseFor(t, f, "", 10*time.Minute)
		pauseFor(t, f, "all", 20*time.Minute)
		pauseFor(t, f, "web-02", 30*time.Minute)
		if err := f.SetValue(servertest.Operator(), "db/x", json.RawMessage("1")); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		f = f.Restart()
		events := len(f.Events())
		for _, tc := range []struct {
			reason string
			after  time.Duration
			want   []tutti.NodeName
		}{
			{"the fleet's pause holds", 9 * time.Minute, nil},
			{"the group's pause holds longer", 19 * time.Minute, nil},
			{"one has a pause of its own", 20*time.Minute + 5*time.Second, []tutti.NodeName{"web-01"}},
			{"which ends, too", 30*time.Minute + 5*time.Second, []tutti.NodeName{"web-02"}},
		} {
			idle(t, f, tc.after-time.Since(began), all...)
			got := claimants(f, all...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("after %s, %s: -want +got\n%s", tc.after, tc.reason, diff)
			}
			if tc.want == nil && len(f.Events()) != events {
				t.Errorf("after %s: %v happened", tc.after, f.Since(events))
			}
			for _, n := range got {
				pass(t, f.Node(n), "db/x")
			}
		}
		if left, err := f.ListPauses(servertest.Operator()); err != nil || len(left) != 0 {
			t.Errorf("paused: %+v, %v, want nothing", left, err)
		}
		var causes []string
		jobs, err := f.ListJobs(servertest.Operator())
		for _, j := range jobs {
			causes = append(causes, j.Cause)
		}
		if diff := cmp.Diff([]string{"db/x set by ada", "db/x set by ada", "node web-01 joined, node web-02 joined"}, causes); diff != "" || err != nil {
			t.Errorf("why jobs began: %v, -want +got\n%s", err, diff)
		}
	})
}

// TestAPauseGoesWithItsNode checks that a pause ends when its node is removed. A machine
// that joins later under this name is another node.
func TestAPauseGoesWithItsNode(t *testing.T) {
	f := newFixture(t)
	pauseFor(t, f.Fleet, "db-01", 0)
	pauseFor(t, f.Fleet, "web-01", 0)
	if err := f.RemoveNode(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	f.Join("db-01")
	startConverge(t, f.Fleet, "")
	if diff := cmp.Diff([]tutti.NodeName{"db-01", "web-02"}, claimants(f.Fleet, "db-01", "web-01", "web-02")); diff != "" {
		t.Errorf("who converges: -want +got\n%s", diff)
	}
	after := f.State()
	_ = f.Stop() // stop the server, so that its ticks do not change the state during the comparison
	before := server.Fold(f.Everything())
	if diff := before.Diff(after, time.Now()); diff != "" {
		t.Errorf("folded again it is another state: -want +got\n%s", diff)
	}
}
