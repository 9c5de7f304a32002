package agent

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
)

// Acting checks the actions that operators sign for this node (ADR 0026).
type Acting interface {
	// Take stores a list of operators. Take ignores a list if its counter is not higher than the counter of the present
	// list. When Take returns, the list is on disk.
	Take(list tutti.Statement) error
	// Listed is the counter of the present list. Listed is 0 if there is no list.
	Listed() uint64
	// Action checks an action that an operator has signed. Action returns CodeRefused if no operator on
	// the list has signed the action. Action returns nil if there is no list. Without a list, the node
	// acts on the server's word alone.
	Action(in *tutti.Statement) (*tutti.SignedAction, error)
}

// The type `nobody` is for a node without a list of operators.
type nobody struct{}

func (nobody) Take(tutti.Statement) error                           { return nil }
func (nobody) Listed() uint64                                       { return 0 }
func (nobody) Action(*tutti.Statement) (*tutti.SignedAction, error) { return nil, nil }

// ActionsFile keeps the signed actions that this node has taken, because the node
// does each action only once.
const ActionsFile = "actions.json"

// The type `taken` is the content of ActionsFile.
type taken struct {
	Nonces map[string]time.Time `json:"nonces"` // for each action's nonce: when the action expires
	// Before is the latest expiry of a forgotten action. The node refuses an action that expires at
	// this time or earlier.
	Before time.Time `json:"before"`
}

// maxTaken bounds the number of actions that the agent remembers.
const maxTaken = 1000

// The method `signed` checks a question that changes something, and returns the action that an
// operator has signed for this question. If the signed text does not fit the question, the node
// refuses the question. The result is nil if this node has no list of operators.
func (a *Agent) signed(q tutti.RemoteRequest) (*tutti.SignedAction, error) {
	said, err := a.opts.Acting.Action(q.Signed)
	if err != nil || said == nil {
		return nil, err
	}
	if said.Action != q.Action || said.Message != q.Message || said.Force != q.Force {
		return nil, tutti.Errorf(tutti.CodeRefused, "the server requests %s, but %s has signed something else: %s", q.Action, said.Operator, said.Action)
	}
	return said, said.For(a.opts.Node, time.Now())
}

// The method `take` stores on disk that the agent is about to do a signed action.
func (a *Agent) take(said *tutti.SignedAction) error {
	a.takenMu.Lock()
	defer a.takenMu.Unlock()
	path := filepath.Join(a.opts.Dir, ActionsFile)
	kept, err := readSealed[taken](path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tutti.Wrap("", err, "the file of done actions cannot be read, so this node does no action; remove the file when actions of the last hour can no longer arrive")
	}
	_, before := kept.Nonces[said.Nonce]
	switch {
	case before, !said.Until.After(kept.Before):
		return tutti.Errorf(tutti.CodeRefused, "this node has already done the action that %s has signed, or a later action", said.Operator)
	case len(kept.Nonces) >= maxTaken:
		kept.forget(time.Now())
	}
	if len(kept.Nonces) >= maxTaken {
		return tutti.Errorf(tutti.CodeUnavailable, "this node got more than %d signed actions within an hour", maxTaken)
	}
	next := taken{Nonces: map[string]time.Time{said.Nonce: said.Until}, Before: kept.Before}
	maps.Copy(next.Nonces, kept.Nonces)
	if err := writeSealed(path, next); err != nil {
		return err
	}
	killpoint.Here("agent.action-taken")
	return nil
}

// The method `forget` removes the actions that have expired.
func (t *taken) forget(now time.Time) {
	for nonce, until := range t.Nonces {
		if now.Before(until) {
			continue
		}
		delete(t.Nonces, nonce)
		if until.After(t.Before) {
			t.Before = until
		}
	}
}
