package converge

import (
	"fmt"

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
	for _, f := range last.Foreign { // the latest that says anything
		told := (last.SetBack == nil || f.EndedSeq > last.SetBack.Seq) && (!out.Facts || f.EndedSeq > s.engine.Facts(node).Seq)
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

// foreignWhy says why a node is not good after a run that Tutti did not order.
func foreignWhy(f *engine.Run) string {
	r, what := f.Result, f.Foreign.Local.Kind()
	if f.Outcome().Good() {
		return fmt.Sprintf("%s %s has changed what Tutti's last run left: resources changed: %d", what, r.Run, r.Counts.Changed)
	}
	return fmt.Sprintf("%s %s: %s:%s: %s", what, r.Run, r.Outcome, r.Reason, r.Message)
}
