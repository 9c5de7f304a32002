package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
)

// Explains has methods that explain states and their causes. Explains uses the log and the records
// of runs. No method waits for a node.
type Explains interface {
	// ShowNode returns the node's state and its record. CodeNotFound: no such node.
	ShowNode(ctx context.Context, node tutti.NodeName) (NodeDetail, error)
	// ExplainNode explains the node's state. ExplainNode says who changed the data that the node
	// read, or which node could provide a missing answer. CodeNotFound: no such node.
	ExplainNode(ctx context.Context, node tutti.NodeName) (NodeExplanation, error)
	// ExplainValue says who set a value and which nodes read it. The error is CodeNotFound if the log
	// has no value of the key, and no node asks for the key.
	ExplainValue(ctx context.Context, key string) (ValueExplanation, error)
	// ExplainResource says what happened to a resource in the last run in which the node applied a
	// catalog. The error is CodeNotFound if there is no such node or run, or if the server no
	// longer has the report.
	ExplainResource(ctx context.Context, in ExplainResource) (ResourceExplanation, error)
	// Graph returns which nodes read the publications of other nodes. The target is a group or a
	// node. An empty target means the fleet. The error is CodeNotFound if there is no such group or
	// node.
	Graph(ctx context.Context, target string) (Graph, error)
	// Picture returns the same graph as it is drawn: nodes that ask and publish the same are one box. The error is
	// CodeNotFound as with Graph, and CodeInvalid if the picture would be too large to be read.
	Picture(ctx context.Context, target string) (Picture, error)
	Overviews
}

// NodeState is the state of a node under the current code and data.
type NodeState string

// These are the states of a node. If Tutti starts runs on the node, the node is in one of the first six
// states. Except in NodeGood and NodeSuspect, this node needs a run in mode apply. An observed node
// (ADR 0030) is in one of the last four states, or in NodeGood or NodeFailed.
const (
	NodeGood    NodeState = "good"
	NodeSuspect NodeState = "suspect"
	NodeStale   NodeState = "stale"
	NodeWaiting NodeState = "waiting"
	NodeFailed  NodeState = "failed" // the node's last run failed, was lost or was interrupted
	NodeNew     NodeState = "never ran"

	NodeUnknown  NodeState = "unknown"  // nothing is known about the runs of the node
	NodeSilent   NodeState = "silent"   // Puppet has not run for too long
	NodeDisabled NodeState = "disabled" // somebody has disabled Puppet
	NodeDrifting NodeState = "drifting" // each run corrects something
)

// NodeStates are all states of nodes, in the order in which people see them.
var NodeStates = []NodeState{
	NodeGood, NodeSuspect, NodeStale, NodeWaiting, NodeFailed, NodeDrifting, NodeSilent, NodeDisabled, NodeUnknown, NodeNew,
}

// NodeStanding is the state of a node, and the reason for it.
type NodeStanding struct {
	State NodeState `json:"state"`
	Needs string    `json:"needs"` // the next action: `nothing`, `proof` or `apply`
	Why   string    `json:"why,omitempty"`
	// Rests is the reason why a node of a reactive fleet is not good and does not run soon by itself. For every other
	// node Rests is empty.
	Rests string `json:"rests,omitempty"`
	// The field Since is the time of the event that caused this state, if the time is known.
	Since time.Time `json:"since,omitzero"`
	// Run is the run that decides the node's state. The RunView contains the run's job.
	Run *RunView `json:"run,omitempty"`
}

// RunView is a run with the job and the person that caused it.
type RunView struct {
	Run  tutti.RunID    `json:"run"`
	Node tutti.NodeName `json:"node"`
	Job  tutti.JobID    `json:"job,omitempty"`
	Step tutti.StepName `json:"step,omitempty"`
	// The field By names the operator who started the job. By is empty if the server has removed
	// the job.
	By    string         `json:"by,omitempty"`
	Cause string         `json:"cause,omitempty"` // the reason why the server began the job by itself
	Plan  tutti.PlanName `json:"plan,omitempty"`
	Mode  tutti.Mode     `json:"mode"`
	// Foreign is true if Tutti did not start the run. A foreign run has no job, gate or record.
	Foreign bool          `json:"foreign,omitempty"`
	Local   *tutti.Local  `json:"local,omitempty"` // the agent's report, if this was a local run
	Code    tutti.Digest  `json:"code"`
	Puppet  string        `json:"puppet,omitempty"`
	Outcome tutti.Outcome `json:"outcome,omitempty"`
	Reason  tutti.Reason  `json:"reason,omitempty"`
	Stopped bool          `json:"stopped,omitempty"` // the gate stopped the run
	// Proved is true if the run proved that its node is good. The gate then stopped the run.
	Proved  bool      `json:"proved,omitempty"`
	Phase   string    `json:"phase,omitempty"` // Phase is set only for a run that has not ended.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// The fields OtherCode and Because are set if the run changed something and the server still has the node's
	// previous run. OtherCode says whether the previous run had other code. The field Because lists the questions whose
	// answers had changed since the previous run.
	OtherCode bool          `json:"other_code,omitempty"`
	Because   []tutti.Query `json:"because,omitempty"`
}

