package engine

import (
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
)

// State is the content of the log about jobs and runs. Views read its fields. Only Apply
// changes them.
type State struct {
	Jobs   map[tutti.JobID]*Job           // the jobs that were not retired
	Order  []tutti.JobID                  // ids of the jobs in the order of their start
	Runs   map[tutti.RunID]*Run           // the runs of all jobs in Jobs, and the last runs of each node (see last)
	Active map[tutti.NodeName]tutti.RunID // for each node, its wanted or present run
	Epoch  tutti.Epoch                    // the present epoch of the log

	open      []*Job // the unfinished jobs
	exclusive []*Job // the unfinished jobs that are exclusive
	last      map[tutti.NodeName]last
	setBack   map[tutti.NodeName]*SetBack
	facts     map[tutti.NodeName]*Facts
	foreign   map[tutti.NodeName]retain.Foreigns
	partial   map[tutti.NodeName][]tutti.RunID // see Last.Partial
	runs      int                              // how many runs the jobs in Jobs have
	started   int                              // how many jobs have ever started
}

// The type `last` contains the runs that determine the standing of a node. The last runs stay when their jobs are
// retired.
type last struct {
	claimed  tutti.RunID // the last claimed run of any mode
	own      tutti.RunID // see Own
	applied  tutti.RunID // the last claimed full run
	passed   tutti.RunID // the last full run that passed its gate or proved the node good
	reported tutti.RunID // see Last.Reported
	left     tutti.RunID // see Last.Left
	shown    tutti.RunID // see Last.Shown
	previews retain.Previews
}

func (l last) ids() []tutti.RunID {
	out := []tutti.RunID{l.claimed, l.own, l.applied, l.passed, l.reported, l.left, l.shown}
	for _, p := range l.previews {
		out = append(out, p.Run)
	}
	return out
}

func (l last) has(id tutti.RunID) bool { return slices.Contains(l.ids(), id) }

// Job is one execution of a plan.
type Job struct {
	ID        tutti.JobID
	Seq       uint64 // sequence of its JobStarted
	Plan      tutti.Plan
	Mode      tutti.Mode
	Env       string
	Code      tutti.Digest
	Codes     map[string]tutti.Digest // the code of the other environments
	Commits   map[string]string       // by environment, for people
	By        string
	Diff      *tutti.DiffCode // as in tutti.JobStarted; nil: the job is no diff
	Cause     string          // the reason why the server began the job by itself; empty for an operator's job
	StartedAt time.Time
	EndedAt   time.Time
	Cancelled bool
	Verdict   tutti.Verdict // empty while the job goes on
	Message   string
	Steps     []*Step // in the plan's order
	Leases    *Leases // nil if the job is not exclusive

	byName map[tutti.StepName]*Step
	runs   int
}

// Step is a step of a job.
type Step struct {
	tutti.Step
	StartedAt time.Time
	EndedAt   time.Time
	State     StepState
	Message   string        // only for a wait or converge step
	Verdict   tutti.Verdict // only for a converge step
	Nodes     []*StepNode   // of a run step: all nodes, sorted by name; of a converge step: the nodes that have taken part

	byNode map[tutti.NodeName]*StepNode
}

// StepState is the state of a step. The state of a run step follows from its nodes.
type StepState string

// The constants are the states of a step, and of a node inside a step.
const (
	Pending StepState = "pending"
	Active  StepState = "active"
	Done    StepState = "done"
	Failed  StepState = "failed"
)

