package tutti_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// plainFields are the fields of an Order that need no capability. Each of these fields identifies the order, is read
// only by the server, or is set for every run.
var plainFields = []string{"Run", "Node", "Job", "Step", "Attempt", "Proof", "VolatileFacts", "Environment", "Code", "Timeout"}

// TestEachFieldOfAnOrderNeedsACapability checks that each new field has a row in orderOptions. An
// agent that does not know a field would not do what the server ordered.
func TestEachFieldOfAnOrderNeedsACapability(t *testing.T) {
	samples := map[reflect.Type][]reflect.Value{
		reflect.TypeFor[tutti.Mode]():    {reflect.ValueOf(tutti.ModeNoop), reflect.ValueOf(tutti.ModeCompile)},
		reflect.TypeFor[tutti.Program](): {reflect.ValueOf(tutti.ProgramAgent)},
		reflect.TypeFor[[]string]():      {reflect.ValueOf([]string{"a"})},
		reflect.TypeFor[bool]():          {reflect.ValueOf(true)},
	}
	plain := tutti.Order{Mode: tutti.ModeApply}
	seen := map[tutti.Capability]bool{}
	for field := range reflect.TypeFor[tutti.Order]().Fields() {
		if slices.Contains(plainFields, field.Name) {
			continue
		}
		values := samples[field.Type]
		if len(values) == 0 {
			t.Errorf("Order.%s: the test has no sample of %s", field.Name, field.Type)
		}
		for _, value := range values {
			o := plain
			reflect.ValueOf(&o).Elem().FieldByIndex(field.Index).Set(value)
			more := slices.DeleteFunc(o.Needs(), func(c tutti.Capability) bool { return slices.Contains(plain.Needs(), c) })
			if len(more) != 1 || seen[more[0]] {
				t.Errorf("Order.%s = %v needs %v: want one capability of its own, a row in orderOptions", field.Name, value, more)
				continue
			}
			seen[more[0]] = true
			if !slices.Contains(tutti.Capabilities(), more[0]) {
				t.Errorf("Order.%s = %v needs %q, which no agent lists", field.Name, value, more[0])
			}
		}
	}
	for _, name := range plainFields {
		if _, there := reflect.TypeFor[tutti.Order]().FieldByName(name); !there {
			t.Errorf("Order has no field %s", name)
		}
	}
}

// TestCapabilitiesOfTheFirstRelease checks that the list of 0.2.0 never changes, and that later releases still have all
// capabilities in this list.
func TestCapabilitiesOfTheFirstRelease(t *testing.T) {
	first := []tutti.Capability{
		"compile", "debug", "exclusive", "fresh_facts", "noop", "puppet_agent", "remote.disable", "remote.enable", "remote.facts",
		"remote.last_run_summary", "remote.resource", "remote.runonce", "remote.status", "run", "skip_tags", "tags",
	}
	if lacks := tutti.Lacking(nil, append(first, "new")); !slices.Equal(lacks, []tutti.Capability{"new"}) {
		t.Errorf("an agent of 0.2.0 lacks %v of what it knew and of what is new", lacks)
	}
	for _, c := range first {
		if !slices.Contains(tutti.Capabilities(), c) {
			t.Errorf("this release does not know %q any more", c)
		}
	}
	later := slices.DeleteFunc(tutti.Capabilities(), func(c tutti.Capability) bool { return slices.Contains(first, c) })
	if lacks := tutti.Lacking(nil, later); !slices.Equal(lacks, later) {
		t.Errorf("an agent of 0.2.0 lacks %v, want all that is later: %v", lacks, later)
	}
	if names := tutti.Capabilities(); !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("%v: want each name once, sorted", names)
	}
}