// NodeDetail is a node with its state and the record of the run that decides this state.
type NodeDetail struct {
	NodeView
	Standing NodeStanding `json:"standing"`
	// Recorded is the run of the record. Recorded is empty if the server has no record
	Recorded  tutti.RunID             `json:"recorded,omitempty"`
	Reads     []ReadView              `json:"reads,omitempty"`
	Keys      int                     `json:"keys"`   // hiera keys looked up
	Absent    int                     `json:"absent"` // looked-up hiera keys for which Tutti had no value
	Published map[string]tutti.Digest `json:"published,omitempty"`
	Exports   []string                `json:"exports,omitempty"` // references
}

// ReadView is a read of the run. ReadView says whether the answer has changed since the run read it.
type ReadView struct {
	tutti.Read
	Changed bool `json:"changed,omitempty"`
	// ChangedAt is the time when the answer first changed after the run, if the time is known.
	ChangedAt time.Time `json:"changed_at,omitzero"`
}

// NodeExplanation says why a node is in its state.
type NodeExplanation struct {
	Node     tutti.NodeName `json:"node"`
	Standing NodeStanding   `json:"standing"`
	Active   *RunView       `json:"active,omitempty"` // the current run
	// Basis lists all inputs of the node's state except the answers. Basis is nil if the node never
	// passed a gate.
	Basis    *NodeBasis      `json:"basis,omitempty"`
	Reads    int             `json:"reads"` // the number of answers that the node got
	Changed  []ChangedRead   `json:"changed,omitempty"`
	Waits    []WaitedFor     `json:"waits,omitempty"`
	Failures []tutti.Failure `json:"failures,omitempty"`
	// The field Before lists questions of this node. Their answers depend on other nodes that need
	// a run themselves. In a converging job those other nodes run before this node, unless the
	// nodes form a cycle.
	Before []WaitedFor `json:"before,omitempty"`
}

// NodeBasis lists all inputs of a node's state except the answers. The inputs come from the run that
// decides the state.
type NodeBasis struct {
	Environment string        `json:"environment,omitempty"`
	Code        tutti.Digest  `json:"code,omitempty"`   // empty for the code of a Puppet Server
	Commit      string        `json:"commit,omitempty"` // the commit that the code is of; empty if nobody has said it
	Puppet      string        `json:"puppet,omitempty"`
	Program     tutti.Program `json:"program,omitempty"`
	// Groups are the node's groups at that run. Groups is nil if the run does not record its groups.
	Groups []tutti.GroupName `json:"groups,omitzero"`
	Facts  tutti.Digest      `json:"facts,omitempty"`
	// FactsAt is the time of the node's last report of its facts. FactsAt is zero if the node has not
	// reported facts.
	FactsAt time.Time `json:"facts_at,omitzero"`
	Machine time.Time `json:"machine,omitzero"` // the time when this machine became the node
}

// ChangedRead is a question whose answer has changed. ChangedRead says where the run asked the
// question and who changed the answer. Causes is empty if the server no longer has these events.
type ChangedRead struct {
	Query  tutti.Query  `json:"query"`
	At     tutti.Place  `json:"at,omitzero"`
	Was    tutti.Digest `json:"was,omitempty"` // empty if the run got no answer
	Causes []Cause      `json:"causes,omitempty"`
}

// Cause is one event that changed an answer. The event changed a value (Key) or a node's exports.
type Cause struct {
	Seq   uint64    `json:"seq"`
	At    time.Time `json:"at"`
	By    string    `json:"by"`
	Key   string    `json:"key,omitempty"`
	Unset bool      `json:"unset,omitempty"` // true if the event unset a value
	Run   *RunView  `json:"run,omitempty"`
	// Groups is true if the event changed the groups of the node. Added and Removed are then groups.
	Groups bool `json:"groups,omitempty"`
	// ENC is true if the event is another answer of the ENC.
	ENC bool `json:"enc,omitempty"`
	// Added, Removed and Altered are the references of exports that differ between the previous and
	// the new answer. Unknown is true if the server no longer has the previous exports.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Altered []string `json:"altered,omitempty"`
	Unknown bool     `json:"unknown,omitempty"`
}

// WaitedFor is a question without an answer, and the nodes that could give the answer.
type WaitedFor struct {
	tutti.Wait
	Answered bool `json:"answered,omitempty"` // the question has an answer now
	// nodes that publish the answer, or whose catalogs declare it
	Publishers []tutti.NodeName `json:"publishers,omitempty"`
	Before     []Cause          `json:"before,omitempty"` // events that gave an earlier answer, the latest first
}

