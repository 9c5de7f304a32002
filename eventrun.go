package tutti

import "time"

// runEvents are the kinds of events about runs.
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

// RunWanted orders one Puppet process. A node then claims the run.
type RunWanted struct {
	Order Order `json:"order"`
	// ByFacts is true if the only reason for the run is that the node's facts have changed.
	ByFacts bool `json:"by_facts,omitempty"`
	// Changed lists questions of the node with changed answers, at most MaxChanged. Changed is set only for a run that
	// the server wants by itself.
	Changed []Query `json:"changed,omitempty"`
	// After is the run of another node in the same step whose last event let this run begin. After is empty if the run
	// did not wait for another run, or if the server does not know the run. It is only for people.
	After RunID `json:"after,omitempty"`
}

// MaxChanged bounds how many questions a RunWanted names.
const MaxChanged = 20

// Kind implements Body.
func (*RunWanted) Kind() string { return "run.wanted" }

// ID implements Body.
func (b *RunWanted) ID() string { return string(b.Order.Run) }

// RunClaimed is appended before the server replies to the node that claimed the run.
type RunClaimed struct {
	Run  RunID    `json:"run"`
	Node NodeName `json:"node"`
	// Fenced is true if the node stores the fence of the last order that it has begun.
	Fenced bool `json:"fenced,omitempty"`
}

// Kind implements Body.
func (*RunClaimed) Kind() string { return "run.claimed" }

// ID implements Body.
func (b *RunClaimed) ID() string { return string(b.Run) }

// RunCompiled contains the data that a compile sent at its gate. The server appends the event before or together with
// the gate's decision. The blob Asked contains the questions of the run.
type RunCompiled struct {
	Run RunID `json:"run"`
	// Set is the digest of the exports of the compile. Set is empty if there are no exports.
	Set Digest `json:"set,omitempty"`
	CatalogReport
	Asked  Digest     `json:"asked"`
	Absent Digest     `json:"absent,omitempty"` // Absent is a copy of Reads.Absent.
	Reads  *Questions `json:"-"`                // the content of Asked
	// Groups are the node's groups at this moment, sorted. Groups is nil if a server of an earlier release appended the
	// event.
	Groups []GroupName `json:"groups,omitzero"`
}

// Kind implements Body.
func (*RunCompiled) Kind() string { return "run.compiled" }

// ID implements Body.
func (b *RunCompiled) ID() string { return string(b.Run) }

// RunAsked replaces the list of questions of a run. The server appends the event if the run failed before its gate,
// asked more questions after its gate, or was compiled by a Puppet Server.
type RunAsked struct {
	Run    RunID      `json:"run"`
	Asked  Digest     `json:"asked"`
	Absent Digest     `json:"absent,omitempty"`
	Reads  *Questions `json:"-"`
	Served *Served    `json:"served,omitempty"`
}

// Kind implements Body.
func (*RunAsked) Kind() string { return "run.asked" }

// ID implements Body.
func (b *RunAsked) ID() string { return string(b.Run) }

// RunProved says that a run has shown that its node is good. Nothing can have changed since the node's last run, so
// the gate stops this run.
type RunProved struct {
	Run RunID `json:"run"`
	// The node's present state comes from an earlier run. Rests is the start time of that run by the
	// node's clock.
	Rests time.Time `json:"rests,omitzero"`
	// Clock is the start of that run by the clock of the agent.
	Clock Clock `json:"clock,omitzero"`
}

// Kind implements Body.
func (*RunProved) Kind() string { return "run.proved" }

// ID implements Body.
func (b *RunProved) ID() string { return string(b.Run) }

// RunRefused says what a run wanted to read or publish without a grant. Each RunRefused contains everything that was
// refused in the run so far.
type RunRefused struct {
	Run RunID `json:"run"`
	// Wants lists at most two grants that together would have allowed the run. Their field To is empty. One grant has
	// the word `dangerous` and covers everything that needs this word. The other grant covers everything else.
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
	// Values are the keys that the catalog publishes.
	Values []string `json:"values,omitempty"`
	// After is the run of another node in the same step whose last event let this run go. After is empty if the run was
	// not held for another run, or if the server does not know the run. It is only for people.
	After RunID `json:"after,omitempty"`
}

// Kind implements Body.
func (*RunGated) Kind() string { return "run.gated" }

// ID implements Body.
func (b *RunGated) ID() string { return string(b.Run) }

// RunFinished contains the result of a run, as its node reports it.
type RunFinished struct {
	Result Result `json:"result"`
}

// Kind implements Body.
func (*RunFinished) Kind() string { return "run.finished" }

// ID implements Body.
func (b *RunFinished) ID() string { return string(b.Result.Run) }

// RunLost says that the server no longer waits for a run. Its node was silent for too long, or has left.
type RunLost struct {
	Run    RunID  `json:"run"`
	Reason string `json:"reason"`
	// Left is true if the machine is no longer the node. Earlier releases did not set Left.
	Left bool `json:"left,omitempty"`
}

// Kind implements Body.
func (*RunLost) Kind() string { return "run.lost" }

// ID implements Body.
func (b *RunLost) ID() string { return string(b.Run) }

// RunForeign is a node's report about a run that Tutti did not start.
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

// These are the answers of the gate.
const (
	GateGo   GateVerdict = "go"
	GateStop GateVerdict = "stop"
	GateHold GateVerdict = "hold" // the node must ask again later. This answer is never in the log
)
