package operators

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/selector"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// maxNodesNamed is how many nodes one event names at most, because a message of the log is short.
const maxNodesNamed = 500

// AskNodes implements tutti.Remotes. AskNodes selects the nodes at the beginning of the call.
func (s *Operators) AskNodes(ctx context.Context, in api.NodesQuestion, yield func([]api.NodeAnswer) error) error {
	if err := in.Validate(); err != nil {
		return err
	}
	if in.Action.Effect() { // the effect lasts on the nodes
		if err := s.lasting(ctx, string(in.Action)+" Puppet", func(*tx) error { return nil }); err != nil {
			return err
		}
	}
	chosen, err := selector.Parse(in.On)
	if err != nil {
		return err
	}
	in.On, in.Wait = chosen.String(), cmp.Or(in.Wait, tutti.DefaultRemoteWait)
	views, err := s.Reader.ListNodes(ctx)
	if err != nil {
		return err
	}
	q := &question{Operators: s, in: in, by: tutti.Actor(ctx), chosen: chosen}
	if in.Action == tutti.RemoteDisable && in.Message == "" {
		q.in.Message = fmt.Sprintf("Disabled via Tutti by %s at %s", q.by, time.Now().UTC().Format("2006-01-02 15:04"))
	}
	if q.signed, err = s.signedActions(ctx, q.in); err != nil {
		return err
	}
	if len(q.signed) > 0 { // ask the nodes of the signed actions, and ignore the selector
		q.in.On = "signed for " + several(slices.Sorted(maps.Keys(q.signed)))
	}
	selected, undecided, err := q.choose(ctx, views)
	if err != nil {
		return err
	}
	if len(selected)+len(undecided) == 0 {
		return tutti.Errorf(tutti.CodeNotFound, "the selector %s selects none of %d nodes; see: tutti node list", q.in.On, len(views))
	}
	if in.Served != nil && (len(selected) != 1 || len(undecided) > 0) {
		return tutti.Errorf(tutti.CodeInvalid, "the selector %s selects %d nodes: compare asks one node, the host of a Puppet Server", q.in.On, len(selected)+len(undecided))
	}
	request := q.request(in.Action)
	if in.Action.Effect() && len(selected) > 0 {
		if err := q.announce(ctx, request.Request, selected); err != nil {
			return err
		}
	}
	return q.ask(ctx, request, selected, undecided, yield)
}

// question is one call of AskNodes.
type question struct {
	*Operators
	in     api.NodesQuestion
	by     string
	chosen *selector.Selector
	signed map[tutti.NodeName]*tutti.Statement // the statement that the operator has signed for each node
}

// The method `ask` sends the question to the selected nodes and yields all answers. The caller may disconnect
// before the end. The server records the result even then.
func (q *question) ask(ctx context.Context, request tutti.RemoteRequest, selected []api.NodeView, undecided []api.NodeAnswer, yield func([]api.NodeAnswer) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	tally, gone := tally{}, error(nil)
	got := func(all []api.NodeAnswer) {
		tally.add(all)
		if gone == nil {
			gone = yield(all)
		}
		if gone != nil {
			stop()
		}
	}
	if len(undecided) > 0 {
		got(undecided)
	}
	if err := q.round(ctx, request, q.signed, selected, got); err != nil {
		return err
	}
	if err := q.note(request, tally); gone == nil {
		return err
	}
	return gone
}

// The method `request` makes a new question to nodes.
func (q *question) request(action tutti.RemoteAction) tutti.RemoteRequest {
	return tutti.RemoteRequest{
		Request: rand.Text(), Action: action, Caller: q.by, Message: q.in.Message, Force: q.in.Force,
		Type: q.in.Type, Title: q.in.Title, Wait: q.in.Wait, Jobs: q.in.Jobs, Served: q.in.Served,
	}
}

