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

// View is one version of the fold, as of State.Seq, and at one moment what no event
// says. Several readers may have the same one; nothing changes in it until all of
// them are done. Nobody keeps what belongs to it for longer, but what events hold.
type View struct {
	*fold.State
	Settings
	Now     time.Time
	Present Present
	Space   func() error // why nothing more begins, nil: it does
	// May refuses whoever asks and has no access, as far as that is narrowed to a key.
	May func(verb tutti.Verb, key string) error
}

// Settings are the server's, as far as answers depend on them.
type Settings struct {
	Silence  time.Duration // a node silent for so long is not connected
	KeepJobs int
}

// seen is when a node was last heard of.
func (v View) seen(n tutti.NodeName) time.Time {
	at, _ := v.Present.Last(n)
	return at
}

// Present is who is there now, which is in no log and belongs to no version.
type Present interface {
	// Last returns when a node was last heard of and what it said then; the zero time:
	// it was not.
	Last(node tutti.NodeName) (time.Time, wire.Beat)
	// Lacks returns what the server may ask and a node's agent does not know, as far as
	// that agent has claimed since the server started.
	Lacks(node tutti.NodeName) []tutti.Capability
	// Machines are those that have said hello with a node's key since the server started.
	Machines(node tutti.NodeName) []tutti.Machine
}

// Past is what there was: all events that are kept, and the audit trail.
type Past interface {
	// History yields the events after a sequence, as far as they are kept, in order.
	// It ends with the first error.
	History(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error]
	// Through is up to which event only what a snapshot needs is kept.
	Through() uint64
	// ReadAudit passes the audit trail on.
	ReadAudit(ctx context.Context, in api.ReadAudit, yield func(api.AuditEntry) error) error
}

// Look calls f with a version in which the caller sees all that was acknowledged
// before. It returns the error of f, or why there is no version. f must not block.
type Look func(ctx context.Context, f func(View) error) error

// Reader answers who only looks. It implements tutti.Explains, tutti.Reports and the
// lists of the other interfaces; all of it may be called at once.
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

// has is what a node has to run with.
func (v View) has(name tutti.NodeName) converge.Has {
	_, beat := v.Present.Last(name)
	return v.Has(name, beat.Puppet)
}

// node is a node as it is shown, but for who has paused it and how it stands.
func (v View) node(n *fold.Node) api.NodeView {
	seen, beat := v.Present.Last(n.Node)
	out := api.NodeView{
		Node: n.Node, Key: n.Key, Groups: v.Registry.Groups(n), JoinedAt: n.JoinedAt,
		SeenAt: seen, Connected: !seen.IsZero() && v.Now.Sub(seen) < v.Silence,
		Stopped: beat.Stopping, Version: beat.Version, Puppet: beat.Puppet, Trouble: beat.Trouble, Warm: beat.Warm,
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

// lastForeign is the latest foreign run of a node, nil unless it is later than one of
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
	case r.Lost != "" && r.Result != nil: // which is the node's record all the same
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
		out.Local, out.Puppet, out.EndedAt = r.Foreign.Local, r.Foreign.Puppet, r.Result.EndedAt // by the node's clock; it may have been told much later
	}
	if !r.Ended() {
		out.Phase = phaseOf(r)
	}
	if j := v.Engine.Jobs[r.Job]; j != nil {
		out.By, out.Cause, out.Plan = j.By, j.Cause, j.Plan.Name
	}
	return out
}

// phaseOf is where a run is that goes on.
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
