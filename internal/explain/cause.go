package explain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
)

// notShown replaces a reason that quotes a node, for an operator who may only view.
const notShown = "an operator with the verb read sees the reason"

// NodeCauses implements api.Overviews.
func (s summaries) NodeCauses(ctx context.Context) ([]api.NodeCause, error) {
	var out []api.NodeCause
	err := s.rd.look(ctx, func(v View) error {
		reads := v.May(tutti.VerbRead, "") == nil
		causes := newCauses(v, reads)
		for view, st := range v.nodes(reads) {
			causes.add(&view, st)
		}
		out = causes.list()
		return nil
	})
	return out, err
}

// causes groups the nodes that are not good by their reasons.
type causes struct {
	of    View
	reads bool // the operator may read the texts of nodes
	byID  map[string]*api.NodeCause
	next  func(tutti.NodeName) string
}

func newCauses(v View, reads bool) *causes {
	return &causes{of: v, reads: reads, byID: map[string]*api.NodeCause{}, next: v.rests()}
}

// The method `add` adds a node to its cause and returns the cause's id. The id of a good node is empty.
func (c *causes) add(view *api.NodeView, st converge.Standing) string {
	if view.Stands == api.NodeGood {
		return ""
	}
	cause, key := c.reason(view, st)
	cause.State, cause.ID = view.Stands, causeID(view.Stands, key)
	known := c.byID[cause.ID]
	if known == nil {
		known = &cause
		c.byID[cause.ID] = known
	}
	known.Nodes++
	if known.Since.IsZero() || view.Since.Before(known.Since) && !view.Since.IsZero() {
		known.Since = view.Since
	}
	at, _ := slices.BinarySearch(known.Some, view.Node)
	if known.Some = slices.Insert(known.Some, at, view.Node); len(known.Some) > api.MaxSome {
		known.Some = known.Some[:api.MaxSome]
	}
	return cause.ID
}

// causeID returns a short text that is different for each reason.
func causeID(state api.NodeState, key string) string {
	sum := sha256.Sum256([]byte(string(state) + "\x00" + key))
	return hex.EncodeToString(sum[:8])
}

// The method `reason` returns why a node is not good, and a key that is the same for nodes with the same reason.
func (c *causes) reason(view *api.NodeView, st converge.Standing) (cause api.NodeCause, key string) {
	switch {
	case view.Observed: // the reason is in view.Why
	case st.ByAnswers():
		return c.changed(view.Node, st.Changed)
	case st.OtherCode:
		return c.code(view)
	case view.Stands == api.NodeWaiting && st.Run != nil && len(st.Run.Result.Waits) > 0:
		q := st.Run.Result.Waits[0].Query
		return api.NodeCause{Kind: api.CauseWait, Query: &q, Text: q.String() + " has no answer yet"}, "wait" + identify(q)
	}
	cause = api.NodeCause{Kind: api.CauseOther, Text: cmp.Or(view.Why, notShown)}
	if view.Stands == api.NodeFailed {
		cause.Kind = api.CauseFailure
		if len(view.Failures) > 0 { // the first failure says more than the number of failures
			cause.Text = "its last run failed: " + view.Failures[0].String()
		}
	}
	return cause, cause.Text
}

// The method `changed` returns the cause of a node whose answers have changed. If several answers have changed, the
// first of the known changes counts, because the node is not good since that change.
func (c *causes) changed(node tutti.NodeName, queries []tutti.Query) (cause api.NodeCause, key string) {
	q, change := firstChange(c.of.Data, node, queries)
	return api.NodeCause{
		Kind: api.CauseAnswer, Query: &q, Text: q.String() + " has changed since it was read",
		Change: change.Event, Key: change.Key, From: change.Node, By: change.By, At: change.At, Seq: change.Seq,
	}, fmt.Sprintf("answer%d%s", change.Seq, identify(q))
}

