package engine

import (
	"time"

	"github.com/tutti-project/tutti"
)

// State is the fold of the log as far as jobs and runs are concerned. Its
// fields are read by views; only Apply changes them.
type State struct {
	Jobs   map[tutti.JobID]*Job           // those that were not retired
	Order  []tutti.JobID                  // in the order of their start
	Runs   map[tutti.RunID]*Run           // of Jobs, and the last one that each node claimed
	Active map[tutti.NodeName]tutti.RunID // the run that holds each node

	open    []*Job                         // not finished
	latest  map[tutti.NodeName]tutti.RunID // the last run that each node claimed
	runs    int                            // of Jobs
	started int                            // jobs, ever
}

// Job is one execution of a plan.
type Job struct {
	ID        tutti.JobID
	Seq       uint64 // of its JobStarted
	Plan      tutti.Plan
	Mode      tutti.Mode
	Env       string
	Code      tutti.Digest
	By        string
	StartedAt time.Time
	EndedAt   time.Time
	Cancelled bool
	Verdict   tutti.Verdict // empty while it goes on
	Message   string
	Steps     []*Step // in the plan's order

	byName map[tutti.StepName]*Step
	runs   int
}

// Step is a step of a job.
type Step struct {
	tutti.Step
	StartedAt time.Time
	EndedAt   time.Time
	State     StepState
	Message   string      // of a wait step
	Nodes     []*StepNode // of a run step, sorted by name

	byNode map[tutti.NodeName]*StepNode
}

// StepState is where a step is in its life; a run step's follows its nodes.
type StepState string

// The states of a step, and of a node inside it.
const (
	Pending StepState = "pending"
	Active  StepState = "active"
	Done    StepState = "done"
	Failed  StepState = "failed"
)

// StepNode is one node of a run step.
type StepNode struct {
	Node  tutti.NodeName
	State StepState
	Runs  []*Run // all attempts, the last one last
}

// Last returns the node's latest run in the step, or nil.
func (n *StepNode) Last() *Run {
	if len(n.Runs) == 0 {
		return nil
	}
	return n.Runs[len(n.Runs)-1]
}

// Run is one Puppet process that the log ordered.
type Run struct {
	tutti.Order
	WantedAt  time.Time         `json:"wanted_at,omitzero"`
	ClaimedAt time.Time         `json:"claimed_at,omitzero"`
	GatedAt   time.Time         `json:"gated_at,omitzero"`
	Gate      tutti.GateVerdict `json:"gate,omitempty"`
	GateWhy   string            `json:"gate_why,omitempty"`
	Values    []string          `json:"values,omitempty"` // the keys that its catalog wants published
	EndedAt   time.Time         `json:"ended_at,omitzero"`
	Lost      string            `json:"lost,omitempty"`   // why it was given up, empty if it was not
	Result    *tutti.Result     `json:"result,omitempty"` // also one that came after Lost
}

// Outcome is the run's outcome so far, empty while it goes on and for a run
// that was stopped at its gate.
func (r *Run) Outcome() tutti.Outcome {
	switch {
	case r.Lost != "":
		return tutti.Lost
	case r.Result != nil:
		return r.Result.Outcome
	}
	return ""
}

// Ended reports whether the run no longer holds its node.
func (r *Run) Ended() bool { return !r.EndedAt.IsZero() }

// Passed reports whether the run passed its gate and so counts as a run.
func (r *Run) Passed() bool { return r.Gate == tutti.GateGo }

// NewState returns the state before the first event.
func NewState() *State {
	return &State{
		Jobs:   map[tutti.JobID]*Job{},
		Runs:   map[tutti.RunID]*Run{},
		Active: map[tutti.NodeName]tutti.RunID{},
		latest: map[tutti.NodeName]tutti.RunID{},
	}
}

// Waits calls f for every wait step that goes on. It costs as much as there are
// jobs that go on.
func (s *State) Waits(f func(*Job, *Step)) {
	for _, j := range s.open {
		for _, st := range j.Steps {
			if st.Wait != nil && st.State == Active {
				f(j, st)
			}
		}
	}
}

// Step returns the step of that name, or nil.
func (j *Job) Step(name tutti.StepName) *Step { return j.byName[name] }

// Ended reports whether the job has its verdict.
func (j *Job) Ended() bool { return j.Verdict != "" }

// Ended reports whether nothing more happens in the step.
func (s *Step) Ended() bool { return s.State == Done || s.State == Failed }
