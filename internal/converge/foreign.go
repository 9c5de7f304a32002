package converge

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/retain"
)

// The method `standing` returns whether a node is good, and if not, what it needs. It compares the node's runs with
// the present code and answers. The argument `code` is the code that the node should have; if `code` is empty, any
// code is right. With a job, the answers are those that a run of the job would get. Without a job, they are the
// public answers. Foreign runs count only if they were later than Tutti's runs (ADR 0011).
func (s *State) standing(node tutti.NodeName, job tutti.JobID, code tutti.Digest, has Has) Standing {
	out := s.ended(node, job, code, has)
	if out.Need != Nothing {
		return out
	}
	last := s.engine.Last(node)
	for _, r := range append([]*engine.Run{last.Applied}, last.Partial...) {
		if goingOn(r) {
			out.Need, out.Run, out.why = Apply, r, fmt.Sprintf("run %s is going on: nobody knows yet how it ends", r.Run)
			return out
		}
	}
	return out
}

// goingOn reports whether a run may be changing its node. Until the run ends, nobody knows in which state it will
// leave the node, and whether it repairs what an earlier, failed run has left. A proof does not count before its
// gate, because it changes nothing until then.
func goingOn(r *engine.Run) bool {
	return r != nil && r.Result == nil && r.Lost == "" && !r.Proved && (r.Passed() || !r.Proof)
}

// The method `ended` does the same as `standing`, but ignores a run that is going on.
func (s *State) ended(node tutti.NodeName, job tutti.JobID, code tutti.Digest, has Has) Standing {
	out := s.recorded(node, job, code, has)
	agent := has.Program == tutti.ProgramAgent
	last := s.engine.Last(node)
	found, why := s.found(node, last, job, code, has)
	if why != "" && out.Need != Apply {
		out.Foreign, out.Need, out.Run, out.why = out.Need == Nothing, Apply, found, why
	}
	var mends *engine.Run
	if agent && !has.Recorded && len(out.Changed) == 0 { // if compiles are recorded, a foreign run makes no node good, because its exports are not published
		mends = s.mends(node, last, found, has)
	}
	for _, f := range last.Foreign { // the first run that counts determines the result
		failed := agent && !f.Foreign.Noop && !f.Outcome().Good()
		switch {
		case f == mends || mends != nil && mends.Undoes(f):
			continue
		case f.Foreign.Local != nil && !f.Foreign.Disturbs(): // a local run that changed nothing does not count, even if it failed
			continue
		case !failed && !f.Foreign.Disturbs():
			continue
		}
		mends = nil // the run `f` was after the run `mends`, or at the same time
		switch {
		case f.Foreign.Local != nil && f.Foreign.Local.Away && out.Need != Apply:
			out.Need = Apply // out.Foreign stays false, so the fleet reacts now; it could not react while the server was away
		case failed || out.Need != Apply:
			out.Foreign, out.Need = out.Need == Nothing, Apply
		default:
			continue
		}
		out.Run, out.why = f, foreignWhy(f)
		return out
	}
	if mends != nil {
		return Standing{Need: Nothing, Run: mends}
	}
	return out
}

// A whole foreign run is a run of the node's daemon that has applied a whole new catalog. It makes the node good,
// whatever happened before. The method `mends` returns the latest such run, or nil. The run must certainly have
// begun after all known runs of Tutti had ended, and after the last report about the machine and its facts.
func (s *State) mends(node tutti.NodeName, last engine.Last, found *engine.Run, has Has) *engine.Run {
	var latest *engine.Run
	began := func(f *engine.Run) time.Time { return f.EndedAt.Add(-f.Foreign.Ago) }
	for _, f := range last.Foreign {
		whole := f.Foreign.Whole && !f.Foreign.Unwatched && (has.Environment == "" || f.Environment == has.Environment) // if Unwatched, another run may have been going on at the same time
		if whole && f.Foreign.Ago > 0 && (latest == nil || began(f).After(began(latest))) {
			latest = f
		}
	}
	if latest == nil {
		return nil
	}
	ours := append([]*engine.Run{last.Applied, last.Passed, found}, last.Partial...)
	if len(last.Partial) == retain.MaxPartial { // older runs with tags are not kept, but they had ended when the last claimed run began
		ours = append(ours, last.Claimed)
	}
	facts, back := s.engine.Facts(node), last.SetBack
	for _, r := range ours {
		if r != nil && !back.Parts(r, latest) && !latest.Undoes(r) {
			return nil
		}
	}
	if facts != nil && !latest.Since(facts.Seq, facts.At) || back != nil && !latest.Since(back.Seq, back.At) {
		return nil
	}
	return latest
}

