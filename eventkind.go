package tutti

// The kind of each event, and what it happened to.

// Kind implements Body.
func (*FleetSet) Kind() string { return "fleet.set" }

// ID implements Body.
func (*FleetSet) ID() string { return "fleet" }

// Kind implements Body.
func (*CodePushed) Kind() string { return "code.pushed" }

// ID implements Body.
func (b *CodePushed) ID() string { return b.Environment }

// Kind implements Body.
func (*TokenCreated) Kind() string { return "token.created" }

// ID implements Body.
func (b *TokenCreated) ID() string { return string(b.Token) }

// Kind implements Body.
func (*TokenRevoked) Kind() string { return "token.revoked" }

// ID implements Body.
func (b *TokenRevoked) ID() string { return string(b.Token) }

// Kind implements Body.
func (*NodeEnrolled) Kind() string { return "node.enrolled" }

// ID implements Body.
func (b *NodeEnrolled) ID() string { return string(b.Node) }

// Kind implements Body.
func (*NodeReplaceable) Kind() string { return "node.replaceable" }

// ID implements Body.
func (b *NodeReplaceable) ID() string { return string(b.Node) }

// Kind implements Body.
func (*NodeRemoved) Kind() string { return "node.removed" }

// ID implements Body.
func (b *NodeRemoved) ID() string { return string(b.Node) }

// Kind implements Body.
func (*JobStarted) Kind() string { return "job.started" }

// ID implements Body.
func (b *JobStarted) ID() string { return string(b.Job) }

// Kind implements Body.
func (*JobCancelled) Kind() string { return "job.cancelled" }

// ID implements Body.
func (b *JobCancelled) ID() string { return string(b.Job) }

// Kind implements Body.
func (*JobFinished) Kind() string { return "job.finished" }

// ID implements Body.
func (b *JobFinished) ID() string { return string(b.Job) }

// Kind implements Body.
func (*StepStarted) Kind() string { return "step.started" }

// ID implements Body.
func (b *StepStarted) ID() string { return string(b.Job) }

// Kind implements Body.
func (*StepFinished) Kind() string { return "step.finished" }

// ID implements Body.
func (b *StepFinished) ID() string { return string(b.Job) }

// Kind implements Body.
func (*RunWanted) Kind() string { return "run.wanted" }

// ID implements Body.
func (b *RunWanted) ID() string { return string(b.Order.Run) }

// Kind implements Body.
func (*RunClaimed) Kind() string { return "run.claimed" }

// ID implements Body.
func (b *RunClaimed) ID() string { return string(b.Run) }

// Kind implements Body.
func (*RunGated) Kind() string { return "run.gated" }

// ID implements Body.
func (b *RunGated) ID() string { return string(b.Run) }

// Kind implements Body.
func (*LeaseChanged) Kind() string { return "lease.changed" }

// ID implements Body.
func (b *LeaseChanged) ID() string { return string(b.Job) }

// Kind implements Body.
func (*RunFinished) Kind() string { return "run.finished" }

// ID implements Body.
func (b *RunFinished) ID() string { return string(b.Result.Run) }

// Kind implements Body.
func (*RunLost) Kind() string { return "run.lost" }

// ID implements Body.
func (b *RunLost) ID() string { return string(b.Run) }

// Kind implements Body.
func (*RunForeign) Kind() string { return "run.foreign" }

// ID implements Body.
func (b *RunForeign) ID() string { return string(b.Result.Run) }

// Kind implements Body.
func (*ExportsSet) Kind() string { return "exports.set" }

// ID implements Body.
func (b *ExportsSet) ID() string { return string(b.Node) }

// Kind implements Body.
func (*ValueSet) Kind() string { return "value.set" }

// ID implements Body.
func (b *ValueSet) ID() string { return b.Key }

// Kind implements Body.
func (*ValueUnset) Kind() string { return "value.unset" }

// ID implements Body.
func (b *ValueUnset) ID() string { return b.Key }

// Kind implements Body.
func (*Denied) Kind() string { return "audit.denied" }

// ID implements Body.
func (b *Denied) ID() string { return b.Who }

// Kind implements Body.
func (*JobRetired) Kind() string { return "job.retired" }

// ID implements Body.
func (b *JobRetired) ID() string { return string(b.Job) }

// Kind implements Body.
func (*SnapshotTaken) Kind() string { return "snapshot.taken" }

// ID implements Body.
func (*SnapshotTaken) ID() string { return "log" }

// Kind implements Body.
func (*OperatorIssued) Kind() string { return "operator.issued" }

// ID implements Body.
func (b *OperatorIssued) ID() string { return b.Operator }

// Kind implements Body.
func (*OperatorRevoked) Kind() string { return "operator.revoked" }

// ID implements Body.
func (b *OperatorRevoked) ID() string { return b.Operator }

// Kind implements Body.
func (*RunCompiled) Kind() string { return "run.compiled" }

// ID implements Body.
func (b *RunCompiled) ID() string { return string(b.Run) }

// Kind implements Body.
func (*RunAsked) Kind() string { return "run.asked" }

// ID implements Body.
func (b *RunAsked) ID() string { return string(b.Run) }

// Kind implements Body.
func (*RunProved) Kind() string { return "run.proved" }

// ID implements Body.
func (b *RunProved) ID() string { return string(b.Run) }

// Kind implements Body.
func (*ConvergeFinished) Kind() string { return "converge.finished" }

// ID implements Body.
func (b *ConvergeFinished) ID() string { return string(b.Job) }

// Kind implements Body.
func (*Paused) Kind() string { return "target.paused" }

// ID implements Body.
func (b *Paused) ID() string { return pausedID(b.Target) }

// Kind implements Body.
func (*Unpaused) Kind() string { return "target.unpaused" }

// ID implements Body.
func (b *Unpaused) ID() string { return pausedID(b.Target) }

// pausedID names a target; an id is never empty.
func pausedID(target string) string {
	if target == "" {
		return "fleet"
	}
	return "target " + target
}

// Kind implements Body.
func (*RemoteAsked) Kind() string { return "remote.asked" }

// ID implements Body.
func (b *RemoteAsked) ID() string { return b.Request }

// Kind implements Body.
func (*RemoteAnswered) Kind() string { return "remote.answered" }

// ID implements Body.
func (b *RemoteAnswered) ID() string { return b.Request }
