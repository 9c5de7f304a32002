package server

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/past"
)

// look is explain.Look: f gets a version of the fold beside the writer, which is not
// asked. Whoever was let in is still in by that version, or is refused.
func (s *Server) look(ctx context.Context, f func(explain.View) error) error {
	return s.writer.Read(ctx, func(state *fold.State) error {
		if err := stillIn(ctx, state); err != nil {
			return err
		}
		return f(explain.View{
			State: state, Now: time.Now(), Present: s.presence, Space: s.opts.Space,
			May:      func(verb tutti.Verb, key string) error { return mayOf(ctx, state, verb, key) },
			Settings: explain.Settings{Silence: s.opts.Silence, KeepJobs: s.opts.Keep.Jobs},
		})
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
