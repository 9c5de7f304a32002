package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
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
		f.db.Gate(wire.Gate{Run: order.Run, Compiled: tutti.Compiled{Values: []string{"db/x"}}})
		if err := f.db.Publish(order.Run, "db/x", "1"); err != nil {
			t.Fatal(err)
		}
		f.db.Finish(order.Run)
		f.web1.MustClaim()
		before = len(f.Events())
		if err := f.db.Call(wire.OpLeave, wire.Leave{}, nil); err != nil {
			t.Fatal(err)
		}
		// web-02 has an order that it has not begun. The server gives up this run.
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
