package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// Leases are the states of all nodes of an exclusive job (ADR 0012).
type Leases struct {
	Nodes []*Lease  `json:"nodes"` // the nodes of the job's run steps, sorted by name
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"` // when the phase began

	of     map[tutti.NodeName]*Lease
	counts map[tutti.LeaseState]int
	failed []string // the reasons why no more runs begin
	after  []*Job   // older exclusive jobs that have some of the same nodes as this job
	wanted bool     // all nodes were enabled, so the job may hold them
	quiet  bool     // no other job has an unfinished run on the job's nodes
	begun  bool     // all nodes were held and idle, so the steps may begin
	keep   bool     // the job's nodes stay disabled; decided when PhaseRelease begins
}

// Lease is a node of an exclusive job.
type Lease struct {
	Node    tutti.NodeName   `json:"node"`
	State   tutti.LeaseState `json:"state"`
	Message string           `json:"message,omitempty"`
}

// Phase is what an exclusive job does with its nodes. Steps begin only in PhaseRun.
type Phase string

// The constants are the phases, in their order.
const (
	PhaseQueue   Phase = "queue"   // an older exclusive job with some of the same nodes has not ended
	PhaseCheck   Phase = "check"   // the server asks the nodes whether they are enabled
	PhaseQuiet   Phase = "quiet"   // the job waits until the runs of other jobs have ended
	PhaseHold    Phase = "hold"    // the job disables every node
	PhaseIdle    Phase = "idle"    // the job waits for the end of Puppet processes that others began
	PhaseRun     Phase = "run"     // the steps of the plan run
	PhaseEnd     Phase = "end"     // nothing more begins; the job waits until its runs have ended
	PhaseRelease Phase = "release" // every node gets back its earlier state
	PhaseOver    Phase = "over"
)

func newLeases(j *Job, older []*Job) *Leases {
	l := &Leases{of: map[tutti.NodeName]*Lease{}, counts: map[tutti.LeaseState]int{}, Phase: PhaseCheck, Since: j.StartedAt}
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			if l.of[n.Node] == nil {
				l.of[n.Node] = &Lease{Node: n.Node}
				l.Nodes = append(l.Nodes, l.of[n.Node])
			}
		}
	}
	slices.SortFunc(l.Nodes, func(a, b *Lease) int { return strings.Compare(string(a.Node), string(b.Node)) })
	l.counts[""] = len(l.Nodes)
	l.begun = len(l.Nodes) == 0
	for _, o := range older {
		if slices.ContainsFunc(l.Nodes, func(n *Lease) bool { return o.Leases.of[n.Node] != nil }) {
			l.after = append(l.after, o)
		}
	}
	return l
}

// applyLease folds the state of one node's lease.
func (s *State) applyLease(b *tutti.LeaseChanged) {
	j := s.Jobs[b.Job]
	if j == nil || j.Leases == nil || j.Leases.of[b.Node] == nil {
		return
	}
	l := j.Leases
	n := l.of[b.Node]
	l.counts[n.State]--
	n.State, n.Message = b.State, b.Message
	l.counts[n.State]++
	if b.State.Failed() {
		l.failed = append(l.failed, fmt.Sprintf("%s: %s", b.Node, b.Message))
	}
	l.wanted = l.wanted || l.counts[tutti.LeaseEnabled] == len(l.Nodes)
	l.begun = l.begun || l.counts[tutti.LeaseIdle] == len(l.Nodes)
}

// followPhases notes the phase of each exclusive job after an event.
func (s *State) followPhases(at time.Time) {
	for _, j := range s.exclusive {
		l := j.Leases
		l.quiet = l.quiet || l.wanted && s.stranger(j) == nil
		if phase := s.phase(j); phase != l.Phase {
			l.Phase, l.Since = phase, at
			if phase == PhaseRelease {
				l.keep = j.keeps()
			}
		}
	}
}

