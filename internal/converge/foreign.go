package converge

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// standing judges a node in the view of a job (empty: everybody's) that wants some
// code (empty: any) on it: by the runs of ours, and by what others have done since
// (ADR 0011).
func (s *State) standing(node tutti.NodeName, job tutti.JobID, code tutti.Digest, has Has) Standing {
	out := s.ended(node, job, code, has)
	if a := s.engine.Last(node).Applied; out.Need == Nothing && goingOn(a) {
		out.Need, out.Run, out.why = Apply, a, fmt.Sprintf("run %s is going on: nobody knows yet how it ends", a.Run)
	}
	return out
}

// goingOn reports whether a run may be changing its node. Of what it leaves, and of what a run before it that failed
// has left, nothing is known before it ends. A proof changes nothing before its gate.
func goingOn(r *engine.Run) bool {
	return r != nil && r.Result == nil && r.Lost == "" && !r.Proved && (r.Passed() || !r.Proof)
}

// ended is standing as if no run were going on.
func (s *State) ended(node tutti.NodeName, job tutti.JobID, code tutti.Digest, has Has) Standing {
	out := s.recorded(node, job, code, has)
	agent := has.Program == tutti.ProgramAgent
	last := s.engine.Last(node)
	found, why := s.found(last, job, code)
	if why != "" && out.Need != Apply {
		out.Foreign, out.Need, out.Run, out.why = out.Need == Nothing, Apply, found, why
	}
	for _, f := range last.Foreign { // the latest that says anything
		told := (last.SetBack == nil || f.EndedSeq > last.SetBack.Seq) && (!out.Facts || f.EndedSeq > s.engine.Facts(node).Seq) && (why == "" || f.After(found))
		switch {
		case f.Foreign.Local != nil && !f.Foreign.Disturbs(): // also one that has failed before it changed anything
			continue
		case f.Foreign.Local != nil && f.Foreign.Local.Away && out.Need != Apply:
			out.Need = Apply // and that reacts: such a run is made only while nothing else can react
		case agent && !f.Foreign.Noop && !f.Outcome().Good():
			out.Foreign, out.Need = out.Need == Nothing, Apply
		case agent && !has.Recorded && f.Foreign.Whole && told && len(out.Changed) == 0: // else what it exports is not published
			return Standing{Need: Nothing, Run: f}
		case f.Foreign.Disturbs() && out.Need != Apply:
			out.Foreign, out.Need = out.Need == Nothing, Apply
		default:
			continue
		}
		out.Run, out.why = f, foreignWhy(f)
		return out
	}
	return out
}

// found returns a run that has changed nothing and has found that its node is not good, and says what; nil and the empty
// string: there is none.
func (s *State) found(last engine.Last, job tutti.JobID, code tutti.Digest) (*engine.Run, string) {
	if j := s.engine.Jobs[job]; j != nil && j.Mode == tutti.ModeNoop || last.Passed == nil {
		return nil, ""
	}
	for _, r := range last.Previews {
		if what := s.foretold(r, last, job, code); what != "" {
			return r, what
		}
	}
	return nil, ""
}

// foretold says what such a run has found that still counts. Its catalog was that of the last full run, or it had the code and the answers of now.
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

// pending says what a noop run would change that a full run before it would not have left so; empty: nothing. What is noop
// by itself that one has found, too, and a Notify is a message, at each run.
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
	if n := r.Counts.OutOfSync; n > len(r.Changes) && len(r.Changes) == tutti.MaxFailures && n > kept { // not all are named
		return fmt.Sprintf("%d resources are", n)
	}
	return ""
}

// foreignWhy says why a node is not good after a run that Tutti did not order.
func foreignWhy(f *engine.Run) string {
	r, what := f.Result, f.Foreign.Local.Kind()
	switch {
	case f.Foreign.Unwatched && (f.Foreign.Noop || f.Outcome().Good() && r.Counts.Changed == 0):
		return fmt.Sprintf("%s %s ended while the agent was off: what ran before it in that time is not known", what, r.Run)
	case f.Outcome().Good():
		return fmt.Sprintf("%s %s has changed what Tutti's last run left: resources changed: %d", what, r.Run, r.Counts.Changed)
	}
	return fmt.Sprintf("%s %s: %s:%s: %s", what, r.Run, r.Outcome, r.Reason, r.Message)
}
