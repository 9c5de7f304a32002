package operators

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/server/core"
)

// mostSet limits the values and secrets together that an operator who is not admin may have set. The log, the memory
// and each snapshot contain all these values and secrets.
var mostSet = data.Volume{Events: 20_000, Bytes: 64 << 20}

// fewValues refuses a change if the operator is not admin and would then have set more than mostSet. If the
// operator already has more than mostSet, they may only make changes that add nothing.
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
