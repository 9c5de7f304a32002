package explain

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
)

// Ungranted has the publications of a node for which a fleet file has no grant.
type Ungranted struct {
	tutti.Withdrawal
	Keeps []tutti.Export // exports that the node may keep
}

// UngrantedBy returns, sorted by name, the nodes with publications for which a fleet file has no grant.
func UngrantedBy(s *fold.State, f tutti.Fleet) []Ungranted {
	var out []Ungranted
	members := fleet.NewMembership(f)
	for _, n := range s.Registry.Nodes {
		groups := members.GroupsOf(n.Node, n.Groups, members.Trusted(n.Node, n.Certificate))
		u := Ungranted{Withdrawal: tutti.Withdrawal{Node: n.Node}}
		keys := policy.KeysOf(f, groups, n.Node)
		for _, key := range s.Data.OwnedBy(n.Node) {
			if !keys.Writes(key) {
				u.Values = append(u.Values, key)
			}
		}
		exports := s.Data.Exports(n.Node)
		may := policy.ExportsOf(f, groups, n.Node)
		for _, e := range exports {
			if may.May(e) == nil {
				u.Keeps = append(u.Keeps, e)
				continue
			}
			if u.Exports++; !slices.Contains(u.Types, e.Type) {
				u.Types = append(u.Types, e.Type)
			}
		}
		if len(u.Values) == 0 && u.Exports == 0 {
			continue
		}
		slices.Sort(u.Types)
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Ungranted) int { return cmp.Compare(a.Node, b.Node) })
	return out
}
