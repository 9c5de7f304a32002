package converge

import (
	"fmt"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// standing judges a node in the view of a job (empty: everybody's) that wants some
// code (empty: any) on it: by the runs of ours, and by what others have done since
// (ADR 0011).
func (s *State) standing(node tutti.NodeName, job tutti.JobID, code tutti.Digest, has Has) Standing {
	out := s.recorded(node, job, code, has)
	agent := has.Program == tutti.ProgramAgent
	last := s.engine.Last(node)
	found, why := s.found(last, job, code)
	if why != "" && out.Need != Apply {
		out.Foreign, out.Need, out.Run, out.why = out.Need == Nothing, Apply, found, why
	}
	for _, f := range last.Foreign { // the latest that says anything
		told := (last.SetBack == nil || f.EndedSeq > last.SetBack.Seq) && (!out.Facts || f.EndedSeq > s.engine.Facts(node).Seq) && (why == "" || f.EndedSeq > found.EndedSeq)
		switch {
		case f.Foreign.Local != nil && !f.Foreign.Disturbs(): // also one that has failed before it changed anything
			continue
		case f.Foreign.Local != nil && f.Foreign.Local.Away && out.Need != Apply:
			out.Need = Apply // and that reacts: such a run is made only while nothing else can react
		case agent && !f.Outcome().Good():
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

// found returns a noop run that has found, with the code and the answers of now, what its node's last full run had not
// left so, and says what; nil and the empty string: there is none. Resources that are noop by themselves that run found, too.
func (s *State) found(last engine.Last, job tutti.JobID, code tutti.Digest) (*engine.Run, string) {
	r, passed := last.Reported, last.Passed
	if j := s.engine.Jobs[job]; j != nil && j.Mode == tutti.ModeNoop {
		return nil, ""
	}
	if r == nil || passed == nil || r.Mode != tutti.ModeNoop || r.Asked == nil || r.GatedSeq < passed.GatedSeq ||
		code != "" && r.Program != tutti.ProgramAgent && r.Code != code || s.changedSince(r, job) {
		return nil, ""
	}
	before := map[string]bool{}
	if passed.Result != nil {
		for _, c := range passed.Result.Changes {
			before[c.Resource] = true
		}
	}
	for _, c := range r.Result.Changes {
		if !before[c.Resource] && !strings.HasPrefix(c.Resource, "Notify[") { // a message, at each run
			return r, fmt.Sprintf("noop run %s has found that %s is not as the code says", r.Run, c.Resource)
		}
	}
	return nil, ""
}

// foreignWhy says why a node is not good after a run that Tutti did not order.
func foreignWhy(f *engine.Run) string {
	r, what := f.Result, f.Foreign.Local.Kind()
	if f.Outcome().Good() {
		return fmt.Sprintf("%s %s has changed what Tutti's last run left: resources changed: %d", what, r.Run, r.Counts.Changed)
	}
	return fmt.Sprintf("%s %s: %s:%s: %s", what, r.Run, r.Outcome, r.Reason, r.Message)
}
