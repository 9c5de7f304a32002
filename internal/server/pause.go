package server

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// pause is the last word on a target, if it holds still.
type pause struct {
	tutti.Paused
	by string
	at time.Time
}

func (p pause) ended(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// why says to people why nothing begins.
func (p pause) why() string {
	text := "paused by " + p.by
	if !p.Until.IsZero() {
		text += " until " + p.Until.UTC().Format(time.RFC3339)
	}
	return text + ": " + p.Reason
}

func (r *registry) applyPause(e tutti.Event) {
	switch b := e.Body.(type) {
	case *tutti.Paused:
		r.pauses[b.Target] = pause{Paused: *b, by: e.By, at: e.At}
	case *tutti.Unpaused:
		delete(r.pauses, b.Target)
	case *tutti.NodeRemoved:
		if b.Node != "" { // the empty target is the fleet
			delete(r.pauses, string(b.Node))
		}
	}
}

// paused says of nodes why nothing may begin there, empty: it may. Of several
// reasons it is the one that holds the longest. Who is in which target is found out
// once, when it is first asked.
func (tx *tx) paused() func(tutti.NodeName) string {
	var of map[tutti.NodeName]pause
	return func(n tutti.NodeName) string {
		if of == nil {
			of = tx.pausedNodes()
		}
		if p, found := of[n]; found {
			return p.why()
		}
		return ""
	}
}

func (tx *tx) pausedNodes() map[tutti.NodeName]pause {
	of := map[tutti.NodeName]pause{}
	for _, p := range tx.pauses() {
		for _, n := range tx.members(p.Target) {
			if before, found := of[n]; !found || !before.Until.IsZero() && (p.Until.IsZero() || p.Until.After(before.Until)) {
				of[n] = p
			}
		}
	}
	return of
}

// pauses are those that hold now, sorted by target.
func (tx *tx) pauses() []pause {
	var out []pause
	for p := range maps.Values(tx.registry.pauses) {
		if !p.ended(tx.now) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b pause) int { return cmp.Compare(a.Target, b.Target) })
	return out
}

// Pause implements tutti.Pauses.
func (s *Server) Pause(ctx context.Context, in tutti.Pause) (tutti.PauseView, error) {
	reason := strings.Join(strings.Fields(words(in.Reason)), " ")
	switch {
	case reason == "":
		return tutti.PauseView{}, tutti.Errorf(tutti.CodeInvalid, "a pause needs a reason, for whoever wonders why nothing happens")
	case in.For < 0:
		return tutti.PauseView{}, tutti.Errorf(tutti.CodeInvalid, "a pause for %s ends before it begins", in.For)
	}
	var out tutti.PauseView
	return out, s.do(ctx, func(tx *tx) error {
		if !tx.isTarget(in.Target) {
			return tutti.Errorf(tutti.CodeNotFound, "no group %q in the fleet file, and no such node; see: tutti node list", in.Target)
		}
		body := &tutti.Paused{Target: in.Target, Reason: reason}
		if in.For > 0 {
			body.Until = tx.now.Add(in.For).UTC()
		}
		tx.emit(tutti.Actor(ctx), body)
		out = tx.registry.pauses[in.Target].view()
		return nil
	})
}

// isTarget reports whether a target is the fleet, a group, or a node that has
// joined. A group may be empty as yet.
func (tx *tx) isTarget(target string) bool {
	isGroup := func(g tutti.Group) bool { return string(g.Name) == target }
	return target == "" || tx.registry.nodes[tutti.NodeName(target)] != nil || slices.ContainsFunc(tx.fleet().Groups, isGroup)
}

// Unpause implements tutti.Pauses.
func (s *Server) Unpause(ctx context.Context, target string) error {
	return s.do(ctx, func(tx *tx) error {
		p, found := tx.registry.pauses[target]
		if found && !p.ended(tx.now) {
			tx.emit(tutti.Actor(ctx), &tutti.Unpaused{Target: target})
			return nil
		}
		what := "the fleet as a whole"
		if target != "" {
			what = target + " by itself"
		}
		return tutti.Errorf(tutti.CodeNotFound, "%s is not paused; see: tutti pause list", what)
	})
}

// ListPauses implements tutti.Pauses.
func (s *Server) ListPauses(ctx context.Context) ([]tutti.PauseView, error) {
	out := []tutti.PauseView{}
	err := s.do(ctx, func(tx *tx) error {
		for _, p := range tx.pauses() {
			out = append(out, p.view())
		}
		return nil
	})
	return out, err
}

func (p pause) view() tutti.PauseView {
	return tutti.PauseView{Target: p.Target, Reason: p.Reason, By: p.by, At: p.at, Until: p.Until}
}