// firstChange returns the question whose answer has changed first, and the change. The change is empty if it is not known.
func firstChange(s *data.State, node tutti.NodeName, queries []tutti.Query) (tutti.Query, data.Change) {
	first, change := queries[0], data.Change{}
	for _, q := range queries {
		if c, known := s.LastChange(node, q); known && (change.Seq == 0 || c.Seq < change.Seq) {
			first, change = q, c
		}
	}
	return first, change
}

// The method `code` returns the cause of a node whose last run had other code than it would have now.
func (c *causes) code(view *api.NodeView) (cause api.NodeCause, key string) {
	environment := c.of.environmentOf(view.Node)
	push, code := c.of.Registry.Pushes[environment], c.of.Registry.Code[environment].Code
	return api.NodeCause{
		Kind: api.CauseCode, Text: fmt.Sprintf("code %s of environment %s was pushed after its last run", code.Hex()[:min(12, len(code.Hex()))], environment),
		Environment: environment, Code: code, By: push.By, At: push.At, Seq: push.Seq,
	}, fmt.Sprintf("code%s%s", environment, code)
}

// The method `list` returns the causes, sorted as api.Overviews says. If there are too many, the smallest causes of each
// state become one.
func (c *causes) list() []api.NodeCause {
	all := slices.SortedFunc(maps.Values(c.byID), func(a, b *api.NodeCause) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Text, b.Text), cmp.Compare(a.ID, b.ID))
	})
	var out []api.NodeCause
	more := map[api.NodeState]*api.NodeCause{}
	for i, cause := range all {
		if i < api.MaxCauses {
			cause.Next = c.next(cause.Some[0])
			out = append(out, *cause)
			continue
		}
		m := more[cause.State]
		if m == nil {
			m = &api.NodeCause{ID: causeID(cause.State, "more"), State: cause.State, Kind: api.CauseMore, Text: "other causes, each with few nodes"}
			more[cause.State] = m
		}
		m.Nodes += cause.Nodes
		m.Some = slices.Compact(slices.Sorted(slices.Values(append(m.Some, cause.Some...))))
		m.Some = m.Some[:min(len(m.Some), api.MaxSome)]
	}
	for _, m := range more {
		out = append(out, *m)
	}
	slices.SortStableFunc(out, func(a, b api.NodeCause) int {
		return cmp.Or(cmp.Compare(slices.Index(api.NodeStates, a.State), slices.Index(api.NodeStates, b.State)),
			cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Text, b.Text), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// The method `rests` returns a function that says why a node does not run by itself now, see NodeStanding.Rests.
func (v View) rests() func(tutti.NodeName) string {
	f := v.Registry.Fleet
	if f == nil || f.Reaction == nil {
		return func(tutti.NodeName) string { return "" }
	}
	view := v.Converge.Survey(converge.View{
		Now: v.Now, Since: v.Now.Add(-v.Silence), Silence: v.Silence, Seen: v.seen,
		Has: v.has, Paused: v.Paused(v.Now), Reaction: f.Reaction, Environment: f.Environment.Name, Serial: v.Registry.Serial(),
	})
	return func(name tutti.NodeName) string {
		if st := v.Converge.Standing(name, v.has(name)); st.Need != converge.Nothing {
			return v.Converge.Rests(view, name, st)
		}
		return ""
	}
}

// The method `since` returns when a node stopped being good, if a change of data or code is the reason and is known.
func (v View) since(node tutti.NodeName, st converge.Standing) time.Time {
	switch {
	case st.ByAnswers():
		_, change := firstChange(v.Data, node, st.Changed)
		return change.At
	case st.OtherCode:
		return v.Registry.Pushes[v.environmentOf(node)].At
	}
	return time.Time{}
}

// environmentOf returns the environment whose code a node should have.
func (v View) environmentOf(node tutti.NodeName) string {
	n, f := v.Registry.Nodes[node], v.Registry.Fleet
	if n == nil || f == nil {
		return ""
	}
	return f.EnvironmentFor(v.Registry.Groups(n), n.Classified)
}
