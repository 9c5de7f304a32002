package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
)

// Explains says how things stand and where they come from, by the log and the
// records of runs. Nothing in it waits for a node.
type Explains interface {
	// ShowNode returns how a node stands, and its record. CodeNotFound: no such node.
	ShowNode(ctx context.Context, node tutti.NodeName) (NodeDetail, error)
	// ExplainNode says why a node stands as it does: who changed what it read, or who
	// could provide what it waits for. CodeNotFound: no such node.
	ExplainNode(ctx context.Context, node tutti.NodeName) (NodeExplanation, error)
	// ExplainValue says where a value comes from and who reads it. CodeNotFound: it
	// was never set, as far as is known, and no node asks for it.
	ExplainValue(ctx context.Context, key string) (ValueExplanation, error)
	// ExplainResource says what became of a resource in the last run of a node that has
	// applied a catalog. CodeNotFound: there is no such node, no such run, or its report is not kept.
	ExplainResource(ctx context.Context, in ExplainResource) (ResourceExplanation, error)
	// Graph returns which nodes read what other nodes publish: of a group or a node, or (no
	// target) of the fleet. CodeNotFound: no such group or node.
	Graph(ctx context.Context, target string) (Graph, error)
}

// NodeState is how a node stands under the current code and data.
type NodeState string

// The states of a node. All but NodeGood and NodeSuspect need an apply.
const (
	NodeGood    NodeState = "good"
	NodeSuspect NodeState = "suspect"
	NodeStale   NodeState = "stale"
	NodeWaiting NodeState = "waiting"
	NodeFailed  NodeState = "failed" // or its last run was lost or interrupted
	NodeNew     NodeState = "never ran"
)

// NodeStanding is how a node stands, and why.
type NodeStanding struct {
	State NodeState `json:"state"`
	Needs string    `json:"needs"` // next: `nothing`, `proof` or `apply`
	Why   string    `json:"why,omitempty"`
	// Rests is why a node of a reactive fleet that is not good does not run by itself at once.
	Rests string    `json:"rests,omitempty"`
	Since time.Time `json:"since,omitzero"` // of the event that made it so, as far as it is known
	// Run is the run by which the node is judged, Job its job.
	Run *RunView `json:"run,omitempty"`
}

// RunView is a run, and on whose behalf it was.
type RunView struct {
	Run     tutti.RunID    `json:"run"`
	Node    tutti.NodeName `json:"node"`
	Job     tutti.JobID    `json:"job,omitempty"`
	Step    tutti.StepName `json:"step,omitempty"`
	By      string         `json:"by,omitempty"`    // who started the job; empty: the server does not keep the job any more
	Cause   string         `json:"cause,omitempty"` // why the server began the job by itself
	Plan    tutti.PlanName `json:"plan,omitempty"`
	Mode    tutti.Mode     `json:"mode"`
	Foreign bool           `json:"foreign,omitempty"` // Tutti did not start it: no job, no gate, no record
	Local   *tutti.Local   `json:"local,omitempty"`   // what its agent says of a foreign run that it began
	Code    tutti.Digest   `json:"code"`
	Puppet  string         `json:"puppet,omitempty"`
	Outcome tutti.Outcome  `json:"outcome,omitempty"`
	Reason  tutti.Reason   `json:"reason,omitempty"`
	Stopped bool           `json:"stopped,omitempty"` // at its gate
	Proved  bool           `json:"proved,omitempty"`  // its node good, and was stopped for that
	Phase   string         `json:"phase,omitempty"`   // of a run that goes on
	EndedAt time.Time      `json:"ended_at,omitzero"`
	// Of a run that changed something, where the run of its node before is kept:
	// whether it had other code, and the questions to which it was given other answers.
	OtherCode bool          `json:"other_code,omitempty"`
	Because   []tutti.Query `json:"because,omitempty"`
}

