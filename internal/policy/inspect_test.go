package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/policy"
)

// The list `values` has JSON values that the decision must tell apart. Some of them are written in
// an unusual form.
var values = []string{
	`"x"`, `"a\nb"`, `"a\u000ab"`, `"\u0085"`, `"a\\nb"`, `"\\u0007"`, `"\""`, `"é\u00e9"`, `"` + "\u0085" + `"`, `1`, `null`, `[]`, `{}`, `"__ptype"`, `"__p"`, `"Deferred"`,
	`{"__ptype":"Deferred"}`, `{"__ptype" : "Timestamp"}`, `{"\u005f_ptype":"Deferred"}`, `{"__ptype":null}`, `{"__ptype":["Binary"]}`, `{"__ptype":"Binar\u0079"}`,
	`{"x\"__ptype":"Deferred"}`, `{"__ptypes":"Deferred"}`, `{"a\nb":1}`, `{"__ptype":"Pcore::RuntimeType"}`, `{"__ptype":"Pcore::StringType"}`, `{"x":"__ptype","y":"Deferred"}`,
}

// decoded finds out from a decoded value what `look` finds out from the JSON. It decodes the value because a
// collecting node does the same.
func decoded(v any) (calls, control bool) {
	add := func(v any) {
		a, b := decoded(v)
		calls, control = calls || a, control || b
	}
	switch v := v.(type) {
	case string:
		control = strings.ContainsFunc(v, unicode.IsControl)
	case []any:
		for _, item := range v {
			add(item)
		}
	case map[string]any:
		if kind, typed := v["__ptype"]; typed {
			name, _ := kind.(string)
			calls = name != "Timestamp" && name != "Binary" && name != "Pcore::StringType"
		}
		for key, item := range v {
			add(key)
			add(item)
		}
	}
	return calls, control
}

// The value is read without decoding, because a megabyte of it can contain a million lists. The result is the
// same as after decoding. The only exception is a type name with an escape, which counts as a call.
func TestAValueIsReadAsItIsDecoded(t *testing.T) {
	f := web(t, "{to: web, exports: [Host]}")
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom(values).Draw(t, "value")
		for range rapid.IntRange(0, 4).Draw(t, "depth") {
			beside := rapid.SampledFrom(values).Draw(t, "beside")
			around := rapid.SampledFrom([]string{"[%s, %s]", "[%[2]s,%[1]s]", `{"a":%s,"b":%s}`, "{\"a\" :\t%[2]s, \"b\":%[1]s}"}).Draw(t, "around")
			value = fmt.Sprintf(around, value, beside)
		}
		var v any
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			t.Fatal(err)
		}
		calls, control := decoded(v)
		calls = calls || strings.Contains(value, `\u0079`)
		err := policy.ExportsOf(f, inWeb, "web-01").May(tutti.Export{Type: "Host", Title: "web-01", Parameters: parameters("comment", value)})
		says := ""
		switch {
		case calls:
			says = "more than data"
		case control:
			says = "a control character"
		}
		if (err != nil) != (says != "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", value, err, says)
		}
	})
}

// Invalid JSON can come from an old log. Invalid JSON is refused, even if a more tolerant reader
// could give it a meaning.
func TestInvalidJSONIsNotData(t *testing.T) {
	f := web(t, "{to: web, exports: [Host]}")
	for _, value := range []string{`{"__ptype`, `"a\`, `"__p" "`, `["__ptype":]`, "\"a\nb\"", `"\u00`} {
		if policy.ExportsOf(f, inWeb, "web-01").May(tutti.Export{Type: "Host", Title: "web-01", Parameters: parameters("comment", value)}) == nil {
			t.Errorf("%q is admitted", value)
		}
	}
}

// The values of an export are read once, no matter how many grants are checked. Reading the values allocates nothing.
func TestReadingAValueMakesNothingOfIt(t *testing.T) {
	e := tutti.Export{Type: "Host", Title: "x", Parameters: parameters("target", `"x"`, "comment", `["__p"`+strings.Repeat(",[]", 300_000)+`]`)}
	f := web(t, "{to: web, exports: [Host]}")
	used := testing.AllocsPerRun(1, func() {
		exports := policy.Inspect([]tutti.Export{e})
		if _, err := policy.ExportsOf(f, inWeb, "web-01").MayAll(exports); err == nil {
			t.Error("target is admitted")
		}
		policy.Wants(f, inWeb, "web-01", exports, nil, nil)
	})
	if used > 1000 {
		t.Errorf("%.0f allocations for a value of 300,000 lists", used)
	}
}

// The bytes that a node may export of a type are limited, because a collecting node gets the exports of all nodes.
func TestLargeExports(t *testing.T) {
	all := make([]tutti.Export, 21)
	for i := range all {
		all[i] = tutti.Export{Type: "Host", Title: fmt.Sprint(i), Parameters: parameters("comment", `"`+strings.Repeat("<", 1_000_000)+`"`)}
	}
	inspected := policy.Inspect(all)
	large := func(count int) []policy.Inspected { return inspected[:count] }
	for _, tc := range []struct {
		grant string
		most  int
		want  string
	}{
		{"Host", 8, "export 9000126 bytes of resources of type Host: at most 8 MiB are granted"},
		{"{type: Host, most_mib: 2}", 2, "{type: Host, most_mib: 3}"},
		{"{type: Host, most: 12, title: own, most_mib: 12}", 0, "admits titles"},
		{"{type: Host, most: 20, most_mib: 12}", 12, "{type: Host, most: 20, most_mib: 13}"},
		{"{type: Host, most_mib: 9000000000000000000}", 20, ""},
	} {
		f := web(t, "{to: web, exports: ["+tc.grant+"]}")
		x := policy.ExportsOf(f, inWeb, "web-01")
		if refused, err := x.MayAll(large(tc.most)); err != nil {
			t.Errorf("%s: %d: %s: %v", tc.grant, tc.most, refused, err)
		}
		_, err := x.MayAll(large(tc.most + 1))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.grant, err, tc.want)
		}
	}
	f := web(t, "{to: web, exports: [Host]}")
	wants := policy.Wants(f, inWeb, "web-01", large(9), nil, nil)
	if len(wants) != 1 || wants[0].String() != "{to: , exports: [{type: Host, most_mib: 9}]}" {
		t.Errorf("wants %v", wants)
	}
	for i := range wants {
		wants[i].To = "web"
	}
	f.Grants = append(f.Grants, wants...)
	if _, err := policy.ExportsOf(f, inWeb, "web-01").MayAll(large(9)); err != nil {
		t.Errorf("what was wanted does not admit it: %v", err)
	}
}

// If the parameter `tag` is a list of numbers, the whole list counts as one tag, even if its text is a megabyte long.
func TestNumbersAsTagsAreOne(t *testing.T) {
	f := web(t, "{to: web, exports: [{type: Sshkey, tags: [cluster]}]}")
	e := tutti.Export{Type: "Sshkey", Title: "x", Parameters: parameters("tag", "[1"+strings.Repeat(",1", 400_000)+"]")}
	err := policy.ExportsOf(f, inWeb, "web-01").May(e)
	if err == nil || !strings.Contains(err.Error(), "does not admit the tag") || len(err.Error()) > 4096 {
		t.Errorf("%.200v", err)
	}
}
