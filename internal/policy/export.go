package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/tutti-project/tutti"
)

// Exports says what one node may export. It is made once for many resources.
type Exports struct {
	fleet  tutti.Fleet
	node   tutti.NodeName
	groups []tutti.GroupName
	types  map[string][]granting
	// By grants of before 0.3.0; oldWord: with the word.
	old, oldWord map[string]bool
}

// granting is what one grant says of a type.
type granting struct {
	tutti.ExportGrant
	dangerous bool
}

// ExportsOf returns what the grants of a fleet let a node export.
func ExportsOf(fleet tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName) *Exports {
	x := &Exports{fleet: fleet, node: node, groups: groups, types: map[string][]granting{}, old: map[string]bool{}, oldWord: map[string]bool{}}
	for _, g := range granted(fleet, groups) {
		for _, name := range g.Exports {
			x.old[name] = x.old[name] || g.Dangerous || !tutti.OldDangerousExport(name)
			x.oldWord[name] = x.oldWord[name] || g.Dangerous
		}
		for _, e := range g.Types {
			x.types[e.Type] = append(x.types[e.Type], granting{e, g.Dangerous})
		}
	}
	return x
}

// Old reports whether a fleet has grants of before 0.3.0.
func Old(fleet tutti.Fleet) bool {
	return slices.ContainsFunc(fleet.Grants, func(g tutti.Grant) bool { return len(g.Exports) > 0 })
}

// Renewed returns the fleet with the meaning that its old grants have after a push of the same file.
func Renewed(fleet tutti.Fleet) tutti.Fleet {
	fleet.Grants = slices.Clone(fleet.Grants)
	for i, g := range fleet.Grants {
		types := slices.Clone(g.Types)
		for _, name := range g.Exports {
			types = append(types, tutti.ExportGrant{Type: name})
		}
		fleet.Grants[i].Types, fleet.Grants[i].Exports = types, nil
	}
	return fleet
}

