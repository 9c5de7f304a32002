package operators

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/server/core"
)

const (
	// maxUnfinished bounds the unfinished jobs of an operator who is not admin. The server looks at all unfinished
	// jobs at each decision.
	maxUnfinished = 20
	// mostCancelled bounds the jobs that one revocation cancels, so that they fit into one append.
	mostCancelled = 1000
)

// fewUnfinished refuses a new job if the operator is not admin and already has maxUnfinished unfinished jobs.
func (tx *tx) fewUnfinished(ctx context.Context) error {
	v := core.VisitOf(ctx)
	if v == nil || tx.IsAdmin(v.Name) {
		return nil
	}
	jobs := engine.Unfinished(tx.Engine, tutti.Actor(ctx))
	if len(jobs) < maxUnfinished {
		return nil
	}
	var ids []tutti.JobID
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return tutti.Errorf(tutti.CodeConflict, "operator %s has %d unfinished jobs (%s), and without admin an operator has at most %d; wait for one of them, or: tutti job cancel JOB",
		v.Name, len(jobs), several(ids), maxUnfinished)
}

// cancelJobs cancels those jobs of a revoked operator that have not begun on any node. If in.CancelJobs is set,
// the method also cancels the jobs that have begun.
func (tx *tx) cancelJobs(by string, in api.RevokeOperator) api.RevokedOperator {
	out := api.RevokedOperator{Cancelled: []tutti.JobID{}, GoOn: []tutti.JobID{}}
	begun := engine.JobsBegun(tx.Engine)
	for _, j := range engine.Unfinished(tx.Engine, core.ActorOperator+in.Operator) {
		switch {
		case j.Cancelled:
		case begun[j.ID] && !in.CancelJobs, len(out.Cancelled) == mostCancelled:
			out.GoOn = append(out.GoOn, j.ID)
		default:
			tx.Emit(by, &tutti.JobCancelled{Job: j.ID, Reason: "operator " + in.Operator + " was revoked"})
			out.Cancelled = append(out.Cancelled, j.ID)
		}
	}
	return out
}
