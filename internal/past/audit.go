package past

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/audit"
)

// Audit returns a reader of the audit trail. The reader's method Pass calls the function yield with the entries.
// Audit returns CodeInternal if this log has no audit trail.
func (p *Past) Audit(in api.ReadAudit, yield func(api.AuditEntry) error) (*AuditReader, error) {
	log, ok := p.trimmed()
	if !ok {
		return nil, tutti.Errorf(tutti.CodeInternal, "this log has no audit trail")
	}
	return &AuditReader{ReadAudit: in, past: p, log: log, yield: yield}, nil
}

// AuditReader reads entries of the audit trail. Its field After is the last entry that the reader has read.
type AuditReader struct {
	api.ReadAudit
	past  *Past
	log   tutti.Chained
	yield func(api.AuditEntry) error
	begun bool
}

// Pass yields the entries that come after the entry r.After.
func (r *AuditReader) Pass(ctx context.Context) error {
	for {
		taken := r.past.taken.Load()
		err := r.read(ctx, taken)
		if now := r.past.taken.Load(); now != taken && (err == nil || tutti.CodeOf(err) == tutti.CodeNotFound) {
			continue // the log has dropped events during the read: read them from the segments of the new snapshot
		}
		return err
	}
}

func (r *AuditReader) read(ctx context.Context, taken *tutti.SnapshotTaken) error {
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
	for e, err := range inTurns(ctx, r.past.readers, r.log.Entries(ctx, r.After)) {
		if err != nil {
			return err
		}
		if err := r.pass(audit.Of(e, before)); err != nil {
			return err
		}
	}
	return nil
}

func (r *AuditReader) segment(ctx context.Context, seg tutti.AuditSegment) error {
	stored, err := r.past.opts.Blobs.Get(ctx, seg.Blob)
	if err != nil {
		return tutti.Wrap(tutti.CodeDamaged, err, "the audit trail of entries %d to %d", seg.First, seg.Last)
	}
	for e, err := range inTurns(ctx, r.past.readers, audit.Entries(seg, stored)) {
		if err != nil {
			return err
		}
		if err := r.pass(e); err != nil {
			return err
		}
	}
	return nil
}

func (r *AuditReader) pass(e api.AuditEntry) error {
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

// segments stores the audit trail of the events up to a sequence, because the log will drop these
// events. The audit trail of events that the log has dropped before is in older segments. segments
// returns the older segments that have not expired, and then the new one.
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
