package server_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const ordered = `
fleet: test
environment: {name: production, path: ./code}
groups:
  app: {nodes: [app-01, both-01, both-02]}
  db: {joined: true}
  web: {nodes: [web-01, both-01, both-02, late-01]}
order:
  - {first: web, then: app}
  - {first: db, then: [web, app]}
plans:
  between:
    steps:
      - run: db
      - {converge: app, max_failed: 2}
      - run: web-01
  nobody:
    steps:
      - run: db
      - converge: late-01
`

// orderedFleet returns a fleet with an explicit order that differs from the order of the names.
func orderedFleet(t *testing.T) *servertest.Fleet {
	t.Helper()
	f := servertest.Start(t)
	f.Join("zdb-01", "db")
	for _, n := range []tutti.NodeName{"app-01", "both-01", "both-02", "web-01"} {
		f.Join(n)
	}
	f.Push(ordered)
	return f
}

func startConverge(t *testing.T, f *servertest.Fleet, target string) tutti.JobID {
	t.Helper()
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{Target: target}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// TestTheOrderOfTheFleetFile checks that only the explicit order holds nodes at their gates. An
// edge of the order has two groups. Nodes that are in both groups go together, after the first
// group and before the second.
func TestTheOrderOfTheFleetFile(t *testing.T) {
	f := orderedFleet(t)
	job := startConverge(t, f, "")
	runs := map[tutti.NodeName]tutti.RunID{}
	for _, n := range []tutti.NodeName{"app-01", "both-01", "both-02", "web-01", "zdb-01"} {
		runs[n] = f.Node(n).MustClaim().Run
		if got := f.Node(n).Gate(wire.Gate{Run: runs[n]}).Verdict; got != tutti.GateHold {
			t.Errorf("%s is told %q at once, want hold", n, got)
		}
	}
	var order [][]tutti.NodeName
	for len(runs) > 0 {
		var went []tutti.NodeName
		for n, run := range runs {
			if f.Node(n).Gate(wire.Gate{Run: run}).Verdict == tutti.GateGo {
				went = append(went, n)
			}
		}
		if len(went) == 0 {
			t.Fatalf("after %v, nobody was let go", order)
		}
		slices.Sort(went)
		order = append(order, went)
		for _, n := range went {
			f.Node(n).Finish(runs[n])
			delete(runs, n)
		}
	}
	if diff := cmp.Diff([][]tutti.NodeName{{"zdb-01"}, {"web-01"}, {"both-01", "both-02"}, {"app-01"}}, order); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	wantVerdict(t, f, job, tutti.VerdictConverged)
}

// TestWhoHasNotJoinedIsNamed checks that a converge of a group names the listed nodes that have not joined.
func TestWhoHasNotJoinedIsNamed(t *testing.T) {
	f := servertest.Start(t)
	web := f.Join("web-01")
	f.Push("fleet: test\ngroups:\n  web: {nodes: [web-01, web-02]}\n  alone: {nodes: [web-01]}\n")
	first := startConverge(t, f, "web-01")
	web.Pass()
	wantVerdict(t, f, first, tutti.VerdictConverged)
	for _, tc := range []struct{ target, says string }{
		{"", "web-02 was not run: the fleet file lists it, and it has not joined"},
		{"web", "web-02 was not run: the fleet file lists it, and it has not joined"},
		{"web-01", ""},
		{"alone", ""},
	} {
		job := startConverge(t, f, tc.target)
		wantVerdict(t, f, job, tutti.VerdictConverged)
		if got := f.Job(job).Message; got != tc.says {
			t.Errorf("converge %q says %q, want %q", tc.target, got, tc.says)
		}
	}
	plan, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{Target: "web"}, Mode: tutti.ModeCompile})
	if err != nil {
		t.Fatal(err)
	}
	wantContains(t, f.Job(plan).Message, "not: web-02 was not run")
}

// TestAConvergeStepBetweenRuns checks that the converge step begins when the step before it has
// ended. When the nodes of the converge step are good, the next step begins.
func TestAConvergeStepBetweenRuns(t *testing.T) {
	f := orderedFleet(t)
	job := f.Start("between", tutti.ModeApply)
	app, both, other := f.Node("app-01"), f.Node("both-01"), f.Node("both-02")
	web, db := f.Node("web-01"), f.Node("zdb-01")
	for _, n := range []*servertest.Node{app, both, other, web} {
		if o := n.Claim(); o != nil {
			t.Fatalf("%s has run %+v before its step", n.Name, o)
		}
	}
	db.Pass()
	var claimed []tutti.Order
	for _, n := range []*servertest.Node{app, both, other} {
		o := n.MustClaim()
		if o.Step != "converge-app" {
			t.Errorf("step %q, want converge-app", o.Step)
		}
		n.Gate(wire.Gate{Run: o.Run})
		claimed = append(claimed, o)
	}
	for _, i := range []int{1, 2, 0} { // app-01 waits for the nodes that are also in web
		if o := web.Claim(); o != nil {
			t.Fatalf("web-01 has run %+v while the step before goes on", o)
		}
		n := f.Node(claimed[i].Node)
		if got := n.Gate(wire.Gate{Run: claimed[i].Run}).Verdict; got != tutti.GateGo {
			t.Fatalf("%s is told %q, want go", n.Name, got)
		}
		n.Finish(claimed[i].Run)
	}
	web.Pass()
	wantVerdict(t, f, job, tutti.VerdictSucceeded)

	_, err := f.StartJob(servertest.Operator(), api.StartJob{Plan: "nobody", Mode: tutti.ModeApply})
	wantCode(t, err, tutti.CodeNotFound, `no group "late-01"`)
}

// TestCompilesAtOnce checks that at most the configured number of nodes compile at the same time.
// After each compile the next node begins.
func TestCompilesAtOnce(t *testing.T) {
	f := servertest.Start(t, func(o *server.Options) { o.Compiles = 2 })
	all := []tutti.NodeName{"app-01", "both-01", "web-01"}
	for _, n := range all {
		f.Join(n)
	}
	f.Push(ordered)
	startConverge(t, f, "")
	if diff := cmp.Diff(all[:2], claimants(f, all...)); diff != "" {
		t.Errorf("who compiles at first: -want +got\n%s", diff)
	}
	f.Node("app-01").Gate(wire.Gate{Run: f.Node("app-01").MustClaim().Run})
	if diff := cmp.Diff(all[1:], claimants(f, all[1:]...)); diff != "" {
		t.Errorf("who compiles after one has: -want +got\n%s", diff)
	}
}