func (s *State) phase(j *Job) Phase {
	l := j.Leases
	switch {
	case !l.begun && !j.Halted():
		switch {
		case l.queuedBehind() != nil:
			return PhaseQueue
		case !l.wanted:
			return PhaseCheck
		case !l.quiet:
			return PhaseQuiet
		case l.counts[tutti.LeaseEnabled] > 0:
			return PhaseHold
		}
		return PhaseIdle
	case !j.idle() && j.Halted():
		return PhaseEnd
	case !j.idle():
		return PhaseRun
	case slices.ContainsFunc(l.Nodes, l.mayHold):
		return PhaseRelease
	}
	return PhaseOver
}

// queuedBehind returns the first job that must end before this job begins. The method
// returns nil if the job need not wait for another job.
func (l *Leases) queuedBehind() *Job {
	for _, o := range l.after {
		if !o.Ended() {
			return o
		}
	}
	return nil
}

// mayHold reports whether a node holds the lease or possibly holds it. In both cases the
// job must release the node. A node possibly holds the lease if the server has ordered
// this and the node has not confirmed the order yet.
func (l *Leases) mayHold(n *Lease) bool {
	return n.State == tutti.LeaseHeld || n.State == tutti.LeaseIdle || n.State == tutti.LeaseBusy ||
		n.State == tutti.LeaseEnabled && l.quiet
}

// The method `stranger` returns another job's unfinished run on a node of this job. The method returns nil if there
// is no such run.
func (s *State) stranger(j *Job) *Run {
	for _, n := range j.Leases.Nodes {
		if r := s.Runs[s.Active[n.Node]]; r != nil && r.Job != j.ID {
			return r
		}
	}
	return nil
}

// Halted reports whether nothing more in the job begins. A job is halted if it was cancelled, or if the lease of one
// of its nodes has failed.
func (j *Job) Halted() bool { return j.Cancelled || j.Leases != nil && len(j.Leases.failed) > 0 }

// WhyHalted explains why the job is halted, in the messages of its stopped runs and
// waits.
func (j *Job) WhyHalted() string {
	if j.Cancelled {
		return "the job was cancelled"
	}
	return "the job does not have all of its nodes to itself: " + j.Leases.failed[0]
}

// ExclusiveOn returns the exclusive job that holds the node now, or nil. While a job
// holds a node, no run of another job begins on the node.
func (s *State) ExclusiveOn(node tutti.NodeName) *Job {
	for _, j := range s.exclusive {
		n := j.Leases.of[node]
		if n != nil && !n.State.Over() && j.Leases.Phase != PhaseQueue && j.Leases.Phase != PhaseOver {
			return j
		}
	}
	return nil
}

// Reported returns the change that follows from a node's report. Reported returns nil if
// nothing changes.
func (s *State) Reported(node tutti.NodeName, r tutti.LeaseReport) *tutti.LeaseChanged {
	j := s.ExclusiveOn(node)
	if j == nil {
		return nil
	}
	n := j.Leases.of[node]
	say := func(state tutti.LeaseState, message string) *tutti.LeaseChanged {
		return &tutti.LeaseChanged{Job: j.ID, Node: node, State: state, Message: message}
	}
	switch {
	case j.Leases.Phase == PhaseRelease:
		switch {
		case r.Job == j.ID && !r.Ours && !r.Enabled && n.State != tutti.LeaseEnabled:
			return say(tutti.LeaseBroken, byOther(r))
		case r.Job == j.ID:
			return nil // nothing changes yet: LeaseOrder makes the node end the lease
		case r.Enabled:
			return say(tutti.LeaseReleased, "")
		case j.Leases.keep:
			return say(tutti.LeaseKept, "disabled: "+r.Message)
		}
		return say(tutti.LeaseReleased, byOther(r))
	case n.State == "" && r.Job != "" && r.Job != j.ID:
		return nil // nothing changes yet: LeaseOrder makes the node end the other job's lease first
	case n.State == "" && (r.Enabled || r.Job == j.ID):
		return say(tutti.LeaseEnabled, "")
	case n.State == "", n.State == tutti.LeaseEnabled && !r.Enabled && !r.Holds(j.ID):
		return say(tutti.LeaseRefused, "disabled: "+r.Message)
	case n.State == tutti.LeaseEnabled && r.Holds(j.ID):
		return say(tutti.LeaseHeld, "")
	case n.State == tutti.LeaseEnabled:
		return nil
	case !r.Holds(j.ID):
		return say(tutti.LeaseBroken, brokenBy(j, r))
	case n.State == tutti.LeaseIdle && r.Busy != "" && j.Leases.Phase == PhaseIdle:
		return say(tutti.LeaseHeld, "") // the job waits for the node again
	case n.State == tutti.LeaseIdle && r.Busy != "" && j.Leases.Phase == PhaseRun:
		// Before the job held the node, this Puppet process checked whether Puppet was disabled.
		// After that check the process waited until now.
		return say(tutti.LeaseBusy, "a Puppet process of somebody else is running: "+r.Busy)
	case n.State == tutti.LeaseHeld && r.Busy == "":
		return say(tutti.LeaseIdle, "")
	}
	return nil
}

