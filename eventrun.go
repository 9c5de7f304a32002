package tutti

import "time"

// runEvents are the kinds of events of runs.
var runEvents = []eventKind{
	{func() Body { return new(RunWanted) }, ScopeRun, TrailOperators, KeepOwn},
	{func() Body { return new(RunClaimed) }, ScopeRun, TrailOperators, KeepOwn},
	{func() Body { return new(RunCompiled) }, ScopeRun, TrailOperators, KeepOwn},
	{func() Body { return new(RunAsked) }, ScopeRun, TrailOperators, KeepWithRun},
	{func() Body { return new(RunProved) }, ScopeRun, TrailOperators, KeepOwn},
	{func() Body { return new(RunRefused) }, ScopeRun, TrailOperators, KeepWithRun},
	{func() Body { return new(RunGated) }, ScopeRun, TrailOperators, KeepOwn},
	{func() Body { return new(RunFinished) }, ScopeRun, TrailOperators, KeepOwn},
	{func() Body { return new(RunLost) }, ScopeRun, TrailOperators, KeepOwn},
	{func() Body { return new(RunForeign) }, ScopeNode, TrailOperators, KeepOwn},
}

// RunWanted orders one Puppet process; a node claims it.
type RunWanted struct {
	Order Order `json:"order"`
	// ByFacts: there is no other reason than that the node's facts are other ones.
	ByFacts bool `json:"by_facts,omitempty"`
	// Changed are questions of the node whose answers had changed, at most MaxChanged: of a run that the
	// server wants by itself.
	Changed []Query `json:"changed,omitempty"`
}

// MaxChanged bounds how many questions a RunWanted names.
const MaxChanged = 20

// Kind implements Body.
func (*RunWanted) Kind() string { return "run.wanted" }

// ID implements Body.
func (b *RunWanted) ID() string { return string(b.Order.Run) }

// RunClaimed precedes the reply to the node that claimed the run.
type RunClaimed struct {
	Run  RunID    `json:"run"`
	Node NodeName `json:"node"`
	// Fenced: the node keeps the fence of the last order that it has begun.
	Fenced bool `json:"fenced,omitempty"`
}

// Kind implements Body.
func (*RunClaimed) Kind() string { return "run.claimed" }

// ID implements Body.
func (b *RunClaimed) ID() string { return string(b.Run) }

// RunCompiled is what a compile handed over at its gate, appended before or with
// the gate's decision. What the run asked is the blob Asked.
type RunCompiled struct {
	Run RunID  `json:"run"`
	Set Digest `json:"set,omitempty"` // of its exports, empty: none
	Compiled
	Asked  Digest `json:"asked"`
	Absent Digest `json:"absent,omitempty"` // the blob that Asked names
	Reads  *Asked `json:"-"`                // the content of Asked
}

// Kind implements Body.
func (*RunCompiled) Kind() string { return "run.compiled" }

// ID implements Body.
func (b *RunCompiled) ID() string { return string(b.Run) }

// RunAsked replaces what is known of what a run asked: it failed before its
// gate, or asked more behind it, or a Puppet Server has compiled for it.
type RunAsked struct {
	Run    RunID   `json:"run"`
	Asked  Digest  `json:"asked"`
	Absent Digest  `json:"absent,omitempty"`
	Reads  *Asked  `json:"-"`
	Served *Served `json:"served,omitempty"`
}

// Kind implements Body.
func (*RunAsked) Kind() string { return "run.asked" }

// ID implements Body.
func (b *RunAsked) ID() string { return string(b.Run) }

// RunProved says that a run that was stopped at its gate has shown that its node
// is good: nothing can have changed since its last run.
type RunProved struct {
	Run RunID `json:"run"`
	// Rests is when the run began, by its node's clock, that applied what the node
	// has.
	Rests time.Time `json:"rests,omitzero"`
	// Clock is when that was by the clock of its agent.
	Clock Clock `json:"clock,omitzero"`
}

// Kind implements Body.
func (*RunProved) Kind() string { return "run.proved" }

// ID implements Body.
func (b *RunProved) ID() string { return string(b.Run) }

// RunRefused says what a run wanted to read or publish without a grant. It holds all that was refused
// of the run until then.
type RunRefused struct {
	Run RunID `json:"run"`
	// Wants are the grants that would have admitted it, without To: one that is dangerous for what needs the word, and
	// one that is not for the rest.
	Wants []Grant `json:"wants"`
}

// Kind implements Body.
func (*RunRefused) Kind() string { return "run.refused" }

// ID implements Body.
func (b *RunRefused) ID() string { return string(b.Run) }

// RunGated is the gate's answer.
type RunGated struct {
	Run     RunID       `json:"run"`
	Verdict GateVerdict `json:"verdict"`
	Reason  string      `json:"reason,omitempty"`
	Catalog Digest      `json:"catalog,omitempty"`
	// Values are the keys that the catalog wants published.
	Values []string `json:"values,omitempty"`
}

// Kind implements Body.
func (*RunGated) Kind() string { return "run.gated" }

// ID implements Body.
func (b *RunGated) ID() string { return string(b.Run) }

// RunFinished is the node's word on its run.
type RunFinished struct {
	Result Result `json:"result"`
}

// Kind implements Body.
func (*RunFinished) Kind() string { return "run.finished" }

// ID implements Body.
func (b *RunFinished) ID() string { return string(b.Result.Run) }

// RunLost gives a run up. Nobody has heard from its node for the deadline, or the node has left.
type RunLost struct {
	Run    RunID  `json:"run"`
	Reason string `json:"reason"`
	// Left: the machine is not the node any more. Logs of earlier releases do not say it.
	Left bool `json:"left,omitempty"`
}

// Kind implements Body.
func (*RunLost) Kind() string { return "run.lost" }

// ID implements Body.
func (b *RunLost) ID() string { return string(b.Run) }

// RunForeign is a node's word on a run that Tutti did not start.
type RunForeign struct {
	Node NodeName `json:"node"`
	Foreign
}

// Kind implements Body.
func (*RunForeign) Kind() string { return "run.foreign" }

// ID implements Body.
func (b *RunForeign) ID() string { return string(b.Result.Run) }

// GateVerdict is the gate's answer to a run.
type GateVerdict string

// The answers of the gate.
const (
	GateGo   GateVerdict = "go"
	GateStop GateVerdict = "stop"
	GateHold GateVerdict = "hold" // not yet: ask again; never in the log
)
