package metrics

import (
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
)

// The values of the labels of jobs, runs and joins.
const (
	kindPlan     = "plan"
	kindConverge = "converge"
	kindPuppet   = "puppet"
	kindDiff     = "diff"

	causePerson   = "person"
	causeReaction = "reaction"

	phaseCompile = "compile"
	phaseHeld    = "held"
	phaseApply   = "apply"

	joinedByToken       = "token"
	joinedByCertificate = "certificate"
)

var (
	kinds  = []string{kindPlan, kindConverge, kindPuppet, kindDiff}
	phases = []string{phaseCompile, phaseHeld, phaseApply}
)

// Stored counts events that are on disk. The state includes the events. The writer calls Stored.
func (m *Meters) Stored(state *fold.State, events []tutti.Event) {
	for _, e := range events {
		switch b := e.Body.(type) {
		case *tutti.RunCompiled:
			if r := state.Engine.Runs[b.Run]; r != nil && r.Held() {
				m.gates.WithLabelValues(string(tutti.GateHold)).Inc()
			}
		case *tutti.RunGated:
			m.gated(state.Engine.Runs[b.Run], b)
		case *tutti.RunFinished:
			if r := state.Engine.Runs[b.Result.Run]; r != nil && r.EndedSeq == e.Seq {
				m.ended(r, b.Result)
			}
		case *tutti.RunLost:
			if r := state.Engine.Runs[b.Run]; r != nil && r.EndedSeq == e.Seq {
				m.runs.WithLabelValues(string(r.Mode), string(tutti.Lost), "").Inc()
			}
		case *tutti.RunForeign:
			m.runs.WithLabelValues(modeForeign, outcomeOf(b.Result), reasonOf(b.Result)).Inc()
		case *tutti.JobFinished:
			if j := state.Engine.Jobs[b.Job]; j != nil {
				m.jobs.WithLabelValues(kindOf(j), causeOf(j), string(b.Verdict)).Inc()
				m.jobTime.Observe(max(0, e.At.Sub(j.StartedAt)).Seconds())
			}
		case *tutti.NodeEnrolled:
			by := joinedByToken
			if b.Certificate != nil {
				by = joinedByCertificate
			}
			m.joins.WithLabelValues(by).Inc()
		case *tutti.NodeClassified:
			m.encs.Inc()
		}
	}
}

func (m *Meters) gated(r *engine.Run, b *tutti.RunGated) {
	m.gates.WithLabelValues(string(b.Verdict)).Inc()
	if r == nil || r.CompiledAt.IsZero() || r.ClaimedAt.IsZero() {
		return
	}
	m.took(phaseCompile, r.ClaimedAt, r.CompiledAt)
	m.took(phaseHeld, r.CompiledAt, r.GatedAt)
}

func (m *Meters) took(phase string, from, to time.Time) {
	m.runTime.WithLabelValues(phase).Observe(max(0, to.Sub(from)).Seconds())
}

// The method `ended` counts a run that ended with a result.
func (m *Meters) ended(r *engine.Run, result tutti.Result) {
	m.runs.WithLabelValues(string(r.Mode), outcomeOf(result), reasonOf(result)).Inc()
	if r.Passed() && !r.GatedAt.IsZero() {
		m.took(phaseApply, r.GatedAt, r.EndedAt)
	}
	c := result.Counts
	for outcome, n := range map[string]int{
		"changed": c.Changed, "failed": c.Failed, "skipped": c.Skipped, "unchanged": c.Total - c.Changed - c.Failed - c.Skipped,
	} {
		m.resources.WithLabelValues(outcome).Add(float64(max(0, n))) // a counter must not fall, whatever a node says
	}
}

func outcomeOf(r tutti.Result) string {
	if r.Stopped {
		return outcomeStopped
	}
	return string(r.Outcome)
}

func reasonOf(r tutti.Result) string {
	switch {
	case r.Stopped || r.Outcome != tutti.Failed:
		return ""
	case !slices.Contains(tutti.Reasons, r.Reason):
		return labelOther
	}
	return string(r.Reason)
}

func kindOf(j *engine.Job) string {
	switch {
	case j.Diff != nil:
		return kindDiff
	case j.Plan.Name == api.ConvergePlan:
		return kindConverge
	case j.Plan.Name == api.RunsPlan:
		return kindPuppet
	}
	return kindPlan
}

func causeOf(j *engine.Job) string {
	if j.Cause != "" && kindOf(j) == kindConverge {
		return causeReaction
	}
	return causePerson
}
