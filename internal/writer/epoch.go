package writer

import (
	"context"
	"crypto/rand"

	"github.com/tutti-project/tutti"
)

// Epochs is what is known of the log's epoch outside the log. It tells a log that was lost as a whole
// from a new one.
type Epochs interface {
	// Last is the epoch that was begun last; zero before the first start. above is positive if the log
	// was put back: then another epoch begins, whose number is at least above.
	Last() (last tutti.Epoch, above uint64)
	// Began records the present epoch, before the server serves.
	Began(tutti.Epoch) error
}

// beginEpoch begins the next epoch if the log has none, or was put back. CodeDamaged: the
// log is not the one that was served here before.
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
			"the log has %d events and is of epoch %s, and epoch %s was served here: this is another log, or an earlier one; nothing was changed; put back a backup: tutti server restore; or go on from this log: tutti server new-epoch",
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