// A noop run or a compile changes nothing, but may show that its node is not good. If there is a run that shows
// this, the method `found` returns the run, and a text about what the run has shown. If there is none, the method
// returns nil and an empty string.
func (s *State) found(node tutti.NodeName, last engine.Last, job tutti.JobID, code tutti.Digest, has Has) (*engine.Run, string) {
	if j := s.engine.Jobs[job]; j != nil && j.Mode == tutti.ModeNoop || last.Passed == nil {
		return nil, ""
	}
	for _, r := range last.Previews {
		if what := s.foretold(r, last, job, code, has); what != "" {
			return r, what
		}
	}
	if r := last.Shown; r != nil && s.showsAnother(r, last.Passed, node, job, code) {
		return r, fmt.Sprintf("run %s was stopped, and its catalog differs from that of the last run", r.Run)
	}
	return nil, ""
}

// The run `r` is a proof that was stopped at its gate. showsAnother reports whether its catalog differs from the
// catalog of the last run that passed its gate. It returns false if the proof had other code, answers or facts than
// the node would get now.
func (s *State) showsAnother(r, passed *engine.Run, node tutti.NodeName, job tutti.JobID, code tutti.Digest) bool {
	if r.Gate != tutti.GateStop || passed.Compiled == nil || r.Compiled.Catalog == "" || passed.Compiled.Catalog == "" {
		return false
	}
	before, now := passed.Compiled, r.Compiled
	same := before.Catalog == now.Catalog && before.Sources == now.Sources && before.Lib == now.Lib
	return !same && (code == "" || r.Code == code) && !s.changedSince(r, job) && !s.engine.Facts(node).Since(r)
}

// A noop run or a compile has found what a run would change, or that a run would fail. The method `foretold`
// returns this finding as a text, or an empty string if the finding is not valid any more. The finding is valid if
// the run has the same catalog as the last full run. It is also valid if the code and the answers have not changed
// since the run.
func (s *State) foretold(r *engine.Run, last engine.Last, job tutti.JobID, code tutti.Digest, has Has) string {
	passed, at, broke := last.Passed, cmp.Or(r.GatedSeq, r.EndedSeq), r.Result.Outcome == tutti.Failed
	if last.Left != nil && at < last.Left.GatedSeq || at < passed.GatedSeq && (!passed.Proved || !r.Result.PassedGate()) {
		return ""
	}
	same := r.Compiled != nil && passed.Compiled != nil && r.Compiled.Catalog != "" && r.Compiled.Catalog == passed.Compiled.Catalog
	other := r.Program == tutti.ProgramAgent && r.Environment != has.Environment ||
		code != "" && r.Program != tutti.ProgramAgent && r.Code != code || s.changedSince(r, job) && (!broke || r.Asked != nil)
	if !same && (at < passed.GatedSeq || other) {
		return ""
	}
	kind := "noop run"
	if r.Mode == tutti.ModeCompile {
		kind = "compile"
	}
	if broke {
		return fmt.Sprintf("%s %s has shown that a run fails now: %s", kind, r.Run, endOf(r))
	}
	if what := pending(r.Result, last.Left); what != "" {
		return fmt.Sprintf("%s %s has found that %s not as the code says", kind, r.Run, what)
	}
	return ""
}

// The function `pending` describes what a noop run has found to change. It ignores changes that the last full run
// has also reported, because each run reports Notify resources and resources with the parameter noop. If there are
// no other changes, the function returns an empty string.
func pending(r *tutti.Result, left *engine.Run) string {
	before, kept := map[string]bool{}, 0
	if left != nil {
		for _, c := range left.Result.Changes {
			before[c.Resource] = true
		}
		kept = left.Result.Counts.OutOfSync - left.Result.Counts.Changed
	}
	for _, c := range r.Changes {
		if !before[c.Resource] && !strings.HasPrefix(c.Resource, "Notify[") {
			return c.Resource + " is"
		}
	}
	if n := r.Counts.OutOfSync; n > len(r.Changes) && len(r.Changes) == tutti.MaxFailures && n > kept { // the list of changes is incomplete
		return fmt.Sprintf("%d resources are", n)
	}
	return ""
}

// foreignWhy returns the reason why a node is not good after a run that the server did not order.
func foreignWhy(f *engine.Run) string {
	r, what := f.Result, f.Foreign.Local.Kind()
	switch {
	case f.Foreign.Unwatched && r.Counts.Changed == 0 && (f.Foreign.Noop || f.Outcome().Good()):
		return fmt.Sprintf("%s %s ended while the agent was off: what ran before it in that time is not known", what, r.Run)
	case f.Outcome().Good() && f.Foreign.Local != nil && len(f.Foreign.Local.Unpublished) > 0:
		keys := f.Foreign.Local.Unpublished
		return fmt.Sprintf("%s %s has not published %q (keys: %d), because local runs publish nothing", what, r.Run, keys[0], len(keys))
	case f.Outcome().Good():
		return fmt.Sprintf("%s %s has changed what Tutti's last run left: resources changed: %d", what, r.Run, r.Counts.Changed)
	}
	return fmt.Sprintf("%s %s: %s:%s: %s", what, r.Run, r.Outcome, r.Reason, r.Message)
}
