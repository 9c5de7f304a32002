package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

func TestANodeLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, job, order := started(t, tutti.ModeApply)
		before := len(f.Events())
		wantCode(t, f.db.Call(wire.OpLeave, wire.Leave{}, nil), tutti.CodeConflict, "goes on here")
		if got := f.Since(before); len(got) != 0 {
			t.Errorf("a refusal left %v", got)
		}
		f.db.Gate(wire.Gate{Run: order.Run, CatalogReport: tutti.CatalogReport{Values: []string{"db/x"}}})
		if err := f.db.Publish(order.Run, "db/x", "1"); err != nil {
			t.Fatal(err)
		}
		f.db.Finish(order.Run)
		f.web1.MustClaim()
		before = len(f.Events())
		if err := f.db.Call(wire.OpLeave, wire.Leave{}, nil); err != nil {
			t.Fatal(err)
		}
		// web-02 leaves with an order that it has not begun. The server gives up this run.
		if err := f.web2.Call(wire.OpLeave, wire.Leave{}, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"node.removed", "run.lost", "node.removed"}, f.Since(before)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if by := f.Events()[before].By; by != "node:db-01" {
			t.Errorf("the node was removed by %s", by)
		}
		if values, err := f.ListValues(servertest.Operator(), ""); err != nil || len(values) != 0 {
			t.Errorf("what it published stays: %v %v", values, err)
		}
		wantCode(t, f.db.Call(wire.OpClaim, wire.Claim{}, nil), tutti.CodeUnauthenticated, "no node of this fleet")
		if got := f.Identity.Revoked(); len(got) != 0 {
			t.Errorf("the connection ends before the answer is out: %v", got)
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]tutti.NodeKey{f.db.Key, f.web2.Key}, f.Identity.Revoked()); diff != "" {
			t.Errorf("keys ended (-want +got):\n%s", diff)
		}
		wantVerdict(t, f.Fleet, job, "")
	})
}

// A node that leaves while its run goes on has not failed: the other nodes decide the verdict of the converge, and
// the job names the node that left.
func TestANodeThatLeavesDoesNotFail(t *testing.T) {
	remove := func(f fixture) error { return f.RemoveNode(servertest.Operator(), "web-02") }
	for name, c := range map[string]struct {
		reason  string
		fleet   string
		begins  int // how far web-02 gets: 0 ordered, 1 claimed, 2 applies
		leave   func(fixture) error
		verdict tutti.Verdict
		says    string
	}{
		"removed while it applies": {"what its run did is not known, and the node is not of the fleet any more",
			"fleet: test\n", 2, remove, tutti.VerdictConverged, "web-02 has left: the node was removed from the fleet"},
		"removed while it compiles": {"nothing of the run counts yet",
			"fleet: test\n", 1, remove, tutti.VerdictConverged, "web-02 has left: the node was removed from the fleet"},
		"leaves before it begins": {"a node that runs cannot leave by itself",
			"fleet: test\n", 0, func(f fixture) error { return f.web2.Call(wire.OpLeave, wire.Leave{}, nil) },
			tutti.VerdictConverged, "web-02 has left: the node has left the fleet"},
		"removed, and still listed": {"somebody wants it in the fleet",
			"fleet: test\ngroups: {web: {nodes: [web-01, web-02]}}\n", 2, remove,
			tutti.VerdictConverged, "web-02 has left, and the fleet file still lists it: the node was removed from the fleet"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.Push(c.fleet)
				job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
				if err != nil {
					t.Fatal(err)
				}
				var held []tutti.RunID
				for _, n := range []*servertest.Node{f.db, f.web1} {
					held = append(held, n.MustClaim().Run)
					n.Gate(wire.Gate{Run: held[len(held)-1]})
				}
				if c.begins > 0 {
					run := f.web2.MustClaim().Run
					if c.begins > 1 {
						f.web2.Gate(wire.Gate{Run: run})
					}
				}
				if err := c.leave(f); err != nil {
					t.Fatal(err)
				}
				for i, n := range []*servertest.Node{f.db, f.web1} {
					if got := n.Gate(wire.Gate{Run: held[i]}); got.Verdict != tutti.GateGo {
						t.Fatalf("the gate of %s: %+v", n.Name, got)
					}
					n.Finish(held[i])
				}
				synctest.Wait()
				got := f.Job(job)
				if diff := cmp.Diff([]any{c.verdict, 0, c.says}, []any{got.Verdict, got.Failed, got.Message}); diff != "" {
					t.Errorf("%s: verdict, failed runs, message (-want +got):\n%s", c.reason, diff)
				}
			})
		})
	}
}

// A step that names its nodes needs all these nodes, because later steps rely on them.
func TestAStepFailsWithoutANodeThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, job, _ := started(t, tutti.ModeApply)
		if err := f.RemoveNode(servertest.Operator(), "db-01"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := f.Job(job); got.Verdict != tutti.VerdictFailed || got.Failed != 1 {
			t.Errorf("verdict %s, %d failed", got.Verdict, got.Failed)
		}
	})
}
