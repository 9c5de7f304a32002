package tutti

import "slices"

// jobEvents are the kinds of events of jobs and their steps.
var jobEvents = []eventKind{
	{func() Body { return new(JobStarted) }, ScopeJob, TrailAlways, KeepOwn},
	{func() Body { return new(JobCancelled) }, ScopeJob, TrailAlways, KeepWithJob},
	{func() Body { return new(JobFinished) }, ScopeJob, TrailAlways, KeepOwn},
	{func() Body { return new(StepStarted) }, ScopeJob, TrailOperators, KeepWithJob},
	{func() Body { return new(StepFinished) }, ScopeJob, TrailOperators, KeepWithJob},
	{func() Body { return new(ConvergeFinished) }, ScopeJob, TrailOperators, KeepOwn},
	{func() Body { return new(LeaseChanged) }, ScopeJob, TrailOperators, KeepWithJob},
	{func() Body { return new(JobRetired) }, ScopeNone, TrailAlways, KeepOwn},
}

// JobStarted is one execution of a plan, with everything resolved.
type JobStarted struct {
	Job     JobID                   `json:"job"`
	Plan    Plan                    `json:"plan"`
	Mode    Mode                    `json:"mode"`
	Env     string                  `json:"environment"`
	Code    Digest                  `json:"code"`
	Targets map[StepName][]NodeName `json:"targets"` // sorted
	// Cause is why the server began it by itself, in words; empty for jobs of
	// people.
	Cause string `json:"cause,omitempty"`
}

// Kind implements Body.
func (*JobStarted) Kind() string { return "job.started" }

// ID implements Body.
func (b *JobStarted) ID() string { return string(b.Job) }

// Validate refuses a plan that cannot be executed, and targets of steps that
// run nothing.
func (b *JobStarted) Validate() error {
	if err := b.Plan.Validate(); err != nil {
		return err
	}
	for _, s := range b.Plan.Steps {
		if s.ActsOn() != NodesListed && len(b.Targets[s.Name]) > 0 {
			return Errorf(CodeInvalid, "job %q: step %q runs nothing and has nodes", string(b.Job), string(s.Name))
		}
	}
	return nil
}

// JobCancelled lets no further run begin; what runs ends.
type JobCancelled struct {
	Job    JobID  `json:"job"`
	Reason string `json:"reason,omitempty"`
}

// Kind implements Body.
func (*JobCancelled) Kind() string { return "job.cancelled" }

// ID implements Body.
func (b *JobCancelled) ID() string { return string(b.Job) }

// JobFinished is the verdict.
type JobFinished struct {
	Job     JobID   `json:"job"`
	Verdict Verdict `json:"verdict"`
	Message string  `json:"message,omitempty"`
}

// Kind implements Body.
func (*JobFinished) Kind() string { return "job.finished" }

// ID implements Body.
func (b *JobFinished) ID() string { return string(b.Job) }

// StepStarted begins a wait step.
type StepStarted struct {
	Job  JobID    `json:"job"`
	Step StepName `json:"step"`
}

// Kind implements Body.
func (*StepStarted) Kind() string { return "step.started" }

// ID implements Body.
func (b *StepStarted) ID() string { return string(b.Job) }

// StepFinished ends a wait step.
type StepFinished struct {
	Job     JobID    `json:"job"`
	Step    StepName `json:"step"`
	OK      bool     `json:"ok"`
	Message string   `json:"message,omitempty"`
}

// Kind implements Body.
func (*StepFinished) Kind() string { return "step.finished" }

// ID implements Body.
func (b *StepFinished) ID() string { return string(b.Job) }

// ConvergeFinished ends a converge step.
type ConvergeFinished struct {
	Job     JobID    `json:"job"`
	Step    StepName `json:"step"`
	Verdict Verdict  `json:"verdict"`
	Message string   `json:"message,omitempty"`
	// Diverging are nodes that are let alone, each with the digest of the answers
	// that it last had: another digest is a reason to try again. Empty: only new code is, or a person.
	Diverging map[NodeName]Digest `json:"diverging,omitempty"`
}

// Kind implements Body.
func (*ConvergeFinished) Kind() string { return "converge.finished" }

// ID implements Body.
func (b *ConvergeFinished) ID() string { return string(b.Job) }

// LeaseChanged is how a node stands in an exclusive job: the node's word, or the
// server's of a node that says nothing.
type LeaseChanged struct {
	Job     JobID      `json:"job"`
	Node    NodeName   `json:"node"`
	State   LeaseState `json:"state"`
	Message string     `json:"message,omitempty"`
}

// Kind implements Body.
func (*LeaseChanged) Kind() string { return "lease.changed" }

// ID implements Body.
func (b *LeaseChanged) ID() string { return string(b.Job) }

// Validate refuses a state that no fold knows.
func (b *LeaseChanged) Validate() error {
	if !slices.Contains(LeaseStates, b.State) {
		return Errorf(CodeInvalid, "job %q: node %s is in state %q, which is not a state of a lease", string(b.Job), b.Node, string(b.State))
	}
	return nil
}

// JobRetired lets a finished job go, with its runs; the latest run of each
// node stays.
type JobRetired struct {
	Job JobID `json:"job"`
}

// Kind implements Body.
func (*JobRetired) Kind() string { return "job.retired" }

// ID implements Body.
func (b *JobRetired) ID() string { return string(b.Job) }

// Verdict is how a job ended.
type Verdict string

// The verdicts of a job that executes a plan.
const (
	VerdictSucceeded Verdict = "succeeded"
	VerdictFailed    Verdict = "failed"
	VerdictCancelled Verdict = "cancelled"
)

// The verdicts of a job that converges, besides VerdictFailed and VerdictCancelled.
const (
	VerdictConverged Verdict = "converged" // all nodes are good
	VerdictStuck     Verdict = "stuck"     // all that is not good waits for a missing answer
	VerdictDiverging Verdict = "diverging" // nodes keep changing each other's data
	VerdictPartial   Verdict = "partial"   // all are good but nodes that are not connected
	VerdictDeferred  Verdict = "deferred"  // of a reaction: other nodes are not good, and run later or for a person
)

// Good reports whether a job that ended so did what it was to do.
func (v Verdict) Good() bool { return v == VerdictSucceeded || v == VerdictConverged }
