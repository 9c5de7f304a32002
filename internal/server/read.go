package server

import (
	"context"
	"iter"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/explain"
)

// look is explain.Look: f gets a version of the fold beside the writer, which is not
// asked. Whoever was let in is still in by that version, or is refused.
func (s *Server) look(ctx context.Context, f func(explain.View) error) error {
	select {
	case <-s.ready:
	case <-s.ended:
		return errNotServing()
	case <-ctx.Done():
		return tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for the server to read its log")
	}
	version, err := s.replica.Enter(ctx, s.ended)
	if err != nil {
		return err
	}
	defer s.replica.Leave(version)
	if err := stillIn(ctx, version.State); err != nil {
		return err
	}
	return f(explain.View{
		State: version.State, Now: time.Now(), Present: s.presence, Space: s.opts.Space,
		May:      func(verb tutti.Verb, key string) error { return mayOf(ctx, version.State, verb, key) },
		Settings: explain.Settings{Silence: s.opts.Silence, KeepJobs: s.opts.Keep.Jobs},
	})
}

// past is explain.Past; ReadAudit is the server's.
type past struct{ *Server }

// History implements explain.Past.
func (p past) History(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	return p.history(ctx, after)
}

// Through implements explain.Past.
func (p past) Through() uint64 {
	if taken := p.taken.Load(); taken != nil {
		return taken.Through
	}
	return 0
}