// The method `choose` returns the nodes that the operator has selected. If the selection needs facts, the method
// asks the nodes for their facts. The list `undecided` has the nodes whose facts remain unknown.
func (q *question) choose(ctx context.Context, views []api.NodeView) (selected []api.NodeView, undecided []api.NodeAnswer, err error) {
	if len(q.signed) > 0 { // the operator has named the nodes
		views = slices.DeleteFunc(views, func(v api.NodeView) bool { return q.signed[v.Node] == nil })
		return views, nil, q.may(ctx, views, nil)
	}
	now := time.Now()
	var open []api.NodeView
	decide := func(v api.NodeView, facts map[string]any) {
		switch answer, err := q.chosen.Decide(selector.Of(v), facts, now); {
		case err != nil:
			undecided = append(undecided, answerAbout(v, tutti.RemoteUndecided, plain.Words(err.Error())))
		case answer == selector.Yes:
			selected = append(selected, v)
		case answer == selector.NeedsFacts:
			open = append(open, v)
		}
	}
	for _, v := range views {
		decide(v, nil)
	}
	if err := q.may(ctx, slices.Concat(selected, open), undecided); err != nil {
		return nil, nil, err
	}
	if len(open) == 0 {
		return selected, undecided, nil
	}
	byName := map[tutti.NodeName]api.NodeView{}
	for _, v := range open {
		byName[v.Node] = v
	}
	request := tutti.RemoteRequest{Request: rand.Text(), Action: tutti.RemoteFacts, Caller: q.by, Wait: q.in.Wait}
	request.Facts, _ = q.chosen.Facts()
	tally, asked := tally{}, open
	err = q.round(ctx, request, nil, asked, func(all []api.NodeAnswer) {
		tally.add(all)
		for _, a := range all {
			facts, err := factsOf(a)
			if err != nil {
				undecided = append(undecided, answerAbout(byName[a.Node], tutti.RemoteUndecided, "its facts are not known: "+plain.Words(err.Error())))
				continue
			}
			decide(byName[a.Node], facts)
		}
	})
	if err == nil {
		err = q.note(request, tally)
	}
	if err == nil && !q.in.Action.Effect() { // if the action has an effect, announce checks the access
		err = q.may(ctx, selected, nil) // the access may have changed meanwhile
	}
	slices.SortFunc(selected, func(a, b api.NodeView) int { return cmp.Compare(a.Node, b.Node) })
	return selected, undecided, err
}

// The method `may` checks the caller's access before the server asks any node. The method refuses if the access
// does not cover all nodes that may be selected.
func (q *question) may(ctx context.Context, nodes []api.NodeView, undecided []api.NodeAnswer) error {
	if core.VisitOf(ctx) == nil {
		return nil
	}
	names := make([]tutti.NodeName, 0, len(nodes)+len(undecided))
	for _, v := range nodes {
		names = append(names, v.Node)
	}
	for _, a := range undecided {
		names = append(names, a.Node)
	}
	if q.in.Served != nil {
		names = append(names, q.in.Served.Nodes...)
	}
	return q.do(ctx, func(tx *tx) error { return tx.MayAsk(ctx, q.in.Action, several(names), names) })
}

// factsOf reads the facts from a node's answer.
func factsOf(a api.NodeAnswer) (map[string]any, error) {
	if a.Verdict != tutti.RemoteOK {
		return nil, tutti.Errorf(tutti.CodeUnavailable, "%s: %s", a.Verdict, a.Message)
	}
	return selector.ParseFacts(a.Facts)
}

// answerAbout returns an answer, and adds to it what the server knows about the node.
func answerAbout(v api.NodeView, verdict tutti.RemoteVerdict, message string) api.NodeAnswer {
	return api.NodeAnswer{
		Node: v.Node, Verdict: verdict, Message: message, LastRun: v.LastRun, RunAt: v.RunAt, Outcome: v.Outcome, Reason: v.Reason,
		Foreign: v.Foreign, Local: v.Local,
	}
}

// The method `announce` records which nodes will make the change, before the server tells any node. If there are
// many nodes, the method divides their names over several events in one append. Before that, the method checks
// the caller's access again, because the access may have changed while the nodes sent their facts.
func (q *question) announce(ctx context.Context, request string, nodes []api.NodeView) error {
	names := make([]tutti.NodeName, len(nodes))
	for i, v := range nodes {
		names[i] = v.Node
	}
	return q.do(ctx, func(tx *tx) error {
		if err := tx.MayAsk(ctx, q.in.Action, several(names), names); err != nil {
			return err
		}
		if err := tx.NoneObserved(names); err != nil {
			return err
		}
		for part := range slices.Chunk(names, maxNodesNamed) {
			tx.Emit(q.by, &tutti.RemoteAsked{
				Request: request, Action: q.in.Action, On: q.in.On, Message: q.in.Message, Force: q.in.Force, Nodes: part,
			})
		}
		return nil
	})
}

