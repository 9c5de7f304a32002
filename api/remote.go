package api

import (
	"context"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// Remotes is the remote control of the nodes' Puppets.
type Remotes interface {
	// AskNodes asks the nodes that a selector selects, and yields one answer for each
	// of them, those that are there together: also for nodes that say nothing. An error
	// of yield ends it. CodeInvalid: the question or the selector is wrong, nobody was asked;
	// CodeNotFound: no node is selected.
	AskNodes(ctx context.Context, in AskNodes, yield func([]NodeAnswer) error) error
}

// AskNodes is a question of an operator to many nodes.
type AskNodes struct {
	Action  tutti.RemoteAction `json:"action"`
	On      string             `json:"on"`                // a selector; empty: all nodes
	Message string             `json:"message,omitempty"` // disable: why
	// Force replaces the message of a node that is disabled already.
	Force bool          `json:"force,omitempty"`
	Type  string        `json:"type,omitempty"`  // resource
	Title string        `json:"title,omitempty"` // resource; empty: all of the type
	Wait  time.Duration `json:"wait,omitempty"`  // 0: DefaultRemoteWait
	// Signed are statements of kind StatementAction, each for some of the nodes: then those are asked, and On says
	// how they were chosen. None: the operator has signed nothing.
	Signed []tutti.Statement `json:"signed,omitempty"`
}

// Validate refuses a question that no node could answer.
func (a AskNodes) Validate() error {
	switch {
	case !slices.Contains(tutti.RemoteActions, a.Action):
		return tutti.Errorf(tutti.CodeInvalid, "action %q: there are %s", string(a.Action), tutti.JoinWords(tutti.RemoteActions))
	case a.Wait < 0 || a.Wait > tutti.MaxRemoteWait:
		return tutti.Errorf(tutti.CodeInvalid, "wait %s for nodes: want 0s to %s", a.Wait, tutti.MaxRemoteWait)
	case len(a.Signed) > 0 && !a.Action.Effect() || len(a.Signed) > tutti.MaxSignedActions:
		return tutti.Errorf(tutti.CodeInvalid, "%d signed actions for %s: only enable and disable are signed, at most %d for one question", len(a.Signed), a.Action, tutti.MaxSignedActions)
	case (a.Message != "" || a.Force) && a.Action != tutti.RemoteDisable:
		return tutti.Errorf(tutti.CodeInvalid, "%s takes no message; only disable does", a.Action)
	case (a.Type != "" || a.Title != "") != (a.Action == tutti.RemoteResource):
		return tutti.Errorf(tutti.CodeInvalid, "a resource's type belongs to the action resource, and to no other")
	}
	return tutti.RemoteRequest{Action: a.Action, Message: a.Message, Type: a.Type, Title: a.Title}.Validate()
}

// NodeAnswer is one node's answer, or that there is none.
type NodeAnswer struct {
	Node    tutti.NodeName      `json:"node"`
	Verdict tutti.RemoteVerdict `json:"verdict"`
	Message string              `json:"message,omitempty"`
	Rule    string              `json:"rule,omitempty"` // of the node's policy, that allowed or refused it
	Took    time.Duration       `json:"took,omitempty"` // from the question to the answer
	// These say what the server knows of the node's last run. Puppet's files may not have it.
	LastRun tutti.RunID   `json:"last_run,omitempty"`
	RunAt   time.Time     `json:"run_at,omitzero"`
	Outcome tutti.Outcome `json:"outcome,omitempty"`
	Reason  tutti.Reason  `json:"reason,omitempty"`
	Foreign bool          `json:"foreign,omitempty"` // Tutti did not start that run
	Local   *tutti.Local  `json:"local,omitempty"`   // what its agent says of a foreign run that it began
	tutti.RemoteAnswer
}
