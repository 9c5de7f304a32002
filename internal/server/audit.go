package server

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/audit"
	"github.com/tutti-project/tutti/internal/explain"
)

// ReadAudit implements tutti.Audits.
func (s *Server) ReadAudit(ctx context.Context, in api.ReadAudit, yield func(api.AuditEntry) error) error {
	log, ok := s.opts.Log.(trimmedLog)
	if !ok {
		return tutti.Errorf(tutti.CodeInternal, "this log has no audit trail")
	}
	if err := s.look(ctx, func(explain.View) error { return nil }); err != nil { // until it serves, nobody knows the snapshot
		return err
	}
	return s.readAudit(ctx, log, &auditReader{ReadAudit: in, yield: yield, blobs: s.opts.Blobs, slots: s.readers})
}

// FollowAudit yields each act behind a position as it happens, and calls told when there is no more: with the position up
// to which nothing is to be yielded again. The zero position is that of now, or where a restore began. After a restore it
// begins with that: what was yielded behind it is no more. It ends with ctx, or with an error of yield or told.
func (s *Server) FollowAudit(ctx context.Context, after tutti.Position, yield func(api.AuditEntry) error, told func(through tutti.Position) error) error {
	log, ok := s.opts.Log.(trimmedLog)
	if !ok {
		return tutti.Errorf(tutti.CodeInternal, "this log has no audit trail")
	}
	if err := s.look(ctx, func(v explain.View) error {
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
	r := &auditReader{ReadAudit: api.ReadAudit{After: after.Seq, Acts: true}, yield: yield, blobs: s.opts.Blobs, slots: s.readers}
	for {
		changed := s.appended.Wait()
		if err := s.readAudit(ctx, log, r); err != nil {
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

// readAudit lets a reader pass on what is there.
func (s *Server) readAudit(ctx context.Context, log trimmedLog, r *auditReader) error {
	for {
		taken := s.taken.Load()
		err := r.read(ctx, log, taken)
		if now := s.taken.Load(); now != taken && (err == nil || tutti.CodeOf(err) == tutti.CodeNotFound) {
			continue // let go under the reader: the next snapshot's segments have it
		}
		return err
	}
}

// auditReader passes entries on; After is the last one that it has seen.
type auditReader struct {
	api.ReadAudit
	yield func(api.AuditEntry) error
	blobs tutti.Blobs
	slots chan struct{} // see inTurns
	begun bool
}

func (r *auditReader) read(ctx context.Context, log tutti.Chained, taken *tutti.SnapshotTaken) error {
	var before tutti.Digest
	if taken != nil && r.After < taken.Through {
		for _, seg := range taken.Segments {
			if seg.Last <= r.After {
				continue
			}
			if err := r.segment(ctx, seg); err != nil {
				return err
			}
		}
		r.After, before = taken.Through, taken.Link
	}
	for e, err := range inTurns(ctx, r.slots, log.Entries(ctx, r.After)) {
		if err != nil {
			return err
		}
		if err := r.pass(audit.Of(e, before)); err != nil {
			return err
		}
	}
	return nil
}

func (r *auditReader) segment(ctx context.Context, seg tutti.AuditSegment) error {
	stored, err := r.blobs.Get(ctx, seg.Blob)
	if err != nil {
		return tutti.Wrap(tutti.CodeDamaged, err, "the audit trail of entries %d to %d", seg.First, seg.Last)
	}
	for e, err := range inTurns(ctx, r.slots, audit.Entries(seg, stored)) {
		if err != nil {
			return err
		}
		if err := r.pass(e); err != nil {
			return err
		}
	}
	return nil
}

func (r *auditReader) pass(e api.AuditEntry) error {
	if e.Seq <= r.After {
		return nil
	}
	if r.After = e.Seq; r.begun {
		e.Before = ""
	}
	if r.Acts {
		if len(e.Raw) == 0 {
			return nil
		}
		if of, err := event(tutti.Entry{Seq: e.Seq, Raw: e.Raw}); err != nil || !audit.Act(of) {
			return err
		}
	}
	r.begun = true
	return r.yield(e)
}

// segments keeps the audit trail of what is to be let go up to a sequence, behind
// that of what was let go before.
func (k *keeper) segments(ctx context.Context, through uint64, now time.Time) ([]tutti.AuditSegment, error) {
	var kept []tutti.AuditSegment
	var after uint64
	var before tutti.Digest
	if taken := k.taken.Load(); taken != nil {
		after, before = taken.Through, taken.Link
		kept = audit.Unexpired(taken.Segments, now)
	}
	stored, segment, err := audit.Segment(before, func(yield func(tutti.Entry, error) bool) {
		for e, err := range k.log.Entries(ctx, after) {
			if err == nil && e.Seq > through || !yield(e, err) {
				return
			}
		}
	})
	if err != nil {
		return nil, tutti.Wrap("", err, "keep the audit trail of the events up to %d", through)
	}
	if _, err := k.opts.Blobs.Put(ctx, stored); err != nil {
		return nil, tutti.Wrap("", err, "store the audit trail of the events up to %d", through)
	}
	return append(kept, segment), nil
}
