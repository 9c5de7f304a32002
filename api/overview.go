package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tutti-project/tutti"
)

// Overviews shows the whole fleet at once (ADR 0042).
type Overviews interface {
	// NodeCauses returns why nodes are not good. Nodes with the same reason are one cause. The causes are sorted by state,
	// then by the number of nodes, the largest first. An operator who may only view gets no texts of nodes.
	NodeCauses(ctx context.Context) ([]NodeCause, error)
	// WatchFleet calls yield with the views that the viewer wants, and then with their changes, until ctx ends or yield
	// returns an error. The error is CodeInvalid if the viewer wants something that does not exist.
	WatchFleet(ctx context.Context, in WatchFleet, yield func(FleetFrame) error) error
}

// The kinds of views. The key of a view is its kind, or its kind, a slash and a name.
const (
	ViewFleet = "fleet"
	ViewGroup = "group"
	ViewCause = "cause"
	ViewNode  = "node"
	ViewJob   = "job"
)

// ViewKinds are all kinds of views.
var ViewKinds = []string{ViewFleet, ViewGroup, ViewCause, ViewNode, ViewJob}

// WatchFleet says which views a viewer wants.
type WatchFleet struct {
	// Want are kinds of views. An empty list means all kinds.
	Want []string `json:"want,omitempty"`
	// After is the cursor of the last frame that the viewer has, or empty.
	After string `json:"after,omitempty"`
}

// FleetFrame is a part of what a viewer gets.
type FleetFrame struct {
	Seq    uint64     `json:"seq"` // the views are those of this event of the log
	At     time.Time  `json:"at"`
	Reset  bool       `json:"reset,omitempty"` // the viewer must forget all views: a snapshot begins with this frame
	Whole  bool       `json:"whole,omitempty"` // the viewer has all views of Seq now
	Views  []ViewItem `json:"views,omitempty"` // views that are new or have changed
	Gone   []string   `json:"gone,omitempty"`  // keys of views that do not exist any more
	Cursor string     `json:"cursor"`
}

// ViewItem is a view with its key.
type ViewItem struct {
	Key  string          `json:"key"`
	View json.RawMessage `json:"view"` // FleetView, GroupView, NodeCause, NodeRow or JobView
}

// FleetView is the fleet in a few numbers.
type FleetView struct {
	Fleet       string            `json:"fleet,omitempty"`
	Environment string            `json:"environment,omitempty"`
	Code        tutti.Digest      `json:"code,omitempty"` // the current code of Environment
	Nodes       int               `json:"nodes"`
	States      map[NodeState]int `json:"states,omitempty"` // how many nodes have this state
	Away        int               `json:"away,omitempty"`   // nodes that are not connected
	Paused      int               `json:"paused,omitempty"`
	Running     int               `json:"running,omitempty"`    // nodes with an active run
	Conflicted  int               `json:"conflicted,omitempty"` // nodes whose identity two machines use
	Jobs        int               `json:"jobs,omitempty"`       // jobs that have not ended
	Full        string            `json:"full,omitempty"`       // the reason why no more runs begin
}

// GroupView is a group in a few numbers. Groups with `where` are included.
type GroupView struct {
	Group  tutti.GroupName   `json:"group"`
	Nodes  int               `json:"nodes"`
	States map[NodeState]int `json:"states,omitempty"`
}

// NodeRow is a node in a list that follows the fleet. It has no times that change with each heartbeat.
type NodeRow struct {
	Node        tutti.NodeName    `json:"node"`
	State       NodeState         `json:"state"`
	Why         string            `json:"why,omitempty"` // the reason for State, see NodeView.Why
	Since       time.Time         `json:"since,omitzero"`
	Cause       string            `json:"cause,omitempty"` // id of the NodeCause, if the node is not good
	Groups      []tutti.GroupName `json:"groups,omitempty"`
	Environment string            `json:"environment,omitempty"`
	Connected   bool              `json:"connected,omitempty"`
	Stopped     bool              `json:"stopped,omitempty"`
	Observed    bool              `json:"observed,omitempty"`
	Paused      string            `json:"paused,omitempty"`
	Conflicted  string            `json:"conflicted,omitempty"`
	Trouble     string            `json:"trouble,omitempty"`
	HeldBy      tutti.JobID       `json:"held_by,omitempty"`
	Active      tutti.RunID       `json:"active,omitempty"`
	ActiveJob   tutti.JobID       `json:"active_job,omitempty"`
	Phase       string            `json:"phase,omitempty"` // of the active run, see RunView.Phase
	LastRun     tutti.RunID       `json:"last_run,omitempty"`
	LastJob     tutti.JobID       `json:"last_job,omitempty"`
	Outcome     tutti.Outcome     `json:"outcome,omitempty"`
	RunAt       time.Time         `json:"run_at,omitzero"`
}

// CauseKind says what kind of reason a NodeCause is.
type CauseKind string

// The kinds of causes.
const (
	CauseAnswer  CauseKind = "answer"  // the answer to a question has changed
	CauseCode    CauseKind = "code"    // other code was pushed
	CauseWait    CauseKind = "wait"    // a question has no answer
	CauseFailure CauseKind = "failure" // the last run failed
	CauseOther   CauseKind = "other"   // Text says what
	CauseMore    CauseKind = "more"    // more causes than a list has
)

// NodeCause is a reason why nodes are not good.
type NodeCause struct {
	ID    string    `json:"id"` // stays the same as long as the cause is the same
	State NodeState `json:"state"`
	Kind  CauseKind `json:"kind"`
	// Text is a sentence without the names of the nodes, such as `value "db/port" has changed since it was read`.
	Text        string           `json:"text"`
	Query       *tutti.Query     `json:"query,omitempty"` // of CauseAnswer and CauseWait
	Environment string           `json:"environment,omitempty"`
	Code        tutti.Digest     `json:"code,omitempty"`   // of CauseCode
	Change      string           `json:"change,omitempty"` // kind of the event that changed the answer
	Key         string           `json:"key,omitempty"`    // of the value that this event changed
	From        tutti.NodeName   `json:"from,omitempty"`   // the node whose exports this event changed
	By          string           `json:"by,omitempty"`     // the actor of this event, or of the push
	At          time.Time        `json:"at,omitzero"`      // the time of this event, or of the push
	Seq         uint64           `json:"seq,omitempty"`
	Since       time.Time        `json:"since,omitzero"` // since when the first of the nodes is in this state, if that is known
	Nodes       int              `json:"nodes"`
	Some        []tutti.NodeName `json:"some"` // at most MaxSome of the nodes, sorted
	// Next says why the nodes do not run by themselves now, for the first of the nodes. Next is empty if they do, or if
	// they run only for a person (no `reaction` in the fleet file).
	Next string `json:"next,omitempty"`
}

// MaxSome is how many nodes a NodeCause names, and MaxCauses how many causes a list has.
const (
	MaxSome   = 5
	MaxCauses = 200
)
