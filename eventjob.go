package tutti

import (
	"maps"
	"slices"
)

// jobEvents are the kinds of events about jobs and their steps.
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

// JobStarted is one execution of a plan. All names in the plan of a JobStarted are resolved.
type JobStarted struct {
	Job  JobID  `json:"job"`
	Plan Plan   `json:"plan"`
	Mode Mode   `json:"mode"`
	Env  string `json:"environment"`
	Code Digest `json:"code"`
	// Codes has the code of the other environments of the fleet, by environment. The job keeps all code that it had when
	// it began.
	Codes map[string]Digest `json:"codes,omitempty"`
	// Commits says for people, by environment, which commit the code is of (CodeSource.Short).
	Commits map[string]string       `json:"commits,omitempty"`
	Targets map[StepName][]NodeName `json:"targets"` // sorted
	// Cause says in words why the server began the job by itself. Cause is empty for jobs of people.
	Cause string `json:"cause,omitempty"`
	// Diff is set for a job whose nodes only compile Code, so that somebody can compare catalogs (ADR 0038).
	Diff *DiffCode `json:"diff,omitempty"`
}

// DiffCode is code that nodes compile and never apply.
type DiffCode struct {
	Signed    Digest    `json:"signed"`    // the blob with the manifest, a SignedCode
	Statement Statement `json:"statement"` // of kind StatementCompile
	// Left has the selected nodes that do not compile, with the reasons.
	Left map[NodeName]string `json:"left,omitempty"`
}

// Kind implements Body.
func (*JobStarted) Kind() string { return "job.started" }

// ID implements Body.
func (b *JobStarted) ID() string { return string(b.Job) }

// Uses returns all pushed code that the job may order. A job for a diff uses none, because it has its code itself.
func (b *JobStarted) Uses() []Digest {
	if b.Diff != nil {
		return nil
	}
	return append(slices.Collect(maps.Values(b.Codes)), b.Code)
}

// Validate refuses a plan that cannot be executed. Validate also refuses target nodes for a step
// that runs nothing.
func (b *JobStarted) Validate() error {
	if err := b.Plan.Validate(); err != nil {
		return err
	}
	for _, s := range b.Plan.Steps {
		if s.ActsOn() != NodesListed && len(b.Targets[s.Name]) > 0 {
			return Errorf(CodeInvalid, "job %q: step %q runs nothing, but has nodes", string(b.Job), string(s.Name))
		}
	}
	return nil
}

// JobCancelled stops the job from beginning further runs. Current runs continue until they end.
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
	// Diverging lists the nodes that the server does not run again. The value for a node is the
	// digest of the node's last answers. If these answers change, the server tries the node again. If
	// the digest is empty, only new code or a person makes the node run again.
	Diverging map[NodeName]Digest `json:"diverging,omitempty"`
}

// Kind implements Body.
func (*ConvergeFinished) Kind() string { return "converge.finished" }

// ID implements Body.
func (b *ConvergeFinished) ID() string { return string(b.Job) }

// LeaseChanged is the state of a node in an exclusive job. The node itself has reported the state.
// If the node does not answer, the server sets the state.
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

// Validate refuses a state that the fold does not know.
func (b *LeaseChanged) Validate() error {
	if !slices.Contains(LeaseStates, b.State) {
		return Errorf(CodeInvalid, "job %q: node %s is in state %q, which is not a state of a lease", string(b.Job), b.Node, string(b.State))
	}
	return nil
}

// JobRetired removes a finished job and its runs from the fold. The latest run of each node stays.
type JobRetired struct {
	Job JobID `json:"job"`
}

// Kind implements Body.
func (*JobRetired) Kind() string { return "job.retired" }

// ID implements Body.
func (b *JobRetired) ID() string { return string(b.Job) }

// Verdict is how a job ended.
type Verdict string

// These are the verdicts of a job that executes a plan.
const (
	VerdictSucceeded Verdict = "succeeded"
	VerdictFailed    Verdict = "failed"
	VerdictCancelled Verdict = "cancelled"
)

// These are the verdicts of a converging job, besides VerdictFailed and VerdictCancelled.
const (
	VerdictConverged Verdict = "converged" // all nodes are good
	VerdictStuck     Verdict = "stuck"     // all nodes that are not good wait for a missing answer
	VerdictDiverging Verdict = "diverging" // nodes keep changing each other's data
	VerdictPartial   Verdict = "partial"   // all other nodes are good, but some nodes are not connected, silent or paused
	// a reaction has ended, and some nodes are not good; these nodes run later, or when a person
	// starts them
	VerdictDeferred Verdict = "deferred"
)

// Good reports whether a job with this verdict has reached its goal.
func (v Verdict) Good() bool { return v == VerdictSucceeded || v == VerdictConverged }
