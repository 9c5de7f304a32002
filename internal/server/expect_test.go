package server_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestExpect checks that the answer to a claim tells the node what to expect: a turn in a
// running job, or a reaction of the fleet.
func TestExpect(t *testing.T) {
	expects := func(n *servertest.Node) wire.Expectation {
		t.Helper()
		var out wire.Claimed
		if err := n.Call(wire.OpClaim, wire.Claim{}, &out); err != nil {
			t.Fatal(err)
		}
		return out.Expect
	}
	f := newFixture(t)
	all := func() []wire.Expectation {
		return []wire.Expectation{expects(f.db), expects(f.web1), expects(f.web2)}
	}
	want := func(when string, want ...wire.Expectation) {
		t.Helper()
		if diff := cmp.Diff(want, all()); diff != "" {
			t.Errorf("%s: db, web1, web2 -want +got\n%s", when, diff)
		}
	}
	const none, change, turn = wire.ExpectNothing, wire.ExpectChange, wire.ExpectTurn
	want("no job", none, none, none)
	f.Start("deploy", tutti.ModeApply)
	want("db's turn", turn, turn, turn)
	f.db.Pass()
	want("db's step is over", none, turn, turn)
	f.web1.Pass()
	f.web2.Pass()
	want("the job is over", none, none, none)
	f = newFixture(t)
	startConverge(t, f.Fleet, "web")
	want("the group converges", none, turn, turn)
	reacts := api.FleetSource{File: "tutti.yaml", Source: []byte(twoSteps + "reactive: true\n")}
	if _, err := f.SetFleet(servertest.Operator(), reacts); err != nil {
		t.Fatal(err)
	}
	want("the fleet reacts, and the group converges", change, turn, turn)
}