// NodeDetail is a node with its standing and the record of the run by which it is
// judged.
type NodeDetail struct {
	NodeView
	Standing  NodeStanding            `json:"standing"`
	Recorded  tutti.RunID             `json:"recorded,omitempty"` // whose record it is; empty: none is kept
	Reads     []ReadView              `json:"reads,omitempty"`
	Keys      int                     `json:"keys"`   // hiera keys looked up
	Absent    int                     `json:"absent"` // those of them that Tutti did not have
	Published map[string]tutti.Digest `json:"published,omitempty"`
	Exports   []string                `json:"exports,omitempty"` // references
}

// ReadView is a read, and whether its answer has changed since.
type ReadView struct {
	tutti.Read
	Changed   bool      `json:"changed,omitempty"`
	ChangedAt time.Time `json:"changed_at,omitzero"` // when it first changed since, if that is known
}

// NodeExplanation is why a node stands as it does.
type NodeExplanation struct {
	Node     tutti.NodeName  `json:"node"`
	Standing NodeStanding    `json:"standing"`
	Active   *RunView        `json:"active,omitempty"` // the run that goes on
	Basis    *NodeBasis      `json:"basis,omitempty"`  // besides answers, nil: it never passed a gate
	Reads    int             `json:"reads"`            // how many answers it was given
	Changed  []ChangedRead   `json:"changed,omitempty"`
	Waits    []WaitedFor     `json:"waits,omitempty"`
	Failures []tutti.Failure `json:"failures,omitempty"`
	// Before are its questions into which nodes publish that need something
	// themselves: these run before it in a job that converges, unless it is a cycle.
	Before []WaitedFor `json:"before,omitempty"`
}

// NodeBasis is what the standing of a node rests on besides the answers that it was given: what the run
// had by which it is judged.
type NodeBasis struct {
	Environment string       `json:"environment,omitempty"`
	Code        tutti.Digest `json:"code,omitempty"` // empty: a Puppet Server's
	Puppet      string       `json:"puppet,omitempty"`
	Facts       tutti.Digest `json:"facts,omitempty"`
	// FactsAt is when the node last told which facts it has since; zero: it has not.
	FactsAt time.Time `json:"facts_at,omitzero"`
	Machine time.Time `json:"machine,omitzero"` // when this machine became the node
}

// ChangedRead is a question that has another answer by now, where it was asked,
// and who changed it; no Causes: that is not kept any more.
type ChangedRead struct {
	Query  tutti.Query  `json:"query"`
	At     tutti.Place  `json:"at,omitzero"`
	Was    tutti.Digest `json:"was,omitempty"` // empty: there was none
	Causes []Cause      `json:"causes,omitempty"`
}

// Cause is one event that changed an answer: a value (Key) or a node's exports.
type Cause struct {
	Seq   uint64    `json:"seq"`
	At    time.Time `json:"at"`
	By    string    `json:"by"`
	Key   string    `json:"key,omitempty"`
	Unset bool      `json:"unset,omitempty"` // of a value
	Run   *RunView  `json:"run,omitempty"`
	// Added, Removed and Altered are the references of the exports that are an answer
	// to the question. Unknown: the set before is not kept.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Altered []string `json:"altered,omitempty"`
	Unknown bool     `json:"unknown,omitempty"`
}

// WaitedFor is a question without an answer, and who could give one.
type WaitedFor struct {
	tutti.Wait
	Answered   bool             `json:"answered,omitempty"`   // by now
	Publishers []tutti.NodeName `json:"publishers,omitempty"` // they publish it, or their catalogs declare it
	Before     []Cause          `json:"before,omitempty"`     // who gave one before, the latest first
}

