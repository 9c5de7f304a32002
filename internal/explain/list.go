package explain

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
)

// GetFleet implements tutti.Codes.
func (rd *Reader) GetFleet(ctx context.Context) (tutti.Fleet, error) {
	var out tutti.Fleet
	err := rd.look(ctx, func(v View) error {
		if v.Registry.Fleet == nil {
			return tutti.Errorf(tutti.CodeNotFound, "the server has no fleet file yet; push it with: tutti code push")
		}
		out = v.Fleet()
		return nil
	})
	return out, err
}

// ListNodes implements tutti.Nodes, sorted by name. An operator who may only view gets no error texts.
func (rd *Reader) ListNodes(ctx context.Context) ([]api.NodeView, error) {
	var out []api.NodeView
	err := rd.look(ctx, func(v View) error {
		for view := range v.nodes(v.May(tutti.VerbRead, "") == nil) {
			out = append(out, view)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b api.NodeView) int { return cmp.Compare(a.Node, b.Node) })
	return out, err
}

// The method `nodes` yields all nodes as a list shows them, with their standings. Without `reads` the views have no texts of
// nodes.
func (v View) nodes(reads bool) iter.Seq2[api.NodeView, converge.Standing] {
	return func(yield func(api.NodeView, converge.Standing) bool) {
		paused, standings := v.Paused(v.Now), v.Converge.Standings(converge.View{Has: v.has})
		for _, n := range v.Registry.Nodes {
			view, st := v.node(n), standings(n.Node)
			view.Paused = paused(n.Node)
			v.stands(n, st, &view)
			if !reads {
				view.Message, view.Failures, view.Trouble, view.Unnoted, view.Why = "", nil, "", "", ""
				view.Matches = withoutReasons(view.Matches)
			}
			if !yield(view, st) {
				return
			}
		}
	}
}

// The function `withoutReasons` replaces the reasons of matches, because a reason may quote facts.
func withoutReasons(in []tutti.Match) []tutti.Match {
	out := slices.Clone(in)
	for i := range out {
		if out[i].Unknown != "" {
			out[i].Unknown = "an operator with the verb read sees the reason"
		}
	}
	return out
}

// ListJobs implements tutti.Jobs, the latest first. An operator who may only view gets no messages.
func (rd *Reader) ListJobs(ctx context.Context) ([]api.JobView, error) {
	var out []api.JobView
	err := rd.look(ctx, func(v View) error {
		for view := range v.jobs(v.May(tutti.VerbRead, "") == nil) {
			out = append(out, view)
		}
		return nil
	})
	return out, err
}

// The method `jobs` yields all jobs, the latest first. Without `reads` the views have no messages.
func (v View) jobs(reads bool) iter.Seq[api.JobView] {
	return func(yield func(api.JobView) bool) {
		full := v.Space()
		for _, id := range slices.Backward(v.Engine.Order) {
			j := v.Engine.Jobs[id]
			sum := j.Tally()
			view := api.JobView{Environment: j.Env, Commits: j.Commits,
				Job: j.ID, Plan: j.Plan.Name, Mode: j.Mode, By: j.By, Cause: j.Cause, Verdict: j.Verdict, Message: j.Message,
				StartedAt: j.StartedAt, EndedAt: j.EndedAt, Runs: sum.Runs, Compiles: sum.Compiles, Failed: sum.Failed,
			}
			if why := v.Engine.WaitsFor(j); why != "" {
				view.Message = why
			}
			if full != nil && !j.Ended() {
				view.Message = "nothing more begins: " + full.Error()
			}
			if !reads {
				view.Message = ""
			}
			if !yield(view) {
				return
			}
		}
	}
}

// PageValues implements tutti.Values. An operator who may not read values gets only the values that they may set.
func (rd *Reader) PageValues(ctx context.Context, in api.ValuesQuery) (page api.ValuesPage, err error) {
	err = rd.look(ctx, func(v View) error {
		page.Values, page.More = v.Data.Page(in.Prefix, in.After, v.Sees())
		return nil
	})
	return page, err
}

// ListValues implements tutti.Values, sorted by key. An operator who may not read values gets only the values that
// they may set.
func (rd *Reader) ListValues(ctx context.Context, prefix string) ([]api.ValueView, error) {
	var out []api.ValueView
	err := rd.look(ctx, func(v View) error {
		sees := v.Sees()
		out = slices.DeleteFunc(v.Data.Values(prefix), func(value api.ValueView) bool { return !sees(value.Key) })
		return nil
	})
	return out, err
}

// Sees returns a function that reports whether the caller may see the value of a key.
func (v View) Sees() func(key string) bool {
	if v.May(tutti.VerbRead, "") == nil {
		return func(string) bool { return true }
	}
	return func(key string) bool { return v.May(tutti.VerbData, key) == nil }
}

// ListPauses implements tutti.Pauses.
func (rd *Reader) ListPauses(ctx context.Context) ([]api.PauseView, error) {
	out := []api.PauseView{}
	err := rd.look(ctx, func(v View) error {
		for _, p := range v.PausesAt(v.Now) {
			out = append(out, p.View())
		}
		return nil
	})
	return out, err
}

// ListOperators implements tutti.Operators, sorted by name.
func (rd *Reader) ListOperators(ctx context.Context) ([]api.OperatorView, error) {
	var out []api.OperatorView
	err := rd.look(ctx, func(v View) error {
		for _, name := range slices.Sorted(maps.Keys(v.Registry.Operators)) {
			op := v.Registry.Operators[name]
			view := api.OperatorView{Operator: name, CodeKey: op.CodeKey, Reason: op.Reason, Revoked: op.Revoked}
			for _, expires := range op.Good(v.Now) {
				view.Certificates++
				if expires.After(view.Expires) {
					view.Expires = expires
				}
			}
			out = append(out, view)
		}
		return nil
	})
	return out, err
}

// ListTokens implements tutti.Tokens. The token that expires first comes first.
func (rd *Reader) ListTokens(ctx context.Context) ([]api.TokenView, error) {
	var out []api.TokenView
	err := rd.look(ctx, func(v View) error {
		for _, t := range v.Registry.Tokens {
			if t.Left() > 0 && v.Now.Before(t.Expires) {
				out = append(out, api.TokenView{Token: t.Token, Name: t.Name, Groups: t.Groups, Expires: t.Expires, Uses: max(1, t.Uses), Used: len(t.Used)})
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b api.TokenView) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Token, b.Token))
	})
	return out, err
}
