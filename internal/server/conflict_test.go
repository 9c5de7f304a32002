package server_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestTheExportsOfTwoMachinesStay checks that a conflict takes nothing from the other nodes. The other nodes still
// collect the exports that the node had before two machines acted as the node.
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

// TestJoiningAgainEndsNoConflict checks a machine of a conflicted node that joins again with the node's key and another
// token. Only an operator decides which machine is the node.
func TestJoiningAgainEndsNoConflict(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	f.db.Gate(wire.Gate{Run: order.Run})
	f.db.Finish(order.Run)
	copied(t, f.db)
	for name, groups := range map[string][]tutti.GroupName{"same groups": {"db"}, "other groups": {"web"}} {
		_, err := f.Enrol(t.Context(), f.db.Request(newToken(t, f.Fleet, api.CreateToken{Name: "db-01", Groups: groups})))
		wantCode(t, err, tutti.CodeConflict, "tutti node keep db-01 BOOT")
		if n, err := f.ShowNode(servertest.Operator(), "db-01"); err != nil || n.Conflicted == "" {
			t.Errorf("%s: db-01 is not conflicted: %+v, %v", name, n, err)
		}
	}
	if err := f.ReplaceNode(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Enrol(t.Context(), f.db.Request(newToken(t, f.Fleet, api.CreateToken{Name: "db-01", Groups: []tutti.GroupName{"db"}}))); err != nil {
		t.Errorf("after replace the machine may not join: %v", err)
	}
}

// TestReplaceEndsAConflict checks an operator who gives the name of a conflicted node to a new machine. The new machine
// is the node and has never run. The server takes no messages from the two old machines any more.
func TestReplaceEndsAConflict(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	f.db.Gate(wire.Gate{Run: order.Run})
	f.db.Finish(order.Run)
	f.web1.Pass()
	f.web2.Pass()
	second := f.db
	first := copied(t, second)
	wantConflict := func(when string, want bool) {
		t.Helper()
		if n, err := f.ShowNode(servertest.Operator(), "db-01"); err != nil || (n.Conflicted != "") != want {
			t.Errorf("%s: conflicted %q, %v; want a conflict: %t", when, n.Conflicted, err, want)
		}
	}
	wantConflict("before", true)
	other := machine(f.Fleet, "db-01", "another machine")
	other.Agent = wire.Claim{Knows: tutti.Capabilities()}
	token := newToken(t, f.Fleet, api.CreateToken{Name: "db-01"})
	_, err := f.Enrol(t.Context(), other.Request(token))
	wantCode(t, err, tutti.CodeConflict, "tutti node replace db-01")
	if err := f.ReplaceNode(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	wantConflict("before the new machine joins", true)
	if _, err := f.Enrol(t.Context(), other.Request(token)); err != nil {
		t.Fatal(err)
	}
	wantConflict("after the new machine has joined", false)
	n, err := f.ShowNode(servertest.Operator(), "db-01")
	if err != nil || n.Standing.State != api.NodeNew || n.LastRun != "" {
		t.Errorf("the new machine has run: %+v, %v", n, err)
	}
	if err := other.Hello(ticket("new"), "boot-new"); err != nil {
		t.Fatal(err)
	}
	for name, old := range map[string]*servertest.Node{"the first machine": first, "its copy": second} {
		wantCode(t, old.Hello(ticket("again"), "boot-old"), tutti.CodeUnauthenticated, "join again")
		wantCode(t, old.Call(wire.OpClaim, old.Agent, nil), tutti.CodeUnauthenticated, "join again")
		if t.Failed() {
			t.Fatal(name)
		}
	}
	f.Fleet = f.Restart()
	other.Fleet = f.Fleet
	wantConflict("after a restart", false)
	f.Start("deploy", tutti.ModeApply)
	other.Pass()
	wantConflict("after a run", false)
}
