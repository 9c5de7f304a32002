package server

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
)

// followRotation reads the phase of the rotation from the log, and switches the keys to this phase. The server
// calls followRotation when it starts. If the server uses a key set that the log does not know, followRotation
// appends this key set to the log.
func (d *decider) followRotation(ctx context.Context, state *fold.State) error {
	if d.Opts.Keys == nil {
		return nil
	}
	sets, err := d.Opts.Keys.KeySets()
	if err != nil {
		return err
	}
	last := state.Registry.Rotation.Last
	switch {
	case sets.Phase == "" && last == nil:
		return nil
	case sets.Phase == "" && last.Phase.Rotates() && sets.Present == last.To: // the log was restored from a state before the end of the rotation
		return d.Writer.First(ctx, &tutti.CARotated{Phase: tutti.RotationFinished, From: last.From, To: last.To})
	case sets.Phase == "" && (last.Phase.Rotates() || sets.Present != last.Stays()):
		return tutti.Errorf(tutti.CodeDamaged, "according to the log, the rotation of the CA is %s and ends with the CA %s, but the server has only keys of the CA %s: log and keys come from different times; "+
			"nothing was changed; restore both from the same backup: tutti server restore", last.Phase, last.Stays().CA, sets.Present.CA)
	case sets.Phase == "":
		return nil
	case last == nil || last.To != sets.Next:
		if err := d.Opts.Keys.Rotate(tutti.RotationBegun); err != nil {
			return err
		}
		return d.Writer.First(ctx, &tutti.CARotated{Phase: tutti.RotationBegun, From: sets.Present, To: sets.Next})
	}
	if err := d.Opts.Keys.Rotate(last.Phase); err != nil {
		return tutti.Wrap("", err, "change the keys to the phase of the rotation: %s", last.Phase)
	}
	if last.Phase == tutti.RotationFinished {
		d.Opts.Keys.Settle() // the bus has started with both key sets
	}
	return nil
}

// noteFirst appends the certificate of the first operator to the log. The first operator's certificate was
// issued before the log began. The log of an earlier release may know the operator but not the certificate.
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
