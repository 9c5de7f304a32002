package data_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

func TestCanonical(t *testing.T) {
	for _, tc := range []struct{ reason, in, want string }{
		{"members are sorted, space goes", ` { "b" : 1 , "a" : [ true , null ] } `, `{"a":[true,null],"b":1}`},
		{"whole numbers stay whole", `1`, `1`},
		{"others stay others", `1.0`, `1.0`},
		{"an exponent is no whole number", `1e2`, `100.0`},
		{"zeros go", `1.500`, `1.5`},
		{"there is one zero", `-0`, `0`},
		{"and one zero that is not whole", `-0.0`, `0.0`},
		{"whole numbers have any size", `123456789012345678901234567890`, `123456789012345678901234567890`},
		{"large numbers have an exponent", `1000000000000000000000000.0`, `1e+24`},
		{"small ones too", `0.0000001`, `1e-7`},
		{"escapes that need not be go", `"\u0061\/\u003c\u00e9"`, `"a/<é"`},
		{"escapes that must be are short", `"\u000a\u0009\u0008\u000c\u000d\u0022\u005c"`, `"\n\t\b\f\r\"\\"`},
		{"other control characters are in hex", `"\u0001\u001F\u000b"`, `"\u0001\u001f\u000b"`},
		{"delete is no control character in JSON", `"\u007f"`, "\"\x7f\""},
		{"the last of equal members counts", `{"a":1,"a":2}`, `{"a":2}`},
		{"empty things", `[{},[],""]`, `[{},[],""]`},
	} {
		got, err := data.Canonical(json.RawMessage(tc.in))
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		if diff := cmp.Diff(tc.want, string(got)); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for _, tc := range []struct{ reason, in string }{
		{"nothing", ``},
		{"no JSON", `{a:1}`},
		{"more than one value", `1 2`},
		{"a number that becomes infinite", `1e999`},
		{"bytes that are no text", "\"\xff\""},
		{"too deep", strings.Repeat("[", 300) + strings.Repeat("]", 300)},
	} {
		if got, err := data.Canonical(json.RawMessage(tc.in)); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: got %s with error %v, want code invalid", tc.reason, got, err)
		}
	}
}

func TestEqual(t *testing.T) {
	for _, tc := range []struct {
		reason, a, b string
		want         bool
	}{
		{"another order is the same object", `{"a":1,"b":2}`, `{"b":2, "a":1}`, true},
		{"1 and 1.0 differ, as in Puppet", `1`, `1.0`, false},
		{"text is no number", `"1"`, `1`, false},
		{"null is not nothing", `null`, ``, false},
		{"the order of a list matters", `[1,2]`, `[2,1]`, false},
	} {
		if got := data.Equal(json.RawMessage(tc.a), json.RawMessage(tc.b)); got != tc.want {
			t.Errorf("%s: Equal(%s, %s): got %v", tc.reason, tc.a, tc.b, got)
		}
	}
}

// anyJSON draws a value in the form in which a decoder returns it.
func anyJSON(depth int) *rapid.Generator[any] {
	scalars := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64(), func(i int64) any { return i }),
		rapid.Map(rapid.Float64Range(-1e300, 1e300), func(f float64) any { return f }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
	)
	if depth == 0 {
		return scalars
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(
		scalars,
		rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.String(), inner, 0, 4), func(m map[string]any) any { return m }),
	)
}

func TestCanonicalKeepsTheValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, err := json.Marshal(anyJSON(3).Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		once, err := data.Canonical(raw)
		if err != nil {
			t.Fatal(err)
		}
		var before, after any
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(once, &after); err != nil {
			t.Fatalf("%s is no JSON: %v", once, err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("the value changed: -before +after\n%s", diff)
		}
		again, err := data.Canonical(once)
		if err != nil || string(again) != string(once) {
			t.Fatalf("not canonical: %s becomes %s, error %v", once, again, err)
		}
	})
}

// The fast check recognizes each canonical value without decoding it. The fold uses this
// check for everything that nodes export.
func TestACanonicalValueIsSeenToBe(t *testing.T) {
	parts := []string{
		`1`, `-1`, `0`, `-0`, `01`, `1.0`, `1.50`, `-0.0`, `1e2`, `1E2`, `1e+24`, `1e24`, `1e-7`, `0.0000001`, `+1`, `-`, `1.`, `.5`, `12-3`, `123456789012345678901234567890`, `1e999`,
		`true`, `false`, `null`, `tru`, `[]`, `{}`, `[ ]`, `""`, `"a"`, `"\n"`, `"\u000a"`, `"\u001f"`, `"\u001F"`, `"\u0061"`, `"\/"`, `"\""`, `"\\"`, `"\u007f"`, `"\u0022"`, `"\u00e9"`, `"é"`, "\"\n\"", "\"\xff\"", `"a`,
		`{"a":1,"b":2}`, `{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"\n":1,"!":2}`, `{"!":1,"\n":2}`, `{"\"":1,"#":2}`, `{"a" :1}`, `{"a": 1}`, `{a:1}`, `{"a":1,}`, `[1,]`, `[1 ,2]`, `1 `, ` 1`, ``, `1 2`, `[`, `]`,
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SampledFrom(parts).Draw(t, "value")
		for range rapid.IntRange(0, 4).Draw(t, "depth") {
			beside := rapid.SampledFrom(parts).Draw(t, "beside")
			around := rapid.SampledFrom([]string{"[%s,%s]", "[%[2]s,%[1]s]", `{"a":%s,"b":%s}`, `{"b":%s,"a":%s}`}).Draw(t, "around")
			raw = fmt.Sprintf(around, raw, beside)
		}
		form, err := data.SlowCanonical(json.RawMessage(raw))
		if want := err == nil && string(form) == raw; data.IsCanonical([]byte(raw)) != want {
			t.Errorf("%q is its own encoding: %v; %q, %v", raw, want, form, err)
		}
	})
	for _, raw := range parts { // also check each part alone
		form, err := data.SlowCanonical(json.RawMessage(raw))
		if want := err == nil && string(form) == raw; data.IsCanonical([]byte(raw)) != want {
			t.Errorf("%q is its own encoding: %v; %q, %v", raw, want, form, err)
		}
	}
	for _, depth := range []int{data.MaxValueDepth, data.MaxValueDepth + 1} {
		raw := strings.Repeat("[", depth) + "1" + strings.Repeat("]", depth)
		if is := data.IsCanonical([]byte(raw)); is != (depth == data.MaxValueDepth) {
			t.Errorf("%d levels: %v", depth, is)
		}
	}
	large := json.RawMessage(`["__p"` + strings.Repeat(",[]", 300_000) + `]`)
	if used := testing.AllocsPerRun(1, func() { _, _ = data.Canonical(large) }); used > 10 {
		t.Errorf("%.0f allocations for a canonical value of 300,000 lists", used)
	}
}
