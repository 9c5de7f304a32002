package policy

import (
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

// Exports says which exports one node may have. An Exports is made once and used for many resources.
type Exports struct {
	fleet  tutti.Fleet
	node   tutti.NodeName
	groups []tutti.GroupName
	types  map[string][]granting
	// The map `old` has the types in all grants from before 0.3.0. The map `oldWord` has only the
	// types in those grants from before 0.3.0 that have `dangerous: true`.
	old, oldWord map[string]bool
}

// granting is what one grant says about one type.
type granting struct {
	tutti.ExportGrant
	dangerous bool
}

// ExportsOf returns the exports that the grants of a fleet allow to a node.
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

// Old reports whether a fleet has grants from before 0.3.0.
func Old(fleet tutti.Fleet) bool {
	return slices.ContainsFunc(fleet.Grants, func(g tutti.Grant) bool { return len(g.Exports) > 0 })
}

// Renewed returns the fleet as it would be after a push of the same file. The push gives old grants their new meaning.
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

// OldDangers returns types that a node may export only because its grants are from before 0.3.0. A newer grant
// of one of these types needs `dangerous: true`. The types are sorted.
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

// May returns nil if the node may export the resource. One grant must admit the whole resource.
func (x *Exports) May(e tutti.Export) error { return x.may(inspect(e)) }

// admits decides in the same way as the method `may`, but makes no text for a refusal. Making this text takes much
// longer than the decision.
func (x *Exports) admits(e Inspected) bool {
	_, refused := x.refuses(e)
	return !refused
}

// refuses returns true if every grant refuses a resource. The reason comes from the first grant for the resource's
// type. It is empty if there is no such grant.
func (x *Exports) refuses(e Inspected) (why string, refused bool) {
	if x.old[e.Type] {
		return "", false
	}
	for _, g := range x.types[e.Type] {
		said := g.refuses(e, x.node)
		if said == "" {
			return "", false
		}
		why = cmp.Or(why, said)
	}
	return why, true
}

func (x *Exports) may(e Inspected) error {
	why, refused := x.refuses(e)
	if !refused {
		return nil
	}
	if why == "" {
		return refuse(x.fleet, x.groups, x.node, "export resources of type "+e.Type, "no grant", wanted(e))
	}
	return refuse(x.fleet, x.groups, x.node, "export "+e.Ref(), why, x.wider(e))
}

// The method `wider` takes a grant that the node has for the type, and extends the grant so that it
// admits a resource. The grant's other limits stay. If none of the node's grants can be extended enough,
// wider returns the smallest grant that admits the resource.
func (x *Exports) wider(e Inspected) tutti.Grant {
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
			for _, tag := range e.tags {
				if !g.admitsTag(e, tag) && len(g.Tags) < maxWants {
					g.Tags = append(g.Tags, tag)
				}
			}
		}
		if g.refuses(e, x.node) == "" {
			return tutti.Grant{Types: []tutti.ExportGrant{g.ExportGrant}, Dangerous: g.dangerous}
		}
	}
	return wanted(e)
}

// MayAll returns nil if the node may export all exports. If the policy refuses an export, MayAll returns the
// type of the export and the reason.
func (x *Exports) MayAll(exports []Inspected) (refused string, err error) {
	counts := map[string]amount{}
	for _, e := range exports {
		if err := x.may(e); err != nil {
			return e.Type, err
		}
		counts[e.Type] = counts[e.Type].with(e)
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if err := x.mayHave(name, counts[name]); err != nil {
			return name, err
		}
	}
	return "", nil
}

// amount is the number of the resources of one type that a node exports, with their total bytes.
type amount struct{ count, bytes int }

func (a amount) mib() int { return (a.bytes + 1<<20 - 1) >> 20 }

func (a amount) with(e Inspected) amount { return amount{a.count + 1, a.bytes + e.bytes} }

// mayHave returns nil if the node may export this amount of resources of a type.
func (x *Exports) mayHave(name string, is amount) error {
	what, why := "", ""
	if most := x.Most(name); is.count > most {
		what, why = fmt.Sprintf("export %d resources of type %s", is.count, name), fmt.Sprintf("at most %d are granted", most)
	} else if most := x.MostMiB(name); is.mib() > most {
		what = fmt.Sprintf("export %d bytes of resources of type %s", is.bytes, name)
		why = fmt.Sprintf("at most %d MiB are granted (a node that collects them gets all of them)", most)
	} else {
		return nil
	}
	return refuse(x.fleet, x.groups, x.node, what, why, x.more(name, is))
}

// Only filters exports: it returns those that the node may export. If there are too many exports of a type, Only
// returns the first ones.
func (x *Exports) Only(exports []tutti.Export) []tutti.Export {
	counts := map[string]amount{}
	return slices.DeleteFunc(exports, func(one tutti.Export) bool {
		e := inspect(one)
		is := counts[e.Type].with(e)
		if !x.admits(e) || is.count > x.Most(e.Type) || is.mib() > x.MostMiB(e.Type) {
			return true
		}
		counts[e.Type] = is
		return false
	})
}

