package writer

import (
	"context"
	"crypto/rand"

	"github.com/tutti-project/tutti"
)

// Epochs stores the epoch of the log outside the log. With Epochs the server can distinguish a
// log that was lost completely from a new log.
type Epochs interface {
	// Last returns the epoch that began last. Last returns the zero epoch before the first start. The second result,
	// `above`, is positive if the log was restored. In this case the server must begin another epoch, whose number
	// is at least `above`.
	Last() (last tutti.Epoch, above uint64)
	// Began stores the present epoch before the server serves.
	Began(tutti.Epoch) error
}

// beginEpoch begins the next epoch if the log has no epoch yet, or was restored. The function
// returns CodeDamaged if this is not the log that the server served before.
func (w *Writer) beginEpoch(ctx context.Context) error {
	var last tutti.Epoch
	var above uint64
	if w.opts.Epochs != nil {
		last, above = w.opts.Epochs.Last()
	}
	next := above > 0
	now := w.state.Engine.Epoch
	if !next && last.Number > 0 && (now.Number < last.Number || now.Number == last.Number && now.Random != last.Random) {
		return tutti.Errorf(tutti.CodeDamaged,
			"the log has %d events and is of epoch %s, but epoch %s was served here: this is another log, or an earlier one; nothing was changed; put back a backup: tutti server restore; or go on from this log: tutti server new-epoch",
			w.state.Seq, now, last)
	}
	if next || now.Random == "" {
		number := now.Number
		if next {
			number = max(number+1, last.Number+1, above)
		}
		now = tutti.Epoch{Number: number, Random: rand.Text()}
		if err := w.First(ctx, &tutti.EpochBegun{Epoch: now}); err != nil {
			return err
		}
	}
	if w.opts.Epochs == nil {
		return nil
	}
	return w.opts.Epochs.Began(now)
}
