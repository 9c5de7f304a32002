package converge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fleet"
)

// These constants limit how many reactions of a node to one question are stored, and for how long. They are
// the largest values that a fleet file may set for its own bound.
const (
	maxReacted = tutti.MaxReactions
	reactedFor = tutti.MaxReactionTime
)

// The type `reacted` is a reaction: a run of a node that began by itself, because a run of another node had
// changed the answer to a question. The field `by` names the other node.
type reacted struct {
	at time.Time
	by tutti.NodeName
}

// reactionsOf are the reactions of one node, by question.
type reactionsOf map[string]*reactions

type reactions struct {
	query tutti.Query
	runs  []reacted // the latest last
}

// The server calls noteReaction for each run that has passed its gate. If the server began the run's job by
// itself, noteReaction stores the run as a reaction to each of the changed questions. It ignores changes by
// an operator, because a person may change a value as often as they like.
func (s *State) noteReaction(r *engine.Run, at time.Time) {
	j := s.engine.Jobs[r.Job]
	if j == nil || !reaction(j.Plan) {
		return
	}
	for _, q := range r.Changed {
		by := s.changer(r.Node, q)
		if by == "" {
			continue
		}
		all := s.reactions[r.Node]
		if all == nil {
			all = reactionsOf{}
			s.reactions[r.Node] = all
		}
		for key, old := range all { // this loop is short, because a node reacts to few questions
			if at.Sub(old.runs[len(old.runs)-1].at) > reactedFor {
				delete(all, key)
			}
		}
		key := q.String()
		of := all[key]
		if of == nil {
			of = &reactions{query: q}
			all[key] = of
		}
		of.runs = append(of.runs, reacted{at, by})
		of.runs = of.runs[max(0, len(of.runs)-maxReacted):]
	}
}

// changer returns the node whose run last changed the answer to a node's question. If the last change was not
// made by a node, the method returns an empty name.
func (s *State) changer(n tutti.NodeName, q tutti.Query) tutti.NodeName {
	c, known := s.data.LastChange(n, q)
	if !known {
		return ""
	}
	if c.Event == (*tutti.ExportsSet)(nil).Kind() {
		return c.Node
	}
	if name, node := strings.CutPrefix(c.By, "node:"); node {
		return tutti.NodeName(name)
	}
	return ""
}

// The bound of the fleet file limits how often a node reacts to a question within a period. spentOn returns
// the reactions of a node to a question in the period that ends now.
func (s *State) spentOn(v View, n tutti.NodeName, key string) []reacted {
	of := s.reactions[n][key]
	if of == nil {
		return nil
	}
	i := slices.IndexFunc(of.runs, func(r reacted) bool { return v.Now.Sub(v.from(r.at)) < v.Reaction.Bounds().Per })
	if i < 0 {
		return nil
	}
	return of.runs[i:]
}

// The method `bounded` checks a node that would react now. The node must wait if it has already reacted to
// each of its changed questions as often as the fleet file allows. Then the results are the question to which
// the node may react first, and the time from which it may do so. A zero time means that the node may react
// now.
func (s *State) bounded(v View, n tutti.NodeName, standing Standing) (tutti.Query, time.Time) {
	var worst tutti.Query
	var from time.Time
	bound := v.Reaction.Bounds()
	for _, q := range standing.Changed {
		if s.When(v.Reaction, q) == tutti.ReactScheduled {
			continue
		}
		runs := s.spentOn(v, n, q.String())
		if len(runs) < bound.Times || s.changer(n, q) == "" {
			return tutti.Query{}, time.Time{}
		}
		if may := v.from(runs[len(runs)-bound.Times].at).Add(bound.Per); from.IsZero() || may.Before(from) {
			worst, from = q, may
		}
	}
	return worst, from
}

// The type `link` is a part of a cycle: the node `node` reacts to the question `query`, because the node `by`
// changes the answer.
type link struct {
	node  tutti.NodeName
	query tutti.Query
	by    tutti.NodeName
}

// The method `cycle` looks for nodes that react to each other and so keep changing the answer to the question
// `q` of the node `n`. It follows the causes of the reactions: the first link is about `n`, and the next link
// is about the node that changed the answer in the link before. The last link names a node that is already in
// the list, so the cycle closes there. The result is nil if there is no cycle.
func (s *State) cycle(v View, n tutti.NodeName, q tutti.Query) []link {
	often := max(2, v.Reaction.Bounds().Times/2)
	var follow func(path []link, n tutti.NodeName, query tutti.Query) []link
	seen := map[string]bool{}
	follow = func(path []link, n tutti.NodeName, query tutti.Query) []link {
		runs, key := s.spentOn(v, n, query.String()), string(n)+" "+query.String()
		if len(runs) < often || seen[key] {
			return nil
		}
		seen[key] = true
		for _, by := range sources(runs) {
			next := append(slices.Clone(path), link{n, query, by})
			if by == n || slices.ContainsFunc(path, func(l link) bool { return l.node == by }) {
				return next
			}
			for _, key := range slices.Sorted(maps.Keys(s.reactions[by])) {
				if found := follow(next, by, s.reactions[by][key].query); found != nil {
					return found
				}
			}
		}
		return nil
	}
	return follow(nil, n, q)
}

// The function `sources` returns the nodes that caused these reactions, each once. The node that caused the
// latest reaction comes first.
func sources(runs []reacted) []tutti.NodeName {
	var out []tutti.NodeName
	for _, r := range slices.Backward(runs) {
		if !slices.Contains(out, r.by) {
			out = append(out, r.by)
		}
	}
	return out
}

// A message shows at most maxShown bytes of an answer.
const maxShown = 60

// tellCycle returns a message about a cycle, which shows the cycle as a chain. In a chain `a → b`, a run of
// node a changes an answer, and node b runs because of this change. The chain shows the present value of each
// answer.
func (s *State) tellCycle(v View, cycle []link) string {
	first := cycle[0]
	bound := v.Reaction.Bounds()
	chain := string(cycle[len(cycle)-1].by)
	for _, l := range slices.Backward(cycle) {
		chain += fmt.Sprintf(" → %s (%s = %s)", l.node, l.query, s.shown(l))
	}
	return fmt.Sprintf("it reacted to %s %d times within %s, and nodes react to each other: %s. It does not react any more until new code is pushed, "+
		"or a person runs: tutti converge %s",
		first.query, len(s.spentOn(v, first.node, first.query.String())), fleet.Duration(bound.Per), chain, first.node)
}

// The method `shown` returns a short form of the answer to a question.
func (s *State) shown(l link) string {
	a := s.data.Answer(l.query, data.Asker{Node: l.node})
	text := cmp.Or(string(a.Value), "nothing")
	if l.query.Kind == tutti.QueryCollect {
		text = fmt.Sprintf("%d resources (%.12s)", len(a.Exports), a.Digest.Hex())
	}
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return text
}
