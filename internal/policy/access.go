package policy

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// Wish is an action of an operator, with everything that can limit access.
type Wish struct {
	Verbs []tutti.Verb // one of these verbs is enough; if the list is empty, everybody may act
	What  string       // text for people that follows `may not`, for example "run deploy"
	// If Narrow is true, the fields from Plan to Key describe the wish, and access must allow this
	// wish. If Narrow is false, it is enough that access gives the verb to the operator.
	Narrow bool
	// Later says that the plan, nodes or key of the wish are not known yet. In this case, the error
	// suggests a line with placeholders, so that the line does not allow too much.
	Later bool
	Plan  tutti.PlanName // for VerbRun; empty: any plan, or a pause
	Noop  bool           // for VerbRun: the action changes nothing on nodes
	Nodes []Target       // access must cover each of these nodes
	All   bool           // all nodes, also those that join later
	Key   string         // for VerbData; empty for any key
}

// Target is a node together with its groups.
type Target struct {
	Node   tutti.NodeName
	Groups []tutti.GroupName
}

// MayOperate returns nil if the section access of the fleet file allows an operator's wish. If the file has no such
// section, every operator may do everything. If the section does not allow the wish, the error has CodeRefused and
// names the missing entry.
func MayOperate(fleet tutti.Fleet, operator string, w Wish) error {
	_, err := Admits(fleet, operator, w)
	return err
}

// Admits does the same as MayOperate. It also returns the entries that allow the wish, in the order of
// the file. The list is nil if the file has no section access, or if everybody may do the wish.
func Admits(fleet tutti.Fleet, operator string, w Wish) ([]tutti.Access, error) {
	if len(fleet.Access) == 0 || len(w.Verbs) == 0 {
		return nil, nil
	}
	missing := tutti.Access{To: []string{operator}, May: w.Verbs[:1]}
	var first []tutti.Access // the entries that fit the first verb
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
	return nil, tutti.Errorf(tutti.CodeRefused, "operator %s may not %s: no access; %sto allow this, add to the access of the fleet file: - %s", operator, w.What, narrowest, missing)
}

// The function `open` adds placeholders to the suggested entry. It returns false if the verb of the entry
// cannot be limited.
func open(missing *tutti.Access) bool {
	switch missing.May[0] {
	case tutti.VerbRun:
		missing.Plans, missing.Groups = []tutti.PlanName{"PLAN"}, []tutti.GroupName{"GROUP"}
	case tutti.VerbPuppet:
		missing.Groups = []tutti.GroupName{"GROUP"}
	case tutti.VerbData:
		missing.Keys = []string{"KEY"}
	case tutti.VerbView, tutti.VerbRead, tutti.VerbApprove, tutti.VerbCode, tutti.VerbNodes, tutti.VerbMetrics, tutti.VerbAdmin:
		return false
	}
	return true
}

// The function `admits` reports whether an entry allows the wish. admits does not check the nodes.
func admits(a tutti.Access, verb tutti.Verb, w Wish) bool {
	if slices.Contains(a.May, tutti.VerbAdmin) {
		return true
	}
	switch verb {
	case tutti.VerbRun:
		return (len(a.Plans) == 0 || slices.Contains(a.Plans, w.Plan)) && (!a.Noop || w.Noop)
	case tutti.VerbData:
		return len(a.Keys) == 0 || w.Key != "" && slices.ContainsFunc(a.Keys, func(p string) bool { return tutti.MatchPattern(p, w.Key) })
	case tutti.VerbView, tutti.VerbRead, tutti.VerbApprove, tutti.VerbCode, tutti.VerbPuppet, tutti.VerbNodes, tutti.VerbMetrics, tutti.VerbAdmin:
	}
	return true
}

// covering returns those entries of the list `fit` that together cover all nodes of a wish. The
// function returns nil if the entries do not cover all nodes.
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
	if len(w.Nodes) == 0 { // the wish is not about nodes, so one entry is enough
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

// The function `narrowed` limits the suggested entry, so that it allows the wish and nothing more.
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
	case tutti.VerbView, tutti.VerbRead, tutti.VerbApprove, tutti.VerbCode, tutti.VerbNodes, tutti.VerbMetrics, tutti.VerbAdmin:
	}
	return missing
}

// uncovered returns groups for the nodes of a wish that no entry covers. If one group contains all these nodes,
// uncovered returns the smallest such group. If there is no such group, uncovered returns the smallest group of each
// node. For a node without a group, uncovered returns GROUP.
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
