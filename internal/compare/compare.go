// Package compare finds the differences between two compiled catalogs of one node (ADR 0038).
package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
)

// Catalog is the normalised catalog that the launcher writes at the gate of a compile for a diff.
type Catalog struct {
	Run       tutti.RunID         `json:"run"`
	Resources map[string]Resource `json:"resources"` // by reference
	Edges     []string            `json:"edges"`
	// Sources has a digest of the content for each `puppet:` address of the catalog.
	Sources map[string]string `json:"sources"`
	// Lib is the digest of the code of types, providers and functions. Lib is empty if it is not known.
	Lib string `json:"lib"`
}

// Resource is a resource of a Catalog.
type Resource struct {
	Exported   bool                       `json:"exported,omitempty"`
	Tags       []string                   `json:"tags"`
	Parameters map[string]json.RawMessage `json:"parameters"` // in rich data
	// Hidden has keyed digests of the values that are or may be secrets.
	Hidden map[string]string `json:"hidden"`
}

// Read decodes a catalog.
func Read(raw []byte) (Catalog, error) {
	var c Catalog
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, tutti.Wrap(tutti.CodeDamaged, err, "the catalog of a compile")
	}
	if c.Resources == nil {
		return c, tutti.Errorf(tutti.CodeDamaged, "the catalog of run %s has no resources", c.Run)
	}
	return c, nil
}

// Complete returns the differences between two catalogs, as Catalogs does. If there are none, but the content of files or
// plugins is not known, Complete returns this as a difference: unknown content is not equal.
func Complete(a, b Catalog) tutti.CatalogDiff {
	out := Catalogs(a, b)
	if len(out.Changes)+out.Left == 0 && (a.Sources == nil || b.Sources == nil || a.Lib == "" || b.Lib == "") {
		out.Changes = append(out.Changes, tutti.CatalogChange{Kind: tutti.ChangeChanged, Parameter: "content", Text: tutti.ContentUnknown})
	}
	return out
}

// Catalogs returns the differences between two catalogs, sorted and bounded.
func Catalogs(a, b Catalog) tutti.CatalogDiff {
	d := &differ{out: tutti.CatalogDiff{Changes: []tutti.CatalogChange{}, Before: a.Run, After: b.Run}}
	retagged := 0
	for _, name := range union(a.Resources, b.Resources) {
		before, was := a.Resources[name]
		after, is := b.Resources[name]
		switch {
		case !was:
			d.add(tutti.CatalogChange{Kind: tutti.ChangeAdded, Resource: name, Text: texts(after)})
		case !is:
			d.add(tutti.CatalogChange{Kind: tutti.ChangeRemoved, Resource: name})
		default:
			d.resource(name, before, after)
			if !slices.Equal(before.Tags, after.Tags) {
				retagged++
			}
		}
	}
	for _, address := range union(a.Sources, b.Sources) {
		if before, was := a.Sources[address]; was {
			if after, is := b.Sources[address]; is && before != after {
				d.add(tutti.CatalogChange{Kind: tutti.ChangeChanged, Resource: address, Parameter: "content"})
			}
		}
	}
	if retagged > 0 {
		d.whole("tags", fmt.Sprintf("resources with other tags: %d", retagged))
	}
	if gone, come := without(a.Edges, b.Edges), without(b.Edges, a.Edges); gone+come > 0 {
		d.whole("order", fmt.Sprintf("relations added: %d, removed: %d", come, gone))
	}
	if a.Lib != b.Lib {
		d.whole("plugins", "types, providers or functions in lib/ differ, or facts that they read")
	}
	return d.out
}

type differ struct {
	out  tutti.CatalogDiff
	size int
}

