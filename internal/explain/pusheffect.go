package explain

import (
	"context"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/policy"
)

// PushEffect implements tutti.Codes.
func (rd *Reader) PushEffect(ctx context.Context, in api.PushQuery) (api.PushEffect, error) {
	digest := tutti.DigestOf(in.Fleet.Source)
	// to read a file takes time and memory, so only an admin can make the server read another file
	may := func(v View) error {
		if digest == v.Registry.FleetDigest {
			return nil
		}
		return tutti.Wrap("", v.May(tutti.VerbAdmin, ""), "%s is not the fleet file of the server", in.Fleet.File)
	}
	if err := rd.look(ctx, may); err != nil {
		return api.PushEffect{}, err
	}
	f, err := fleet.Parse(in.Fleet.File, in.Fleet.Source)
	if err != nil {
		return api.PushEffect{}, err
	}
	out := api.PushEffect{}
	if f.Reaction != nil {
		out.Reactive, out.Reaction, out.AskAbove = true, f.Reaction.Code, f.Reaction.AskAbove
	}
	return out, rd.look(ctx, func(v View) error {
		if err := may(v); err != nil {
			return err
		}
		out.Same = digest == v.Registry.FleetDigest && !policy.Old(v.Fleet()) && (in.Code == "" || in.Code == v.Registry.Code[f.Environment.Name].Code)
		loses := map[tutti.NodeName]bool{}
		for _, u := range UngrantedBy(v.State, f) {
			loses[u.Node] = true
			out.Withdrawn = append(out.Withdrawn, u.Withdrawal)
		}
		// The variable `other` is false if the request has no code, or has the current code.
		other := in.Code != "" && in.Code != v.Registry.Code[f.Environment.Name].Code
		for n := range v.Registry.Nodes {
			if v.WhyObserved(n) != "" {
				continue
			}
			last := v.Engine.Last(n).Applied
			if loses[n] || other && v.has(n).Program != tutti.ProgramAgent && (last == nil || last.Code != in.Code) {
				out.Nodes = append(out.Nodes, n)
			}
		}
		slices.Sort(out.Nodes)
		out.Runs = len(out.Nodes)
		out.Nodes = slices.Clone(out.Nodes[:min(maxNamed, len(out.Nodes))])
		return nil
	})
}
