package policy

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

const (
	maxWants  = 100 // types, and keys, of what Wants and Merge return
	maxLooked = 50  // resources of a type that are refused: more of them say the same
)

// Wants returns the grants that a node lacks to publish and read all this, without To: what takes the word
// in one that is dangerous, the rest in one that is not.
func Wants(fleet tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName, exports []tutti.Export, writes, reads []string) []tutti.Grant {
	var out []tutti.Grant
	x := ExportsOf(fleet, groups, node)
	counts := map[string]int{}
	lacks := map[string]int{} // how many resources, up to maxLooked
	for _, e := range exports {
		counts[e.Type]++
		if lacks[e.Type] < maxLooked && len(lacks) <= maxWants && x.May(e) != nil {
			lacks[e.Type]++
			out = Merge(out, []tutti.Grant{Wanted(e)})
		}
	}
	for name, n := range counts {
		switch {
		case lacks[name] > 0 && n > tutti.MostExports:
			out = withMost(out, name, n)
		case lacks[name] == 0 && n > x.Most(name):
			out = Merge(out, []tutti.Grant{x.more(name, n)})
		}
	}
	for _, key := range writes {
		if MayWrite(fleet, groups, node, key) != nil {
			out = Merge(out, []tutti.Grant{{Write: []string{key}, Dangerous: tutti.DangerousPattern(key)}})
		}
	}
	for _, key := range reads {
		if MayRead(fleet, groups, node, key) != nil {
			out = Merge(out, []tutti.Grant{{Read: []string{key}}})
		}
	}
	return out
}

// withMost says of a type how many resources there are, in each grant that has it.
func withMost(grants []tutti.Grant, name string, most int) []tutti.Grant {
	var more []tutti.Grant
	for _, g := range grants {
		for _, t := range g.Types {
			if t.Type == name {
				t.Most = most
				more = append(more, tutti.Grant{Types: []tutti.ExportGrant{t}, Dangerous: g.Dangerous})
			}
		}
	}
	return Merge(grants, more)
}

// Merge returns what admits what either of two lists of grants without To admits: at most one that is not
// dangerous, and one that is. What there is no room for is left out.
func Merge(a, b []tutti.Grant) []tutti.Grant {
	merged := map[bool]*tutti.Grant{false: {}, true: {Dangerous: true}}
	for _, g := range slices.Concat(a, b) {
		into := merged[g.Dangerous]
		for _, t := range g.Types {
			into.Types = addType(into.Types, t)
		}
		into.Write = addKeys(into.Write, g.Write)
		into.Read = addKeys(into.Read, g.Read)
	}
	var out []tutti.Grant
	for _, dangerous := range []bool{false, true} {
		if g := merged[dangerous]; len(g.Types)+len(g.Write)+len(g.Read) > 0 {
			out = append(out, *g)
		}
	}
	return out
}

func addType(types []tutti.ExportGrant, t tutti.ExportGrant) []tutti.ExportGrant {
	i, found := slices.BinarySearchFunc(types, t, func(a, b tutti.ExportGrant) int { return cmp.Compare(a.Type, b.Type) })
	if !found {
		if len(types) >= maxWants {
			return types
		}
		return slices.Insert(slices.Clone(types), i, t)
	}
	types = slices.Clone(types)
	// Nothing named admits what is safe, or all of a type of which nothing more is known.
	types[i].Parameters = addKeys(types[i].Parameters, t.Parameters)
	types[i].Defined = types[i].Defined || t.Defined
	types[i].Most = max(types[i].Most, t.Most)
	return types
}

func addKeys(keys, more []string) []string {
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(keys, more))))
	return all[:min(len(all), maxWants)]
}