// OldDangers returns the types that the node may export by grants of before 0.3.0, and that take the word since
// then, sorted.
func (x *Exports) OldDangers() []string {
	var out []string
	for name, may := range x.old {
		if may && (tutti.ExportGrant{Type: name}).Dangers() != "" && !x.oldWord[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// May returns nil if the node may export the resource: one grant admits the whole of it.
func (x *Exports) May(e tutti.Export) error {
	if x.old[e.Type] {
		return nil
	}
	why := ""
	for _, g := range x.types[e.Type] {
		said := g.refuses(e, x.node)
		if said == "" {
			return nil
		}
		if why == "" {
			why = said
		}
	}
	if why == "" {
		return refuse(x.fleet, x.groups, x.node, "export resources of type "+e.Type, "no grant", Wanted(e))
	}
	return refuse(x.fleet, x.groups, x.node, "export "+e.Ref(), why, x.wider(e))
}

// wider returns the grant that the node has of the type, with what it lacks for a resource: its other limits
// stay. If that does not do, it is the smallest grant that does.
func (x *Exports) wider(e tutti.Export) tutti.Grant {
	for _, g := range x.types[e.Type] {
		g.Parameters, g.Tags = slices.Clone(g.Parameters), slices.Clone(g.Tags)
		g.OwnTitle = g.OwnTitle && owns(x.node, e.Title)
		for _, p := range slices.Sorted(maps.Keys(e.Parameters)) {
			switch {
			case slices.Contains(tutti.Relations, p):
				g.NoRelations = false
			case len(g.Parameters) > 0 && tutti.IsParameter(p) && !g.Admits(p, g.dangerous):
				g.Parameters = append(g.Parameters, p)
			}
		}
		if len(g.Tags) > 0 {
			for _, tag := range slices.Concat(e.Tags, tagsOf(e.Parameters["tag"])) {
				if !g.admitsTag(e, tag) {
					g.Tags = append(g.Tags, tag)
				}
			}
		}
		if g.refuses(e, x.node) == "" {
			return tutti.Grant{Types: []tutti.ExportGrant{g.ExportGrant}, Dangerous: g.dangerous}
		}
	}
	return Wanted(e)
}

// MayAll returns nil if the node may export all of them, or the type that it may not and why.
func (x *Exports) MayAll(exports []tutti.Export) (refused string, err error) {
	counts := map[string]int{}
	for _, e := range exports {
		if err := x.May(e); err != nil {
			return e.Type, err
		}
		counts[e.Type]++
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if most := x.Most(name); counts[name] > most {
			what := fmt.Sprintf("export %d resources of type %s", counts[name], name)
			return name, refuse(x.fleet, x.groups, x.node, what, fmt.Sprintf("at most %d are granted", most), x.more(name, counts[name]))
		}
	}
	return "", nil
}

// Only returns those that the node may export, of each type the first ones that are not too many.
func (x *Exports) Only(exports []tutti.Export) []tutti.Export {
	counts := map[string]int{}
	return slices.DeleteFunc(exports, func(e tutti.Export) bool {
		if x.May(e) != nil || counts[e.Type] >= x.Most(e.Type) {
			return true
		}
		counts[e.Type]++
		return false
	})
}

// Most is how many resources of a type the node may export.
func (x *Exports) Most(name string) int {
	if x.old[name] {
		return math.MaxInt
	}
	most := 0
	for _, g := range x.types[name] {
		most = max(most, cmp.Or(g.Most, tutti.MostExports))
	}
	return most
}

// more is the grant that the node has of a type, for so many resources.
func (x *Exports) more(name string, count int) tutti.Grant {
	has := x.types[name][0]
	has.Most = count
	return tutti.Grant{Types: []tutti.ExportGrant{has.ExportGrant}, Dangerous: has.dangerous}
}

// refuses says why a grant does not admit a resource, or returns the empty string.
func (g granting) refuses(e tutti.Export, node tutti.NodeName) string {
	// What the fleet file would refuse without the word is refused here, too: the fleet may come from no file.
	if why := g.Dangers(); why != "" && !g.dangerous {
		return why + ": it takes `dangerous: true`"
	}
	first := "" // of the parameters that are refused
	for p, value := range e.Parameters {
		if (!g.Admits(p, g.dangerous) || !g.dangerous && !isData(value)) && (first == "" || p < first) {
			first = p
		}
	}
	switch {
	case first != "" && g.Admits(first, g.dangerous):
		return fmt.Sprintf("the value of %q is more than data, which calls functions on the collector", first)
	case first != "":
		return fmt.Sprintf("its grant does not admit the parameter %q", first)
	case !g.dangerous && (hasControl(e.Title) || g.Native() && e.Type != "Notify" && slices.ContainsFunc(slices.Collect(maps.Values(e.Parameters)), valueHasControl)):
		// Types check a line of a text where they mean all of it, and write the text into a file of lines.
		return "a control character, like the end of a line, takes `dangerous: true`"
	}
	if g.OwnTitle && !owns(node, e.Title) {
		return fmt.Sprintf("its grant admits titles that are %q, or begin with that and one of %q", string(node), titleEnds)
	}
	if len(g.Tags) == 0 {
		return ""
	}
	tags := slices.Concat(e.Tags, tagsOf(e.Parameters["tag"]))
	if i := slices.IndexFunc(tags, func(tag string) bool { return !g.admitsTag(e, tag) }); i >= 0 {
		return fmt.Sprintf("its grant does not admit the tag %q", tags[i])
	}
	return ""
}

func hasControl(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

// valueHasControl reports whether a text at any depth of a value in rich data has a control character.
func valueHasControl(value json.RawMessage) bool {
	if !bytes.ContainsRune(value, '\\') && !bytes.ContainsFunc(value, unicode.IsControl) {
		return false
	}
	var v any
	return json.Unmarshal(value, &v) != nil || anyControl(v)
}

func anyControl(v any) bool {
	switch v := v.(type) {
	case string:
		return hasControl(v)
	case []any:
		return slices.ContainsFunc(v, anyControl)
	case map[string]any:
		for key, item := range v {
			if hasControl(key) || anyControl(item) {
				return true
			}
		}
	}
	return false
}

// titleEnds are the characters that end a node's name in a title. None is in a node's name but
// '_', which no host's name has.
const titleEnds = ":/@ _"

func owns(node tutti.NodeName, title string) bool {
	rest, begins := strings.CutPrefix(title, string(node))
	return begins && (rest == "" || strings.ContainsAny(rest[:1], titleEnds))
}

// tagsOf returns what the parameter tag makes tags of on the collector. Of a value that is not text it
// returns the encoding, which nobody grants.
func tagsOf(value json.RawMessage) []string {
	var one any
	if len(value) == 0 || json.Unmarshal(value, &one) != nil || one == nil {
		return nil
	}
	many, is := one.([]any)
	if !is {
		many = []any{one}
	}
	out := make([]string, len(many))
	for i, tag := range many {
		text, is := tag.(string)
		if !is {
			text = string(value)
		}
		out[i] = strings.ToLower(text)
	}
	return out
}

// admitsTag reports whether a resource may have a tag: it is one of the grant, or of those that Puppet
// makes of type and title.
func (g granting) admitsTag(e tutti.Export, tag string) bool {
	name := strings.ToLower(e.Type)
	return slices.Contains(g.Tags, tag) || tag == name || slices.Contains(strings.Split(name, "::"), tag) || tag == strings.ToLower(e.Title)
}

// dataTypes are the types of Puppet's rich data that are values and nothing else: the first ones as they
// are, and names of Puppet types, whose encoding is `Pcore::NAMEType`.
var (
	dataTypes = []string{
		"Binary", "Default", "Hash", "Regexp", "SemVer", "SemVerRange", "Sensitive", "Symbol", "Timespan", "Timestamp", "URI",
	}
	typeValues = []string{
		"Any", "Array", "Binary", "Boolean", "CatalogEntry", "Class", "Collection", "Default", "Enum", "Float", "Hash", "Integer",
		"Iterable", "NotUndef", "Numeric", "Optional", "Pattern", "Regexp", "Resource", "Scalar", "ScalarData", "SemVer", "SemVerRange", "Sensitive", "String", "Struct", "Timespan", "Timestamp", "Tuple",
		"Type", "URI", "Undef", "Variant",
	}
)

func isDataType(name string) bool {
	if typed, is := strings.CutPrefix(name, "Pcore::"); is {
		plain, is := strings.CutSuffix(typed, "Type")
		return is && slices.Contains(typeValues, plain) || typed == "StructElement"
	}
	return slices.Contains(dataTypes, name)
}

// isData reports whether a value in rich data is data at every depth. A Deferred is a call.
func isData(value json.RawMessage) bool {
	if !bytes.Contains(value, []byte("__p")) && !bytes.ContainsRune(value, '\\') {
		return true
	}
	var v any
	return json.Unmarshal(value, &v) == nil && isDataValue(v)
}

func isDataValue(v any) bool {
	switch v := v.(type) {
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !isDataValue(item) })
	case map[string]any:
		if kind, typed := v["__ptype"]; typed {
			if name, ok := kind.(string); !ok || !isDataType(name) {
				return false
			}
		}
		for _, item := range v {
			if !isDataValue(item) {
				return false
			}
		}
	}
	return true
}

// Wanted returns the smallest grant that admits a resource, if one can. To is empty.
func Wanted(e tutti.Export) tutti.Grant {
	g := tutti.ExportGrant{Type: e.Type}
	if safe := (granting{g, false}); safe.refuses(e, "") == "" {
		return tutti.Grant{Types: []tutti.ExportGrant{g}}
	}
	for _, p := range slices.Sorted(maps.Keys(e.Parameters)) {
		if tutti.IsParameter(p) && p != "tag" && !slices.Contains(tutti.Relations, p) {
			g.Parameters = append(g.Parameters, p)
		}
	}
	return tutti.Grant{Types: []tutti.ExportGrant{g}, Dangerous: true}
}
