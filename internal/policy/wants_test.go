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

// A node chooses the names in the grants that it lacks, and the log keeps these names. So their size is limited.
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

// If a node lacks thousands of grants, no text is made for each of them. The text of a refusal contains all groups of
// the node in order, and its smallest group.
func TestWantsWriteNoRefusals(t *testing.T) {
	const groups, things, most = 200, 5000, 10 // allocations for each thing
	var fleet tutti.Fleet
	var in []tutti.GroupName
	for i := range groups {
		name := tutti.GroupName(fmt.Sprint("g", i))
		in = append(in, name)
		fleet.Groups = append(fleet.Groups, tutti.Group{Name: name, Nodes: []tutti.NodeName{"web-01"}})
		fleet.Grants = append(fleet.Grants, tutti.Grant{To: name, Write: []string{fmt.Sprint("app/", i, "/**")}})
	}
	var keys []string
	var exports []tutti.Export
	for i := range things {
		keys = append(keys, fmt.Sprint("k", i))
		exports = append(exports, tutti.Export{Type: fmt.Sprintf("T%c%c", 'a'+i/maxLooked/26, 'a'+i/maxLooked%26), Title: fmt.Sprint(i)})
	}
	inspected := policy.Inspect(exports)
	for what, wants := range map[string]func() []tutti.Grant{
		"keys to write": func() []tutti.Grant { return policy.Wants(fleet, in, "web-01", nil, keys, nil) },
		"keys to read":  func() []tutti.Grant { return policy.Wants(fleet, in, "web-01", nil, nil, keys) },
		"exports":       func() []tutti.Grant { return policy.Wants(fleet, in, "web-01", inspected, nil, nil) },
	} {
		if got := wants(); len(got) != 1 || len(got[0].Write)+len(got[0].Read)+len(got[0].Types) != 100 {
			t.Errorf("%s: want the first 100, got %+v", what, got)
		}
		if got := testing.AllocsPerRun(1, func() { wants() }) / things; got > most {
			t.Errorf("%s: %.1f allocations of each of %d, at most %d", what, got, things, most)
		}
	}
}

// For many keys the decisions are the same as for each key alone.
func TestManyKeysAreDecidedOnAsOneIs(t *testing.T) {
	fleet := tutti.Fleet{Grants: []tutti.Grant{
		{To: "web", Write: []string{"app/**", "one", "a/b", "shared/**", "node/x/**"}, Read: []string{"secret/**", "odd**"}},
		{To: "web", Write: []string{"node/y/**"}, Dangerous: true},
		{To: "db", Write: []string{"**"}, Read: []string{"**"}},
	}}
	keys := policy.KeysOf(fleet, inWeb, "web-01")
	for round := range 10 {
		for _, key := range []string{
			"", "/", "app", "app/", "app/x", "app/x/y", "apple/x", "one", "one/x", "on", "a/b", "a/b/c", "shared/x", "shared/hiera/x", "shared", "node/x/k", "node/y/k",
			"node/web-01/k", "node/web-01", "node/web-011/k", "secret/x", "secret", "odd", "oddly/x", "oddly", "else",
		} {
			writes, reads := policy.MayWrite(fleet, inWeb, "web-01", key), policy.MayRead(fleet, inWeb, "web-01", key)
			if keys.Writes(key) != (writes == nil) || keys.Reads(key) != (reads == nil) {
				t.Errorf("round %d: %q: writes %v, reads %v; one alone: %v, %v", round, key, keys.Writes(key), keys.Reads(key), writes, reads)
			}
		}
	}
}

// maxLooked is how many refused resources of a type are checked.
const maxLooked = 50

// In the result, a later refusal must not take the place of an earlier refusal. If it did, the result
// would change again and again, and the server would take each refusal for a new one.
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

// A grant of a type without named parameters admits more than a grant with named parameters.
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