// ValueExplanation is where a value comes from, and who reads it.
type ValueExplanation struct {
	Key      string           `json:"key"`
	Value    *ValueView       `json:"value,omitempty"`    // nil: it has none
	Run      *RunView         `json:"run,omitempty"`      // that set it
	Versions []ValueVersion   `json:"versions,omitempty"` // that are kept, the latest first
	Declared []tutti.NodeName `json:"declared,omitempty"` // whose catalogs publish it
	Readers  []tutti.NodeName `json:"readers,omitempty"`  // that ask for the value itself
	Hiera    *HieraFeed       `json:"hiera,omitempty"`
}

// ValueVersion is what a key had, or that it was unset.
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

// HieraFeed is a hiera key that a value feeds.
type HieraFeed struct {
	Key     string           `json:"key"`
	Node    tutti.NodeName   `json:"node,omitempty"`    // on this node only
	Readers []tutti.NodeName `json:"readers,omitempty"` // also those for which it was absent
	Hidden  []tutti.NodeName `json:"hidden,omitempty"`  // readers that have a value of their own over it
}

// ExplainResource names a resource of a node's catalog, `Type[title]`.
type ExplainResource struct {
	Node     tutti.NodeName `json:"node"`
	Resource string         `json:"resource"`
}

// ResourceExplanation is what became of a resource and where it comes from. What
// is known is known per class, not per attribute: which of the reads decided an
// attribute Puppet does not tell.
type ResourceExplanation struct {
	Node       tutti.NodeName  `json:"node"`
	Resource   string          `json:"resource"`
	Run        *RunView        `json:"run"`
	Reported   bool            `json:"reported"`         // it is in the report; Puppet 8 leaves out what did not change
	Status     string          `json:"status,omitempty"` // failed, skipped, changed, out of sync or unchanged
	At         time.Time       `json:"at,omitzero"`
	Place      tutti.Place     `json:"place,omitzero"`
	Containers []string        `json:"containers,omitempty"` // classes and defines, the outermost first
	Events     []ResourceEvent `json:"events,omitempty"`
	Exported   []Exported      `json:"exported,omitempty"` // of other nodes, if a collector of this one finds it
	Reads      []tutti.Read    `json:"reads,omitempty"`    // that were made in its containers
	Keys       []tutti.KeyRead `json:"keys,omitempty"`     // hiera keys that were looked up in its containers
}

// ResourceEvent is what happened to one property.
type ResourceEvent struct {
	Property   string    `json:"property,omitempty"`
	Status     string    `json:"status"` // success, failure, noop or audit
	Message    string    `json:"message,omitempty"`
	Old        string    `json:"old,omitempty"`
	New        string    `json:"new,omitempty"`
	At         time.Time `json:"at,omitzero"`
	Corrective bool      `json:"corrective,omitempty"`
	Audited    bool      `json:"audited,omitempty"`
	Redacted   bool      `json:"redacted,omitempty"` // Puppet calls it Sensitive
}

// Exported is a resource that a node exports and that a read collects.
type Exported struct {
	Node  tutti.NodeName `json:"node"`
	Place tutti.Place    `json:"place,omitzero"`
	Run   *RunView       `json:"run,omitempty"` // that published it
	Read  tutti.Read     `json:"read"`
}

// Graph says which nodes read what other nodes publish.
type Graph struct {
	Nodes []GraphNode `json:"nodes"`
	Edges []GraphEdge `json:"edges"`
}

// GraphNode is a node of the graph.
type GraphNode struct {
	Node tutti.NodeName `json:"node"`
	Good bool           `json:"good"`
}

// GraphEdge leads from each node of From to each of To but itself: From publish
// into all of the questions, or declare that they will, and To ask them.
type GraphEdge struct {
	From      []tutti.NodeName `json:"from"`
	To        []tutti.NodeName `json:"to"`
	Questions []tutti.Query    `json:"questions,omitempty"`
	// Hard: answered when From have applied, else (exports) when they have compiled.
	Hard bool `json:"hard,omitempty"`
	// Explicit: the fleet file says so (`order`), whatever is read.
	Explicit bool `json:"explicit,omitempty"`
}
