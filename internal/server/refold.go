package server

import (
	"context"
	"time"

	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/replica"
)

func errNotServing() error { return replica.NotServing() }

// refoldEvery is after how long the log is read again if it could not be.
const refoldEvery = 5 * time.Second

// refold folds the log again for readers; nil: ctx has ended.
func (s *Server) refold(ctx context.Context) *fold.State {
	s.opts.Logger.Warn("readers get a new fold of the log: the last one was kept for too long, or was too far behind")
	for ctx.Err() == nil {
		state, taken := fold.New(), s.taken.Load()
		err := s.replay(ctx, state.Apply)
		switch {
		case err == nil && s.taken.Load() == taken:
			state.Seq = max(state.Seq, s.torn())
			return state
		case err == nil:
			continue // a snapshot may have let go of what it was about to read
		}
		s.opts.Logger.Error("readers have no fold of the log", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(refoldEvery):
		}
	}
	return nil
}
