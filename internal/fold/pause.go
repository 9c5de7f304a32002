package fold

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// Pause is the last pause of a target, unless it was lifted.
type Pause struct {
	tutti.Paused
	By string
	At time.Time
}

// Ended reports whether the pause's time is over.
func (p Pause) Ended(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// why says to people why no run begins.
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
		if b.Node != "" && !b.Replaced { // the empty target is the fleet
			delete(r.Pauses, string(b.Node))
		}
	}
}

// Paused returns a function that says why no run may begin on a node, empty: runs may begin. If
// several pauses hold, it names the longest. The first call finds out which nodes are in
// which target.
func (s *State) Paused(now time.Time) func(tutti.NodeName) string {
	var of map[tutti.NodeName]Pause
	return func(n tutti.NodeName) string {
		if of == nil {
			of = s.pausedNodes(now)
		}
		if p, found := of[n]; found {
			return p.why()
		}
		return ""
	}
}

// PausedNode says for one node what Paused says. It does not look at all other nodes.
func (s *State) PausedNode(now time.Time, n tutti.NodeName) string {
	var holds *Pause
	for _, p := range s.PausesAt(now) {
		if s.Member(p.Target, n) && (holds == nil || p.outlasts(*holds)) {
			holds = &p
		}
	}
	if holds == nil {
		return ""
	}
	return holds.why()
}

// outlasts reports whether a pause holds longer than another one.
func (p Pause) outlasts(other Pause) bool {
	return !other.Until.IsZero() && (p.Until.IsZero() || p.Until.After(other.Until))
}

func (s *State) pausedNodes(now time.Time) map[tutti.NodeName]Pause {
	of := map[tutti.NodeName]Pause{}
	for _, p := range s.PausesAt(now) {
		for _, n := range s.Members(p.Target) {
			if before, found := of[n]; !found || p.outlasts(before) {
				of[n] = p
			}
		}
	}
	return of
}

// PausesAt returns the pauses that hold at a time, sorted by target.
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
// joined. The group may be empty.
func (s *State) IsTarget(target string) bool {
	isGroup := func(g tutti.Group) bool { return string(g.Name) == target }
	return target == "" || s.Registry.Nodes[tutti.NodeName(target)] != nil || slices.ContainsFunc(s.Fleet().Groups, isGroup)
}

// View is the pause as it is shown.
func (p Pause) View() api.PauseView {
	return api.PauseView{Target: p.Target, Reason: p.Reason, By: p.By, At: p.At, Until: p.Until}
}
