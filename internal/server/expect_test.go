package server_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
)

// TestExpect: a node that claims hears whether another run of its may follow: its turn
// in a job that goes on has not come or is not over, or the fleet reacts.
func TestExpect(t *testing.T) {
	expects := func(n *servertest.Node) bool {
		t.Helper()
		var out tutti.Claimed
		if err := n.Call(tutti.OpClaim, tutti.Claim{}, &out); err != nil {
			t.Fatal(err)
		}
		return out.Expect
	}
	f := newFixture(t)
	all := func() []bool { return []bool{expects(f.db), expects(f.web1), expects(f.web2)} }
	want := func(when string, want ...bool) {
		t.Helper()
		if diff := cmp.Diff(want, all()); diff != "" {
			t.Errorf("%s: db, web1, web2 -want +got\n%s", when, diff)
		}
	}
	want("no job", false, false, false)
	f.Start("deploy", tutti.ModeApply)
	want("db's turn", true, true, true)
	f.db.Pass()
	want("db's step is over", false, true, true)
	f.web1.Pass()
	f.web2.Pass()
	want("the job is over", false, false, false)
	f = newFixture(t)
	startConverge(t, f.Fleet, "web")
	want("the group converges", false, true, true)
	reacts := tutti.FleetSource{File: "tutti.yaml", Source: []byte(twoSteps + "reactive: true\n")}
	if _, err := f.SetFleet(servertest.Operator(), reacts); err != nil {
		t.Fatal(err)
	}
	want("the fleet reacts", true, true, true)
}