func TestLacks(t *testing.T) {
	cases := []struct {
		reason string
		knows  []tutti.Capability
		needs  []tutti.Capability
		want   []tutti.Capability
	}{
		{"it knows more", []tutti.Capability{"run", "debug", "later"}, []tutti.Capability{"run", "debug"}, nil},
		{"one is missing", []tutti.Capability{"run"}, []tutti.Capability{"run", "debug"}, []tutti.Capability{"debug"}},
		{"it knows other things only", []tutti.Capability{"later"}, []tutti.Capability{"run"}, []tutti.Capability{"run"}},
		{"it lists nothing", nil, []tutti.Capability{"run", "debug"}, nil},
	}
	for _, tc := range cases {
		if diff := cmp.Diff(tc.want, tutti.Lacking(tc.knows, tc.needs)); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

func TestClaimsAreBounded(t *testing.T) {
	long := tutti.Capability(strings.Repeat("x", 65))
	cases := []struct {
		reason string
		claim  wire.Claim
		code   tutti.Code
	}{
		{"what this release says", wire.Claim{Version: "0.3.0", Knows: tutti.Capabilities()}, ""},
		{"what 0.2.0 says", wire.Claim{}, ""},
		{"a long name", wire.Claim{Knows: []tutti.Capability{long}}, tutti.CodeInvalid},
		{"many names", wire.Claim{Knows: make([]tutti.Capability, 201)}, tutti.CodeInvalid},
		{"a long version", wire.Claim{Version: strings.Repeat("1", 101)}, tutti.CodeInvalid},
	}
	for _, tc := range cases {
		if code := tutti.CodeOf(tc.claim.Validate()); code != tc.code {
			t.Errorf("%s: code %q, want %q", tc.reason, code, tc.code)
		}
	}
}

// TestAnOrderIsReadAsAWholeOrNotAtAll checks that an agent refuses an order with a field of a later
// release. The agent ignores new fields outside the order.
func TestAnOrderIsReadAsAWholeOrNotAtAll(t *testing.T) {
	order := tutti.Order{Run: aRun, Node: aNode, Mode: tutti.ModeNoop, Environment: "production", Code: aDigest, Timeout: time.Hour, Attempt: 1, Tags: []string{"a"}}
	raw, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	with := func(field string) string { return `{"order":` + strings.TrimSuffix(string(raw), "}") + field + `}}` }
	bare := &tutti.Order{Run: aRun, Node: aNode}
	cases := []struct {
		reason, text string
		want         *tutti.Order
		unknown      string
	}{
		{"an order", with(""), &order, ""},
		{"another kind of order", with(`,"kind":"reboot"`), bare, `"kind"`},
		{"another option", with(`,"nice":19`), bare, `"nice"`},
		{"a field of another form", with(`,"tags":{"a":1}`), bare, "tags"},
		{"another mode", `{"order":{"run":"` + string(aRun) + `","node":"` + string(aNode) + `","mode":"dance"}}`, &tutti.Order{Run: aRun, Node: aNode, Mode: "dance"}, "dance"},
		{"none", `{}`, nil, ""},
		{"null", `{"order":null,"expect":"turn"}`, nil, ""},
		{"none, and something new", `{"expect":"change","news":[1]}`, nil, ""},
	}
	for _, tc := range cases {
		var got wire.Claimed
		if err := json.Unmarshal([]byte(tc.text), &got); err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		if diff := cmp.Diff(tc.want, got.Order); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
		if got.Order == nil {
			continue
		}
		err := got.Validate()
		if (err != nil) != (tc.unknown != "") || err != nil && !strings.Contains(err.Error(), tc.unknown) {
			t.Errorf("%s: refused with %v, want %q in it", tc.reason, err, tc.unknown)
		}
	}
	var got wire.Claimed
	if err := json.Unmarshal([]byte(`{"order":[]}`), &got); err == nil {
		t.Errorf("an order that names no run: %+v", got)
	}
}

// TestAQuestionIsReadAsAWholeOrNotAtAll checks that a node answers a question of a later release
// without acting on it.
func TestAQuestionIsReadAsAWholeOrNotAtAll(t *testing.T) {
	cases := []struct {
		reason, text string
		refused      string
	}{
		{"a question", `{"request":"R","action":"disable","caller":"operator:ada","message":"disk"}`, ""},
		{"another field", `{"request":"R","action":"disable","caller":"operator:ada","until":"2027-01-01"}`, `"until"`},
		{"another action", `{"request":"R","action":"reboot","caller":"operator:ada"}`, `"reboot"`},
	}
	for _, tc := range cases {
		var q tutti.RemoteRequest
		if err := json.Unmarshal([]byte(tc.text), &q); err != nil || q.Request != "R" {
			t.Errorf("%s: %+v, %v", tc.reason, q, err)
		}
		err := q.Validate()
		if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s: refused with %v, want %q in it", tc.reason, err, tc.refused)
		}
	}
}
