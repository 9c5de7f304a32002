package server_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestTheExportsOfTwoMachinesStay checks that a conflict takes nothing from the other nodes. They collect what the node
// exported before two machines acted as the node.
func TestTheExportsOfTwoMachinesStay(t *testing.T) {
	f, job, order := started(t, tutti.ModeApply)
	f.db.Gate(wire.Gate{Run: order.Run, Exports: []tutti.Export{database("main")}})
	f.db.Finish(order.Run)
	web := f.web1.MustClaim()
	before := f.web1.Read(web.Run, collects)
	copied(t, f.db)
	if n := len(f.State().Exports("db-01")); n != 1 {
		t.Errorf("the conflicted node has %d exports, want 1", n)
	}
	if got := titles(f.web1.Ask(web.Run, collects)); !cmp.Equal(got, []string{"main"}) {
		t.Errorf("a run that goes on collects %v, want main", got)
	}
	if gated := f.web1.Gate(wire.Gate{Run: web.Run, Reads: []tutti.Read{before}}); gated.Verdict != tutti.GateGo {
		t.Errorf("the gate of a run that collected before the conflict says %+v", gated)
	}
	f.web1.Finish(web.Run)
	if got := titles(f.web2.Ask(f.web2.MustClaim().Run, collects)); !cmp.Equal(got, []string{"main"}) {
		t.Errorf("a run that begins in the conflict collects %v, want main", got)
	}
	again := f.Restart()
	if got := again.Job(job).Verdict; got != "" {
		t.Errorf("the job ended %s", got)
	}
	if got := titles(again.Node("web-02").Ask(again.Node("web-02").MustClaim().Run, collects)); !cmp.Equal(got, []string{"main"}) {
		t.Errorf("after a restart a run collects %v, want main", got)
	}
	if n, err := again.ShowNode(servertest.Operator(), "db-01"); err != nil || n.Conflicted == "" {
		t.Errorf("db-01 is not conflicted: %+v, %v", n, err)
	}
}
