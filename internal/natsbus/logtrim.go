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

// snapshots returns the SnapshotTaken events of the log and their bodies, oldest first. The log has one
// or two of these events, because it drops the previous snapshot after a new one.
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

// The method `whole` returns true if the log has the complete append to which `m` belongs.
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
		return tutti.Errorf(tutti.CodeInvalid, "drop the log up to event %d: the latest snapshot ends at another event", through)
	}
	m, err := l.get(ctx, through)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		_, err := l.trimmed(ctx, through)
		return err // err is nil if the events are already deleted
	}
	if err != nil {
		return err
	}
	if link := snapshots[len(snapshots)-1].Link; m.part != m.parts || m.link != link {
		return tutti.Errorf(tutti.CodeInvalid, "drop the log up to event %d: the snapshot says that an append ends there with link %s, but the log differs", through, link)
	}
	ctx, cancel := withTimeout(ctx, readTimeout)
	defer cancel()
	if err := l.stream.Purge(ctx, jetstream.WithPurgeSequence(through+1)); err != nil {
		return wrap(err, "drop the beginning of the log")
	}
	state, err := l.state(ctx)
	if err == nil && state.FirstSeq != through+1 {
		err = tutti.Errorf(tutti.CodeDamaged, "drop the log up to event %d: afterwards the log begins with event %d", through, state.FirstSeq)
	}
	return err
}

// trimmed does the same as the method place, but for an event that the log has dropped. When the log drops events, it
// drops all events up to the end of a snapshot. So trimmed finds the event only if the event is the end of a
// snapshot.
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

// The method `missing` returns the reason why the log does not have the event seq. CodeNotFound means that the log
// dropped the event on purpose, or never had it. CodeDamaged means that the event got lost.
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
