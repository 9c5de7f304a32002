package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// Usual is how a node runs Puppet if a step does not say so.
type Usual struct {
	Program     tutti.Program
	Environment string // if Environment is empty, a node with ProgramApply uses the environment of the job
}

// View is the data that a decision needs in addition to the log.
type View struct {
	Now      time.Time
	Since    time.Time                      // when this server began to serve
	Seen     func(tutti.NodeName) time.Time // the node's last sign of life since this server began to serve; zero: no sign of life yet
	Silence  time.Duration                  // a node that is silent for this long is lost
	InFlight int                            // how many runs the fleet may have at once; 0: no limit
	Hold     bool                           // no run may begin; present runs continue
	Quiet    bool                           // do not look for lost runs, because a decision a moment ago has looked
	HeldTo   time.Time                      // before this time no run could begin; zero: runs could always begin
	Usual    func(tutti.NodeName) Usual     // how a node runs if the step does not say so; nil: ProgramApply

	// LastAnswer returns the reason why the last answer to a wait was not good enough.
	// The reason is unknown if LastAnswer is nil or returns an empty text.
	LastAnswer func(tutti.JobID, tutti.StepName) string
}

// Decide returns the events that the server should append now, in order. Decide returns
// nil if there is nothing to do. A RunWanted has no run id yet, because the caller makes
// the id. For the same state, Decide returns the same events. After these events are
// applied, Decide does not return them again.
func (s *State) Decide(v View) []tutti.Body {
	var out []tutti.Body
	if !v.Quiet {
		out = s.losses(v)
	}
	budget := newBudget(s, v.InFlight)
	for _, j := range s.open {
		if j.Leases != nil {
			if late := s.overdue(j, v); len(late) > 0 {
				out = append(out, late...)
				continue
			}
			if p := j.Leases.Phase; p != PhaseRun && p != PhaseEnd && p != PhaseOver {
				continue
			}
		}
		todo := j.next(v, budget)
		if len(todo) == 0 && j.idle() {
			todo = []tutti.Body{j.verdict()}
		}
		out = append(out, todo...)
	}
	return out
}

// The method `losses` gives up a run if its node is silent. The method also gives up a run if the node is connected
// but does not claim or end the run in time. When the server starts, this time begins again for every node.
func (s *State) losses(v View) []tutti.Body {
	var out []tutti.Body
	for _, id := range s.Active {
		r := s.Runs[id]
		heard := v.from(r.WantedAt)
		if seen := v.Seen(r.Node); seen.After(heard) {
			heard = seen
		}
		if silent := v.Now.Sub(heard); silent >= v.Silence {
			out = append(out, &tutti.RunLost{Run: id, Reason: fmt.Sprintf("nothing heard of the node for %s", silent.Round(time.Second))})
			continue
		}
		// Before a claim the node may still be busy with a run that was given up. The earlier run
		// ends by its own timeout, so the node gets the same time before and after the claim.
		begun, what := v.from(r.ClaimedAt), "no result %s after the claim, its timeout is %s"
		if r.ClaimedAt.IsZero() {
			begun, what = v.from(r.WantedAt), "the node is connected but did not claim the run for %s, its timeout is %s"
			if v.HeldTo.After(begun) { // until HeldTo, the server refused all claims
				begun = v.HeldTo
			}
		}
		grace := r.Timeout + 2*v.Silence
		if late := v.Now.Sub(begun); r.Timeout > 0 && late >= grace {
			out = append(out, &tutti.RunLost{Run: id, Reason: fmt.Sprintf(what, late.Round(time.Second), r.Timeout)})
		}
	}
	slices.SortFunc(out, func(a, b tutti.Body) int { return strings.Compare(a.ID(), b.ID()) })
	return out
}

// The method `from` returns when something began, but never a time before this server began to serve. If the logged
// time is in the future, the clock that wrote it was ahead. In that case, the result is not the logged time, because
// this time would make deadlines too late.
func (v View) from(logged time.Time) time.Time {
	if logged.After(v.Since) && !logged.After(v.Now) {
		return logged
	}
	return v.Since
}