func byOther(r tutti.LeaseReport) string { return "disabled by somebody else: " + r.Message }

func brokenBy(j *Job, r tutti.LeaseReport) string {
	switch {
	case !r.Enabled:
		return byOther(r)
	case r.Job == j.ID:
		return "enabled by somebody else"
	}
	return "not held any more: the node heard nothing for " + j.Plan.Exclusive.Lease.String() + ", or its agent lost its notes"
}

// LeaseOrder returns the order that answers a node's report.
func (s *State) LeaseOrder(node tutti.NodeName, r tutti.LeaseReport) tutti.LeaseOrder {
	j := s.ExclusiveOn(node)
	if r.Job != "" && (j == nil || r.Job != j.ID || j.Leases.Phase == PhaseRelease) {
		out := tutti.LeaseOrder{Job: r.Job, Want: tutti.LeaseRelease}
		if of := s.Jobs[r.Job]; of != nil && of.Leases != nil && of.Leases.keeps(node) {
			out.Want = tutti.LeaseKeep
		}
		return out
	}
	if j == nil {
		return tutti.LeaseOrder{}
	}
	out := tutti.LeaseOrder{Job: j.ID}
	switch j.Leases.Phase {
	case PhaseHold, PhaseIdle, PhaseRun:
		out.Want = tutti.LeaseHold
	case PhaseEnd:
		if r.Job == j.ID {
			out.Want = tutti.LeaseHold
		}
	case PhaseQueue, PhaseCheck, PhaseQuiet, PhaseRelease, PhaseOver: // in these phases the job holds no node
	}
	if out.Want == tutti.LeaseHold {
		out.Length, out.Message = j.Plan.Exclusive.Lease, j.notice()
	}
	return out
}

// The method `notice` returns the text for people who find the node disabled. The text does not change while the job
// lives. If it changed, each node would have to write its file again, and could overwrite a file of someone else.
func (j *Job) notice() string {
	x := j.Plan.Exclusive
	text := fmt.Sprintf("Tutti job %s by %s", j.ID, j.By)
	if x.Reason != "" {
		text += ": " + x.Reason
	}
	text += fmt.Sprintf("; until the job ends, at most %s after this node last heard from the server", x.Lease)
	if x.Keep {
		text += "; if the job fails, until: tutti puppet enable"
	}
	return text
}

// The method `keeps` reports whether a node stays disabled. A silent node does not stay disabled, because the job has
// told the operator that the node's lease ends by itself.
func (l *Leases) keeps(node tutti.NodeName) bool {
	n := l.of[node]
	return l.keep && n != nil && n.State != tutti.LeaseSilent
}

// The method `keeps` reports whether the nodes stay disabled after the job has failed. People can
// then examine the failure on the nodes.
func (j *Job) keeps() bool {
	return j.Plan.Exclusive.Keep && !j.Cancelled && j.runs > 0 && j.verdict().Verdict == tutti.VerdictFailed
}