// StepNode is one node of a run or converge step.
type StepNode struct {
	Node  tutti.NodeName
	State StepState
	Runs  []*Run // all attempts, the oldest first
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
	// Seq, ClaimedSeq, GatedSeq and EndedSeq are the sequences of RunWanted, of RunClaimed, of
	// RunGated, and of the event that ended the run. The sequences determine the order in the log.
	// The times are for people and for waits.
	Seq        uint64 `json:"-"`
	ClaimedSeq uint64 `json:"-"`
	GatedSeq   uint64 `json:"-"`
	EndedSeq   uint64 `json:"-"`

	Fence  tutti.Fence `json:"-"` // fence of the order
	Fenced bool        `json:"-"` // the node that claimed the run stores fences
	Told   bool        `json:"-"` // the node itself sent the Result
	// Restored is true if the log was reset to a backup between the order and the end of the run. Nobody knows what the
	// run published in between.
	Restored bool `json:"-"`

	// ToldSeq and ToldAt say when the Result came. The server may have counted the run as ended before the Result
	// came.
	ToldSeq uint64    `json:"-"`
	ToldAt  time.Time `json:"-"`

	ByFacts bool          `json:"by_facts,omitempty"` // the run was wanted only because the node's facts differ
	Changed []tutti.Query `json:"-"`                  // the reasons of the reaction that wanted the run

	WantedAfter tutti.RunID `json:"wanted_after,omitempty"` // see tutti.RunWanted
	GatedAfter  tutti.RunID `json:"gated_after,omitempty"`  // see tutti.RunGated
	CompiledSeq uint64      `json:"-"`                      // sequence of RunCompiled

	WantedAt  time.Time `json:"wanted_at,omitzero"`
	ClaimedAt time.Time `json:"claimed_at,omitzero"`
	// CompiledAt is when the node handed over the catalog. A compiled run without a gate
	// decision is held.
	CompiledAt time.Time `json:"compiled_at,omitzero"`
	// Compiled and Asked are what the node reported about its compile. Both are nil if the
	// node has reported nothing.
	Compiled *tutti.CatalogReport `json:"compiled,omitempty"`
	// Groups are the node's groups at the gate, as in RunCompiled.
	Groups []tutti.GroupName `json:"groups,omitzero"`
	Asked  *tutti.Questions  `json:"-"`
	Set    tutti.Digest      `json:"set,omitempty"` // digest of the exports that the node handed over
	// Served is what the run's Puppet Server reported about the compile. Served is nil
	// if the Puppet Server has reported nothing.
	Served  *tutti.Served     `json:"served,omitempty"`
	Records int               `json:"-"` // how often the Puppet Server reported something
	GatedAt time.Time         `json:"gated_at,omitzero"`
	Gate    tutti.GateVerdict `json:"gate,omitempty"`
	GateWhy string            `json:"gate_why,omitempty"`
	Proved  bool              `json:"proved,omitempty"` // the run was stopped because its node is good
	Rests   time.Time         `json:"rests,omitzero"`   // for a proof: the beginning of the run that applied the present state of the node
	RestsAt tutti.Clock       `json:"-"`                // the same time as Rests, by the agent's clock
	Values  []string          `json:"values,omitempty"` // the keys that the run's catalog publishes
	Wants   []tutti.Grant     `json:"wants,omitempty"`  // the grants that the run lacked (see tutti.RunRefused)
	EndedAt time.Time         `json:"ended_at,omitzero"`
	Lost    string            `json:"lost,omitempty"`   // the reason why the run was given up; empty if it was not given up
	Left    bool              `json:"left,omitempty"`   // the run was given up because its node left the fleet
	Result  *tutti.Result     `json:"result,omitempty"` // the result, even if it came after Lost was set
	// Foreign is set for a run that no server ordered. A foreign run belongs to no job and has
	// no gate. For a foreign run, EndedAt is the time when the node reported the run.
	Foreign *tutti.Foreign `json:"foreign,omitempty"`
}

// Outcome is the run's outcome so far. Outcome is empty while the run goes on, and for a
// run that was stopped at its gate.
func (r *Run) Outcome() tutti.Outcome {
	switch {
	case r.Lost != "":
		return tutti.Lost
	case r.Result != nil:
		return r.Result.Outcome
	}
	return ""
}

// Ended reports whether the run has left its node.
func (r *Run) Ended() bool { return !r.EndedAt.IsZero() }

// Last are the runs that determine the standing of a node. Each may be nil.
type Last struct {
	Claimed *Run // the last claimed run of any mode
	Applied *Run // the last claimed full run
	Passed  *Run // the last full run that passed its gate or proved its node good
	// Reported is the latest run of any mode whose report contains resources (tutti.Result.Tells). The latest run
	// is the run that was wanted last. The results may arrive in another order.
	Reported *Run
	// Left is the latest full run whose report contains resources.
	Left *Run
	// Shown is the latest proof that has compiled since a full run passed its gate or proved its node good.
	Shown *Run
	// Previews are the latest runs that changed nothing and show what a full run would find (see retain.Previews).
	Previews []*Run
	// SetBack is set if the node was set back, and no full run of the node has passed its gate since then.
	SetBack *SetBack
	// Foreign are the kept foreign runs that are later than Applied and Passed, the latest first. Foreign contains
	// only those noop runs that may have disturbed something (see tutti.Foreign.Disturbs). Foreign does not contain
	// local runs that repeat Passed.
	Foreign []*Run
	// Partial are runs with tags in mode apply that have passed their gate since the last full run passed its
	// gate. Only the first retain.MaxPartial of these runs are kept.
	Partial []*Run
}

