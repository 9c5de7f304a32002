package operators

import (
	"cmp"
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/policy"
)

// Pause implements tutti.Pauses.
func (s *Operators) Pause(ctx context.Context, in api.Pause) (api.PauseView, error) {
	reason := plain.Line(in.Reason)
	switch {
	case reason == "":
		return api.PauseView{}, tutti.Errorf(tutti.CodeInvalid, "a pause needs a reason, so that others see why nothing runs")
	case in.For < 0:
		return api.PauseView{}, tutti.Errorf(tutti.CodeInvalid, "the length of a pause must not be negative: %s", in.For)
	}
	var out api.PauseView
	return out, s.lasting(ctx, "pause "+in.Target, func(tx *tx) error {
		if !tx.IsTarget(in.Target) {
			return tutti.Errorf(tutti.CodeNotFound, "no group %q in the fleet file, and no such node; see: tutti node list", in.Target)
		}
		if err := tx.mayPause(ctx, "pause", in.Target); err != nil {
			return err
		}
		body := &tutti.Paused{Target: in.Target, Reason: reason}
		if in.For > 0 {
			body.Until = tx.Now.Add(in.For).UTC()
		}
		tx.Emit(tutti.Actor(ctx), body)
		out = tx.Registry.Pauses[in.Target].View()
		return nil
	})
}

// Unpause implements tutti.Pauses.
func (s *Operators) Unpause(ctx context.Context, target string) error {
	return s.lasting(ctx, "unpause "+target, func(tx *tx) error {
		if err := tx.mayPause(ctx, "unpause", target); err != nil {
			return err
		}
		p, found := tx.Registry.Pauses[target]
		if found && !p.Ended(tx.Now) {
			tx.Emit(tutti.Actor(ctx), &tutti.Unpaused{Target: target})
			return nil
		}
		what := "the fleet as a whole"
		if target != "" {
			what = target + " by itself"
		}
		return tutti.Errorf(tutti.CodeNotFound, "%s is not paused; see: tutti pause list", what)
	})
}

// mayPause refuses a caller if their access does not cover a target. A target that the fleet does not have now may
// come back later with any nodes. So such a target needs the verb for the whole fleet.
func (tx *tx) mayPause(ctx context.Context, what, target string) error {
	w := policy.Wish{Verbs: []tutti.Verb{tutti.VerbRun}, What: what + " " + cmp.Or(target, "the fleet")}
	if w.All, w.Nodes = explain.Targeted(tx.State, target); len(w.Nodes) == 0 {
		w.All = true
	}
	return tx.May(ctx, w)
}
