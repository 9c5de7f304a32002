package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// The function `past` appends one job for each given list of nodes. A job with the node `busy` stays unfinished.
func past(t *testing.T, f *fleet, jobs ...[]tutti.NodeName) []tutti.JobID {
	t.Helper()
	var ids []tutti.JobID
	for _, nodes := range jobs {
		id := f.state.NextJob("p")
		ids = append(ids, id)
		f.append(&tutti.JobStarted{
			Job: id, Plan: tutti.Plan{Name: "p", Steps: []tutti.Step{run("a")}}, Mode: tutti.ModeApply,
			Targets: map[tutti.StepName][]tutti.NodeName{"a": nodes},
		})
		f.settle(t)
		for _, n := range nodes {
			if n == "busy" {
				continue
			}
			id := f.active(n)
			f.append(&tutti.RunClaimed{Run: id, Node: n})
			f.finish(id, good)
			f.settle(t)
		}
	}
	return ids
}

func TestRetire(t *testing.T) {
	one, two, busy := targets("n1"), targets("n1", "n2"), targets("busy")
	cases := map[string]struct {
		reason string
		jobs   [][]tutti.NodeName
		keep   engine.Keep
		want   []tutti.JobID
	}{
		"within":     {"nothing goes that has room", [][]tutti.NodeName{one, one}, engine.Keep{Jobs: 2, Runs: 2}, nil},
		"jobs":       {"the oldest go first", [][]tutti.NodeName{one, one, one}, engine.Keep{Jobs: 1, Runs: 9}, []tutti.JobID{"p-1", "p-2"}},
		"runs":       {"as many as make the runs fit", [][]tutti.NodeName{two, two, one}, engine.Keep{Jobs: 9, Runs: 3}, []tutti.JobID{"p-1"}},
		"unfinished": {"what goes on stays", [][]tutti.NodeName{busy, one, one}, engine.Keep{Jobs: 1, Runs: 9}, []tutti.JobID{"p-2"}},
		"latest":     {"the latest stays, however large", [][]tutti.NodeName{one, two}, engine.Keep{Jobs: 1, Runs: 1}, []tutti.JobID{"p-1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFleet()
			past(t, f, tc.jobs...)
			got := f.state.Retire(tc.keep)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Fatalf("%s: -want +got\n%s", tc.reason, diff)
			}
			for _, id := range got {
				f.append(&tutti.JobRetired{Job: id})
			}
			if again := f.state.Retire(tc.keep); len(again) != 0 {
				t.Errorf("%s: retires %v again", tc.reason, again)
			}
		})
	}
}

// An operator who begins one job after another does not push out the past of other
// operators.
func TestRetireOfWhoHasMost(t *testing.T) {
	f := newFleet()
	by := func(who string, count int) {
		for range count {
			f.by = who
			past(t, f, targets("n1"))
		}
	}
	by("ada", 2)
	by("eve", 4)
	by("ada", 1)
	by("eve", 3)
	for _, tc := range []struct {
		keep engine.Keep
		want []tutti.JobID
	}{
		{engine.Keep{Jobs: 5, Runs: 99}, []tutti.JobID{"p-3", "p-4", "p-5", "p-6", "p-1"}},
		{engine.Keep{Jobs: 99, Runs: 7}, []tutti.JobID{"p-3", "p-4", "p-5"}},
		{engine.Keep{Jobs: 1, Runs: 99}, []tutti.JobID{"p-3", "p-4", "p-5", "p-6", "p-1", "p-8", "p-2", "p-9", "p-7"}},
	} {
		if diff := cmp.Diff(tc.want, f.state.Retire(tc.keep)); diff != "" {
			t.Errorf("%+v: -want +got\n%s", tc.keep, diff)
		}
	}
}

func TestARetiredJobLeavesTheLastRunOfEachNode(t *testing.T) {
	f := newFleet()
	past(t, f, targets("n1", "n2"), targets("n1"))
	last := f.state.Jobs["p-1"].Step("a").Nodes[1].Runs[0].Run
	f.append(&tutti.JobRetired{Job: "p-1"})
	if f.state.Jobs["p-1"] != nil || !slices.Equal(f.state.Order, []tutti.JobID{"p-2"}) {
		t.Fatalf("jobs %v: p-1 is still there", f.state.Order)
	}
	if r := f.state.Runs[last]; len(f.state.Runs) != 2 || r == nil || r.Outcome() != tutti.Changed {
		t.Fatalf("runs %v: want that of p-2, and the last one of n2 with its outcome", f.state.Runs)
	}
	if !f.state.Retired("p-1") || f.state.Retired("p-2") || f.state.Retired("p-3") {
		t.Error("only p-1 was there and is no more")
	}
	if next := f.state.NextJob("q"); next != "q-3" {
		t.Errorf("the next job is %s: the numbers go on", next)
	}
	before := len(f.state.Runs)
	f.append(&tutti.RunFinished{Result: tutti.Result{Run: "00000000-0000-0000-0000-000000000001", Outcome: tutti.Failed}})
	if len(f.state.Runs) != before {
		t.Error("a late result has brought its run back")
	}

	past(t, f, targets("n2"))
	if f.state.Runs[last] != nil {
		t.Error("n2 has claimed another run, and the one before is still there")
	}
	f.append(&tutti.JobRetired{Job: "p-2"})
	f.append(&tutti.NodeRemoved{Node: "n1"})
	if len(f.state.Runs) != 1 {
		t.Errorf("%d runs: a node that has left keeps none, want that of p-3", len(f.state.Runs))
	}
}

// The size of a server's state depends on the jobs that the server keeps. It does not depend on how long the server
// has run.
func TestMemoryIsBounded(t *testing.T) {
	f := newFleet()
	keep := engine.Keep{Jobs: 10, Runs: 15}
	for i := range 200 {
		past(t, f, targets(tutti.NodeName(fmt.Sprintf("n%d", i%7)), "both"))
		for _, id := range f.state.Retire(keep) {
			f.append(&tutti.JobRetired{Job: id})
		}
	}
	if jobs, runs := len(f.state.Jobs), len(f.state.Runs); jobs > keep.Jobs || jobs != len(f.state.Order) || runs > keep.Runs+8 {
		t.Errorf("%d jobs (%d in order) and %d runs, want at most %+v and one run for each of 8 nodes", jobs, len(f.state.Order), runs, keep)
	}
	if next := f.state.NextJob("p"); next != "p-201" {
		t.Errorf("the next job is %s, want p-201", next)
	}
}
