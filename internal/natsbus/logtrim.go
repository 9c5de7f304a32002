package natsbus

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
)

// Snapshot implements tutti.Trimming.
func (l *Log) Snapshot(ctx context.Context) (e tutti.Event, found bool, err error) {
	events, _, err := l.snapshots(ctx)
	if err != nil || len(events) == 0 {
		return tutti.Event{}, false, err
	}
	return events[len(events)-1], true, nil
}

// snapshots returns the SnapshotTaken events of the log, the oldest first, and their bodies. After each one, the log
// drops the one before, so there are one or two.
func (l *Log) snapshots(ctx context.Context) (events []tutti.Event, bodies []*tutti.SnapshotTaken, err error) {
	subject := jetstream.WithGetMsgSubject(subjectOf(&tutti.SnapshotTaken{}))
	for from := uint64(1); ; {
		m, err := l.get(ctx, from, subject)
		if tutti.CodeOf(err) == tutti.CodeNotFound {
			return events, bodies, nil
		}
		if err != nil {
			return nil, nil, err
		}
		from = m.seq + 1
		if whole, err := l.whole(ctx, m); err != nil {
			return nil, nil, err
		} else if !whole {
			continue
		}
		e, err := l.decode(ctx, m)
		if err != nil {
			return nil, nil, err
		}
		body, ok := e.Body.(*tutti.SnapshotTaken)
		if !ok {
			return nil, nil, tutti.Errorf(tutti.CodeDamaged, "read the log: event %d is a %s among the snapshots", e.Seq, e.Body.Kind())
		}
		events, bodies = append(events, e), append(bodies, body)
	}
}

// whole reports whether the append of m is in the log up to its end.
func (l *Log) whole(ctx context.Context, m message) (bool, error) {
	last, err := l.get(ctx, m.seq+uint64(m.parts-m.part))
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return false, nil
	}
	return last.part == m.parts && last.parts == m.parts, err
}

// Trim implements tutti.Trimming.
func (l *Log) Trim(ctx context.Context, through uint64) error {
	_, snapshots, err := l.snapshots(ctx)
	if err != nil {
		return err
	}
	if len(snapshots) == 0 || snapshots[len(snapshots)-1].Through != through {
		return tutti.Errorf(tutti.CodeInvalid, "let go of the log up to event %d: the latest snapshot is not of it", through)
	}
	m, err := l.get(ctx, through)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		_, err := l.trimmed(ctx, through)
		return err // nil: the events are already gone
	}
	if err != nil {
		return err
	}
	if link := snapshots[len(snapshots)-1].Link; m.part != m.parts || m.link != link {
		return tutti.Errorf(tutti.CodeInvalid, "let go of the log up to event %d: the snapshot says that an append ends there with link %s, which it does not", through, link)
	}
	ctx, cancel := withTimeout(ctx, readTimeout)
	defer cancel()
	if err := l.stream.Purge(ctx, jetstream.WithPurgeSequence(through+1)); err != nil {
		return wrap(err, "let go of the beginning of the log")
	}
	state, err := l.state(ctx)
	if err == nil && state.FirstSeq != through+1 {
		err = tutti.Errorf(tutti.CodeDamaged, "let go of the log up to event %d: it begins with event %d now", through, state.FirstSeq)
	}
	return err
}

// trimmed is place for an event that the log no longer has. Such an event is the end of a snapshot, from which the log
// goes on.
func (l *Log) trimmed(ctx context.Context, after uint64) (place, error) {
	_, snapshots, err := l.snapshots(ctx)
	if err != nil {
		return place{}, err
	}
	for _, s := range snapshots {
		if s.Through == after {
			return place{after, s.Link}, nil
		}
	}
	return place{}, l.missing(ctx, after)
}

// missing says why the event seq is not there. CodeNotFound: it was trimmed or never existed. CodeDamaged: the log has
// lost it.
func (l *Log) missing(ctx context.Context, seq uint64) error {
	state, err := l.state(ctx)
	switch {
	case err != nil:
		return err
	case seq < state.FirstSeq:
		return tutti.Errorf(tutti.CodeNotFound, "read the log: event %d is not there, the log begins with event %d", seq, state.FirstSeq)
	case seq > state.LastSeq:
		return tutti.Errorf(tutti.CodeNotFound, "read the log: there is no event %d, the log ends with event %d", seq, state.LastSeq)
	}
	return tutti.Errorf(tutti.CodeDamaged, "read the log: event %d is missing, the log has %d to %d; restore it: tutti server restore", seq, state.FirstSeq, state.LastSeq)
}
