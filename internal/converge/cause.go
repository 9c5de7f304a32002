package converge

import (
	"fmt"
	"strings"

	"github.com/tutti-project/tutti"
)

// A job shows as its cause at most maxCauses changes, each with at most maxCause bytes.
// There is a limit of bytes because the text may contain a node's message.
const (
	maxCauses = 3
	maxCause  = 160
)

// The method `cause` explains in one line why these nodes run by themselves. The method
// names each change once, even if the change makes many nodes run.
func (s *State) cause(v View, due []tutti.NodeName) string {
	var all []string
	said := map[string]bool{}
	for _, n := range due {
		for _, text := range s.causes(v, n) {
			if text = oneLine(text); !said[text] {
				said[text] = true
				all = append(all, text)
			}
		}
	}
	more := len(all) - maxCauses
	if more <= 0 {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(all[:maxCauses], ", "), more)
}

// The method `causes` returns the changes that make one node run.
func (s *State) causes(v View, n tutti.NodeName) []string {
	standing, needy := s.needy[n]
	standing, code, reacts := s.reacts(v, n, standing)
	last := s.engine.Last(n).Applied
	switch {
	case !needy, !reacts, s.turn(v, n) && s.hopeless(n, standing, code):
		return []string{fmt.Sprintf("the safety run of %s", n)}
	case last == nil:
		return []string{fmt.Sprintf("node %s joined", n)}
	case len(standing.Changed) > 0:
		out := make([]string, len(standing.Changed))
		for i, q := range standing.Changed {
			out[i] = s.changeOf(n, q)
		}
		return out
	case last.Program != tutti.ProgramAgent && last.Code != code:
		return []string{"code " + s.pushedBy[v.Has(n).Environment]}
	case (last.Outcome() == tutti.Failed || last.Outcome() == tutti.Waiting) && last.EndedSeq < s.fleetSeq:
		return []string{"fleet file set by " + who(s.fleetBy)}
	}
	return []string{fmt.Sprintf("%s: %s", n, standing.Why())}
}

// changeOf explains what changed the answer to a node's question.
func (s *State) changeOf(n tutti.NodeName, q tutti.Query) string {
	c, known := s.data.LastChange(n, q)
	if !known {
		return q.String() + " has changed"
	}
	switch c.Event {
	case (*tutti.FleetSet)(nil).Kind():
		return "fleet file set by " + who(c.By)
	case (*tutti.NodeClassified)(nil).Kind():
		return fmt.Sprintf("another answer of the ENC for %s", c.Node)
	case (*tutti.NodeEnrolled)(nil).Kind():
		return fmt.Sprintf("node %s joined", c.Node)
	case (*tutti.NodeRemoved)(nil).Kind():
		return fmt.Sprintf("node %s removed", c.Node)
	case (*tutti.ExportsSet)(nil).Kind():
		return fmt.Sprintf("exports of %s by %s", q.Type, c.Node)
	case (*tutti.ValueUnset)(nil).Kind():
		return fmt.Sprintf("%s unset by %s", c.Key, who(c.By))
	}
	return fmt.Sprintf("%s set by %s", c.Key, who(c.By))
}

// The function `who` returns the NAME in `operator:NAME` or `node:NAME`.
func who(by string) string {
	if _, name, named := strings.Cut(by, ":"); named {
		return name
	}
	return by
}

// oneLine turns a text into one short line.
func oneLine(text string) string {
	const cut = "…"
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause-len(cut)], "") + cut
	}
	return text
}
