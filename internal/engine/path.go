package engine

import (
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// PathPart is a part of the chain that Job.Path returns.
type PathPart struct {
	Step  tutti.StepName `json:"step"`
	Node  tutti.NodeName `json:"node,omitempty"` // empty for a step without runs
	Run   tutti.RunID    `json:"run,omitempty"`
	Phase PathPhase      `json:"phase"`
	From  time.Time      `json:"from"`
	To    time.Time      `json:"to"`
}

// PathPhase names the phases of a PathPart.
type PathPhase string

// The phases.
const (
	PathWanted  PathPhase = "wanted"  // from the order until the node claimed the run
	PathCompile PathPhase = "compile" // from the claim until the catalog, or until the run's end if it did not compile
	PathHeld    PathPhase = "held"    // from the catalog until the gate's decision, and no other run is known to be the reason
	PathApply   PathPhase = "apply"   // from the gate until the run's end
	PathStop    PathPhase = "stop"    // from the gate's decision to stop until the run's end
	PathDecide  PathPhase = "decide"  // from the event that let the run begin or go until it did
	PathWait    PathPhase = "wait"    // a step without runs, or time for which no run is known to be the reason
)

// Took returns how long the part took.
func (p PathPart) Took() time.Duration { return p.To.Sub(p.From) }

// Path returns the chain of runs that determined how long the job took, from its start to its end. Each part begins when
// the part before it ends, so that the parts together are the time from the first to the last. For a job that goes on,
// the chain ends with its last event. The times are those of the log. For jobs of releases without RunGated.After, a
// run that was held counts with the time at its gate.
func (j *Job) Path() []PathPart {
	w := walk{job: j, of: map[tutti.RunID]at{}}
	var last *at
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			for _, r := range n.Runs {
				here := at{st, r, ended(r)}
				w.of[r.Run] = here
				if !here.end.IsZero() && (last == nil || here.end.After(last.end)) {
					last = &here
				}
			}
		}
	}
	if last == nil {
		return nil
	}
	w.back(*last)
	slices.Reverse(w.parts)
	return w.parts
}

// The type `at` is a run at the end of its part of the chain.
type at struct {
	step *Step
	run  *Run
	end  time.Time
}

// The function `ended` returns the time of the last known event of a run.
func ended(r *Run) time.Time {
	for _, t := range []time.Time{r.EndedAt, r.GatedAt, r.CompiledAt, r.ClaimedAt} {
		if !t.IsZero() {
			return t
		}
	}
	return r.WantedAt
}

// The type `walk` goes from the end of a job to its start.
type walk struct {
	job   *Job
	of    map[tutti.RunID]at
	parts []PathPart // the last one first
}

func (w *walk) add(a at, phase PathPhase, from, to time.Time) time.Time {
	if to.After(from) && !from.IsZero() {
		w.parts = append(w.parts, PathPart{Step: a.step.Name, Node: a.run.Node, Run: a.run.Run, Phase: phase, From: from, To: to})
		return from
	}
	return to
}

// The method `back` adds the parts of a chain. Each step goes to an earlier time, or to another run at the same time. No run
// is visited twice at the same time.
func (w *walk) back(a at) {
	type visit struct {
		run tutti.RunID
		at  time.Time
	}
	seen := map[visit]bool{}
	first := func(run tutti.RunID, at time.Time) bool { return !seen[visit{run, at}] }
	for to := a.end; ; {
		r := a.run
		seen[visit{r.Run, to}] = true
		compiled := r.CompiledAt
		if !r.GatedAt.IsZero() && !r.GatedAt.After(to) {
			phase := PathApply
			if !r.Passed() {
				phase = PathStop
			}
			to = w.add(a, phase, r.GatedAt, to)
			if before, known := w.of[r.GatedAfter]; known && first(r.GatedAfter, to) {
				a, to = before, w.reach(a, before, to)
				continue
			}
		}
		if !compiled.IsZero() && compiled.Before(to) {
			to = w.add(a, PathHeld, compiled, to)
		}
		to = w.add(a, PathCompile, r.ClaimedAt, to)
		to = w.add(a, PathWanted, r.WantedAt, to)
		before, known := w.of[r.WantedAfter]
		if !known || !first(r.WantedAfter, to) {
			before, known = w.earlier(a, to, first)
		}
		if !known {
			if from := w.job.StartedAt; from.Before(to) {
				w.add(a, PathWait, from, to)
			}
			return
		}
		a, to = before, w.reach(a, before, to)
	}
}

// The method `reach` adds the time between an event of the run `before` and the time at which it let run `a` begin or go.
// It returns the time of the event.
func (w *walk) reach(a, before at, to time.Time) time.Time {
	if r := before.run; r.Passed() && r.GatedAt.Before(to) && (!r.Ended() || r.EndedAt.After(to)) {
		return to // it is applying, and has published something
	}
	event := before.run.WantedAt
	for _, t := range []time.Time{before.run.ClaimedAt, before.run.CompiledAt, before.run.GatedAt, before.run.EndedAt} {
		if !t.After(to) && t.After(event) {
			event = t
		}
	}
	return w.add(a, PathDecide, event, to)
}

// The method `earlier` returns the run that ended last before a time: an earlier run of the node in this step, or a run of
// a step for which this step waits.
func (w *walk) earlier(a at, to time.Time, first func(tutti.RunID, time.Time) bool) (found at, known bool) {
	steps := []*Step{}
	for _, name := range a.step.After {
		steps = append(steps, w.job.byName[name])
	}
	consider := func(st *Step, n *StepNode) {
		for _, r := range n.Runs {
			if end := ended(r); r.Ended() && first(r.Run, end) && !end.After(to) && (!known || end.After(found.end)) {
				found, known = at{st, r, end}, true
			}
		}
	}
	if a.step.Run != nil && a.step.Run.Limit > 0 { // another node of the step has made room
		for _, n := range a.step.Nodes {
			consider(a.step, n)
		}
	} else if n := a.step.byNode[a.run.Node]; n != nil {
		consider(a.step, n)
	}
	for len(steps) > 0 {
		st := steps[0]
		if steps = steps[1:]; st == nil {
			continue
		}
		if len(st.Nodes) == 0 { // a step without runs: what is before it counts
			for _, name := range st.After {
				steps = append(steps, w.job.byName[name])
			}
		}
		same := st.byNode[a.run.Node]
		if a.step.PerNode && same != nil && st.ActsOn() == tutti.NodesListed {
			consider(st, same)
			continue
		}
		for _, n := range st.Nodes {
			consider(st, n)
		}
	}
	return found, known
}
