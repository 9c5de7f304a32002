package core

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/past"
)

// Look is like explain.Look: it calls f with a version of the fold and does not wait in the
// writer's queue. Look refuses an operator who has lost access in that version.
func (s *Core) Look(ctx context.Context, f func(explain.View) error) error {
	return s.Writer.Read(ctx, func(state *fold.State) error {
		if err := stillIn(ctx, state); err != nil {
			return err
		}
		return f(explain.View{
			State: state, Now: time.Now(), Present: s.Presence, Space: s.Opts.Space,
			May:      func(verb tutti.Verb, key string) error { return MayOf(ctx, state, verb, key) },
			Settings: explain.Settings{Silence: s.Opts.Silence, KeepJobs: s.Opts.Keep.Jobs},
		})
	})
}

// ReaderOf returns a reader that uses the function `look`.
func (s *Core) ReaderOf(look explain.Look) *explain.Reader {
	return explain.New(look, thePast{s.Past, s}, s.Opts.Blobs)
}

// ReadAudit implements tutti.Audits.
func (s *Core) ReadAudit(ctx context.Context, in api.ReadAudit, yield func(api.AuditEntry) error) error {
	r, err := s.Past.Audit(in, yield)
	if err != nil {
		return err
	}
	// the server does not know the snapshot until it serves
	if err := s.Look(ctx, func(explain.View) error { return nil }); err != nil {
		return err
	}
	return r.Pass(ctx)
}

// thePast implements explain.Past. Its method ReadAudit waits until the server serves.
type thePast struct {
	*past.Past
	of *Core
}

// ReadAudit implements explain.Past.
func (p thePast) ReadAudit(ctx context.Context, in api.ReadAudit, yield func(api.AuditEntry) error) error {
	return p.of.ReadAudit(ctx, in, yield)
}
