package tutti

import (
	"slices"
	"time"
)

// Exclusive makes a plan's job hold all of its nodes while it lives: no other
// Puppet run begins on them.
type Exclusive struct {
	Reason string `json:"reason,omitempty"`
	// Lease is for how long a node stays disabled that hears nothing of the job.
	Lease time.Duration `json:"lease"`
	// Wait is how long the job waits for the runs that go on when it begins.
	Wait time.Duration `json:"wait"`
	// Keep leaves the nodes disabled if the job fails after a run of it began.
	Keep bool `json:"keep,omitempty"`
}

// Limits and defaults of an Exclusive.
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

// Validate refuses a lease that would end at once or hardly ever, and a reason
// that is not one line of text.
func (x Exclusive) Validate() error {
	switch {
	case x.Lease < MinLease || x.Lease > MaxLease:
		return Errorf(CodeInvalid, "exclusive: a lease of %s; it may last from %s to %s", x.Lease, MinLease, MaxLease)
	case x.Wait <= 0:
		return Errorf(CodeInvalid, "exclusive: wait %s must be positive", x.Wait)
	case len(x.Reason) > MaxLeaseReason || x.Reason != Plain(x.Reason, MaxLeaseReason):
		return Errorf(CodeInvalid, "exclusive: the reason %q is no line of at most %d bytes", x.Reason, MaxLeaseReason)
	}
	return nil
}

// LeaseState is where a node is in an exclusive job.
type LeaseState string

// The states. The empty one is that of a node that was not heard of yet.
const (
	LeaseEnabled  LeaseState = "enabled"  // nobody has disabled it
	LeaseHeld     LeaseState = "held"     // the job has; another Puppet may still run
	LeaseIdle     LeaseState = "idle"     // and none does
	LeaseBusy     LeaseState = "busy"     // held, and another Puppet did not end
	LeaseReleased LeaseState = "released" // it is as it was before
	LeaseKept     LeaseState = "kept"     // disabled, and no job's any more
	LeaseRefused  LeaseState = "refused"  // the job never had it
	LeaseBroken   LeaseState = "broken"   // the job has it no more
	LeaseSilent   LeaseState = "silent"   // it did not answer; what it has ends by itself
)

// LeaseStates are all states that an event may have.
var LeaseStates = []LeaseState{
	LeaseEnabled, LeaseHeld, LeaseIdle, LeaseBusy, LeaseReleased, LeaseKept, LeaseRefused, LeaseBroken, LeaseSilent,
}

// Over reports whether the job has nothing more to do with the node.
func (s LeaseState) Over() bool {
	return slices.Contains([]LeaseState{LeaseReleased, LeaseKept, LeaseRefused, LeaseBroken, LeaseSilent}, s)
}

// Failed reports whether a node in that state ends its job.
func (s LeaseState) Failed() bool {
	return slices.Contains([]LeaseState{LeaseBusy, LeaseRefused, LeaseBroken, LeaseSilent}, s)
}

// LeaseReport is how a node stands, as it sees it. It is also the request for the
// next LeaseOrder, and renews the lease.
type LeaseReport struct {
	Job     JobID  `json:"job,omitempty"` // that has disabled it, by the node's own note
	Ours    bool   `json:"ours"`          // Puppet's file is still that job's, byte by byte
	Enabled bool   `json:"enabled"`
	Message string `json:"message,omitempty"` // by which it is disabled
	Busy    string `json:"busy,omitempty"`    // the Puppet that runs
}

// Holds reports whether the node is held by the job.
func (r LeaseReport) Holds(job JobID) bool { return r.Job == job && r.Ours }

// LeaseWant is what a node is to do.
type LeaseWant string

// What a node may be told. The empty one is nothing.
const (
	LeaseHold    LeaseWant = "hold"    // be disabled by the job, for Length from now
	LeaseRelease LeaseWant = "release" // be as before
	LeaseKeep    LeaseWant = "keep"    // stay disabled when the job is forgotten
)

// LeaseOrder answers a LeaseReport.
type LeaseOrder struct {
	Job     JobID         `json:"job,omitempty"`
	Want    LeaseWant     `json:"want,omitempty"`
	Length  time.Duration `json:"length,omitempty"`
	Message string        `json:"message,omitempty"` // for who finds the node disabled
}

// Validate refuses an order that no node can carry out.
func (o LeaseOrder) Validate() error {
	switch {
	case o.Want == "":
		return nil
	case o.Want != LeaseHold && o.Want != LeaseRelease && o.Want != LeaseKeep:
		return Errorf(CodeInternal, "a lease's order is %q, neither hold nor release nor keep", string(o.Want))
	case o.Job == "" || o.Want == LeaseHold && (o.Length < MinLease || o.Length > MaxLease):
		return Errorf(CodeInternal, "a lease's order of job %q for %s", string(o.Job), o.Length)
	}
	return nil
}