// ValueExplanation says who set a value, and which nodes read it.
type ValueExplanation struct {
	Key      string           `json:"key"`
	Value    *ValueView       `json:"value,omitempty"`    // nil if the key has no value
	Run      *RunView         `json:"run,omitempty"`      // the run that set the value
	Versions []ValueVersion   `json:"versions,omitempty"` // the stored versions, the latest first
	Declared []tutti.NodeName `json:"declared,omitempty"` // nodes whose catalogs publish the value
	Readers  []tutti.NodeName `json:"readers,omitempty"`  // nodes that ask for the value itself
	Hiera    *HieraFeed       `json:"hiera,omitempty"`
}

// ValueVersion is an earlier value of a key, or the unsetting of the key.
type ValueVersion struct {
	Seq   uint64          `json:"seq"`
	At    time.Time       `json:"at"`
	By    string          `json:"by"`
	Value json.RawMessage `json:"value,omitempty"`
	Unset bool            `json:"unset,omitempty"`
	Owner tutti.NodeName  `json:"owner,omitempty"`
	Job   tutti.JobID     `json:"job,omitempty"`
	Run   tutti.RunID     `json:"run,omitempty"`
}

// HieraFeed is a hiera key that gets its answer from a value.
type HieraFeed struct {
	Key     string           `json:"key"`
	Node    tutti.NodeName   `json:"node,omitempty"`    // empty if the value feeds the key on all nodes
	Readers []tutti.NodeName `json:"readers,omitempty"` // nodes that looked up the key, even if Tutti had no value for it
	Hidden  []tutti.NodeName `json:"hidden,omitempty"`  // nodes in Readers with a value of their own for the key
}

// ExplainResource names a resource of a node's catalog, `Type[title]`.
type ExplainResource struct {
	Node     tutti.NodeName `json:"node"`
	Resource string         `json:"resource"`
}

// ResourceExplanation says what happened to a resource, and where its inputs come from. The inputs
// are known per class and not per attribute, because Puppet does not report which read decided an
// attribute.
type ResourceExplanation struct {
	Node     tutti.NodeName `json:"node"`
	Resource string         `json:"resource"`
	Run      *RunView       `json:"run"`
	// Reported says whether the report contains the resource. Puppet 8 leaves out unchanged resources
	Reported bool        `json:"reported"`
	Status   string      `json:"status,omitempty"` // failed, skipped, changed, out of sync or unchanged
	At       time.Time   `json:"at,omitzero"`
	Place    tutti.Place `json:"place,omitzero"`
	// Containers lists the classes and defines that contain the resource, the outermost first.
	Containers []string        `json:"containers,omitempty"`
	Events     []ResourceEvent `json:"events,omitempty"`
	// Exported lists the exports of this resource by other nodes, if a collector of this node finds them.
	Exported []Exported   `json:"exported,omitempty"`
	Reads    []tutti.Read `json:"reads,omitempty"` // the reads that the containers of the resource made
	// Keys lists the hiera keys that the containers of the resource looked up.
	Keys []tutti.KeyRead `json:"keys,omitempty"`
}

// ResourceEvent is one event of one property.
type ResourceEvent struct {
	Property   string    `json:"property,omitempty"`
	Status     string    `json:"status"` // success, failure, noop or audit
	Message    string    `json:"message,omitempty"`
	Old        string    `json:"old,omitempty"`
	New        string    `json:"new,omitempty"`
	At         time.Time `json:"at,omitzero"`
	Corrective bool      `json:"corrective,omitempty"`
	Audited    bool      `json:"audited,omitempty"`
	Redacted   bool      `json:"redacted,omitempty"` // Puppet marks the value as Sensitive
}

// Exported is a resource that another node exports. A collector of this node has collected the
// resource.
type Exported struct {
	Node  tutti.NodeName `json:"node"`
	Place tutti.Place    `json:"place,omitzero"`
	Run   *RunView       `json:"run,omitempty"` // the run that published the export
	Read  tutti.Read     `json:"read"`
}

// Graph says which nodes read the publications of other nodes.
type Graph struct {
	Nodes []GraphNode `json:"nodes"`
	Edges []GraphEdge `json:"edges"`
}

// GraphNode is a node of the graph.
type GraphNode struct {
	Node tutti.NodeName `json:"node"`
	Good bool           `json:"good"`
}

// GraphEdge leads from each node of From to each other node of To. The nodes of From publish
// answers to all of the questions, or declare that they will publish them. The nodes of To ask
// these questions.
type GraphEdge struct {
	From      []tutti.NodeName `json:"from"`
	To        []tutti.NodeName `json:"to"`
	Questions []tutti.Query    `json:"questions,omitempty"`
	// Hard is true if the questions are answered only after the nodes of From have applied. If Hard
	// is false, the questions are answered after the nodes of From have compiled (exports).
	Hard bool `json:"hard,omitempty"`
	// Explicit is true if the order comes from `order` in the fleet file, regardless of reads.
	Explicit bool `json:"explicit,omitempty"`
}
