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
	"github.com/tutti-project/tutti/internal/observe"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// View is one version of the fold, up to State.Seq, together with present data that no event contains. Several readers
// may share a View. A View does not change until all its readers are done. After that a reader may only use the
// contents of events.
type View struct {
	*fold.State
	Settings
	Now     time.Time
	Present Present
	Space   func() error // the reason why no more runs begin; nil if runs may begin
	// May returns an error if the caller lacks the verb. If the key is not empty, the question is only about this key.
	May func(verb tutti.Verb, key string) error
}

// Settings are the settings of the server on which answers depend.
type Settings struct {
	Silence  time.Duration // a node that is silent for this long is not connected
	KeepJobs int
}

// The method `seen` returns the time of a node's last message.
func (v View) seen(n tutti.NodeName) time.Time {
	at, _ := v.Present.Last(n)
	return at
}

// Present has the state of nodes that is not in the log. So this state belongs to no version of the fold.
type Present interface {
	// Last returns the time of a node's last message, and the node's last beat. The time is zero if the node never sent
	// a message.
	Last(node tutti.NodeName) (time.Time, wire.Beat)
	// Lacks returns the kinds of orders that the server can give but that a node's agent does not know. Lacks returns
	// nothing for an agent that has not claimed since the server started.
	Lacks(node tutti.NodeName) []tutti.Capability
	// Machines returns the machines that have said hello with a node's key since the server started.
	Machines(node tutti.NodeName) []tutti.Machine
	// ENC returns what is known about the calls of the ENC for a node since the server started.
	ENC(node tutti.NodeName) api.ENCCalls
}

// Past has all events that still exist, and the audit trail.
type Past interface {
	// History yields the events after a sequence in order, if they still exist. History stops at the first error.
	History(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error]
	// Through returns the sequence up to which only the events of a snapshot exist.
	Through() uint64
	// ReadAudit calls yield with the entries of the audit trail.
	ReadAudit(ctx context.Context, in api.ReadAudit, yield func(api.AuditEntry) error) error
}

// Look calls f with a version that includes everything that was acknowledged before the call. Look
// returns the error of f, or an error if there is no version. The function f must not block.
type Look func(ctx context.Context, f func(View) error) error

// Reader answers requests that change nothing. Reader implements tutti.Explains, tutti.Reports and
// the lists of the other interfaces. All methods are safe for concurrent calls.
type Reader struct {
	histories
	inventories
	summaries
	pictures
	look  Look
	past  Past
	blobs tutti.Blobs
	most  toRead
}

// New returns a reader.
func New(look Look, past Past, blobs tutti.Blobs) *Reader {
	rd := &Reader{look: look, past: past, blobs: blobs, most: toRead{reports: 1000, bytes: 256 << 20}}
	rd.histories, rd.inventories = histories{rd}, inventories{rd, make(chan struct{}, queriesAtOnce)}
	rd.pictures = pictures{rd}
	rd.summaries = summaries{rd}
	return rd
}

// The method `has` returns the inputs of a node's runs.
func (v View) has(name tutti.NodeName) converge.Has {
	_, beat := v.Present.Last(name)
	return v.Has(name, beat.Puppet)
}

// The method `node` returns a node in the form that operators see, without its pauses and its standing.
func (v View) node(n *fold.Node) api.NodeView {
	_, beat := v.Present.Last(n.Node)
	out := v.outline(n)
	out.Key, out.Matches, out.Certificate, out.Trusts = n.Key, v.Registry.Matches(n), n.Certificate, n.Trusts
	out.Stopped, out.Version, out.Trouble, out.Unnoted, out.Warm = beat.Stopping, beat.Version, beat.Trouble, beat.Unnoted, beat.Warm
	out.TooOldFor, out.Active = v.Present.Lacks(n.Node), v.Engine.Active[n.Node]
	if calls := v.Present.ENC(n.Node); n.Classified != nil || calls != (api.ENCCalls{}) {
		out.ENC = &api.ENCView{Classification: n.Classified, ENCCalls: calls}
		if n.Classified != nil {
			out.ENC.ChangedAt = n.ClassifiedAt
		}
	}
	out.OldGrants = policy.ExportsOf(v.Fleet(), out.Groups, n.Node).OldDangers()
	out.Conflicted = n.Tickets.Conflicted
	if met := v.Present.Machines(n.Node); len(met) > 1 {
		out.Machines = met
	}
	if j := v.Engine.ExclusiveOn(n.Node); j != nil {
		out.HeldBy = j.ID
	}
	r := engine.Own(v.Engine, n.Node) // a compile for a diff says nothing about the node
	if f := v.lastForeign(n.Node, r); f != nil {
		fillRun(&out, f)
		out.Foreign, out.Local, out.RunAt = true, f.Foreign.Local, f.Result.StartedAt
	} else if r != nil {
		fillRun(&out, r)
	}
	return out
}

// The method `outline` returns what counts nodes: who the node is, its groups, whether it is connected, and the judgement
// if Tutti starts nothing on it.
func (v View) outline(n *fold.Node) api.NodeView {
	seen, beat := v.Present.Last(n.Node)
	out := api.NodeView{
		Node: n.Node, Groups: v.Registry.Groups(n), JoinedAt: n.JoinedAt, Puppet: beat.Puppet, SeenAt: seen, Connected: !seen.IsZero() && v.Now.Sub(seen) < v.Silence,
	}
	if v.WhyObserved(n.Node) != "" {
		verdict := v.observe(n, out)
		out.Observed, out.Stands, out.Why, out.Since = true, verdict.State, verdict.Why, verdict.Since
	}
	return out
}

// The method `observe` judges a node on which Tutti starts nothing.
func (v View) observe(n *fold.Node, view api.NodeView) observe.Verdict {
	_, beat := v.Present.Last(n.Node)
	in := observe.Node{
		Now: v.Now, Connected: view.Connected, SeenAt: view.SeenAt, JoinedAt: n.JoinedAt, Puppet: beat.Files,
		Every: v.Fleet().RunsEveryOf(view.Groups),
	}
	for _, r := range v.Engine.Foreigns(n.Node) {
		f := *r.Foreign
		f.Result = *r.Result
		in.Runs = append(in.Runs, observe.Run{Foreign: &f, ReportedAt: r.EndedAt})
	}
	return observe.Judge(in)
}

// lastForeign returns the latest foreign run of a node. The method returns nil if this run is not
// later than the last run of Tutti.
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
	case r.Lost != "" && r.Result != nil: // the node has sent this result although the server gave up the run
		v.Outcome = r.Result.Outcome
		v.Message = strings.TrimPrefix(r.Result.Message+"; the server gave up the run ("+r.Lost+"), and the result came later", "; ")
	case r.Lost != "":
		v.Message = r.Lost
	}
}

// The method `run` returns a run in the form that operators see.
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
		// Here EndedAt is by the clock of the node. The node may have reported the run much later.
		out.Local, out.Puppet, out.EndedAt = r.Foreign.Local, r.Foreign.Puppet, r.Result.EndedAt
	}
	if !r.Ended() {
		out.Phase = phaseOf(r)
	}
	if j := v.Engine.Jobs[r.Job]; j != nil {
		out.By, out.Cause, out.Plan = j.By, j.Cause, j.Plan.Name
	}
	return out
}

// phaseOf returns the phase of an active run.
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
