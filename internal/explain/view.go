package explain

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// View is one version of the fold, as of State.Seq, and what is known at that moment and is in no
// event. Several readers may share it. Nothing in it changes until all of them are done. After that
// a reader may keep only what the events hold.
type View struct {
	*fold.State
	Settings
	Now     time.Time
	Present Present
	Space   func() error // why no more runs begin; nil: runs may begin
	// May returns an error if the caller lacks the verb. The key narrows the question to one key.
	May func(verb tutti.Verb, key string) error
}

// Settings are the server's settings that answers depend on.
type Settings struct {
	Silence  time.Duration // a node that is silent for this long is not connected
	KeepJobs int
}

// seen is when a node was last heard of.
func (v View) seen(n tutti.NodeName) time.Time {
	at, _ := v.Present.Last(n)
	return at
}

// Present says which nodes are there now. That is not in the log and belongs to no version.
type Present interface {
	// Last returns when a node was last heard of and what it said then. The zero time:
	// never.
	Last(node tutti.NodeName) (time.Time, wire.Beat)
	// Lacks returns the kinds of orders that the server may give and that a node's agent does not know. It knows only
	// agents that have claimed since the server started.
	Lacks(node tutti.NodeName) []tutti.Capability
	// Machines returns the machines that have said hello with a node's key since the server started.
	Machines(node tutti.NodeName) []tutti.Machine
}

// Past is all events that are kept, and the audit trail.
type Past interface {
	// History yields the events after a sequence, as far as they are kept, in order.
	// It ends with the first error.
	History(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error]
	// Through is the sequence up to which only the events that a snapshot needs are kept.
	Through() uint64
	// ReadAudit passes the entries of the audit trail to yield.
	ReadAudit(ctx context.Context, in api.ReadAudit, yield func(api.AuditEntry) error) error
}

// Look calls f with a version that has everything that was acknowledged before
// the call. It returns the error of f, or why there is no version. f must not block.
type Look func(ctx context.Context, f func(View) error) error

// Reader answers requests that change nothing. It implements tutti.Explains, tutti.Reports and the
// lists of the other interfaces. All methods may be called concurrently.
type Reader struct {
	look  Look
	past  Past
	blobs tutti.Blobs
	most  toRead
}

// New returns a reader.
func New(look Look, past Past, blobs tutti.Blobs) *Reader {
	return &Reader{look: look, past: past, blobs: blobs, most: toRead{reports: 1000, bytes: 256 << 20}}
}

// has returns what a node runs with.
func (v View) has(name tutti.NodeName) converge.Has {
	_, beat := v.Present.Last(name)
	return v.Has(name, beat.Puppet)
}

// node is a node as it is shown, without its pauses and its state.
func (v View) node(n *fold.Node) api.NodeView {
	seen, beat := v.Present.Last(n.Node)
	out := api.NodeView{
		Node: n.Node, Key: n.Key, Groups: v.Registry.Groups(n), JoinedAt: n.JoinedAt,
		SeenAt: seen, Connected: !seen.IsZero() && v.Now.Sub(seen) < v.Silence,
		Stopped: beat.Stopping, Version: beat.Version, Puppet: beat.Puppet, Trouble: beat.Trouble, Unnoted: beat.Unnoted, Warm: beat.Warm,
		TooOldFor: v.Present.Lacks(n.Node), Active: v.Engine.Active[n.Node], Trusts: n.Trusts,
	}
	out.OldGrants = policy.ExportsOf(v.Fleet(), out.Groups, n.Node).OldDangers()
	out.Conflicted = n.Tickets.Conflicted
	if met := v.Present.Machines(n.Node); len(met) > 1 {
		out.Machines = met
	}
	if j := v.Engine.ExclusiveOn(n.Node); j != nil {
		out.HeldBy = j.ID
	}
	r := v.Engine.Runs[n.LastClaimed]
	if f := v.lastForeign(n.Node, r); f != nil {
		fillRun(&out, f)
		out.Foreign, out.Local, out.RunAt = true, f.Foreign.Local, f.Result.StartedAt
	} else if r != nil {
		fillRun(&out, r)
	}
	return out
}

// lastForeign is the latest foreign run of a node, or nil if it is not later than
// ours.
func (v View) lastForeign(node tutti.NodeName, ours *engine.Run) *engine.Run {
	all := v.Engine.Foreigns(node)
	if len(all) == 0 || !all[0].After(ours) {
		return nil
	}
	return all[0]
}

func fillRun(v *api.NodeView, r *engine.Run) {
	v.LastRun, v.LastJob, v.Outcome, v.RunAt, v.Proved = r.Run, r.Job, r.Outcome(), r.ClaimedAt, r.Proved
	if r.Result != nil {
		v.Reason, v.Message, v.Failures = r.Result.Reason, r.Result.Message, r.Result.Failures
	}
	switch {
	case r.Lost != "" && r.Result != nil: // the result is still what the node reported
		v.Outcome = r.Result.Outcome
		v.Message = strings.TrimPrefix(r.Result.Message+"; it was given up ("+r.Lost+"), and this came later", "; ")
	case r.Lost != "":
		v.Message = r.Lost
	}
}

// run is a run as it is shown.
func (v View) run(r *engine.Run) api.RunView {
	out := api.RunView{
		Run: r.Run, Node: r.Node, Job: r.Job, Step: r.Step, Mode: r.Mode, Code: r.Code,
		Outcome: r.Outcome(), Proved: r.Proved, EndedAt: r.EndedAt, Foreign: r.Foreign != nil,
	}
	if r.Result != nil {
		out.Reason, out.Stopped = r.Result.Reason, r.Result.Stopped
	}
	switch {
	case r.Compiled != nil:
		out.Puppet = r.Compiled.Puppet
	case r.Foreign != nil:
		out.Local, out.Puppet, out.EndedAt = r.Foreign.Local, r.Foreign.Puppet, r.Result.EndedAt // by the node's clock; the node may have told it much later
	}
	if !r.Ended() {
		out.Phase = phaseOf(r)
	}
	if j := v.Engine.Jobs[r.Job]; j != nil {
		out.By, out.Cause, out.Plan = j.By, j.Cause, j.Plan.Name
	}
	return out
}

// phaseOf is the phase of a run that goes on.
func phaseOf(r *engine.Run) string {
	switch {
	case r.ClaimedAt.IsZero():
		return "wanted"
	case r.CompiledAt.IsZero() && r.Gate == "":
		return "compiling"
	case r.Held():
		return "held at its gate"
	case r.Passed():
		return "applying"
	}
	return "stopped at its gate"
}
