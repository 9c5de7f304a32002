package converge

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fleet"
)

// An answer has many readers if more than wideMin nodes and more than 1/widePart of the fleet read it. If an answer
// has many readers, they do not all run at once.
const (
	widePart = 10
	wideMin  = 20
)

// aloneFor is how long a node is left alone after its last run was lost or interrupted.
// After that, a reaction tries the node again.
const aloneFor = 2 * time.Minute

// disabledFor is how long a node is left alone if Puppet was disabled on the node, or if
// its run waited too long for PuppetDB. Puppet's daemon on the node would try again after the same time.
const disabledFor = 30 * time.Minute

// The type `waked` records when a node first had reasons to run. The field `now` is for reasons to run at once, and
// the field `wide` is for reasons to run later. A zero time means that the node has no reason of this kind.
type waked struct{ now, wide time.Time }

// Reaction is a job to start because of a change.
type Reaction struct {
	Step  tutti.ConvergeStep
	Codes map[string]tutti.Digest // the code of each environment that has code
	Cause string                  // the reason for the job, as text
}

// React returns the job to start now. React returns nil if there is no reason for a job,
// or if a running job handles the reason.
func (s *State) React(v View) *Reaction {
	if v.Reaction == nil || v.Hold || v.Now.Sub(v.from(s.reacted)) < v.Reaction.Window {
		return nil
	}
	goesOn := false
	s.engine.Open(func(j *engine.Job) { goesOn = goesOn || reaction(j.Plan) })
	if goesOn {
		return nil
	}
	v = s.Survey(v)
	due := s.due(v)
	out := &Reaction{Step: tutti.ConvergeStep{Limit: v.Reaction.Limit, Reaction: true}, Codes: map[string]tutti.Digest{}}
	for environment, pushed := range s.pushed {
		out.Codes[environment] = pushed.Code
	}
	due = s.ofOneCode(v, due, out.Codes)
	if len(due) == 0 {
		return nil
	}
	out.Cause = s.cause(v, due)
	return out
}

// Due returns the nodes that should run now by themselves, sorted.
func (s *State) Due(v View) []tutti.NodeName {
	return s.due(s.Survey(v))
}

func (s *State) due(v View) []tutti.NodeName {
	s.look(v)
	var out []tutti.NodeName
	begin := func(n tutti.NodeName) {
		_, known := s.codeOf(v, n)
		if known && v.connected(n) && v.Paused(n) == "" && s.engine.Active[n] == "" && s.haltsFor(v, n) == "" {
			out = append(out, n)
		}
	}
	for n, standing := range s.needy {
		if s.isDue(v, n, standing) || s.turn(v, n) {
			begin(n)
		}
	}
	for n := range s.waked {
		if _, needy := s.needy[n]; !needy {
			delete(s.waked, n)
		}
	}
	for n := range s.scheduled {
		if _, needy := s.needy[n]; !needy {
			begin(n)
		}
	}
	slices.Sort(out)
	return out
}

// The method `turn` reports whether the safety schedule wants a run of a node now. The node's need does not matter,
// because Tutti may not know what would repair the node. Nodes that keep changing each other's data are left out,
// because a run would restart these changes.
func (s *State) turn(v View, n tutti.NodeName) bool {
	return s.scheduled[n] && !s.letAlone(n) && !s.alone(v, n).After(v.Now)
}

// letAlone reports whether a job has found that a node keeps changing.
func (s *State) letAlone(n tutti.NodeName) bool {
	_, is := s.diverged[n]
	return is
}

// isDue reports whether the time has come for a node that needs something. A failed node waits for changed inputs,
// for a person, or for the safety schedule.
func (s *State) isDue(v View, n tutti.NodeName, standing Standing) bool {
	standing, code, reacts := s.reacts(v, n, standing)
	if !reacts {
		delete(s.waked, n)
		return false
	}
	if s.letAlone(n) || s.hopeless(n, standing, code) {
		return false
	}
	if q, from := s.bounded(v, n, standing); v.Now.Before(from) {
		return s.cycle(v, n, q) != nil // run the node once, to report the cycle
	}
	w := s.waked[n]
	now, wide := s.urgency(v, standing)
	since := func(is bool, was time.Time) time.Time {
		switch {
		case !is:
			return time.Time{}
		case was.IsZero():
			return v.Now
		}
		return was
	}
	w.now, w.wide = since(now, w.now), since(wide, w.wide)
	s.waked[n] = w
	half := v.Reaction.Wide / 2
	return !w.now.IsZero() && !v.Now.Before(later(w.now.Add(v.Reaction.Window), s.alone(v, n))) ||
		!w.wide.IsZero() && !v.Now.Before(w.wide.Add(half+spread(n, half)))
}

