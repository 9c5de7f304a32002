package server

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/past"
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

// thePast is explain.Past; ReadAudit is the server's, which says who may.
type thePast struct {
	*past.Past
	of *Server
}

// ReadAudit implements explain.Past.
func (p thePast) ReadAudit(ctx context.Context, in api.ReadAudit, yield func(api.AuditEntry) error) error {
	return p.of.ReadAudit(ctx, in, yield)
}