// Last returns the last runs of a node.
func (s *State) Last(node tutti.NodeName) Last {
	l := s.last[node]
	out := Last{Claimed: s.Runs[l.claimed], Applied: s.Runs[l.applied], Passed: s.Runs[l.passed], Reported: s.Runs[l.reported], Left: s.Runs[l.left], Shown: s.Runs[l.shown]}
	for _, p := range l.previews {
		if r := s.Runs[p.Run]; r != nil {
			out.Previews = append(out.Previews, r)
		}
	}
	if b := s.setBack[node]; b != nil && (out.Passed == nil || out.Passed.GatedSeq < b.Seq) {
		out.SetBack = b
	}
	for _, id := range s.partial[node] {
		out.Partial = append(out.Partial, s.Runs[id])
	}
	out.Foreign = slices.DeleteFunc(s.foreignAfter(node, out.Applied, out.Passed), func(f *Run) bool { return s.repeats(f, out) })
	return out
}

// Tells reports whether the server knows what the run's catalog exports. If a Puppet Server
// compiles the catalog, the server knows the exports only after the Puppet Server has
// reported them.
func (r *Run) Tells() bool { return r.Program != tutti.ProgramAgent || r.Served != nil }

// Publishes reports whether the run's exports are published when the run passes its
// gate. Exports that go to PuppetDB are already published by the compile.
func (r *Run) Publishes() bool { return r.Tells() && (r.Served == nil || r.Served.CatalogUUID == "") }

// Own returns the node's last claimed run of any mode, without compiles for a diff. Own returns nil if there is none.
func Own(s *State, node tutti.NodeName) *Run { return s.Runs[s.last[node].own] }

// Held reports whether the run waits at its gate for a decision.
func (r *Run) Held() bool { return !r.CompiledAt.IsZero() && r.Gate == "" && !r.Ended() }

// Passed reports whether the run passed its gate. Only a run that passed its gate counts
// as a run.
func (r *Run) Passed() bool { return r.Gate == tutti.GateGo }

// NewState returns the state before the first event.
func NewState() *State {
	return &State{
		Jobs:   map[tutti.JobID]*Job{},
		Runs:   map[tutti.RunID]*Run{},
		Active: map[tutti.NodeName]tutti.RunID{},
		Epoch:  tutti.Epoch{Number: 1},
		last:   map[tutti.NodeName]last{},

		setBack: map[tutti.NodeName]*SetBack{},
		facts:   map[tutti.NodeName]*Facts{},
		foreign: map[tutti.NodeName]retain.Foreigns{},
		partial: map[tutti.NodeName][]tutti.RunID{},
	}
}

// Converges reports whether a run belongs to a converge step.
func (s *State) Converges(r *Run) bool {
	st := s.step(r.Job, r.Step)
	return st != nil && st.Kind() == tutti.StepConverge
}

// Open calls f for every job without a verdict, the oldest first.
func (s *State) Open(f func(*Job)) {
	for _, j := range s.open {
		f(j)
	}
}

// Exclusive calls f for every exclusive job without a verdict, the oldest first.
func (s *State) Exclusive(f func(*Job)) {
	for _, j := range s.exclusive {
		f(j)
	}
}

// Converging calls f for every converge step that may continue now, the oldest job first.
func (s *State) Converging(f func(*Job, *Step)) {
	for _, j := range s.open {
		for _, st := range j.Steps {
			if st.Kind() == tutti.StepConverge && !st.Ended() && !j.Cancelled && j.ready(st, "") {
				f(j, st)
			}
		}
	}
}

// Waits calls f for every active wait step. The cost of Waits grows with the number of
// unfinished jobs.
func (s *State) Waits(f func(*Job, *Step)) {
	for _, j := range s.open {
		for _, st := range j.Steps {
			if st.Kind() == tutti.StepWait && st.State == Active {
				f(j, st)
			}
		}
	}
}

// Node returns a node of the step, or nil.
func (s *Step) Node(n tutti.NodeName) *StepNode { return s.byNode[n] }

// Step returns the step of that name, or nil.
func (j *Job) Step(name tutti.StepName) *Step { return j.byName[name] }

// Ended reports whether the job has its verdict.
func (j *Job) Ended() bool { return j.Verdict != "" }

// Ended reports whether nothing more happens in the step.
func (s *Step) Ended() bool { return s.State == Done || s.State == Failed }
