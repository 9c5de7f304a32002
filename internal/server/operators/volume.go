package operators

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/server/core"
)

// mostSet is the limit for an operator who is not admin. The values and secrets that this operator has set count
// together. The log, the memory and each snapshot contain all these values and secrets.
var mostSet = data.Volume{Events: 20_000, Bytes: 64 << 20}

// fewValues refuses a change of an operator who is not admin if the operator would exceed mostSet. If the
// operator already exceeds mostSet, fewValues allows only changes that add nothing.
func (tx *tx) fewValues(ctx context.Context, key string, volume data.Volume, adds bool) error {
	v := core.VisitOf(ctx)
	if v == nil || tx.IsAdmin(v.Name) {
		return nil
	}
	by := tutti.Actor(ctx)
	has, after := data.SetBy(tx.Data, by), data.SetByAfter(tx.Data, by, key, volume, adds)
	if after.Within(mostSet) || after.Within(has) {
		return nil
	}
	return tutti.Errorf(tutti.CodeConflict, "%q: operator %s has set %d values with %d KiB in all; without admin the limit is %d values with %d MiB in all "+
		"(a secret counts once for each %d nodes); unset some first: tutti data unset KEY", key, v.Name, has.Events, has.Bytes>>10, mostSet.Events, mostSet.Bytes>>20, tutti.MaxPieces)
}
