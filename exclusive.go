package tutti

import (
	"slices"
	"time"
)

// Exclusive makes the job of a plan disable Puppet on all of the job's nodes until the job ends. No other Puppet run
// begins on these nodes.
type Exclusive struct {
	Reason string `json:"reason,omitempty"`
	// Lease is the time for which a node stays disabled if it hears nothing of the job.
	Lease time.Duration `json:"lease"`
	// Wait is how long the job waits for runs that are active when the job begins.
	Wait time.Duration `json:"wait"`
	// Keep is for a job that fails after one of its runs has begun. If Keep is true, the nodes then
	// stay disabled.
	Keep bool `json:"keep,omitempty"`
}

// These are limits and defaults of an Exclusive.
const (
	MinLease         = 10 * time.Second
	MaxLease         = 24 * time.Hour
	DefaultLease     = 5 * time.Minute
	DefaultLeaseWait = 15 * time.Minute
	MaxLeaseReason   = 200 // bytes
)

// DefaultExclusive is the meaning of `exclusive: true` in a plan.
func DefaultExclusive(reason string) *Exclusive {
	return &Exclusive{Reason: reason, Lease: DefaultLease, Wait: DefaultLeaseWait}
}

// Validate refuses a lease that is too short or too long, and a reason that is not one line of
// text.
func (x Exclusive) Validate() error {
	switch {
	case x.Lease < MinLease || x.Lease > MaxLease:
		return Errorf(CodeInvalid, "exclusive: a lease of %s; it may last from %s to %s", x.Lease, MinLease, MaxLease)
	case x.Wait <= 0:
		return Errorf(CodeInvalid, "exclusive: wait %s must be positive", x.Wait)
	case len(x.Reason) > MaxLeaseReason || x.Reason != Plain(x.Reason, MaxLeaseReason):
		return Errorf(CodeInvalid, "exclusive: the reason %q must be one line of at most %d bytes", x.Reason, MaxLeaseReason)
	}
	return nil
}

// LeaseState is the state of a node in an exclusive job.
type LeaseState string

// The states. The empty state means that the node has not answered yet.
const (
	LeaseEnabled  LeaseState = "enabled"  // nobody has disabled the node
	LeaseHeld     LeaseState = "held"     // the job has disabled the node, and another Puppet may still run
	LeaseIdle     LeaseState = "idle"     // the job has disabled the node, and no other Puppet runs
	LeaseBusy     LeaseState = "busy"     // the job holds the node, and another Puppet did not end in time
	LeaseReleased LeaseState = "released" // the node is in its earlier state again
	LeaseKept     LeaseState = "kept"     // the node stays disabled and belongs to no job any more
	LeaseRefused  LeaseState = "refused"  // the job never held the node
	LeaseBroken   LeaseState = "broken"   // the node is no longer disabled by the job
	LeaseSilent   LeaseState = "silent"   // the node did not answer, and its lease ends by itself
)

// LeaseStates are all states that may be in an event.
var LeaseStates = []LeaseState{
	LeaseEnabled, LeaseHeld, LeaseIdle, LeaseBusy, LeaseReleased, LeaseKept, LeaseRefused, LeaseBroken, LeaseSilent,
}

// Over reports whether the job is finished with the node.
func (s LeaseState) Over() bool {
	return slices.Contains([]LeaseState{LeaseReleased, LeaseKept, LeaseRefused, LeaseBroken, LeaseSilent}, s)
}

// Failed reports whether the job fails because of a node in that state.
func (s LeaseState) Failed() bool {
	return slices.Contains([]LeaseState{LeaseBusy, LeaseRefused, LeaseBroken, LeaseSilent}, s)
}

// LeaseReport is the state of a node as the node itself reports it. A LeaseReport also requests the
// next LeaseOrder and renews the lease.
type LeaseReport struct {
	Job JobID `json:"job,omitempty"` // Job is the job that has disabled the node, according to the node's own note.
	// Ours is true if the file that disables Puppet equals the file of that job, byte for byte.
	Ours    bool   `json:"ours"`
	Enabled bool   `json:"enabled"`
	Message string `json:"message,omitempty"` // Message is the reason with which the node is disabled.
	Busy    string `json:"busy,omitempty"`    // the Puppet that runs
}

// Holds reports whether the job holds the node.
func (r LeaseReport) Holds(job JobID) bool { return r.Job == job && r.Ours }

// LeaseWant is what the server wants a node to do.
type LeaseWant string

// These are the possible values of LeaseWant. An empty LeaseWant asks the node for nothing.
const (
	LeaseHold    LeaseWant = "hold"    // the job disables the node for Length from now
	LeaseRelease LeaseWant = "release" // the node returns to its earlier state
	LeaseKeep    LeaseWant = "keep"    // the node stays disabled after the job is forgotten
)

// LeaseOrder answers a LeaseReport.
type LeaseOrder struct {
	Job     JobID         `json:"job,omitempty"`
	Want    LeaseWant     `json:"want,omitempty"`
	Length  time.Duration `json:"length,omitempty"`
	Message string        `json:"message,omitempty"` // Message is for a person who finds the node disabled.
}

// Validate refuses an order that no node can carry out.
func (o LeaseOrder) Validate() error {
	switch {
	case o.Want == "":
		return nil
	case o.Want != LeaseHold && o.Want != LeaseRelease && o.Want != LeaseKeep:
		return Errorf(CodeInternal, "the lease order %q is not hold, release or keep", string(o.Want))
	case o.Job == "" || o.Want == LeaseHold && (o.Length < MinLease || o.Length > MaxLease):
		return Errorf(CodeInternal, "invalid lease order of job %q for %s", string(o.Job), o.Length)
	}
	return nil
}
