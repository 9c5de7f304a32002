package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
)

// The type `moment` says when an answer was given: at a sequence of the log. If the sequence is not known, the moment
// is the earliest possible time.
type moment struct {
	seq uint64
	at  time.Time
}

func (m moment) before(seq uint64, at time.Time) bool {
	if m.seq > 0 {
		return seq > m.seq
	}
	return at.After(m.at)
}

// The type `stood` is the state of a node in one version of the fold.
type stood struct {
	view     api.NodeView
	standing api.NodeStanding
	active   *api.RunView
	changed  []tutti.Query
	asked    *tutti.Questions // nil if the node's questions are not known
	basis    tutti.RunID      // the run that asked these questions
	asOf     time.Time        // the answers were given at this time or later
	record   kept             // the record of the basis
	code     tutti.Digest     // digest of the current code
	rests    *api.NodeBasis
	waits    []api.WaitedFor
	failures []tutti.Failure
	before   []api.WaitedFor
}

// The method `stand` returns the state of a node. The result shares nothing with the fold.
func (v View) stand(name tutti.NodeName) (stood, error) {
	n := v.Registry.Nodes[name]
	if n == nil {
		return stood{}, tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(name))
	}
	view := v.node(n)
	view.GroupsWhy, view.Environment = v.Registry.GroupReasons(n), v.UsualOf(name).Environment
	view.Paused = v.Paused(v.Now)(n.Node)
	st := v.Converge.Standing(name, v.has(name))
	v.stands(n, st, &view)
	last := v.Engine.Last(name)
	out := stood{
		view:     view,
		standing: api.NodeStanding{State: view.Stands, Needs: string(st.Need), Why: view.Why, Since: view.Since},
		changed:  slices.Clone(st.Changed),
	}
	if view.Stands == api.NodeSuspect && st.Need == converge.Nothing {
		out.standing.Needs = string(converge.Proof)
	}
	if r := st.Run; r != nil {
		run := v.run(r)
		out.standing.Run = &run
		if r.Foreign == nil {
			out.code = v.Registry.Code[r.Environment].Code
		}
	}
	if r := last.Passed; r != nil {
		out.rests = basisOf(r, v.Engine.Facts(name))
		out.rests.Commit = v.commitOf(r)
		out.rests.Machine = n.JoinedAt
	}
	if r := v.Engine.Runs[view.Active]; r != nil {
		run := v.run(r)
		out.active = &run
	}
	if basis := v.Converge.Basis(name); basis != nil {
		out.basis, out.asOf = basis.Run, basis.WantedAt
		if basis.Passed() { // the answers were current at the gate of this run
			out.asOf = basis.GatedAt
		}
		out.record, out.asked = keptOf(basis), v.Data.Asked(name)
	}
	if f := st.Run; f != nil && f.Foreign != nil {
		out.failures = slices.Clone(f.Result.Failures)
	} else if a := last.Applied; a != nil && a.Result != nil && st.Need == converge.Apply {
		out.failures = slices.Clone(a.Result.Failures)
		for _, w := range a.Result.Waits {
			out.waits = append(out.waits, api.WaitedFor{
				Wait: w, Answered: v.Data.Answer(w.Query, data.Asker{Node: name}).Found, Publishers: v.Converge.Publishers(name, w.Query, ""),
			})
		}
	}
	if st.Need != converge.Nothing {
		out.before = v.before(name)
		out.standing.Rests = v.rests()(name)
	}
	return out, nil
}

// The method `commitOf` returns the commit of a run's code for people.
func (v View) commitOf(r *engine.Run) string {
	if j := v.Engine.Jobs[r.Job]; j != nil && r.Code != "" {
		return j.Commits[r.Environment]
	}
	source := v.Registry.Sources[r.Code]
	return source.Short()
}

// basisOf returns the data that decides, together with the answers, whether a run still shows the node's state.
func basisOf(r *engine.Run, f *engine.Facts) *api.NodeBasis {
	out := &api.NodeBasis{Environment: r.Environment, Code: r.Code, Program: cmp.Or(r.Program, tutti.ProgramApply), Groups: r.Groups}
	if r.Compiled != nil {
		out.Puppet, out.Facts = r.Compiled.Puppet, r.Compiled.Facts
	}
	if f != nil && f.Seq > r.GatedSeq {
		out.FactsAt = f.At
	}
	return out
}

// A node asks questions, and other nodes answer them. If the node that answers a question needs a run itself, the
// method `before` returns this question.
func (v View) before(name tutti.NodeName) []api.WaitedFor {
	needs := map[tutti.NodeName]bool{}
	for _, n := range v.Converge.Needy(converge.View{Has: v.has}) {
		needs[n] = n != name
	}
	var out []api.WaitedFor
	for q := range v.Data.Questions(name) {
		w := api.WaitedFor{Wait: tutti.Wait{Query: q.Query}, Answered: q.Answered(name, "")}
		for p := range q.Producers("") {
			if needs[p] {
				w.Publishers = append(w.Publishers, p)
			}
		}
		if len(w.Publishers) > 0 {
			out = append(out, w)
		}
	}
	return out
}