// The method `add` adds a change if there is room for it.
func (d *differ) add(c tutti.CatalogChange) {
	c.Text = cut(c.Text, tutti.MaxChangeText)
	c.Resource = cut(c.Resource, tutti.MaxRemoteTitle)
	raw, err := json.Marshal(c)
	size := len(raw) + 1
	if err != nil || d.size+size > tutti.MaxCatalogDiff || len(d.out.Changes) >= tutti.MaxCatalogChanges {
		d.out.Left++
		return
	}
	d.size += size
	d.out.Changes = append(d.out.Changes, c)
}

// The method `whole` adds a change that is not about one resource.
func (d *differ) whole(what, text string) {
	d.add(tutti.CatalogChange{Kind: tutti.ChangeChanged, Parameter: what, Text: text})
}

// The method `resource` compares a resource that both catalogs have.
func (d *differ) resource(name string, a, b Resource) {
	if a.Exported != b.Exported {
		d.add(tutti.CatalogChange{Kind: tutti.ChangeChanged, Resource: name, Parameter: "exported", Text: fmt.Sprintf("%t → %t", a.Exported, b.Exported)})
	}
	for _, parameter := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(union(a.Parameters, b.Parameters), union(a.Hidden, b.Hidden))))) {
		before, after := a.Parameters[parameter], b.Parameters[parameter]
		c := tutti.CatalogChange{Kind: tutti.ChangeChanged, Resource: name, Parameter: parameter}
		if a.Hidden[parameter] != "" || b.Hidden[parameter] != "" {
			if c.Sensitive = true; a.Hidden[parameter] != b.Hidden[parameter] {
				d.add(c)
			}
			continue
		}
		if !bytes.Equal(before, after) {
			c.Text = change(before, after)
			d.add(c)
		}
	}
}

// The function `texts` lists the parameters of an added resource.
func texts(r Resource) string {
	var out []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(union(r.Parameters, r.Hidden)))) {
		if r.Hidden[name] != "" {
			out = append(out, name+" => (sensitive)")
			continue
		}
		out = append(out, name+" => "+short(shown(r.Parameters[name])))
	}
	return strings.Join(out, "\n")
}

// The function `change` describes how a value changed. If one of the values has several lines, the text has the lines
// that differ.
func change(before, after json.RawMessage) string {
	a, b := shown(before), shown(after)
	if !strings.Contains(a, "\n") && !strings.Contains(b, "\n") {
		return short(a) + " → " + short(b)
	}
	return lines(strings.Split(a, "\n"), strings.Split(b, "\n"))
}

// The constant most is the number of lines that a change shows of each of the values.
const most = 20

// The function `lines` shows the lines between the equal beginning and the equal end of two texts.
func lines(a, b []string) string {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var out []string
	for _, part := range []struct {
		sign  string
		lines []string
	}{{"-", a}, {"+", b}} {
		for _, line := range part.lines[:min(most, len(part.lines))] {
			out = append(out, part.sign+short(line))
		}
		if more := len(part.lines) - most; more > 0 {
			out = append(out, fmt.Sprintf("%s… %d more lines", part.sign, more))
		}
	}
	return strings.Join(out, "\n")
}

// The function `shown` returns a value for people: a string as it is, and other data as JSON.
func shown(raw json.RawMessage) string {
	var text string
	switch {
	case len(raw) == 0:
		return "(none)"
	case json.Unmarshal(raw, &text) == nil:
		return text
	}
	return string(raw)
}

func short(text string) string { return cut(text, 200) }

// The function `cut` shortens a text to a number of bytes, and never inside of a character.
func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	end := size - len("…")
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// The function `without` returns how many texts of the list a the list b does not have.
func without(a, b []string) int {
	has := map[string]bool{}
	for _, text := range b {
		has[text] = true
	}
	count := 0
	for _, text := range a {
		if !has[text] {
			count++
		}
	}
	return count
}

// The function `union` returns the sorted keys of two maps.
func union[A, B any](a map[string]A, b map[string]B) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.SortFunc(keys, cmp.Compare[string])
	return slices.Compact(keys)
}
