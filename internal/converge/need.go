package converge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/retain"
)

// Need is what a node needs to be good.
type Need string

// The needs.
const (
	Nothing Need = "nothing"
	Proof   Need = "proof"
	Apply   Need = "apply"
)

// Standing says what a node needs, and why.
type Standing struct {
	Need    Need
	Changed []tutti.Query // the questions that the node has read and whose answers have changed
	Run     *engine.Run   // the run that shows the need; nil: there is no such run

	// Foreign is true if the need comes only from a run that Tutti did not start, or from the findings of
	// a noop run.
	Foreign bool
	// Facts is true if the need comes only from changed facts.
	Facts bool
	// OtherCode is true if the need comes from code that was pushed after the last run.
	OtherCode bool

	why string // if `why` is empty, the field Changed contains the reason
}

// Why explains why something is needed. Why returns an empty string if nothing is needed.
// Nodes are judged very often and the text is seldom wanted, so only Why makes the text.
func (s Standing) Why() string {
	if s.why != "" || len(s.Changed) == 0 {
		return s.why
	}
	text := s.Changed[0].String() + " has changed since it was read"
	if more := len(s.Changed) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// ByAnswers reports whether changed answers are the reason that Why returns. A node that failed keeps this reason when
// answers change, too.
func (s Standing) ByAnswers() bool { return s.why == "" && len(s.Changed) > 0 }

// Standing returns what a node needs with the current code and data, in the public view.
func (s *State) Standing(node tutti.NodeName, has Has) Standing {
	environment := has.Environment
	if last := s.engine.Last(node).Applied; last != nil {
		environment = cmp.Or(environment, last.Environment)
	}
	if has.Program == tutti.ProgramObserve { // nothing may run there
		return Standing{Need: Nothing}
	}
	return s.standing(node, "", s.pushed[environment].Code, has)
}

// The method `recorded` judges a node by Tutti's runs, in the view of a job. The job wants the code `code` on
// the node. An empty job means the public view. An empty code means any code.
func (s *State) recorded(node tutti.NodeName, job tutti.JobID, code tutti.Digest, has Has) Standing {
	last := s.engine.Last(node)
	out := Standing{Need: Apply, Run: last.Applied}
	out.Changed = s.data.OutdatedOf(node, job, 0)
	if out.why = unfinished(last); out.why != "" {
		return out
	}
	if out.why = inPart(last); out.why != "" {
		return out
	}
	passed := last.Passed
	if passed.Asked == nil {
		out.why = "there is no record of what its last run read"
		return out
	}
	out.Run = passed
	if forgotten(passed) {
		out.why = whyForgotten(passed)
		return out
	}
	switch a, c := last.Applied, last.Claimed; {
	case a != passed && job != "" && a.Proof && a.Result != nil && a.Result.Stopped:
		out.Changed = s.outdatedSince(passed, job) // the stopped compile has replaced the node's record
	case job == "" && c != nil && c != passed && s.overlay(c) != "":
		out.Changed = s.outdatedSince(passed, "") // the compile of a running job has replaced the node's record
	}
	if len(out.Changed) > 0 {
		out.why = regrouped(out.Changed, passed, has)
		return out
	}
	if s.withdrawn[node] > passed.GatedSeq {
		out.why = "data that it published was withdrawn: a fleet file did not grant the data, or an operator took it back"
		return out
	}
	if key := denied(passed, has); key != "" {
		out.why = fmt.Sprintf("it read %q, but no grant allows this any more", key)
		return out
	}
	if has.Meant != nil {
		if key := s.data.Awaited(node, has.Meant); key != "" {
			out.why = fmt.Sprintf("the secret %q is for it now, and not sealed to it yet: tutti secret reseal", key)
			return out
		}
	}
	out.Need = Proof
	switch {
	case (passed.Program == tutti.ProgramAgent) != (has.Program == tutti.ProgramAgent):
		out.why = "its last run was by another program: it runs `puppet " + string(cmp.Or(has.Program, tutti.ProgramApply)) + "` now"
	case s.supersedes(passed, job, has, code): // this job must not undo what the later job has done
		out.Need = Nothing
	case has.Environment != "" && passed.Environment != has.Environment && has.Program != tutti.ProgramAgent:
		out.why = fmt.Sprintf("its last run was of environment %s, it has %s now", passed.Environment, has.Environment)
	case has.Program == tutti.ProgramAgent && passed.Environment != has.Environment && (passed.Foreign == nil || has.Environment != ""):
		out.why = elsewhere(passed.Environment, has.Environment)
	case code != "" && passed.Code != code && has.Program != tutti.ProgramAgent:
		out.OtherCode, out.why = true, "its last run had other code"
	case has.Puppet != "" && passed.Compiled != nil && passed.Compiled.Puppet != "" && passed.Compiled.Puppet != has.Puppet:
		out.why = fmt.Sprintf("its last run was of Puppet %s, it has %s now", passed.Compiled.Puppet, has.Puppet)
	case has.Classified && !asksENC(passed):
		out.why = "its last run did not get what the ENC says about it"
	case passed.Groups != nil && !slices.Equal(passed.Groups, has.Groups):
		out.why = fmt.Sprintf("at its last run it was in %s, now it is in %s", inGroups(passed.Groups), inGroups(has.Groups))
	case notCompared(passed, has) != "":
		out.why = fmt.Sprintf("the fact %q was volatile at its last run, and nobody has compared it since", notCompared(passed, has))
	case s.engine.Facts(node).Since(passed):
		out.Facts, out.why = true, factsWhy(s.engine.Facts(node))
	default:
		out.Need = Nothing
	}
	return out
}

// The function `elsewhere` explains why a node of a Puppet Server is not good after a run of another environment. An
// empty environment is the one that the node or the Puppet Server chooses.
func elsewhere(was, is string) string {
	switch {
	case is == "":
		return fmt.Sprintf("its last run was of environment %s, which a step or a group had set: now the node may use another environment", was)
	case was == "":
		return fmt.Sprintf("its last run was of the environment that the node names, it has %s now", is)
	}
	return fmt.Sprintf("its last run was of environment %s, it has %s now", was, is)
}

// notCompared returns a fact that was volatile in the order of a run, and is not volatile in the fleet file any more.
// Until its next order, the node leaves this fact out of its reports. The function returns an empty string if there
// is no such fact.
func notCompared(passed *engine.Run, has Has) string {
	for _, name := range passed.VolatileFacts {
		if !slices.Contains(has.Volatile, name) {
			return name
		}
	}
	return ""
}

// asksENC reports whether a run has asked for the answer of the ENC.
func asksENC(passed *engine.Run) bool {
	return slices.ContainsFunc(passed.Asked.Reads, func(r tutti.Read) bool { return r.Query.Kind == tutti.QueryENC })
}

// The function `regrouped` explains a change of answers with the groups of the node, if the groups are one of these
// answers. The function returns an empty string in all other cases.
func regrouped(changed []tutti.Query, passed *engine.Run, has Has) string {
	reads := slices.ContainsFunc(changed, func(q tutti.Query) bool { return q.Kind == tutti.QueryGroups })
	if !reads || passed.Groups == nil || slices.Equal(passed.Groups, has.Groups) {
		return ""
	}
	text := fmt.Sprintf("its code reads its groups: at its last run it was in %s, now it is in %s", inGroups(passed.Groups), inGroups(has.Groups))
	if more := len(changed) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more answers have changed", more)
	}
	return text
}

