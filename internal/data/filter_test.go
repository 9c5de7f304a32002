package data_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

func TestNormalize(t *testing.T) {
	for _, tc := range []struct{ reason, in, want string }{
		{"no filter", ``, ``},
		{"null is no filter", ` null`, ``},
		{"a test stays", `["=", "port", 80]`, `["=","port",80]`},
		{"1 and 1.0 stay different", `["=","port",80.0]`, `["=","port",80.0]`},
		{"tags are in lower case", `["=","tag","Web"]`, `["=","tag","web"]`},
		{"titles keep their case", `["=","title","Web"]`, `["=","title","Web"]`},
		{"operands are sorted", `["and",["=","b",1],["=","a",1]]`, `["and",["=","a",1],["=","b",1]]`},
		{"and are unique", `["and",["=","a",1],["=","b",1],["=","a",1]]`, `["and",["=","a",1],["=","b",1]]`},
		{"also once they are normal", `["or",["=","tag","A"],["=","tag","a"]]`, `["=","tag","a"]`},
		{"a tree of ors is one or", `["or",["or",["=","c",1],["=","b",1]],["=","a",1]]`, `["or",["=","a",1],["=","b",1],["=","c",1]]`},
		{"a single operand stands for itself", `["and",["or",["=","a",1]]]`, `["=","a",1]`},
		{"and is flattened where it comes up", `["and",["or",["and",["=","c",1],["=","a",1]]],["=","b",1]]`, `["and",["=","a",1],["=","b",1],["=","c",1]]`},
		{"and in or stays", `["or",["and",["=","a",1],["=","b",1]],["!=","c",null]]`, `["or",["!=","c",null],["and",["=","a",1],["=","b",1]]]`},
		{"objects in values are canonical", `["=","x",{"b":1,"a":2}]`, `["=","x",{"a":2,"b":1}]`},
	} {
		got, err := data.Normalize(json.RawMessage(tc.in))
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		if diff := cmp.Diff(tc.want, string(got)); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

// The function `nested` returns a filter in which `and` and `or` alternate, so Normalize cannot flatten it.
func nested(depth int) string {
	f := `["=","a",1]`
	for i := range depth {
		f = fmt.Sprintf(`[%q,%s,["=","b",%d]]`, []string{"and", "or"}[i%2], f, i)
	}
	return f
}

// The function `chain` returns a filter in the form in which Puppet writes a long list of conditions.
func chain(length int) string {
	f := `["=","tag","t"]`
	for i := range length {
		f = fmt.Sprintf(`["or",%s,["=","tag","t%d"]]`, f, i)
	}
	return f
}

func TestNormalizeBounds(t *testing.T) {
	for _, tc := range []struct {
		reason, in string
		valid      bool
	}{
		{"as deep as allowed", nested(data.MaxFilterDepth), true},
		{"one deeper", nested(data.MaxFilterDepth + 1), false},
		{"a long chain is not deep", chain(2000), true},
		{"as large as allowed", `["=","a","` + strings.Repeat("x", data.MaxFilter-12) + `"]`, true},
		{"one byte more", `["=","a","` + strings.Repeat("x", data.MaxFilter-11) + `"]`, false},
		{"too large in normal form", `["=","a",[1e20` + strings.Repeat(",1e20", 10_000) + `]]`, false},
		{"an unknown operator", `["~","a","x"]`, false},
		{"not", `["not",["=","a",1]]`, false},
		{"no list", `{"=":1}`, false},
		{"an empty list", `[]`, false},
		{"no value", `["=","a"]`, false},
		{"two values", `["=","a",1,2]`, false},
		{"no name", `["=","",1]`, false},
		{"a name that is no text", `["=",1,1]`, false},
		{"a tag that is no text", `["=","tag",1]`, false},
		{"a title that is no text", `["!=","title",null]`, false},
		{"and of nothing", `["and"]`, false},
		{"an operand that is no filter", `["and",["=","a",1],true]`, false},
		{"an operator that is a list", `[["="],"a",1]`, false},
		{"no JSON", `["=",`, false},
	} {
		got, err := data.Normalize(json.RawMessage(tc.in))
		if (err == nil) != tc.valid {
			t.Errorf("%s: got %d bytes and error %v, want valid %v", tc.reason, len(got), err, tc.valid)
		}
		if err != nil && (tutti.CodeOf(err) != tutti.CodeInvalid || !strings.HasPrefix(err.Error(), "filter")) {
			t.Errorf("%s: error %v with code %q", tc.reason, err, tutti.CodeOf(err))
		}
	}
}

func TestMatch(t *testing.T) {
	export := tutti.Export{
		Type: "Web", Title: "Front", Tags: []string{"blue", "web"}, Sensitive: []string{"secret"},
		Parameters: map[string]json.RawMessage{
			"port": json.RawMessage(`80`), "ratio": json.RawMessage(`1.0`), "name": json.RawMessage(`"Front"`),
			"hosts": json.RawMessage(`["a","b"]`), "ssl": json.RawMessage(`true`), "title": json.RawMessage(`"other"`),
		},
	}
	for _, tc := range []struct {
		reason, filter string
		want           bool
	}{
		{"no filter lets all pass", ``, true},
		{"equal", `["=","port",80]`, true},
		{"text is no number", `["=","port","80"]`, false},
		{"80.0 is not 80", `["=","port",80.0]`, false},
		{"1.0 is 1.00", `["=","ratio",1.00]`, true},
		{"text is no boolean", `["=","ssl","true"]`, false},
		{"case matters", `["=","name","front"]`, false},
		{"an array is not its element", `["=","hosts","a"]`, false},
		{"an array is an equal array", `["=","hosts",["a","b"]]`, true},
		{"the order of an array matters", `["=","hosts",["b","a"]]`, false},
		{"title is the title, not a parameter of that name", `["=","title","Front"]`, true},
		{"its case matters", `["=","title","front"]`, false},
		{"tags in any case", `["=","tag","BLUE"]`, true},
		{"a tag that is not there", `["=","tag","red"]`, false},
		{"not that tag", `["!=","tag","red"]`, true},
		{"unequal", `["!=","port",81]`, true},
		{"not unequal", `["!=","port",80]`, false},
		{"unequal is true of a missing parameter", `["!=","nope",1]`, true},
		{"equal is false of it", `["=","nope",1]`, false},
		{"also for null", `["=","nope",null]`, false},
		{"a sensitive parameter cannot be asked about", `["=","secret","x"]`, false},
		{"it is as if missing", `["!=","secret","x"]`, true},
		{"and", `["and",["=","port",80],["=","tag","web"]]`, true},
		{"and with one false", `["and",["=","port",80],["=","tag","red"]]`, false},
		{"or with one true", `["or",["=","port",81],["=","tag","web"]]`, true},
		{"or with none", `["or",["=","port",81],["=","tag","red"]]`, false},
	} {
		f, err := data.ParseFilter(json.RawMessage(tc.filter))
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		if got := f.Match(export); got != tc.want {
			t.Errorf("%s: %s: got %v, want %v", tc.reason, tc.filter, got, tc.want)
		}
	}
}

// anyFilter draws a filter with few different names and values, so that the
// filter often matches.
func anyFilter(depth int) *rapid.Generator[any] {
	test := rapid.Custom(func(t *rapid.T) any {
		op := rapid.SampledFrom([]string{"=", "!="}).Draw(t, "op")
		name := rapid.SampledFrom([]string{"tag", "title", "a", "b"}).Draw(t, "name")
		if name == "tag" || name == "title" {
			return []any{op, name, rapid.SampledFrom([]string{"x", "X", "y"}).Draw(t, "text")}
		}
		return []any{op, name, rapid.SampledFrom([]any{1, "1", true, nil, "x"}).Draw(t, "value")}
	})
	if depth == 0 {
		return test
	}
	among := rapid.Custom(func(t *rapid.T) any {
		operands := rapid.SliceOfN(anyFilter(depth-1), 1, 3).Draw(t, "operands")
		return append([]any{rapid.SampledFrom([]string{"and", "or"}).Draw(t, "op")}, operands...)
	})
	return rapid.OneOf(test, among)
}

func anyExport() *rapid.Generator[tutti.Export] {
	return rapid.Custom(func(t *rapid.T) tutti.Export {
		e := tutti.Export{Type: "Web", Parameters: map[string]json.RawMessage{}}
		e.Title = rapid.SampledFrom([]string{"x", "X", "y"}).Draw(t, "title")
		e.Tags = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"x", "y", "z"}), rapid.ID).Draw(t, "tags")
		slices.Sort(e.Tags)
		for _, name := range []string{"a", "b"} {
			if rapid.Bool().Draw(t, "has "+name) {
				e.Parameters[name] = json.RawMessage(rapid.SampledFrom([]string{`1`, `"1"`, `true`, `"x"`}).Draw(t, name))
			}
		}
		return e
	})
}

