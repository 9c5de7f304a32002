// Package operators answers operators: jobs, code, values, pauses, questions to nodes, and the keys by which operators,
// nodes and code are trusted.
package operators

import (
	"context"
	"sync"

	"github.com/tutti-project/tutti/internal/server/core"
)

// handler is what all calls of operators need.
type handler struct{ *core.Core }

// Operators answers calls about the fleet's work. It implements api.Jobs, api.Nodes, api.Codes, api.Values, api.Pauses and
// api.Remotes.
type Operators struct{ handler }

// Keys answers calls about keys. It implements api.Tokens, api.Operators, api.Rotations, api.Signings and
// api.Secrets.
type Keys struct {
	handler
	rotating sync.Mutex // held during a step of a rotation
}

// New returns the handlers of operators.
func New(of *core.Core) (*Operators, *Keys) {
	return &Operators{handler{of}}, &Keys{handler: handler{of}}
}

// tx is a transaction of an operator's call.
type tx struct{ *core.Tx }

// do calls core.Core.Do.
func (h handler) do(ctx context.Context, work func(tx *tx) error) error {
	return h.Do(ctx, func(t *core.Tx) error { return work(&tx{t}) })
}

// lasting is do for lasting changes, see isKnown.
func (h handler) lasting(ctx context.Context, what string, work func(tx *tx) error) error {
	return h.do(ctx, func(tx *tx) error {
		if err := tx.isKnown(ctx, what); err != nil {
			return err
		}
		return work(tx)
	})
}
