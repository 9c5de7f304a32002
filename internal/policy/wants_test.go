package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/policy"
)

// A node chooses the names of what it wants, and the log keeps them.
func TestWantsAreOfSomeKilobytes(t *testing.T) {
	for _, tc := range []struct {
		reason              string
		types, names, bytes int
	}{
		{"many long names", 60, 10, 200},
		{"many types", 300, 1, 200},
		{"one type", 1, 900, 250},
		{"names that are no parameters", 60, 10, 100_000},
	} {
		var exports []tutti.Export
		for i := range tc.types {
			parameters := map[string]json.RawMessage{}
			for k := range tc.names {
				parameters[fmt.Sprintf("p%d%s", k, strings.Repeat("a", tc.bytes))] = json.RawMessage("1")
			}
			exports = append(exports, tutti.Export{Type: fmt.Sprintf("Cr%c%c", 'a'+i/26, 'a'+i%26), Title: "x", Parameters: parameters})
		}
		raw, err := json.Marshal(policy.Wants(tutti.Fleet{}, inWeb, "web-01", policy.Inspect(exports), nil, nil))
		if err != nil || len(raw) > 32<<10 {
			t.Errorf("%s: %d bytes, %v", tc.reason, len(raw), err)
		}
	}
}

// What was refused later cannot replace what was refused first, or each refusal would be something new.
func TestWhatIsWantedFirstStays(t *testing.T) {
	keys := func(from int) (out []string) {
		for i := range 100 {
			out = append(out, fmt.Sprintf("k%06d", from+i))
		}
		return out
	}
	first := policy.Merge(nil, []tutti.Grant{{Write: keys(5000)}})
	if diff := cmp.Diff(first, policy.Merge(first, []tutti.Grant{{Write: keys(1000)}})); diff != "" {
		t.Errorf("-first +then\n%s", diff)
	}
}

// A grant of a type that names no parameter admits more than one that names some.
func TestWhatHasNoRoomAdmitsNothing(t *testing.T) {
	var full []string
	for i := range 63 {
		full = append(full, fmt.Sprintf("k%02d%s", i, strings.Repeat("x", 253)))
	}
	full = append(full, strings.Repeat("y", 50))
	for left := range 220 {
		wants := policy.Merge([]tutti.Grant{{Write: append(full[:64:64], strings.Repeat("z", left+1))}},
			[]tutti.Grant{{Dangerous: true, Types: []tutti.ExportGrant{{Type: "Exec", Parameters: []string{"cwd"}}}}})
		for _, g := range wants {
			for _, x := range g.Types {
				if len(x.Parameters) == 0 {
					t.Fatalf("with %d bytes more: %+v", left, wants)
				}
			}
		}
	}
}