// The method `note` appends the result of a question, even if the caller has disconnected.
func (q *question) note(request tutti.RemoteRequest, t tally) error {
	what := ""
	if request.Action == tutti.RemoteResource {
		what = request.Type + "[" + request.Title + "]"
	}
	return q.do(tutti.WithActor(context.Background(), q.by), func(tx *tx) error {
		for _, decisions := range t.decisions(request.Action.Effect()) {
			tx.Emit(q.by, &tutti.RemoteAnswered{Request: request.Request, Action: request.Action, On: q.in.On, What: what, Decisions: decisions})
		}
		return nil
	})
}

// tally groups the nodes of a question by verdict and rule.
type tally map[outcomeOf][]tutti.NodeName

type outcomeOf struct {
	verdict tutti.RemoteVerdict
	rule    string
}

func (t tally) add(all []api.NodeAnswer) {
	for _, a := range all {
		of := outcomeOf{a.Verdict, a.Rule}
		t[of] = append(t[of], a.Node)
	}
}

// The method `decisions` returns the lists of decisions, one list per event. If the nodes were asked to change
// something, the decisions name all nodes. If the nodes were only asked for data, the decisions name only the
// nodes without a good answer.
func (t tally) decisions(effect bool) [][]tutti.RemoteDecision {
	ways := slices.SortedFunc(maps.Keys(t), func(a, b outcomeOf) int {
		return cmp.Or(cmp.Compare(a.verdict, b.verdict), cmp.Compare(a.rule, b.rule))
	})
	var out [][]tutti.RemoteDecision
	var event []tutti.RemoteDecision
	named := 0
	for _, way := range ways {
		names := t[way]
		slices.Sort(names)
		if way.verdict == tutti.RemoteOK && !effect {
			event = append(event, tutti.RemoteDecision{Verdict: way.verdict, Rule: way.rule, Count: len(names)})
			continue
		}
		for part := range slices.Chunk(names, maxNodesNamed) {
			if named += len(part); named > maxNodesNamed {
				out, event, named = append(out, event), nil, len(part)
			}
			event = append(event, tutti.RemoteDecision{Verdict: way.verdict, Rule: way.rule, Count: len(part), Nodes: part})
		}
	}
	if len(event) > 0 {
		out = append(out, event)
	}
	return out
}

// The method `round` asks nodes and calls the function `got` with an answer for each node. If several answers
// have arrived at the same time, one call of `got` receives all of them. When ctx ends, the nodes that have not
// answered count as silent.
func (s *Operators) round(ctx context.Context, request tutti.RemoteRequest, signed map[tutti.NodeName]*tutti.Statement, nodes []api.NodeView, got func([]api.NodeAnswer)) error {
	views := map[tutti.NodeName]api.NodeView{}
	var there []api.NodeView
	var unasked []api.NodeAnswer
	for _, v := range nodes {
		views[v.Node] = v
		need := request.Action.Needs()
		switch {
		case !v.Connected:
			unasked = append(unasked, answerAbout(v, tutti.RemoteAway, "not connected"))
		case slices.Contains(v.TooOldFor, need):
			unasked = append(unasked, answerAbout(v, tutti.RemoteFailed, tutti.TooOld(v.Node, v.Version, []tutti.Capability{need})))
		default:
			there = append(there, v)
		}
	}
	asked := s.Asks.Open(ctx, request, there)
	defer s.Asks.Close(asked)
	timer := time.NewTimer(request.Wait)
	defer timer.Stop()
	for _, v := range there {
		of := request
		if !slices.Contains(v.TooOldFor, tutti.CapabilityStatements) {
			of.Signed = signed[v.Node]
		}
		payload, err := json.Marshal(of)
		if err == nil {
			err = s.Opts.Bus.Ring(v.Key, wire.RingRemote, payload)
		}
		if err != nil {
			s.Opts.Logger.Warn("a node was not asked", "node", v.Node, "error", err) // the node will count as silent
		}
	}
	if len(unasked) > 0 {
		got(unasked)
	}
	tell := func(replies []core.Reply) {
		var out []api.NodeAnswer
		for _, r := range replies {
			a := answerAbout(views[r.Node], r.Verdict, r.Message)
			a.Rule, a.Took, a.RemoteAnswer = r.Rule, r.Took, r.RemoteAnswer
			out = append(out, a)
		}
		if len(out) > 0 {
			got(out)
		}
	}
	for waiting := len(there); waiting > 0; {
		select {
		case r := <-asked.Replies:
			all := append([]core.Reply{r}, asked.More()...)
			waiting -= len(all)
			tell(all)
			continue
		case <-timer.C:
		case <-ctx.Done():
		case <-s.Writer.Ended():
		}
		break
	}
	tell(s.Asks.Close(asked))
	return nil
}
