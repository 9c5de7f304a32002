package fold

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Pause is the last pause of a target. A pause that an operator has lifted is not in the fold.
type Pause struct {
	tutti.Paused
	By string
	At time.Time
}

// Ended reports whether the time of the pause is over.
func (p Pause) Ended(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// The method `why` returns a text for people: the reason why no run begins.
func (p Pause) why() string {
	text := "paused by " + p.By
	if !p.Until.IsZero() {
		text += " until " + p.Until.UTC().Format(time.RFC3339)
	}
	return text + ": " + p.Reason
}

func (r *Registry) applyPause(e tutti.Event) {
	switch b := e.Body.(type) {
	case *tutti.Paused:
		r.Pauses[b.Target] = Pause{Paused: *b, By: e.By, At: e.At}
	case *tutti.Unpaused:
		delete(r.Pauses, b.Target)
	case *tutti.NodeRemoved:
		if b.Node != "" && !b.Replaced { // a pause with an empty target is a pause of the whole fleet
			delete(r.Pauses, string(b.Node))
		}
	}
}

// Paused returns a function that says why no run may begin on a node. The text is empty if runs may begin. If there are
// several pauses, the text names the one that ends last. The first call computes which nodes belong to which target.
func (s *State) Paused(now time.Time) func(tutti.NodeName) string {
	var of map[tutti.NodeName]Pause
	return func(n tutti.NodeName) string {
		if of == nil {
			of = s.pausedNodes(now)
		}
		if p, found := of[n]; found {
			return s.whyPaused(p, n)
		}
		return ""
	}
}

// PausedNode returns for one node the same text as Paused. PausedNode does not look at the other nodes.
func (s *State) PausedNode(now time.Time, n tutti.NodeName) string {
	var holds *Pause
	for _, p := range s.PausesAt(now) {
		if s.MayBeMember(p.Target, n) && (holds == nil || p.outlasts(*holds)) {
			holds = &p
		}
	}
	if holds == nil {
		return ""
	}
	return s.whyPaused(*holds, n)
}

// The method `whyPaused` returns the text of a pause that holds a node.
func (s *State) whyPaused(p Pause, n tutti.NodeName) string {
	if s.Member(p.Target, n) {
		return p.why()
	}
	return p.why() + "; nobody knows whether the node is in group " + p.Target
}

// The method `outlasts` reports whether a pause ends later than another pause.
func (p Pause) outlasts(other Pause) bool {
	return !other.Until.IsZero() && (p.Until.IsZero() || p.Until.After(other.Until))
}

func (s *State) pausedNodes(now time.Time) map[tutti.NodeName]Pause {
	of := map[tutti.NodeName]Pause{}
	for _, p := range s.PausesAt(now) {
		for n := range s.Registry.Nodes {
			if !s.MayBeMember(p.Target, n) {
				continue
			}
			if before, found := of[n]; !found || p.outlasts(before) {
				of[n] = p
			}
		}
	}
	return of
}

// PausesAt returns the pauses that are in effect at a time, sorted by target.
func (s *State) PausesAt(now time.Time) []Pause {
	var out []Pause
	for p := range maps.Values(s.Registry.Pauses) {
		if !p.Ended(now) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Pause) int { return cmp.Compare(a.Target, b.Target) })
	return out
}

// IsTarget reports whether a target is the fleet, a group, or a node that has
// joined. The group may have no nodes.
func (s *State) IsTarget(target string) bool {
	isGroup := func(g tutti.Group) bool { return string(g.Name) == target }
	return target == "" || s.Registry.Nodes[tutti.NodeName(target)] != nil || slices.ContainsFunc(s.Fleet().Groups, isGroup)
}

// View returns the pause in the form that operators see.
func (p Pause) View() api.PauseView {
	return api.PauseView{Target: p.Target, Reason: p.Reason, By: p.By, At: p.At, Until: p.Until}
}