func inGroups(groups []tutti.GroupName) string {
	switch len(groups) {
	case 0:
		return "no group"
	case 1:
		return "group " + string(groups[0])
	}
	text := "groups " + string(groups[0])
	for _, g := range groups[1:] {
		text += ", " + string(g)
	}
	return text
}

// The method `supersedes` reports whether a run belongs to a job that began after `job`, and had other code than the
// node would have in `job`.
func (s *State) supersedes(r *engine.Run, job tutti.JobID, has Has, code tutti.Digest) bool {
	own, other := s.engine.Jobs[job], s.engine.Jobs[r.Job]
	return own != nil && other != nil && other.Seq > own.Seq && (r.Code != code || r.Environment != has.Environment)
}

// maxByFacts is how many runs of a node in one step may have changed facts as their only reason.
const maxByFacts = 2

// factsWhy explains why a node with changed facts is not good.
func factsWhy(f *engine.Facts) string {
	what := "its facts have changed since its last run"
	if f.KeepChanging() {
		what = "its facts keep changing"
	}
	if len(f.Changed) > 0 {
		what += ": " + strings.Join(f.Changed, ", ")
	}
	return what
}

// The function `unfinished` explains why a node is not good, independent of what it has read. The function returns an
// empty string if the node has no reason of this kind.
func unfinished(last engine.Last) string {
	if why := ended(last); why != "" {
		return why
	}
	return owed(last)
}

