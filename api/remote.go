package api

import (
	"context"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// Remotes is the remote control of Puppet on the nodes.
type Remotes interface {
	// AskNodes asks the nodes that a selector selects. AskNodes yields one answer for each selected
	// node, even if a node does not answer. Each call of yield gets the answers that are present at
	// that moment. AskNodes stops if yield returns an error. If the question or the selector is
	// wrong, the error is CodeInvalid, and AskNodes asks no node. The error is CodeNotFound if the
	// selector selects no node.
	AskNodes(ctx context.Context, in NodesQuestion, yield func([]NodeAnswer) error) error
}

// NodesQuestion is a question of an operator to many nodes.
type NodesQuestion struct {
	Action  tutti.RemoteAction `json:"action"`
	On      string             `json:"on"`                // On is a selector. An empty selector selects all nodes.
	Message string             `json:"message,omitempty"` // the reason, for the action disable
	// Force replaces the message if a node is already disabled.
	Force bool   `json:"force,omitempty"`
	Type  string `json:"type,omitempty"` // type, for the action resource
	// Title is the title of the resource. If Title is empty, all resources of the type are meant.
	Title string        `json:"title,omitempty"`
	Wait  time.Duration `json:"wait,omitempty"` // 0: DefaultRemoteWait
	// Jobs are two jobs with Diff, for the action diff. Without jobs, nodes only say whether they can compare catalogs.
	Jobs []tutti.JobID `json:"jobs,omitempty"`
	// Served has two environments and some nodes of the Puppet Server on the asked node, for the action compare. The
	// selector must select exactly this one node.
	Served *tutti.ServedQuestion `json:"served,omitempty"`
	// Signed contains statements of kind StatementAction. Each statement names some nodes. If Signed is not empty, the
	// server asks the named nodes, and the field On is the selector by which the operator chose them. Signed is empty
	// if the operator has signed nothing.
	Signed []tutti.Statement `json:"signed,omitempty"`
}

// Validate refuses a question that no node can answer.
func (a NodesQuestion) Validate() error {
	switch {
	case !slices.Contains(tutti.RemoteActions, a.Action):
		return tutti.Errorf(tutti.CodeInvalid, "action %q: there are %s", string(a.Action), tutti.JoinWords(tutti.RemoteActions))
	case a.Wait < 0 || a.Wait > tutti.MaxRemoteWait:
		return tutti.Errorf(tutti.CodeInvalid, "wait %s for nodes: want 0s to %s", a.Wait, tutti.MaxRemoteWait)
	case len(a.Signed) > 0 && !a.Action.Effect() || len(a.Signed) > tutti.MaxSignedActions:
		return tutti.Errorf(tutti.CodeInvalid, "%d signed actions for %s: an operator signs only enable and disable, and at most %d for one question", len(a.Signed), a.Action, tutti.MaxSignedActions)
	case (a.Message != "" || a.Force) && a.Action != tutti.RemoteDisable:
		return tutti.Errorf(tutti.CodeInvalid, "%s takes no message; only disable does", a.Action)
	case (a.Type != "" || a.Title != "") != (a.Action == tutti.RemoteResource):
		return tutti.Errorf(tutti.CodeInvalid, "only the action resource takes the type of a resource")
	}
	return tutti.RemoteRequest{Action: a.Action, Message: a.Message, Type: a.Type, Title: a.Title, Jobs: a.Jobs, Served: a.Served}.Validate()
}

// NodeAnswer is the answer of one node, or says that the node did not answer.
type NodeAnswer struct {
	Node    tutti.NodeName      `json:"node"`
	Verdict tutti.RemoteVerdict `json:"verdict"`
	Message string              `json:"message,omitempty"`
	// the rule of the node's policy that allowed or refused the action
	Rule string        `json:"rule,omitempty"`
	Took time.Duration `json:"took,omitempty"` // the time between the question and the answer
	// The following fields describe the node's last run in the server's log. Puppet's own files may say nothing
	// about this run.
	LastRun tutti.RunID   `json:"last_run,omitempty"`
	RunAt   time.Time     `json:"run_at,omitzero"`
	Outcome tutti.Outcome `json:"outcome,omitempty"`
	Reason  tutti.Reason  `json:"reason,omitempty"`
	Foreign bool          `json:"foreign,omitempty"` // Tutti did not start the last run
	Local   *tutti.Local  `json:"local,omitempty"`   // the agent's report, if the last run was a local run
	tutti.RemoteAnswer
}
