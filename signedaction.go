package tutti

import (
	"slices"
	"time"
)

// TrustedOperators lists the operators who sign actions. A code key signs this list. A node that has such a
// list refuses unsigned actions.
type TrustedOperators struct {
	Fleet     Digest        `json:"fleet"`
	Counter   uint64        `json:"counter"` // each new list adds 1 to the counter
	Operators []OperatorKey `json:"operators"`
}

// OperatorKey is an operator's public action key, in PEM.
type OperatorKey struct {
	Operator string `json:"operator"`
	Key      string `json:"key"`
}

// MaxOperatorKeys bounds the length of the list.
const MaxOperatorKeys = 500

// Validate refuses values that no honest signer uses.
func (t TrustedOperators) Validate() error {
	if t.Counter == 0 || t.Counter > MaxCounter || len(t.Operators) > MaxOperatorKeys {
		return Errorf(CodeInvalid, "operators who sign actions: counter %d, %d operators, at most %d", t.Counter, len(t.Operators), MaxOperatorKeys)
	}
	for i, o := range t.Operators {
		if err := ValidateOperator(o.Operator); err != nil {
			return err
		}
		if slices.ContainsFunc(t.Operators[:i], func(other OperatorKey) bool { return other.Operator == o.Operator }) {
			return Errorf(CodeInvalid, "operators who sign actions: %s twice", o.Operator)
		}
	}
	return t.Fleet.Validate()
}

// SignedAction is one change that an operator wants for the Puppets of nodes. A node does only what the signed action
// says.
type SignedAction struct {
	Fleet    Digest       `json:"fleet"`
	Operator string       `json:"operator"`
	Action   RemoteAction `json:"action"`
	Nodes    []NodeName   `json:"nodes"`
	Message  string       `json:"message,omitempty"`
	Force    bool         `json:"force,omitempty"`
	// The field Until is the end of the action's validity, by the clock of the operator's machine.
	Until time.Time `json:"until"`
	Nonce string    `json:"nonce"` // a node accepts each nonce only once
}

// These are the bounds of a signed action.
const (
	MaxActionNodes = 100 // an action for more nodes uses several statements
	maxActionLife  = time.Hour
	maxNonce       = 64 // bytes
	// MaxSignedActions bounds the statements of one question.
	MaxSignedActions = 1000
)

// Validate refuses values that no honest signer uses.
func (a SignedAction) Validate() error {
	if err := a.Fleet.Validate(); err != nil {
		return err
	}
	if err := ValidateOperator(a.Operator); err != nil {
		return err
	}
	switch {
	case !a.Action.Effect():
		return Errorf(CodeInvalid, "action %q needs no signature: it changes nothing", string(a.Action))
	case len(a.Nodes) == 0 || len(a.Nodes) > MaxActionNodes:
		return Errorf(CodeInvalid, "an action of %d nodes, at most %d", len(a.Nodes), MaxActionNodes)
	case a.Nonce == "" || len(a.Nonce) > maxNonce || a.Until.IsZero():
		return Errorf(CodeInvalid, "an action needs a nonce of at most %d bytes, and a time until which it is valid", maxNonce)
	}
	return RemoteRequest{Action: a.Action, Message: a.Message, Force: a.Force}.Validate()
}

// For returns an error if the action is not for this node or not valid now.
func (a SignedAction) For(node NodeName, now time.Time) error {
	switch {
	case !slices.Contains(a.Nodes, node):
		return Errorf(CodeRefused, "%s has signed the action %s for other nodes", a.Operator, a.Action)
	case now.After(a.Until):
		return Errorf(CodeRefused, "%s has signed the action %s until %s, and it is %s here: ask again, or mend the clocks", a.Operator, a.Action, a.Until.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case a.Until.Sub(now) > maxActionLife:
		return Errorf(CodeRefused, "%s has signed the action %s until %s, which is more than %s from now, %s: mend the clocks", a.Operator, a.Action, a.Until.UTC().Format(time.RFC3339), maxActionLife, now.UTC().Format(time.RFC3339))
	}
	return nil
}
