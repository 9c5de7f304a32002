package operators

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
)

// FollowAudit yields the acts after a position, each one when it happens. When FollowAudit has yielded all acts so
// far, it calls the function `told` with the position of the last act. A caller that comes back later can continue
// from this position. The zero position means the end of the log or, if the log was ever restored, the event of the
// last restore. If the argument `after` is of another epoch, FollowAudit begins with the event of the last restore
// at the latest, because the restore removed later acts. FollowAudit ends when ctx ends, or when `yield` or `told`
// returns an error.
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
