package operators

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
)

// FollowAudit yields each act after a position as it happens. When it has yielded all, it calls told with the position up
// to which nothing has to be yielded again. The zero position means now, or the event of the last restore if there was one. If
// after is of another epoch, it begins with the restore, which took back later acts. It ends with ctx, or with an error of yield or told.
func (s *Operators) FollowAudit(ctx context.Context, after tutti.Position, yield func(api.AuditEntry) error, told func(through tutti.Position) error) error {
	r, err := s.Past.Audit(api.ReadAudit{Acts: true}, yield)
	if err != nil {
		return err
	}
	if err := s.Look(ctx, func(v explain.View) error {
		at, restored := v.Seq, v.Engine.Epoch != after.Epoch && v.Engine.Epoch.Number > 1
		if restored {
			at = v.Registry.EpochAt - 1
		}
		if after.Seq == 0 || after.Seq > at {
			after.Seq = at
		}
		after.Epoch = v.Engine.Epoch
		return nil
	}); err != nil {
		return err
	}
	r.After = after.Seq
	for {
		changed := s.Writer.Appended()
		if err := r.Pass(ctx); err != nil {
			return err
		}
		if err := told(tutti.Position{Epoch: after.Epoch, Seq: r.After}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
