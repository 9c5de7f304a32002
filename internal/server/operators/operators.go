// Package operators handles the calls of operators: about jobs, code, values, pauses and questions to nodes, and about
// the keys of operators, nodes and code.
package operators

import (
	"context"
	"sync"

	"github.com/tutti-project/tutti/internal/server/core"
)

// handler is the common part of all calls of operators.
type handler struct{ *core.Core }

// Operators handles calls about the work of the fleet. Operators implements api.Jobs, api.Nodes, api.Codes,
// api.Values, api.Pauses and api.Remotes.
type Operators struct {
	handler
	overviews
}

// Keys handles calls about keys. Keys implements api.Tokens, api.Operators, api.Rotations, api.Signings and
// api.Secrets.
type Keys struct {
	handler
	rotating sync.Mutex // locked during a step of a rotation
}

// New returns the handlers of operators.
func New(of *core.Core) (*Operators, *Keys) {
	return &Operators{handler{of}, newOverviews(handler{of})}, &Keys{handler: handler{of}}
}

// tx is a transaction of an operator's call.
type tx struct{ *core.Tx }

// The method `do` calls core.Core.Do.
func (h handler) do(ctx context.Context, work func(tx *tx) error) error {
	return h.Do(ctx, func(t *core.Tx) error { return work(&tx{t}) })
}

// The method `lasting` does the same as the method `do`, and also checks the caller's certificate, because the change
// is a lasting one (see isKnown).
func (h handler) lasting(ctx context.Context, what string, work func(tx *tx) error) error {
	return h.do(ctx, func(tx *tx) error {
		if err := tx.isKnown(ctx, what); err != nil {
			return err
		}
		return work(tx)
	})
}
