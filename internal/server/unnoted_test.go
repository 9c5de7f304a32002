package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestANodeThatCannotNoteIsSuspect checks a node that cannot note runs that Tutti did not start. Such a run may have
// changed the node. Other nodes stay good, and the node is good again after it has noted all runs.
func TestANodeThatCannotNoteIsSuspect(t *testing.T) {
	const full = "no space left on device"
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		nodes := []*servertest.Node{f.Join("a"), f.Join("b")}
		f.Push("fleet: test\n")
		converge := func() tutti.JobID {
			job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
			if err != nil {
				t.Fatal(err)
			}
			return job
		}
		first := converge()
		var runs []tutti.RunID
		for _, n := range nodes {
			runs = append(runs, n.MustClaim().Run)
			n.Gate(wire.Gate{Run: runs[len(runs)-1], CatalogReport: tutti.CatalogReport{Catalog: tutti.DigestOf(nil)}})
		}
		for i, n := range nodes {
			n.Gate(wire.Gate{Run: runs[i], CatalogReport: tutti.CatalogReport{Catalog: tutti.DigestOf(nil)}})
			n.Finish(runs[i])
		}
		synctest.Wait()
		wantVerdict(t, f, first, tutti.VerdictConverged)
		stand := func(want api.NodeState, why string) {
			t.Helper()
			all, err := f.ListNodes(servertest.Operator())
			if err != nil || len(all) != 2 || all[0].Stands != want || all[1].Stands != api.NodeGood || all[0].Unnoted != why {
				t.Errorf("nodes %+v, %v; want a %s (%q), b good", all, err, want, why)
			}
			got, err := f.ExplainNode(servertest.Operator(), "a")
			if err != nil || got.Standing.State != want || !strings.Contains(got.Standing.Why, why) {
				t.Errorf("explain: %+v, %v; want %s: %q", got.Standing, err, want, why)
			}
		}
		stand(api.NodeGood, "")
		beat := func(why string) {
			t.Helper()
			if err := nodes[0].Call(wire.OpBeat, wire.Beat{Version: "1", Unnoted: why, At: time.Now()}, nil); err != nil {
				t.Fatal(err)
			}
		}
		beat(full)
		stand(api.NodeSuspect, full)
		second := converge()
		synctest.Wait()
		got := f.Job(second)
		if want := "a is suspect: a run that Tutti did not start may have changed it: the node cannot note such runs: " + full; got.Verdict != tutti.VerdictPartial || got.Message != want {
			t.Errorf("verdict %s: %q, want partial: %q", got.Verdict, got.Message, want)
		}
		beat("")
		stand(api.NodeGood, "")
		third := converge()
		synctest.Wait()
		wantVerdict(t, f, third, tutti.VerdictConverged)
	})
}