// The method `next` returns the events that begin or end something in the job.
func (j *Job) next(v View, b *budget) []tutti.Body {
	var out []tutti.Body
	for _, st := range j.Steps {
		if !st.Ended() {
			out = append(out, kindOf(st).next(j, st, v, b)...)
		}
	}
	return out
}

// The method `ready` reports whether all steps that the step waits for are done. For a step with `per: node`, the
// caller may set the argument `node`. Then only this node must be done in the earlier steps.
func (j *Job) ready(st *Step, node tutti.NodeName) bool {
	for _, name := range st.After {
		before := j.byName[name]
		if st.PerNode && node != "" && before.ActsOn() == tutti.NodesListed {
			if n := before.byNode[node]; n != nil && n.State != Done {
				return false
			}
			continue
		}
		if before.State != Done {
			return false
		}
	}
	return true
}

func (st *Step) count(state StepState) int {
	count := 0
	for _, n := range st.Nodes {
		if n.State == state {
			count++
		}
	}
	return count
}

// The method `idle` reports whether nothing in the job is running, and nothing can begin. While a node waits for
// another job's run, the job is not idle. While a node waits for a step that has failed, the job may be idle.
func (j *Job) idle() bool {
	for _, st := range j.Steps {
		if !st.Ended() && kindOf(st).busy(j, st) {
			return false
		}
	}
	return true
}

func (j *Job) verdict() *tutti.JobFinished {
	out := &tutti.JobFinished{Job: j.ID, Verdict: tutti.VerdictSucceeded}
	var failed, never []string
	for _, st := range j.Steps {
		if st.Verdict != "" && (len(j.Steps) == 1 || !st.Verdict.Good()) {
			out.Verdict, out.Message = st.Verdict, st.Message
			if !j.Cancelled {
				return out
			}
		}
		switch {
		case st.State == Done:
		case st.State == Failed:
			failed = append(failed, string(st.Name))
		case st.count(Failed) > 0:
			failed = append(failed, string(st.Name))
		default:
			never = append(never, string(st.Name))
		}
	}
	if len(failed) > 0 || len(never) > 0 {
		out.Verdict = tutti.VerdictFailed
		out.Message = describe(failed, never)
	}
	if j.Leases != nil && len(j.Leases.failed) > 0 {
		out.Verdict = tutti.VerdictFailed
		out.Message = strings.TrimSuffix(j.Leases.whyFailed()+"; "+out.Message, "; ")
	}
	if j.Cancelled {
		out.Verdict = tutti.VerdictCancelled
		if j.Message != "" {
			out.Message = j.Message
			if j.Leases != nil && len(j.Leases.failed) > 0 {
				out.Message += "; " + j.Leases.whyFailed()
			}
		}
	}
	return out
}

func describe(failed, never []string) string {
	var parts []string
	if len(failed) > 0 {
		parts = append(parts, "failed: "+strings.Join(failed, ", "))
	}
	if len(never) > 0 {
		parts = append(parts, "not begun: "+strings.Join(never, ", "))
	}
	return strings.Join(parts, "; ")
}

// The type `budget` limits how many runs go on at the same time. The runs that this decision begins count, too.
type budget struct {
	state *State
	taken map[tutti.NodeName]bool
	limit int
}

func newBudget(s *State, limit int) *budget {
	return &budget{state: s, taken: map[tutti.NodeName]bool{}, limit: limit}
}

func (b *budget) left() bool {
	return b.limit == 0 || len(b.state.Active)+len(b.taken) < b.limit
}

func (b *budget) busy(j *Job, n tutti.NodeName) bool {
	_, active := b.state.Active[n]
	of := b.state.ExclusiveOn(n)
	return active || b.taken[n] || of != nil && of != j
}

func (b *budget) take(n tutti.NodeName) { b.taken[n] = true }
