package compare_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/compare"
)

func read(t *testing.T, text string) compare.Catalog {
	t.Helper()
	c, err := compare.Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCatalogs(t *testing.T) {
	a := read(t, `{"run": "a", "lib": "1", "edges": ["A -> B"], "sources": {"puppet:///x": "1", "puppet:///same": "1"}, "resources": {
		"File[/gone]": {"tags": []},
		"File[/lines]": {"tags": ["x"], "parameters": {"content": "one\ntwo\nthree"}},
		"File[/value]": {"tags": [], "parameters": {"mode": "0644", "owner": "root"}, "hidden": {"same": "1", "other": "1"}},
		"Hash[order]": {"tags": [], "parameters": {"data": {"a": 1, "b": 2}}}}}`)
	b := read(t, `{"run": "b", "lib": "2", "edges": [], "sources": {"puppet:///x": "2", "puppet:///same": "1"}, "resources": {
		"File[/new]": {"tags": [], "parameters": {"mode": "0600"}, "hidden": {"content": "never"}},
		"File[/lines]": {"tags": ["y"], "parameters": {"content": "one\n2\nthree"}},
		"File[/value]": {"tags": [], "exported": true, "parameters": {"mode": "0600", "group": "root"}, "hidden": {"same": "1", "other": "2", "owner": "3"}},
		"Hash[order]": {"tags": [], "parameters": {"data": {"b": 2, "a": 1}}}}}`)
	changed := func(resource, parameter, text string) tutti.CatalogChange {
		return tutti.CatalogChange{Kind: tutti.ChangeChanged, Resource: resource, Parameter: parameter, Text: text}
	}
	secret := func(parameter string) tutti.CatalogChange {
		return tutti.CatalogChange{Kind: tutti.ChangeChanged, Resource: "File[/value]", Parameter: parameter, Sensitive: true}
	}
	want := tutti.CatalogDiff{Before: "a", After: "b", Changes: []tutti.CatalogChange{
		{Kind: tutti.ChangeRemoved, Resource: "File[/gone]"},
		changed("File[/lines]", "content", "-two\n+2"),
		{Kind: tutti.ChangeAdded, Resource: "File[/new]", Text: "content => (sensitive)\nmode => 0600"},
		changed("File[/value]", "exported", "false → true"),
		changed("File[/value]", "group", "(none) → root"),
		changed("File[/value]", "mode", "0644 → 0600"),
		secret("other"),
		secret("owner"),
		changed("Hash[order]", "data", `{"a": 1, "b": 2} → {"b": 2, "a": 1}`),
		changed("puppet:///x", "content", ""),
		changed("", "tags", "resources with other tags: 1"),
		changed("", "order", "relations added: 0, removed: 1"),
		changed("", "plugins", "types, providers or functions in lib/ differ, or facts that they read"),
	}}
	if diff := cmp.Diff(want, compare.Catalogs(a, b)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := compare.Catalogs(a, a); len(got.Changes) != 0 {
		t.Errorf("a catalog differs from itself: %+v", got)
	}
}

// TestALargeDifferenceFits: the answer fits into a message, and says how many changes it lacks.
func TestALargeDifferenceFits(t *testing.T) {
	for _, fill := range []string{"x", "<", "\x01", "\n", "ü"} {
		a, b := compare.Catalog{Resources: map[string]compare.Resource{}}, compare.Catalog{Resources: map[string]compare.Resource{}}
		const all = 2000
		for i := range all {
			raw, err := json.Marshal(strings.Repeat(fill, 5000))
			if err != nil {
				t.Fatal(err)
			}
			b.Resources[fmt.Sprintf("File[/%d]", i)] = compare.Resource{Parameters: map[string]json.RawMessage{"content": raw}}
		}
		got := compare.Catalogs(a, b)
		raw, err := json.Marshal(tutti.RemoteReply{RemoteAnswer: tutti.RemoteAnswer{Diff: &got}})
		if err != nil || len(raw) > tutti.MaxRemoteReply {
			t.Errorf("%q: %d bytes, %v", fill, len(raw), err)
		}
		if len(got.Changes) == 0 || len(got.Changes)+got.Left != all {
			t.Errorf("%q: %d changes and %d left out, want %d", fill, len(got.Changes), got.Left, all)
		}
	}
}

func TestRead(t *testing.T) {
	for _, text := range []string{"", "{", "{}", `{"resources": []}`, `{"resources": null}`} {
		if _, err := compare.Read([]byte(text)); tutti.CodeOf(err) != tutti.CodeDamaged {
			t.Errorf("%q: %v", text, err)
		}
	}
}
