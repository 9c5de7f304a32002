package nodes_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server/nodes"
	"github.com/tutti-project/tutti/internal/servertest"
)

// grants is a fleet file by which db-01 exports databases.
const grants = `
fleet: test
environment: {name: production, path: ./code}
groups:
  db: {nodes: [db-01]}
grants:
  - {to: db, exports: [{type: Database, defined: true}]}
`

// host is a resource that nothing grants.
var host = tutti.Export{Type: "Host", Title: "x", Parameters: map[string]json.RawMessage{"target": json.RawMessage(`"x"`)}}

// What is decided on a gate beside the writer is what the writer takes, as long as the grants are the same.
func TestWhatMayBePublishedIsDecidedOnceBesideTheWriter(t *testing.T) {
	f := servertest.Start(t)
	f.Join("db-01")
	f.Push(grants)
	for _, tc := range []struct {
		reason        string
		export        tutti.Export
		between       string // the fleet file that is pushed
		beside, taken bool   // refused
		same          bool   // one decision
	}{
		{"refused", host, "", true, true, true},
		{"admitted", tutti.Export{Type: "Database", Title: "x"}, "", false, false, true},
		{"refused, and the same file", host, grants, true, true, true},
		{"refused, and another file", host, grants + "# another\n", true, true, false},
		{"admitted, and taken out meanwhile", tutti.Export{Type: "Database", Title: "x"}, strings.Replace(grants, "type: Database", "type: Other", 1), false, true, false},
		{"granted meanwhile", tutti.Export{Type: "Database", Title: "x"}, grants, true, false, false},
	} {
		beside, taken := f.Decides(t.Context(), "db-01", []tutti.Export{tc.export}, func() {
			if tc.between != "" {
				f.Push(tc.between)
			}
		})
		if (beside != nil) != tc.beside || (taken != nil) != tc.taken {
			t.Errorf("%s: %v beside the writer, then %v", tc.reason, beside, taken)
		}
		if tc.same != (beside == taken) { //nolint:errorlint // the same error, not one like it
			t.Errorf("%s: one decision %v, want %v", tc.reason, beside == taken, tc.same) //nolint:errorlint // as above
		}
	}
}

// What is much is decided beside the writer, however few bytes it has: a message of 64 KiB names thousands of keys, and one of 100
// bytes all that a Puppet Server has handed over.
func TestWhatIsMuchIsDecidedBesideTheWriter(t *testing.T) {
	for _, tc := range []struct {
		size, exports, keys int
		itself              bool
	}{
		{100, 1, 1, true},
		{60_000, 50, 50, true},
		{60_000, 51, 50, false},
		{60_000, 0, 5000, false},
		{100, 49_000, 0, false},
		{100_000, 1, 0, false},
	} {
		if got := nodes.DecidesItself(tc.size, tc.exports, tc.keys); got != tc.itself {
			t.Errorf("%d bytes, %d exports and %d keys: the writer decides by itself %v, want %v", tc.size, tc.exports, tc.keys, got, tc.itself)
		}
	}
}
