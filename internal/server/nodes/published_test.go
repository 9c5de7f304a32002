package nodes_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server/nodes"
	"github.com/tutti-project/tutti/internal/servertest"
)

// The constant `grants` is a fleet file in which db-01 may export databases.
const grants = `
fleet: test
environment: {name: production, path: ./code}
groups:
  db: {nodes: [db-01]}
grants:
  - {to: db, exports: [{type: Database, defined: true}]}
`

// The variable `host` is a resource for which no node has a grant.
var host = tutti.Export{Type: "Host", Title: "x", Parameters: map[string]json.RawMessage{"target": json.RawMessage(`"x"`)}}

// The writer uses the decision that was taken outside the writer, as long as the grants do not change.
func TestWhatMayBePublishedIsDecidedOnceBesideTheWriter(t *testing.T) {
	f := servertest.Start(t)
	f.Join("db-01")
	f.Push(grants)
	for _, tc := range []struct {
		reason        string
		export        tutti.Export
		between       string // the fleet file that is pushed between the two decisions
		beside, taken bool   // whether the decision was to refuse
		same          bool   // whether both decisions are the same error value
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
		if tc.same != (beside == taken) { //nolint:errorlint // this must be the same error value, not an equal one
			t.Errorf("%s: one decision %v, want %v", tc.reason, beside == taken, tc.same) //nolint:errorlint // as above
		}
	}
}

// The server decides outside the writer about a gate with many parts, even if the gate has few bytes. A message of 64
// KiB can name thousands of keys. A message of 100 bytes can stand for everything that a Puppet Server has reported.
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
