package tutti_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
)

// fixtures returns the files of testdata/events. The present shapes are in KIND.json. The shapes of
// older logs are in KIND.1.json (the oldest), KIND.2.json and so on.
func fixtures(t *testing.T) (today, older []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "events", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, file := range files {
		if strings.Count(filepath.Base(file), ".") == 2 {
			today = append(today, file)
		} else {
			older = append(older, file)
		}
	}
	slices.SortFunc(older, func(a, b string) int { // number 10 must come after number 9
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return today, older
}

// TestOlderShapesOfEvents checks that an event of an older release still has the same meaning. A
// digest (internal/release) ensures that no fixture changes.
func TestOlderShapesOfEvents(t *testing.T) {
	_, older := fixtures(t)
	if len(older) == 0 {
		t.Fatal("no older shape: this test sees nothing")
	}
	number := map[string]int{}
	for _, file := range older {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var e tutti.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		kind := e.Body.Kind()
		number[kind]++
		if want := fmt.Sprintf("%s.%d.json", kind, number[kind]); filepath.Base(file) != want {
			t.Errorf("%s is the file of %s: the oldest shape has number 1, and no number is left out", file, want)
		}
		if changed := differs(string(raw), string(encode(t, e))); changed != "" {
			t.Errorf("%s is read with another meaning: %s", file, changed)
		}
	}
}

// The function `differs` returns the first difference between the values in two JSON texts. The result is empty if
// there is none. The later text may have an additional field if the field is empty.
func differs(older, later string) string {
	var was, is any
	if err := json.Unmarshal([]byte(older), &was); err != nil {
		return err.Error()
	}
	if err := json.Unmarshal([]byte(later), &is); err != nil {
		return err.Error()
	}
	return differ("event", was, is)
}

func differ(at string, was, is any) string {
	if m, ok := was.(map[string]any); ok {
		n, ok := is.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s was %v and is %v", at, was, is)
		}
		for key, v := range m {
			if d := differ(at+"."+key, v, n[key]); d != "" {
				return d
			}
		}
		for key, v := range n {
			if _, ok := m[key]; !ok && !isEmpty(v) {
				return fmt.Sprintf("%s.%s was not there and is %v", at, key, v)
			}
		}
		return ""
	}
	if l, ok := was.([]any); ok {
		m, ok := is.([]any)
		if !ok || len(l) != len(m) {
			return fmt.Sprintf("%s was %v and is %v", at, was, is)
		}
		for i := range l {
			if d := differ(fmt.Sprintf("%s[%d]", at, i), l[i], m[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if was != is {
		return fmt.Sprintf("%s was %v and is %v", at, was, is)
	}
	return ""
}

// isEmpty reports whether a value is the value of an unset field.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, of := range v {
			if !isEmpty(of) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	case string:
		return v == "" || v == "0001-01-01T00:00:00Z"
	}
	return v == nil || v == false || v == float64(0)
}

func TestDiffers(t *testing.T) {
	cases := []struct {
		reason, older, later string
		same                 bool
	}{
		{"the order of fields", `{"a":1,"b":[{"c":true}]}`, `{"b":[{"c":true}],"a":1}`, true},
		{"a new field is empty", `{"a":[{"b":1}]}`, `{"a":[{"b":1,"c":""}],"d":0,"e":false,"f":null,"g":{"h":[]},"i":"0001-01-01T00:00:00Z"}`, true},
		{"a new field says something", `{"a":[{"b":1}]}`, `{"a":[{"b":1,"c":2}]}`, false},
		{"a field is lost", `{"a":{"b":1}}`, `{"a":{}}`, false},
		{"a field is another one", `{"a":{"b":1}}`, `{"a":{"b":2}}`, false},
		{"an object became a list", `{"a":{"b":1}}`, `{"a":[1]}`, false},
		{"a list is shorter", `{"a":[1,2]}`, `{"a":[1]}`, false},
		{"no JSON", `{"a":1}`, `{`, false},
	}
	for _, tc := range cases {
		if got := differs(tc.older, tc.later); (got == "") != tc.same {
			t.Errorf("%s: %q", tc.reason, got)
		}
	}
}
