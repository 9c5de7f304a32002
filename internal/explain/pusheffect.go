package explain

import (
	"context"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/policy"
)

// PushEffect implements tutti.Codes.
func (rd *Reader) PushEffect(ctx context.Context, in api.PushQuery) (api.PushEffect, error) {
	onlyCode := len(in.Fleet.Source) == 0
	digest := tutti.DigestOf(in.Fleet.Source)
	// to read a file takes time and memory, so only an admin can make the server read another file
	may := func(v View) error {
		if onlyCode || digest == v.Registry.FleetDigest {
			return nil
		}
		return tutti.Wrap("", v.May(tutti.VerbAdmin, ""), "%s is not the fleet file of the server", in.Fleet.File)
	}
	var f tutti.Fleet
	if err := rd.look(ctx, func(v View) error {
		f = v.Fleet()
		return may(v)
	}); err != nil {
		return api.PushEffect{}, err
	}
	if !onlyCode {
		var err error
		if f, err = fleet.Parse(in.Fleet.File, in.Fleet.Source); err != nil {
			return api.PushEffect{}, err
		}
	}
	out := api.PushEffect{}
	if f.Reaction != nil {
		out.Reactive, out.Reaction, out.AskAbove = true, f.Reaction.Code, f.Reaction.AskAbove
	}
	return out, rd.look(ctx, func(v View) error {
		if err := may(v); err != nil {
			return err
		}
		codes := maps.Clone(in.Codes)
		if codes == nil {
			codes = map[string]tutti.Digest{}
		}
		if in.Code != "" {
			codes[f.Environment.Name] = in.Code
		}
		maps.DeleteFunc(codes, func(environment string, code tutti.Digest) bool { return code == v.Registry.Code[environment].Code })
		out.Same = (onlyCode || digest == v.Registry.FleetDigest && !policy.Old(v.Fleet())) && len(codes) == 0
		loses := map[tutti.NodeName]bool{}
		for _, u := range UngrantedBy(v.State, f) {
			loses[u.Node] = true
			out.Withdrawn = append(out.Withdrawn, u.Withdrawal)
		}
		stale := map[tutti.NodeName]bool{} // what needs a run already begins when the fleet becomes reactive
		if now := v.Fleet(); f.Reaction != nil && now.Reaction == nil {
			for _, n := range v.Converge.Needy(converge.View{Has: v.has}) {
				stale[n] = true
			}
		}
		members := fleet.NewMembership(f)
		for name, n := range v.Registry.Nodes {
			groups := members.GroupsOf(name, n.Groups, members.Trusted(name, n.Certificate))
			if f.WhyObserved(groups) != "" {
				continue
			}
			environment, has, last := f.EnvironmentFor(groups, n.Classified), v.has(name), v.Engine.Last(name).Applied
			code, other := codes[environment]
			if loses[name] || stale[name] || has.Environment != environment || other && f.ProgramOf(groups) != tutti.ProgramAgent && (last == nil || last.Code != code) {
				out.Nodes = append(out.Nodes, name)
			}
		}
		slices.Sort(out.Nodes)
		out.Runs = len(out.Nodes)
		out.Nodes = slices.Clone(out.Nodes[:min(maxNamed, len(out.Nodes))])
		return nil
	})
}