// The function `owed` explains which refresh a node still owes, according to the last result that the node reported.
// The function returns an empty string if the node owes no refresh.
func owed(last engine.Last) string {
	var latest *engine.Run
	for _, r := range append([]*engine.Run{last.Applied, last.Passed}, last.Partial...) {
		if r != nil && r.Foreign == nil && r.Result != nil && (latest == nil || r.EndedSeq > latest.EndedSeq) {
			latest = r
		}
	}
	if latest == nil {
		return ""
	}
	return latest.Result.Owes()
}

// The function `ended` explains why the node is not good after its last runs. The function returns an empty string if
// there is no such reason.
func ended(last engine.Last) string {
	a := last.Applied
	switch {
	case a == nil:
		return "it never ran"
	case last.SetBack != nil && last.SetBack.Moved:
		return fmt.Sprintf("it is another machine, or was installed again, since run %s: its machine id has changed", last.SetBack.Run)
	case last.SetBack != nil && last.SetBack.During:
		return fmt.Sprintf("it was set back to before run %s ended", last.SetBack.Run)
	case last.SetBack != nil && last.SetBack.Run != "":
		return fmt.Sprintf("it was set back to before run %s", last.SetBack.Run)
	case last.SetBack != nil:
		return "the server was set back: the log lacks the node's latest runs"
	case a.Lost != "" && a.Result == nil:
		return "its last run was given up: " + a.Lost
	case a.Proved:
		return ""
	case a.Result == nil && last.Passed == nil:
		return "it never ran before"
	case a.Result == nil: // the run has not ended, so the run before it counts (see goingOn)
		return notGood(last.Passed)
	case a.Result.Stopped && a.Proof && last.Passed != nil && last.Passed != a:
		return "" // the result of the previous run is still valid
	case a.Result.Stopped:
		return "its last compile was stopped: " + cmp.Or(a.GateWhy, a.Result.Message)
	case a.Result.Outcome == tutti.Waiting:
		return "it waits: " + a.Result.Message
	case !a.Result.Outcome.Good():
		return notGood(a)
	case last.Passed != a:
		return "its last run did not pass its gate"
	}
	return ""
}

// notGood explains why the state that a run has left is not good. The function returns an
// empty string if the state is good.
func notGood(r *engine.Run) string {
	switch {
	case r.Proved:
		return ""
	case r.Result == nil && r.Lost != "":
		return "its last run was given up: " + r.Lost
	case r.Result != nil && !r.Result.Outcome.Good():
		return fmt.Sprintf("its last run was %s: %s", r.Result.Outcome, r.Result.Says())
	}
	return ""
}

// The function `denied` returns the key of the first value that a run read, and that its node may not read any more.
// The function returns an empty string if the node may read all values.
func denied(passed *engine.Run, has Has) string {
	if has.MayRead == nil {
		return ""
	}
	for _, r := range passed.Asked.Reads {
		if r.Query.Kind == tutti.QueryValue && !has.MayRead(r.Query.Key) {
			return r.Query.Key
		}
	}
	return ""
}

// A run with tags can take a node out of the state that its last full run left. The function inPart describes the
// first run that did this, or returns an empty string. A run with tags that had the full run's catalog only
// repaired the node, so it does not count.
func inPart(last engine.Last) string {
	for _, r := range last.Partial {
		kind := "with tags"
		if r.Mode != tutti.ModeApply {
			kind = "in noop mode"
		}
		switch what := fmt.Sprintf("run %s, %s,", r.Run, kind); {
		case r.Result == nil && r.Lost == "":
		case r.Result == nil:
			return what + " was given up: " + r.Lost
		case !r.Result.Outcome.Good():
			return fmt.Sprintf("%s was %s: %s", what, r.Result.Outcome, r.Result.Message)
		case r.Result.Counts.Changed > 0 && !provable(last.Passed, r):
			return fmt.Sprintf("%s has changed the node since its last full run: resources changed: %d", what, r.Result.Counts.Changed)
		}
	}
	if len(last.Partial) == retain.MaxPartial {
		return fmt.Sprintf("it had %d runs with tags since its last full run", retain.MaxPartial)
	}
	return ""
}

