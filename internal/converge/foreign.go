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

// standing judges a node in the view of a job that wants this code on the node. An empty
// job means the public view. An empty code means any code. The judgement considers
// Tutti's runs, and foreign runs that are later (ADR 0011).
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

// goingOn reports whether a run may be changing its node. Before this run ends, nobody knows the state in which it
// leaves the node. The state is also unknown if an earlier run has failed. A proof changes nothing before its
// gate.
func goingOn(r *engine.Run) bool {
	return r != nil && r.Result == nil && r.Lost == "" && !r.Proved && (r.Passed() || !r.Proof)
}

// ended returns the standing of a node as if no run were going on.
func (s *State) ended(node tutti.NodeName, job tutti.JobID, code tutti.Digest, has Has) Standing {
	out := s.recorded(node, job, code, has)
	agent := has.Program == tutti.ProgramAgent
	last := s.engine.Last(node)
	found, why := s.found(node, last, job, code)
	if why != "" && out.Need != Apply {
		out.Foreign, out.Need, out.Run, out.why = out.Need == Nothing, Apply, found, why
	}
	var mends *engine.Run
	if agent && !has.Recorded && len(out.Changed) == 0 { // a server that records compiles does not publish a foreign run's exports
		mends = s.mends(node, last, found)
	}
	for _, f := range last.Foreign { // the judgement depends on the latest foreign run that counts
		failed := agent && !f.Foreign.Noop && !f.Outcome().Good()
		switch {
		case f == mends || mends != nil && mends.Undoes(f):
			continue
		case f.Foreign.Local != nil && !f.Foreign.Disturbs(): // this includes a run that changed nothing before it failed
			continue
		case !failed && !f.Foreign.Disturbs():
			continue
		}
		mends = nil // the run `f` was after the run `mends`, or at the same time
		switch {
		case f.Foreign.Local != nil && f.Foreign.Local.Away && out.Need != Apply:
			out.Need = Apply // the fleet reacts to this need, because the node makes an away run only while the server cannot react
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

// mends returns the latest whole run of the node's daemon that makes the node good, whatever happened before. The
// method returns nil if no run makes the node good. The run certainly began after the end of all known runs of
// Tutti. That run also began after the last report about the machine and its facts.
func (s *State) mends(node tutti.NodeName, last engine.Last, found *engine.Run) *engine.Run {
	var latest *engine.Run
	began := func(f *engine.Run) time.Time { return f.EndedAt.Add(-f.Foreign.Ago) }
	for _, f := range last.Foreign {
		whole := f.Foreign.Whole && !f.Foreign.Unwatched // a run whose end nobody saw may have been going on at the same time
		if whole && f.Foreign.Ago > 0 && (latest == nil || began(f).After(began(latest))) {
			latest = f
		}
	}
	if latest == nil {
		return nil
	}
	ours := append([]*engine.Run{last.Applied, last.Passed, found}, last.Partial...)
	if len(last.Partial) == retain.MaxPartial { // older runs with tags are not kept, but all of them ended before the last claimed run began
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

// found returns a run that has changed nothing, but has shown that its node is not good. The method also returns
// what the run has found. The method returns nil and an empty string if no run has found something.
func (s *State) found(node tutti.NodeName, last engine.Last, job tutti.JobID, code tutti.Digest) (*engine.Run, string) {
	if j := s.engine.Jobs[job]; j != nil && j.Mode == tutti.ModeNoop || last.Passed == nil {
		return nil, ""
	}
	for _, r := range last.Previews {
		if what := s.foretold(r, last, job, code); what != "" {
			return r, what
		}
	}
	if r := last.Shown; r != nil && s.showsAnother(r, last.Passed, node, job, code) {
		return r, fmt.Sprintf("run %s was stopped, and its catalog differs from that of the last run", r.Run)
	}
	return nil, ""
}

// showsAnother reports whether the catalog of a stopped proof differs from the catalog of the last passed run. The
// proof must have the present code, answers and facts.
func (s *State) showsAnother(r, passed *engine.Run, node tutti.NodeName, job tutti.JobID, code tutti.Digest) bool {
	if r.Gate != tutti.GateStop || passed.Compiled == nil || r.Compiled.Catalog == "" || passed.Compiled.Catalog == "" {
		return false
	}
	before, now := passed.Compiled, r.Compiled
	same := before.Catalog == now.Catalog && before.Sources == now.Sources && before.Lib == now.Lib
	return !same && (code == "" || r.Code == code) && !s.changedSince(r, job) && !s.engine.Facts(node).Since(r)
}

// foretold returns the finding of a run that changed nothing, if the finding is still valid. The finding is
// valid if the run has the same catalog as the last full run, or if the run's code and answers have not
// changed since.
func (s *State) foretold(r *engine.Run, last engine.Last, job tutti.JobID, code tutti.Digest) string {
	passed, at, broke := last.Passed, cmp.Or(r.GatedSeq, r.EndedSeq), r.Result.Outcome == tutti.Failed
	if last.Left != nil && at < last.Left.GatedSeq || at < passed.GatedSeq && (!passed.Proved || !r.Result.PassedGate()) {
		return ""
	}
	same := r.Compiled != nil && passed.Compiled != nil && r.Compiled.Catalog != "" && r.Compiled.Catalog == passed.Compiled.Catalog
	other := code != "" && r.Program != tutti.ProgramAgent && r.Code != code || s.changedSince(r, job) && (!broke || r.Asked != nil)
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

// pending describes what a noop run would change, without the changes that the previous full run has also reported.
// The function returns an empty string if nothing is left. Every run reports resources that are noop by themselves,
// and Notify resources.
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
	if n := r.Counts.OutOfSync; n > len(r.Changes) && len(r.Changes) == tutti.MaxFailures && n > kept { // the list was cut
		return fmt.Sprintf("%d resources are", n)
	}
	return ""
}

// foreignWhy explains why a node is not good after a run that Tutti did not order.
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
