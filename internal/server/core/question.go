package core

import (
	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/wire"
)

// SetValue emits the change of a value, or nothing if it is as wanted already.
func (tx *Tx) SetValue(by string, owner tutti.NodeName, r *engine.Run, in wire.Publish) error {
	if err := tx.Data.MayOwn(in.Key, owner); err != nil {
		return err
	}
	var job tutti.JobID
	if r != nil {
		job = r.Job
	}
	current, found := tx.Data.Value(in.Key)
	switch {
	case in.Withdraw && found:
		tx.Emit(by, &tutti.ValueUnset{Key: in.Key, Owner: owner, Run: in.Run, Job: job})
	case !in.Withdraw && (!found || !data.Equal(current.Value, in.Value)):
		tx.Emit(by, &tutti.ValueSet{Key: in.Key, Value: in.Value, Owner: owner, Run: in.Run, Job: job})
	}
	return nil
}
