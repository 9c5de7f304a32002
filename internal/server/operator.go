package server

import (
	"context"

	"github.com/tutti-project/tutti/internal/fold"
)

// noteFirst puts the first operator's certificate into the log, which was made
// before there was one. A log of an earlier release may know the operator, and not the certificate.
func (d *decider) noteFirst(ctx context.Context, state *fold.State) error {
	first := d.Opts.FirstOperator
	if first == nil {
		return nil
	}
	if op := state.Registry.Operators[first.Operator]; op != nil && (op.Had(first.Serial) || !op.Revoked.IsZero() || state.Registry.Rotation.Last != nil) {
		return nil
	}
	return d.Writer.First(ctx, first)
}
