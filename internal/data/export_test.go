package data_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

func TestCheckExports(t *testing.T) {
	got, err := data.CheckExports("a", []tutti.Export{
		{Type: "Web", Title: "2", Node: "a", Tags: []string{"y", "x", "y"}, Parameters: map[string]json.RawMessage{"p": json.RawMessage(`{"b":1, "a":1}`)}, Sensitive: []string{"s"}},
		{Type: "Web", Title: "1"},
		{Type: "Db", Title: "3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	none := map[string]json.RawMessage{}
	want := []tutti.Export{
		{Type: "Db", Title: "3", Node: "a", Parameters: none},
		{Type: "Web", Title: "1", Node: "a", Parameters: none},
		{Type: "Web", Title: "2", Node: "a", Tags: []string{"x", "y"}, Parameters: map[string]json.RawMessage{"p": json.RawMessage(`{"a":1,"b":1}`)}, Sensitive: []string{"s"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestCheckExportsRefuses(t *testing.T) {
	parameter := func(name, value string) tutti.Export {
		return tutti.Export{Type: "Web", Title: "1", Sensitive: []string{"s"}, Parameters: map[string]json.RawMessage{name: json.RawMessage(value)}}
	}
	for _, tc := range []struct {
		reason  string
		exports []tutti.Export
	}{
		{"a malformed type", []tutti.Export{{Type: "web", Title: "1"}}},
		{"no title", []tutti.Export{{Type: "Web"}}},
		{"a title without end", []tutti.Export{{Type: "Web", Title: strings.Repeat("x", data.MaxTitle+1)}}},
		{"another node's name", []tutti.Export{{Type: "Web", Title: "1", Node: "a.example.net"}}},
		{"the same reference twice", []tutti.Export{web("1"), web("2"), web("1")}},
		{"a sensitive value", []tutti.Export{parameter("s", `"secret"`)}},
		{"a parameter that is no JSON", []tutti.Export{parameter("p", `{`)}},
		{"a parameter without end", []tutti.Export{parameter("p", `"`+strings.Repeat("x", data.MaxExport)+`"`)}},
		{"tags without end", []tutti.Export{{Type: "Web", Title: "1", Tags: make([]string, data.MaxParameters+1)}}},
		{"exports without end", make([]tutti.Export, data.MaxExports+1)},
	} {
		_, err := data.CheckExports("a", tc.exports)
		if tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: error %v, want code invalid", tc.reason, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the message has the secret: %v", tc.reason, err)
		}
	}
}

// Puppet's integers have 64 bits. If a value had a larger integer, every compile that reads the
// value would fail.
func TestCheckValueRefusesWhatPuppetCannotRead(t *testing.T) {
	for _, tc := range []struct{ reason, value, want string }{
		{"the largest", `[9223372036854775807, -9223372036854775808]`, ""},
		{"one more", `9223372036854775808`, `value of key "a/b": integer "9223372036854775808" is outside the range of Puppet, -9223372036854775808 to 9223372036854775807; write it as a string`},
		{"inside", `{"x": [0, {"y z": -9223372036854775809}]}`, `integer "-9223372036854775809" at ["x"][1]["y z"] is outside`},
		{"a float has room", `1e30`, ""},
		{"text has room", `"9223372036854775808"`, ""},
		{"a long one is cut", strings.Repeat("9", 5000), `integer "` + strings.Repeat("9", 60) + `"… is outside`},
	} {
		_, err := data.CheckValue("a/b", json.RawMessage(tc.value))
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || tutti.CodeOf(err) != tutti.CodeInvalid) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
		}
	}
}

func TestCheckValue(t *testing.T) {
	for _, tc := range []struct {
		reason, key, value string
		want               string // empty: refused
	}{
		{"canonical", "a/b", `{"b": 1, "a": 2}`, `{"a":2,"b":1}`},
		{"a malformed key", "a//b", `1`, ``},
		{"no JSON", "a", `{`, ``},
		{"too large", "a", `"` + strings.Repeat("x", data.MaxValue) + `"`, ``},
	} {
		got, err := data.CheckValue(tc.key, json.RawMessage(tc.value))
		if string(got) != tc.want || (err == nil) != (tc.want != "") || err != nil && tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: got %s, error %v", tc.reason, got, err)
		}
	}
}
