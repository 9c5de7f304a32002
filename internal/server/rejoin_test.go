package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestANodeThatJoinsAgainInOtherGroups checks a node that joins again in other groups. The node counts as a node that
// has never run, even if its key is the same. The server withdraws the publications that the node made with the
// grants of its previous groups. If the groups are the same, nothing changes.
func TestANodeThatJoinsAgainInOtherGroups(t *testing.T) {
	const fleet = `
fleet: test
environment: {name: production, path: ./code}
groups: {db: {joined: true}, web: {joined: true}}
grants: [{to: db, write: [shared/db], exports: [Sshkey]}]
`
	for _, tc := range []struct {
		groups []tutti.GroupName
		why    string
		kept   int // how many of the node's two publications stay
	}{
		{[]tutti.GroupName{"db"}, "good: ", 2},
		{[]tutti.GroupName{"web"}, "never ran: ", 0},
		{[]tutti.GroupName{"db", "web"}, "never ran: ", 0},
	} {
		f := &fenced{Fleet: servertest.Start(t), t: t}
		f.db = f.Join("db-01", "db")
		f.db.Agent = wire.Claim{Version: "now", Knows: tutti.Capabilities(), Begun: &tutti.Fence{}}
		f.Push(fleet)
		f.converge()
		order := f.claim()
		gate := full(order.Run)
		gate.Exports = []tutti.Export{{Type: "Sshkey", Title: "db-01", Parameters: map[string]json.RawMessage{"key": []byte(`"x"`)}}}
		gate.Values = []string{"shared/db"}
		f.db.Gate(gate)
		if gated := f.db.Gate(gate); gated.Verdict != tutti.GateGo {
			t.Fatalf("the gate says %+v", gated)
		}
		if err := f.db.Publish(order.Run, "shared/db", "1"); err != nil {
			t.Fatal(err)
		}
		f.db.Finish(order.Run)

		agent := f.db.Agent
		f.db = f.Join("db-01", tc.groups...)
		f.db.Agent = agent
		if why := f.why(); !strings.HasPrefix(why, tc.why) {
			t.Errorf("%v: %s, want %s", tc.groups, why, tc.why)
		}
		values, err := f.ListValues(servertest.Operator(), "")
		if err != nil {
			t.Fatal(err)
		}
		if kept := len(f.State().Exports("db-01")) + len(values); kept != tc.kept {
			t.Errorf("%v: %d things that it published are there, want %d", tc.groups, kept, tc.kept)
		}
		if tc.kept == 0 {
			f.pass()
		}
	}
}
