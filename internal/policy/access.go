package policy

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// Wish is what an operator wants to do, as far as access may be narrowed to it.
type Wish struct {
	Verbs []tutti.Verb // one of them is enough; none: everybody may
	What  string       // for people, behind `may not`: "run deploy"
	// Narrow: the fields below say on what. Else it is asked whether an operator has a verb for anything at all.
	Narrow bool
	// Later: on what is for later to say, and a line to paste must not be wider than that: it has words to fill in.
	Later bool
	Plan  tutti.PlanName // of VerbRun; empty: any, or a pause
	Noop  bool           // of VerbRun: nothing on nodes changes
	Nodes []Target       // each must be covered
	All   bool           // of all nodes, also of those that join later
	Key   string         // of VerbData; empty: any
}

// Target is a node with its groups.
type Target struct {
	Node   tutti.NodeName
	Groups []tutti.GroupName
}

// MayOperate returns nil if an operator may do what he wants by the fleet file's access. Without that section
// everybody may do everything. Else the error has CodeRefused, and names the entry that is missing.
func MayOperate(fleet tutti.Fleet, operator string, w Wish) error {
	_, err := Admits(fleet, operator, w)
	return err
}

// Admits is MayOperate, and says which entries admit it, in the order of the file; none: the fleet has no access.
func Admits(fleet tutti.Fleet, operator string, w Wish) ([]tutti.Access, error) {
	if len(fleet.Access) == 0 || len(w.Verbs) == 0 {
		return nil, nil
	}
	missing := tutti.Access{To: []string{operator}, May: w.Verbs[:1]}
	var first []tutti.Access // that fit the first verb
	for i, verb := range w.Verbs {
		var fit []tutti.Access
		for _, a := range fleet.Access {
			if a.Has(operator, verb) && (!w.Narrow || admits(a, verb, w)) {
				fit = append(fit, a)
			}
		}
		if used := covering(fit, verb, w); used != nil {
			return used, nil
		}
		if i == 0 {
			first = fit
		}
	}
	if w.Narrow {
		missing = narrowed(fleet, missing, first, w)
	}
	narrowest := ""
	if w.Later && open(&missing) {
		narrowest = "tutti access explain " + operator + " " + string(missing.May[0]) + " TARGET names the narrowest line; "
	}
	return nil, tutti.Errorf(tutti.CodeRefused, "operator %s may not %s: no access; %sif it is to, add to the access of the fleet file: - %s", operator, w.What, narrowest, missing)
}

// open gives a missing entry words to fill in, and reports whether its verb can be narrowed.
func open(missing *tutti.Access) bool {
	switch missing.May[0] {
	case tutti.VerbRun:
		missing.Plans, missing.Groups = []tutti.PlanName{"PLAN"}, []tutti.GroupName{"GROUP"}
	case tutti.VerbPuppet:
		missing.Groups = []tutti.GroupName{"GROUP"}
	case tutti.VerbData:
		missing.Keys = []string{"KEY"}
	case tutti.VerbView, tutti.VerbRead, tutti.VerbApprove, tutti.VerbCode, tutti.VerbNodes, tutti.VerbAdmin:
		return false
	}
	return true
}

// admits reports whether an entry lets do what is wanted, whichever nodes it is for.
func admits(a tutti.Access, verb tutti.Verb, w Wish) bool {
	if slices.Contains(a.May, tutti.VerbAdmin) {
		return true
	}
	switch verb {
	case tutti.VerbRun:
		return (len(a.Plans) == 0 || slices.Contains(a.Plans, w.Plan)) && (!a.Noop || w.Noop)
	case tutti.VerbData:
		return len(a.Keys) == 0 || w.Key != "" && slices.ContainsFunc(a.Keys, func(p string) bool { return tutti.MatchPattern(p, w.Key) })
	case tutti.VerbView, tutti.VerbRead, tutti.VerbApprove, tutti.VerbCode, tutti.VerbPuppet, tutti.VerbNodes, tutti.VerbAdmin:
	}
	return true
}

// covering returns the entries of these that cover all nodes of a wish; nil: they do not.
func covering(fit []tutti.Access, verb tutti.Verb, w Wish) []tutti.Access {
	whole := func(a tutti.Access) bool {
		return len(a.Groups) == 0 || verb != tutti.VerbRun && verb != tutti.VerbPuppet
	}
	if i := slices.IndexFunc(fit, whole); i >= 0 {
		return fit[i : i+1]
	}
	if len(fit) == 0 || !w.Narrow {
		return fit
	}
	if w.All {
		return nil
	}
	if len(w.Nodes) == 0 { // of nothing on any node
		return fit[:1]
	}
	used := make([]bool, len(fit))
	for _, n := range w.Nodes {
		i := slices.IndexFunc(fit, func(a tutti.Access) bool { return covers(a, n) })
		if i < 0 {
			return nil
		}
		used[i] = true
	}
	var out []tutti.Access
	for i, a := range fit {
		if used[i] {
			out = append(out, a)
		}
	}
	return out
}

func covers(a tutti.Access, n Target) bool {
	return slices.ContainsFunc(a.Groups, func(g tutti.GroupName) bool { return slices.Contains(n.Groups, g) })
}

// narrowed makes the missing entry as narrow as the wish.
func narrowed(fleet tutti.Fleet, missing tutti.Access, fit []tutti.Access, w Wish) tutti.Access {
	switch missing.May[0] {
	case tutti.VerbRun:
		if missing.Noop = w.Noop; w.Plan != "" {
			missing.Plans = []tutti.PlanName{w.Plan}
		}
		missing.Groups = uncovered(fleet, fit, w)
	case tutti.VerbPuppet:
		missing.Groups = uncovered(fleet, fit, w)
	case tutti.VerbData:
		if w.Key != "" {
			missing.Keys = []string{w.Key}
		}
	case tutti.VerbView, tutti.VerbRead, tutti.VerbApprove, tutti.VerbCode, tutti.VerbNodes, tutti.VerbAdmin:
	}
	return missing
}

// uncovered are groups that cover the nodes of a wish that no entry covers: one for all of them if there is one, else
// the smallest one of each. A node in no group needs one first: it stands as GROUP.
func uncovered(fleet tutti.Fleet, fit []tutti.Access, w Wish) []tutti.GroupName {
	if w.All {
		return nil
	}
	var open [][]tutti.GroupName
	for _, n := range w.Nodes {
		if !slices.ContainsFunc(fit, func(a tutti.Access) bool { return covers(a, n) }) {
			open = append(open, n.Groups)
		}
	}
	if len(open) == 0 {
		return nil
	}
	common := slices.Clone(open[0])
	for _, groups := range open[1:] {
		common = slices.DeleteFunc(common, func(g tutti.GroupName) bool { return !slices.Contains(groups, g) })
	}
	if len(common) > 0 {
		return []tutti.GroupName{smallest(fleet, common)}
	}
	var out []tutti.GroupName
	for _, groups := range open {
		if len(groups) == 0 {
			out = append(out, "GROUP")
			continue
		}
		out = append(out, smallest(fleet, groups))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