// The method `soon` returns the nodes that are not due yet but will be due within the window. A job does not end
// before these nodes are due. Changes that nodes cause in each other belong in one job, and the bounds of one job
// apply to them.
func (s *State) soon(v View) []tutti.NodeName {
	var out []tutti.NodeName
	for n, w := range s.waked {
		standing, needy := s.needy[n]
		if needy && !w.now.IsZero() && !s.isDue(v, n, standing) && s.Rests(v, n, standing) == "" && v.connected(n) && v.Paused(n) == "" {
			out = append(out, n)
		}
	}
	return out
}

// Rests explains why a node does not run by itself within Reaction.Window, although the node is not good.
// Rests returns an empty string if the node does run. Where possible, the text is the same for many
// nodes.
func (s *State) Rests(v View, n tutti.NodeName, standing Standing) string {
	if v.halts == nil {
		v = s.Survey(v)
	}
	standing, code, reacts := s.reacts(v, n, standing)
	now, wide := s.urgency(v, standing)
	q, from := s.bounded(v, n, standing)
	switch {
	case !reacts && v.rollouts[v.Has(n).Environment] != nil:
		return v.rollouts[v.Has(n).Environment].heldBack()
	case !reacts && v.Has(n).Program != tutti.ProgramAgent && s.pushed[v.Has(n).Environment].Code == "":
		return fmt.Sprintf("no code was pushed for its environment %s: it runs after a push", v.Has(n).Environment)
	case s.letAlone(n):
		return "it kept changing in an earlier job: it runs after new code, or for a person"
	case s.hopeless(n, standing, code):
		return "nothing has changed since its last run, which did not go well: it runs after a change, or for a person"
	case s.haltsFor(v, n) != "":
		return s.haltsFor(v, n) + ": it runs when that node is good"
	case s.alone(v, n).After(v.Now):
		return "its last run ended unknown or left a refresh out, or Puppet was disabled: it runs within " + fleet.Duration(disabledFor)
	case v.Now.Before(from):
		return fmt.Sprintf("it has reacted to %s %d times within %s: it runs when this time has passed", q, v.Reaction.Bounds().Times, fleet.Duration(v.Reaction.Bounds().Per))
	case now:
		return ""
	case wide:
		return "this change may wait for others: it runs within " + fleet.Duration(v.Reaction.Wide)
	case standing.Foreign:
		return "a run that Tutti did not start has changed it, or a noop run has found something: it runs after a change, with the safety run, or for a person"
	case standing.Facts:
		return "its facts keep changing: it runs after another change, with the safety run, or for a person"
	}
	return "the fleet file lets it wait: it runs with the next run for another reason, with the safety run, or for a person"
}

// urgency returns how soon a node's reasons let it run: now, or later together with many
// other nodes. If both results are false, these reasons alone start no run.
func (s *State) urgency(v View, standing Standing) (now, wide bool) {
	if standing.Foreign { // whoever started the foreign run might undo each reaction, for ever
		return false, false
	}
	if standing.Facts && s.engine.Facts(standing.Run.Node).KeepChanging() { // facts that keep changing would cause runs for ever
		return false, false
	}
	if len(standing.Changed) == 0 {
		return true, false
	}
	for _, q := range standing.Changed {
		switch s.When(v.Reaction, q) {
		case tutti.ReactNow:
			now = true
		case tutti.ReactWindow:
			wide = true
		case tutti.ReactScheduled: // the safety run handles this change
		}
	}
	return now, wide
}

// When returns how soon the readers of a question run after its answer has changed.
func (s *State) When(r *tutti.Reaction, q tutti.Query) tutti.ReactionTime {
	for _, rule := range r.Reads {
		if rule.Fits(q) {
			return rule.When
		}
	}
	if q.Own() { // each node has its own answer, so a change wakes only the nodes whose answer changes
		return tutti.ReactNow
	}
	if readers := s.data.ReaderCount(q); readers > wideMin && readers*widePart > len(s.nodes) {
		return tutti.ReactWindow
	}
	return tutti.ReactNow
}

