package server_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// If a new fleet file removes a grant, the server withdraws only the publications that need this grant.
// After that the node is not good until it has run again (finding F9).
func TestWhatIsNotGrantedAnyMoreIsWithdrawn(t *testing.T) {
	const granted = "write: [db/**], exports: [{type: Database, defined: true, most: 50000}]"
	cases := map[string]struct {
		grants  string
		exports []string // what other nodes can read afterwards
		values  []string
		needs   string // what the node needs next
	}{
		"a type":  {"write: [db/**], exports: [Sshkey]", []string{"Sshkey[db-01]"}, []string{"db/a", "db/b", "node/db-01/own"}, "apply"},
		"a key":   {"write: [db/a], exports: [{type: Database, defined: true, most: 50000}, Sshkey]", []string{"Database[main]", "Sshkey[db-01]"}, []string{"db/a", "node/db-01/own"}, "apply"},
		"both":    {"read: [x]", nil, []string{"node/db-01/own"}, "apply"},
		"nothing": {"write: [db/**], exports: [{type: Database, defined: true, most: 50000}, Sshkey]", []string{"Database[main]", "Sshkey[db-01]"}, []string{"db/a", "db/b", "node/db-01/own"}, "nothing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			with := func(grants string) string { return strings.Replace(twoSteps, granted, grants, 1) }
			f.Push(with("write: [db/**], exports: [{type: Database, defined: true, most: 50000}, Sshkey]"))
			f.StartJob(servertest.Operator(), api.StartJob{Plan: "deploy", Mode: tutti.ModeApply}) //nolint:errcheck // MustClaim reports the error
			order := f.db.MustClaim()
			sshkey := tutti.Export{Type: "Sshkey", Title: "db-01"}
			gate := wire.Gate{Run: order.Run, Exports: []tutti.Export{database("main"), sshkey}, CatalogReport: tutti.CatalogReport{Values: []string{"db/a", "db/b", "node/db-01/own"}}}
			f.db.Gate(gate)
			for _, key := range gate.Values {
				if err := f.db.Publish(order.Run, key, "1"); err != nil {
					t.Fatal(err)
				}
			}
			f.db.Finish(order.Run)

			after := with(tc.grants)
			for range 2 { // the second time there is nothing to withdraw
				if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(after)}); err != nil {
					t.Fatal(err)
				}
			}
			f.Fleet = f.Restart()
			var exports []string
			for _, e := range f.State().Exports("db-01") {
				exports = append(exports, e.Type+"["+e.Title+"]")
			}
			if diff := cmp.Diff(tc.exports, exports); diff != "" {
				t.Errorf("exports: -want +got\n%s", diff)
			}
			listed, err := f.ListValues(servertest.Operator(), "")
			if err != nil {
				t.Fatal(err)
			}
			var values []string
			for _, v := range listed {
				values = append(values, v.Key)
			}
			if diff := cmp.Diff(tc.values, values); diff != "" {
				t.Errorf("values: -want +got\n%s", diff)
			}
			got, err := f.ExplainNode(servertest.Operator(), "db-01")
			if err != nil || got.Standing.Needs != tc.needs {
				t.Errorf("db-01 needs %q (%s), %v; want %q", got.Standing.Needs, got.Standing.Why, err, tc.needs)
			}
			if tc.needs == "apply" && !strings.Contains(got.Standing.Why, "data that it published was withdrawn") {
				t.Errorf("db-01 is not good because %q", got.Standing.Why)
			}
		})
	}
}
