package policy

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

const (
	maxWants  = 100 // how many types, and how many keys, a result of Wants or Merge may have
	maxLooked = 50  // how many refused resources of a type are checked; more would not change the result
	// maxWanted limits the text of the results of Wants and Merge, in bytes, because nodes choose the names, and
	// the log keeps the names.
	maxWanted = 16 << 10
)

// Wants returns the grants that a node lacks for the exports, writes and reads in the arguments. The field To of these
// grants is empty. One grant is dangerous and contains everything that needs `dangerous: true`. The other grant
// contains everything else.
func Wants(fleet tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName, exports []Inspected, writes, reads []string) []tutti.Grant {
	var out merging
	x := ExportsOf(fleet, groups, node)
	counts := map[string]amount{}
	lacks := map[string]int{} // refused resources of each type, up to maxLooked
	for _, e := range exports {
		counts[e.Type] = counts[e.Type].with(e)
		if lacks[e.Type] < maxLooked && len(lacks) <= maxWants && !x.admits(e) {
			lacks[e.Type]++
			out.add(wanted(e))
		}
	}
	for name, n := range counts {
		switch {
		case lacks[name] > 0:
			out.most(name, n)
		// The node has a grant of the type. (For a type without a grant, lacks[name] is 0 if there was no room
		// for the type above.)
		case lacks[name] == 0 && len(x.types[name]) > 0 && x.mayHave(name, n) != nil:
			out.add(x.more(name, n))
		}
	}
	keys := KeysOf(fleet, groups, node)
	for _, key := range writes {
		if !keys.Writes(key) {
			out.add(tutti.Grant{Write: []string{key}, Dangerous: tutti.DangerousPattern(key)})
		}
	}
	for _, key := range reads {
		if !keys.Reads(key) {
			out.add(tutti.Grant{Read: []string{key}})
		}
	}
	return out.grants()
}

// Merge returns grants that admit everything that the lists `a` and `b` admit. The field To of these grants is
// empty. Merge returns at most one dangerous grant and at most one other grant. Merge leaves out entries for
// which there is no room. The entries of `a` come first, so that entries of `b` cannot displace them.
func Merge(a, b []tutti.Grant) []tutti.Grant {
	var out merging
	for _, g := range slices.Concat(a, b) {
		out.add(g)
	}
	return out.grants()
}

// merging is the growing result of Merge.
type merging struct {
	safe, dangerous tutti.Grant
	used            int // approximate bytes
}

func (m *merging) add(g tutti.Grant) {
	into := &m.safe
	if g.Dangerous {
		into = &m.dangerous
	}
	for _, t := range g.Types {
		into.Types = m.addType(into.Types, t)
	}
	into.Write = m.addKeys(into.Write, g.Write)
	into.Read = m.addKeys(into.Read, g.Read)
}

// grants returns the grants that are not empty.
func (m *merging) grants() []tutti.Grant {
	m.dangerous.Dangerous = true
	var out []tutti.Grant
	for _, g := range []tutti.Grant{m.safe, m.dangerous} {
		if len(g.Types)+len(g.Write)+len(g.Read) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// The method `most` raises the limits of a type to this number and size, in each grant that has the type.
func (m *merging) most(name string, is amount) {
	for _, types := range [][]tutti.ExportGrant{m.safe.Types, m.dangerous.Types} {
		for i := range types {
			if types[i].Type == name {
				if is.count > tutti.MostExports {
					types[i].Most = max(types[i].Most, is.count)
				}
				if is.mib() > tutti.MostExportedMiB {
					types[i].MostMiB = max(types[i].MostMiB, is.mib())
				}
			}
		}
	}
}

// The method `takes` reserves room for a name. It returns false if there is not enough room.
func (m *merging) takes(name string) bool {
	const around = 3 // quotes and a comma
	if m.used+len(name)+around > maxWanted {
		return false
	}
	m.used += len(name) + around
	return true
}

func (m *merging) addType(types []tutti.ExportGrant, t tutti.ExportGrant) []tutti.ExportGrant {
	i, found := slices.BinarySearchFunc(types, t, func(a, b tutti.ExportGrant) int { return cmp.Compare(a.Type, b.Type) })
	if !found {
		if len(types) >= maxWants || !m.takes(t.Type) {
			return types
		}
		named := m.addKeys(nil, t.Parameters)
		if len(named) == 0 && len(t.Parameters) > 0 {
			return types // a grant without parameters would admit more than intended
		}
		t.Parameters = named
		return slices.Insert(types, i, t)
	}
	// A grant that names no parameters admits the safe parameters, or all parameters if Tutti has no list of safe ones.
	types[i].Parameters = m.addKeys(types[i].Parameters, t.Parameters)
	types[i].Defined = types[i].Defined || t.Defined
	types[i].Most = max(types[i].Most, t.Most)
	types[i].MostMiB = max(types[i].MostMiB, t.MostMiB)
	return types
}

// addKeys adds keys to a sorted list.
func (m *merging) addKeys(keys, more []string) []string {
	for _, key := range more {
		if i, found := slices.BinarySearch(keys, key); !found && len(keys) < maxWants && m.takes(key) {
			keys = slices.Insert(keys, i, key)
		}
	}
	return keys
}