// The method `hopeless` reports whether a node has failed or waits for an answer, and nothing has changed since its
// last run.
func (s *State) hopeless(n tutti.NodeName, standing Standing, code tutti.Digest) bool {
	return s.same(n, standing, code) && !s.otherFacts(n)
}

// otherFacts reports whether another run of a node may help because the node's facts have changed since its last run.
func (s *State) otherFacts(n tutti.NodeName) bool {
	last, f := s.engine.Last(n).Applied, s.engine.Facts(n)
	return last != nil && f != nil && f.Run == last.Run && len(f.Changed) > 0 && !f.KeepChanging()
}

// The method `same` reports whether two things are true: a node has failed or waits for an answer, and none of its
// inputs has changed since its last run. Facts do not count as inputs here.
func (s *State) same(n tutti.NodeName, standing Standing, code tutti.Digest) bool {
	last := s.engine.Last(n).Applied
	if last == nil || last.Result == nil || last.Result.Stopped || last.Program != tutti.ProgramAgent && last.Code != code || len(standing.Changed) > 0 ||
		last.EndedSeq < s.fleetSeq { // grants are inputs, too
		return false
	}
	if slices.ContainsFunc(last.Result.Waits, func(w tutti.Wait) bool { return w.Query.Kind == tutti.QueryENC }) &&
		s.data.Answer(tutti.Query{Kind: tutti.QueryENC}, data.Asker{Node: n}).Found { // the server ended this run before it could ask
		return false
	}
	return last.Result.Outcome == tutti.Waiting || last.Result.Outcome == tutti.Failed
}

// The method `alone` returns the time until which a node is left alone. A node is left alone if its last run was lost
// or interrupted, waited for PuppetDB too long, left a refresh out, or could not begin.
func (s *State) alone(v View, n tutti.NodeName) time.Time {
	last := s.engine.Last(n).Applied
	if last == nil || !last.Ended() {
		return time.Time{}
	}
	switch outcome := last.Outcome(); {
	case outcome == tutti.Lost, outcome == tutti.Interrupted:
		return v.from(last.EndedAt).Add(aloneFor)
	case outcome == tutti.Skipped, last.Lagged(), owesAfterGood(last):
		return v.from(last.EndedAt).Add(disabledFor)
	}
	return time.Time{}
}

// The function `spread` returns a node's delay within a time span. Each node has its own delay, so that many nodes
// act one after the other. The delay of a node is the same at each call.
func spread(n tutti.NodeName, over time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(n))
	return time.Duration(float64(over) * float64(h.Sum32()) / (1 << 32))
}

// The method `schedule` notes the nodes whose last run was so long ago that they must run again, even if they need
// nothing. The method looks at all nodes only when a node may be due.
func (s *State) schedule(v View) {
	safety := v.Reaction.Safety
	if safety == 0 {
		clear(s.scheduled)
		return
	}
	if v.Now.Before(s.nextSafety) {
		return
	}
	s.nextSafety = v.Now.Add(safety)
	for n := range s.nodes {
		last := s.engine.Last(n).Applied
		if last == nil || !last.Ended() {
			continue
		}
		at := v.from(last.EndedAt).Add(safety - spread(n, safety/10))
		if !at.After(v.Now) {
			s.scheduled[n] = true
		} else if at.Before(s.nextSafety) {
			s.nextSafety = at
		}
	}
}

// fingerprint returns a digest of the answers to all known questions of a node.
func (s *State) fingerprint(n tutti.NodeName) tutti.Digest {
	asked := s.data.Asked(n)
	if asked == nil {
		return ""
	}
	text := ""
	for _, r := range asked.Reads {
		a := s.data.Answer(r.Query, data.Asker{Node: n})
		text += fmt.Sprintf("%s %t %s\n", r.Query, a.Found, a.Digest)
	}
	for _, q := range s.data.OutdatedOf(n, "", 0) { // hiera keys that were absent
		if q.Kind == tutti.QueryHiera {
			text += fmt.Sprintf("%s %s\n", q, s.data.Answer(q, data.Asker{Node: n}).Digest)
		}
	}
	return tutti.DigestOf([]byte(text))
}