// The function `passes` implements the filters of docs/run-protocol.md in the simplest way, for comparison.
func passes(filter any, e tutti.Export) bool {
	list := filter.([]any)
	switch op := list[0].(string); op {
	case "and", "or":
		for _, operand := range list[1:] {
			if passes(operand, e) == (op == "or") {
				return op == "or"
			}
		}
		return op == "and"
	default:
		return equals(list[1].(string), list[2], e) == (op == "=")
	}
}

func equals(name string, value any, e tutti.Export) bool {
	switch name {
	case "tag":
		for _, tag := range e.Tags {
			if tag == strings.ToLower(value.(string)) {
				return true
			}
		}
		return false
	case "title":
		return e.Title == value
	}
	raw, _ := json.Marshal(value)
	return string(e.Parameters[name]) == string(raw)
}

func TestNormalFormPassesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		filter := anyFilter(4).Draw(t, "filter")
		raw, err := json.Marshal(filter)
		if err != nil {
			t.Fatal(err)
		}
		normal, err := data.Normalize(raw)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := data.Normalize(normal); err != nil || string(again) != string(normal) {
			t.Fatalf("%s is no normal form: %s, error %v", normal, again, err)
		}
		compiled, err := data.ParseFilter(normal)
		if err != nil {
			t.Fatal(err)
		}
		e := anyExport().Draw(t, "export")
		if got, want := compiled.Match(e), passes(filter, e); got != want {
			t.Fatalf("%s, normal %s: got %v, want %v", raw, normal, got, want)
		}
	})
}