// The method `stands` sets the state of a node, its reason and its beginning. For an observed node, `stands` changes
// nothing.
func (v View) stands(n *fold.Node, st converge.Standing, view *api.NodeView) {
	if view.Observed {
		return
	}
	v.state(n, st, view)
	view.Why = st.Why()
	if view.Stands == api.NodeSuspect && st.Need == converge.Nothing {
		view.Why = cmp.Or(view.Conflicted, converge.NotNoted(view.Unnoted))
	}
}

// The method `state` sets the state of a node and its beginning, without the reason. For an observed node, `state`
// changes nothing.
func (v View) state(n *fold.Node, st converge.Standing, view *api.NodeView) {
	if view.Observed {
		return
	}
	view.Stands = v.stateOf(n, st)
	switch since := v.since(n.Node, st); {
	case !since.IsZero():
		view.Since = since
	case st.Run != nil:
		view.Since = st.Run.EndedAt
	case st.Need != converge.Nothing: // it never ran
		view.Since = n.JoinedAt
	}
}

// stateOf returns the word for a standing. If a conflicted node needs nothing, its state is suspect: two machines act
// as this node, and nobody knows which of them needs nothing. A node is also suspect if its agent could not note a
// foreign run, because this run may have changed the node.
func (v View) stateOf(n *fold.Node, st converge.Standing) api.NodeState {
	switch st.Need {
	case converge.Nothing:
		if n.Tickets.Conflicted != "" {
			return api.NodeSuspect
		}
		if _, beat := v.Present.Last(n.Node); beat.Unnoted != "" {
			return api.NodeSuspect
		}
		return api.NodeGood
	case converge.Proof:
		return api.NodeSuspect
	case converge.Apply: // the state depends on the last run (below)
	}
	if r := st.Run; r != nil && r.Foreign != nil {
		if r.Outcome().Good() {
			return api.NodeStale
		}
		return api.NodeFailed
	}
	last := v.Engine.Last(n.Node)
	a := last.Applied
	if a == nil || a.Result == nil && a.Lost == "" && last.Passed == nil {
		return api.NodeNew
	}
	outcome := a.Outcome()
	if a.Result != nil {
		outcome = a.Result.Outcome
	}
	switch outcome {
	case tutti.Waiting:
		return api.NodeWaiting
	case tutti.Failed, tutti.Lost, tutti.Interrupted:
		return api.NodeFailed
	default:
		return api.NodeStale
	}
}

// The type `pair` is a run together with the previous run of its node, and the questions of both.
type pair struct {
	view        *api.RunView
	wanted      time.Time
	now, before *tutti.Questions // shared with the fold, which never changes them
	beforeAt    time.Time
	beforeCode  tutti.Digest
}

// Before the call, only the ids of the views are set. The method `runs` fills in the rest, and adds the reasons why
// the runs were needed.
func (rd *Reader) runs(ctx context.Context, views ...*api.RunView) error {
	pairs := map[tutti.NodeName][]*pair{}
	err := rd.look(ctx, func(v View) error {
		for _, view := range views {
			if view == nil {
				continue
			}
			if r := v.Engine.Runs[view.Run]; r != nil {
				*view = v.run(r)
				pairs[r.Node] = append(pairs[r.Node], &pair{view: view, wanted: r.WantedAt, now: r.Asked})
			} else if j := v.Engine.Jobs[view.Job]; j != nil {
				view.By, view.Plan, view.Mode = j.By, j.Plan.Name, j.Mode
			}
		}
		if len(pairs) == 0 {
			return nil
		}
		for _, r := range v.Engine.Runs {
			for _, p := range pairs[r.Node] {
				if r.Asked != nil && r.Passed() && r.Full() && r.WantedAt.Before(p.wanted) && r.WantedAt.After(p.beforeAt) {
					p.before, p.beforeAt, p.beforeCode = r.Asked, r.WantedAt, r.Code
				}
			}
		}
		return nil
	})
	for _, of := range pairs {
		for _, p := range of {
			p.tell()
		}
	}
	return err
}

// The method `tell` records how the inputs of a run differ from the inputs of the previous run.
func (p *pair) tell() {
	if p.before == nil || p.now == nil {
		return
	}
	p.view.OtherCode = p.view.Code != p.beforeCode
	before := map[string]tutti.Read{}
	for _, r := range p.before.Reads {
		before[identify(r.Query)] = r
	}
	for _, r := range p.now.Reads {
		old, asked := before[identify(r.Query)]
		if asked && (old.Found != r.Found || old.Digest != r.Digest) || !asked && r.Query.Kind == tutti.QueryHiera && slices.Contains(p.before.Keys, r.Query.Key) {
			p.view.Because = append(p.view.Because, r.Query)
		}
	}
}

// The function `identify` returns the same text for equal questions.
func identify(q tutti.Query) string {
	if normal, err := data.NormalQuery(q); err == nil {
		q = normal
	}
	raw, err := json.Marshal(q)
	if err != nil { // the filter is invalid, so no run can have asked this
		return string(q.Kind) + q.Key + q.Type
	}
	return string(raw)
}