// The method `overdue` gives up nodes for which the job has waited too long.
func (s *State) overdue(j *Job, v View) []tutti.Body {
	var out []tutti.Body
	l := j.Leases
	begun := v.from(l.Since)
	waited := v.Now.Sub(begun)
	for _, n := range l.Nodes {
		give := func(state tutti.LeaseState, format string, args ...any) {
			out = append(out, &tutti.LeaseChanged{Job: j.ID, Node: n.Node, State: state, Message: fmt.Sprintf(format, args...)})
		}
		asked := l.Phase == PhaseCheck && n.State == "" || l.Phase == PhaseHold && n.State == tutti.LeaseEnabled || l.Phase == PhaseRelease && l.mayHold(n)
		switch {
		case asked && waited >= v.Silence:
			give(tutti.LeaseSilent, "no answer for %s%s", waited.Round(time.Second), endsAlone(l, n, j))
		case l.Phase == PhaseQuiet && waited >= j.Plan.Exclusive.Wait:
			if r := s.Runs[s.Active[n.Node]]; r != nil && r.Job != j.ID {
				give(tutti.LeaseRefused, "run %s of job %s has not ended for %s", r.Run, r.Job, waited.Round(time.Second))
			}
		case l.Phase == PhaseIdle && n.State == tutti.LeaseHeld:
			if silent := v.Now.Sub(latest(begun, v.Seen(n.Node))); silent >= v.Silence {
				give(tutti.LeaseSilent, "nothing heard of the node for %s%s", silent.Round(time.Second), endsAlone(l, n, j))
			} else if waited >= j.Plan.Exclusive.Wait {
				give(tutti.LeaseBusy, "a Puppet process of somebody else has not ended for %s", waited.Round(time.Second))
			}
		case (l.Phase == PhaseIdle || l.Phase == PhaseRun) && n.State == tutti.LeaseIdle:
			if silent := v.Now.Sub(latest(begun, v.Seen(n.Node))); silent >= j.Plan.Exclusive.Lease {
				give(tutti.LeaseSilent, "nothing heard of the node for %s: its lease has ended by itself", silent.Round(time.Second))
			}
		}
	}
	return out
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func endsAlone(l *Leases, n *Lease, j *Job) string {
	if !l.mayHold(n) {
		return ""
	}
	return "; if the node is disabled, it becomes enabled by itself within " + j.Plan.Exclusive.Lease.String()
}

// Due returns the nodes from which an exclusive job still needs a report.
func (l *Leases) Due() []tutti.NodeName {
	var out []tutti.NodeName
	for _, n := range l.Nodes {
		var due bool
		switch l.Phase {
		case PhaseCheck:
			due = n.State == ""
		case PhaseHold:
			due = n.State == tutti.LeaseEnabled
		case PhaseIdle:
			due = n.State == tutti.LeaseHeld
		case PhaseRelease:
			due = l.mayHold(n)
		case PhaseQueue, PhaseQuiet, PhaseRun, PhaseEnd, PhaseOver: // the job waits for no report
		}
		if due {
			out = append(out, n.Node)
		}
	}
	return out
}

// WaitsFor explains why a job waits, if the job waits because it is exclusive, or because another job is exclusive. If the
// job waits for another reason or does not wait, WaitsFor returns an empty string.
func (s *State) WaitsFor(j *Job) string {
	if j.Ended() {
		return ""
	}
	if j.Leases == nil {
		for _, st := range j.Steps {
			for _, n := range st.Nodes {
				if of := s.ExclusiveOn(n.Node); of != nil && n.State == Pending {
					return fmt.Sprintf("%s is held by job %s", n.Node, of.ID)
				}
			}
		}
		return ""
	}
	switch j.Leases.Phase {
	case PhaseQueue:
		return fmt.Sprintf("waits for the end of job %s, which uses some of its nodes", j.Leases.queuedBehind().ID)
	case PhaseQuiet:
		if r := s.stranger(j); r != nil {
			return fmt.Sprintf("waits for the run of job %s on %s", r.Job, r.Node)
		}
	default: // in the other phases, the job can wait only for nodes
	}
	if due := j.Leases.Due(); len(due) > 0 {
		return fmt.Sprintf("phase %s: waits for %s", j.Leases.Phase, some(due, ", "))
	}
	return ""
}

// maxSome is how many names or failures a message lists.
const maxSome = 20

func some[T ~string](names []T, between string) string {
	var parts []string
	for _, n := range names[:min(len(names), maxSome)] {
		parts = append(parts, string(n))
	}
	if more := len(names) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, between)
}

func (l *Leases) whyFailed() string { return some(slices.Sorted(slices.Values(l.failed)), "; ") }
