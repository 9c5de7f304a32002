package explain

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/wire"
)

// maxNamed is how many nodes an effect names for each time of reaction.
const maxNamed = 5

// Effect implements tutti.Values.
func (rd *Reader) Effect(ctx context.Context, key string, value json.RawMessage) (api.Effect, error) {
	in, err := data.CheckPublish(wire.Publish{Key: key, Value: value, Withdraw: len(value) == 0})
	if err != nil {
		return api.Effect{}, err
	}
	var out api.Effect
	return out, rd.look(ctx, func(v View) error {
		if err := v.Data.MayChange(in); err != nil {
			return err
		}
		out = v.effect(v.Data.Affects(in.Key, in.Value))
		return nil
	})
}

// The method `effect` groups the nodes by the time when they would run. A node runs at the earliest time that the
// rules give for one of its changed questions.
func (v View) effect(affected []data.Affected) api.Effect {
	var out api.Effect
	times := []tutti.ReactionTime{""}
	reaction := v.Fleet().Reaction
	if reaction != nil {
		out = api.Effect{Reactive: true, Wide: reaction.Wide, AskAbove: reaction.AskAbove}
		times = []tutti.ReactionTime{tutti.ReactNow, tutti.ReactWindow, tutti.ReactScheduled}
	}
	at := map[tutti.ReactionTime][]tutti.NodeName{}
	for _, a := range affected {
		when := tutti.ReactionTime("")
		if reaction != nil {
			when = v.Converge.When(reaction, a.Query)
		}
		at[when] = append(at[when], a.Nodes...)
	}
	seen := map[tutti.NodeName]bool{}
	for _, when := range times {
		nodes := slices.DeleteFunc(at[when], func(n tutti.NodeName) bool {
			twice := seen[n]
			seen[n] = true
			return twice
		})
		slices.Sort(nodes)
		if len(nodes) > 0 {
			out.Runs += len(nodes)
			out.When = append(out.When, api.EffectRuns{When: when, Runs: len(nodes), Nodes: slices.Clone(nodes[:min(maxNamed, len(nodes))])})
		}
	}
	return out
}