// Needy returns the nodes that need something in the public view, sorted.
func (s *State) Needy(v View) []tutti.NodeName {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.look(v)
	return slices.Sorted(maps.Keys(s.needy))
}

// Standings returns what every node needs in the public view. The method judges a node again only if something has
// happened to the node since the last call. A call is therefore cheap in a large fleet. Some changes have no event,
// for example a heartbeat with another version of Puppet. A change without an event has its effect only after the
// next event about the node.
func (s *State) Standings(v View) func(tutti.NodeName) Standing {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.look(v)
	needy := maps.Clone(s.needy)
	return func(node tutti.NodeName) Standing {
		if standing, needs := needy[node]; needs {
			return standing
		}
		return Standing{Need: Nothing}
	}
}

// The method `look` judges a node again if something has happened to the node since the last call.
func (s *State) look(v View) {
	for _, n := range s.data.Touched() {
		if s.nodes[n] {
			s.dirty[n] = true
		}
	}
	for n := range s.dirty {
		delete(s.needy, n)
		if standing := s.Standing(n, v.Has(n)); standing.Need != Nothing {
			s.needy[n] = standing
		}
		if d, is := s.diverged[n]; is && d != "" && d != s.fingerprint(n) {
			delete(s.diverged, n)
		}
	}
	clear(s.dirty)
	if v.Reaction != nil {
		s.schedule(v)
	}
}

// changedSince looks at the answers that a node's last good run read. It reports whether
// one of these answers has changed in the view of a job.
func (s *State) changedSince(passed *engine.Run, job tutti.JobID) bool {
	return passed.Asked == nil || len(s.outdatedSince(passed, job)) > 0
}

// outdatedSince returns the questions that a node's last good run asked, and whose answers
// have changed in the view of a job.
func (s *State) outdatedSince(passed *engine.Run, job tutti.JobID) []tutti.Query {
	reads := slices.Clone(passed.Asked.Reads)
	for _, key := range passed.Asked.Keys { // keys that were absent
		reads = append(reads, tutti.Read{Query: tutti.Query{Kind: tutti.QueryHiera, Key: key}})
	}
	var out []tutti.Query
	for _, r := range s.data.Outdated(reads, data.Asker{Node: passed.Node, Job: job, Overlay: job != ""}) {
		out = append(out, r.Query)
	}
	return out
}

// The function `provable` reports whether a compile shows that nothing can have changed since the last run of its
// node. All six conditions of DESIGN 4.6 must hold. The facts that the catalog uses are part of the comparison of
// catalogs. Exports are compared separately, because they are not part of the catalog that the node applies.
func provable(passed, now *engine.Run) bool {
	if passed == nil || passed.Compiled == nil || now.Compiled == nil || !goodBasis(passed) {
		return false
	}
	before, after := passed.Compiled, now.Compiled
	return before.Catalog != "" && before.Catalog == after.Catalog && passed.Set == now.Set &&
		before.Sources != "" && before.Sources == after.Sources &&
		before.Lib != "" && before.Lib == after.Lib &&
		!before.Deferred && !after.Deferred
}

// goodBasis reports whether a run was full, good and not noop, or has proved that an
// earlier run of this kind is still valid.
func goodBasis(r *engine.Run) bool {
	if !r.Full() || r.Lost != "" {
		return false
	}
	return r.Proved || r.Passed() && r.Result != nil && r.Result.Outcome.Good()
}

// The function `forgotten` reports whether the log may lack values that a run has published. A node publishes while
// it applies. If the server is restored after that, the node reports its result again, but does not publish again.
func forgotten(r *engine.Run) bool { return r.Restored && r.Passed() && len(r.Values) > 0 }

func whyForgotten(r *engine.Run) string {
	return fmt.Sprintf("the server was restored during run %s, and may have lost what the run published", r.Run)
}