// Most returns the largest number of resources of a type that the node may export.
func (x *Exports) Most(name string) int {
	return x.bound(name, func(g granting) int { return cmp.Or(g.Most, tutti.MostExports) })
}

// MostMiB returns the largest size, in MiB, of all resources of a type that the node may export.
func (x *Exports) MostMiB(name string) int {
	return x.bound(name, func(g granting) int { return cmp.Or(g.MostMiB, tutti.MostExportedMiB) })
}

// The method `bound` returns the highest limit in the grants of a type. A grant from before 0.3.0 has no limit.
func (x *Exports) bound(name string, of func(granting) int) int {
	if x.old[name] {
		return math.MaxInt
	}
	most := 0
	for _, g := range x.types[name] {
		most = max(most, of(g))
	}
	return most
}

// The method `more` returns the node's grant of a type, with limits that are high enough for this amount.
func (x *Exports) more(name string, is amount) tutti.Grant {
	has := x.types[name][0]
	if most := x.Most(name); is.count > most || has.Most != 0 {
		has.Most = max(is.count, most)
	}
	if most := x.MostMiB(name); is.mib() > most || has.MostMiB != 0 {
		has.MostMiB = max(is.mib(), most)
	}
	return tutti.Grant{Types: []tutti.ExportGrant{has.ExportGrant}, Dangerous: has.dangerous}
}

// refuses returns the reason why a grant does not admit a resource, or the empty string.
func (g granting) refuses(e Inspected, node tutti.NodeName) string {
	// The fleet file refuses a dangerous grant without `dangerous: true`. The policy refuses the resource as well,
	// because some fleets do not come from a file.
	if why := g.Dangers(); why != "" && !g.dangerous {
		return why + ": it takes `dangerous: true`"
	}
	first := "" // the first refused parameter
	for p := range e.Parameters {
		if (!g.Admits(p, g.dangerous) || !g.dangerous && !e.isData(p)) && (first == "" || p < first) {
			first = p
		}
	}
	switch {
	case first != "" && g.Admits(first, g.dangerous):
		return fmt.Sprintf("the value of %q contains more than data, so it could call functions on the collecting node", first)
	case first != "":
		return fmt.Sprintf("its grant does not admit the parameter %q", first)
	case !g.dangerous && (hasControl(e.Title) || g.Native() && e.Type != "Notify" && e.control):
		// Some Puppet types check only one line of a text, but write all lines of the text into a file.
		return "a control character, like the end of a line, needs `dangerous: true`"
	}
	if g.OwnTitle && !owns(node, e.Title) {
		return fmt.Sprintf("its grant admits titles that are equal to %q, or begin with this name and one of %q", string(node), titleEnds)
	}
	if len(g.Tags) == 0 {
		return ""
	}
	if i := slices.IndexFunc(e.tags, func(tag string) bool { return !g.admitsTag(e, tag) }); i >= 0 {
		return fmt.Sprintf("its grant does not admit the tag %q", e.tags[i])
	}
	return ""
}

func hasControl(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

// titleEnds are the characters that end a node's name in a title. Of these characters, a node's name may contain
// only '_', and a host name contains none.
const titleEnds = ":/@ _"

func owns(node tutti.NodeName, title string) bool {
	rest, begins := strings.CutPrefix(title, string(node))
	return begins && (rest == "" || strings.ContainsAny(rest[:1], titleEnds))
}

// tagsOf returns the tags that the parameter `tag` creates on the collecting node. If a value is not text, tagsOf
// returns the beginning of the JSON, because no grant admits such a tag.
func tagsOf(value json.RawMessage) []string {
	var one any
	if len(value) == 0 || json.Unmarshal(value, &one) != nil || one == nil {
		return nil
	}
	many, is := one.([]any)
	if !is {
		many = []any{one}
	}
	var out []string
	for _, tag := range many {
		text, is := tag.(string)
		if !is {
			const most = 100
			return append(out, string(value[:min(len(value), most)]))
		}
		out = append(out, strings.ToLower(text))
	}
	return out
}

// admitsTag reports whether a resource may have a tag. Either the grant lists the tag, or
// Puppet makes the tag from type and title.
func (g granting) admitsTag(e Inspected, tag string) bool {
	return slices.Contains(g.Tags, tag) || slices.Contains(e.named, tag)
}

// dataTypes are the types of Puppet's rich data that are only values. typeValues are
// names of Puppet types. Their encoding is `Pcore::NAMEType`.
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

// Wanted returns the smallest grant that admits a resource, if a grant can admit the resource. The grant's
// field To is empty.
func Wanted(e tutti.Export) tutti.Grant { return wanted(inspect(e)) }

func wanted(e Inspected) tutti.Grant {
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
