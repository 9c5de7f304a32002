package explain

import (
	"context"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
)

// Targets returns these nodes with their groups, for policy.MayOperate.
func Targets(state *fold.State, nodes []tutti.NodeName) []policy.Target {
	out := make([]policy.Target, len(nodes))
	for i, name := range nodes {
		out[i] = policy.Target{Node: name, Groups: state.Registry.GroupsOf(name)}
	}
	return out
}

// Targeted returns the nodes of a group, or one node. If the target is empty or a group with `where`, the result `all` is
// true. A group includes listed nodes that have not joined yet.
func Targeted(state *fold.State, target string) (all bool, nodes []policy.Target) {
	// Any node may become a member of a group with `where`.
	if target == "" || state.Registry.Conditions.Has(tutti.GroupName(target)) {
		return true, nil
	}
	nodes = Targets(state, slices.Concat(state.Members(target), state.Unjoined(target)))
	for _, g := range state.Fleet().Groups {
		if string(g.Name) == target && g.Joined() {
			nodes = append(nodes, policy.Target{Groups: []tutti.GroupName{g.Name}})
		}
	}
	return false, nodes
}

// ExplainAccess implements tutti.Operators.
func (rd *Reader) ExplainAccess(ctx context.Context, in api.AccessQuery) (api.AccessAnswer, error) {
	if err := in.Validate(); err != nil {
		return api.AccessAnswer{}, err
	}
	w := policy.Wish{Verbs: []tutti.Verb{in.Verb}, What: in.What(), Narrow: true, Plan: in.Plan, Noop: in.Noop}
	var out api.AccessAnswer
	return out, rd.look(ctx, func(v View) error {
		switch in.Verb {
		case tutti.VerbRun, tutti.VerbPuppet:
			if !v.IsTarget(in.Target) {
				return tutti.Errorf(tutti.CodeNotFound, "no group %q in the fleet file, and no such node; see: tutti node list", in.Target)
			}
			w.All, w.Nodes = Targeted(v.State, in.Target)
		case tutti.VerbData:
			w.Key = in.Target
		default: // nothing limits the question
		}
		by, err := policy.Admits(v.Fleet(), in.Operator, w)
		switch {
		case err != nil:
			out.Why = err.Error()
		case len(by) == 0:
			out = api.AccessAnswer{May: true, Why: "the fleet file has no section `access`: each operator may do everything"}
		default:
			lines := make([]string, len(by))
			for i, a := range by {
				lines[i] = "- " + a.String()
			}
			out = api.AccessAnswer{May: true, Why: "the fleet file says: " + strings.Join(lines, " and ")}
		}
		if op := v.Registry.Operators[in.Operator]; out.May && (op == nil || len(op.Good(v.Now)) == 0) {
			out.Why += "; but no certificate of this name is known to be good"
		}
		return nil
	})
}
