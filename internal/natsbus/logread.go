package natsbus

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
)

const (
	readBatch   = 512
	readTimeout = 30 * time.Second // for one batch
)

// Read implements tutti.Log. It is complete or ends with an error: events that
// the stream no longer has, or has lost, are CodeInternal.
func (l *Log) Read(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	return func(yield func(tutti.Event, error) bool) {
		last, err := l.last(ctx)
		if err != nil {
			yield(tutti.Event{}, err)
			return
		}
		var batch []tutti.Event // of one append, seen together or not at all
		for m, err := range l.messages(ctx, after, last) {
			if err != nil {
				yield(tutti.Event{}, err)
				return
			}
			// A part 1 after an incomplete batch: what came before is torn.
			if m.part == 1 {
				batch = batch[:0]
			}
			e, err := l.decode(ctx, m)
			if err != nil {
				yield(tutti.Event{}, err)
				return
			}
			if batch = append(batch, e); m.part < m.parts {
				continue
			}
			for _, e := range batch {
				if e.Seq > after && !yield(e, nil) {
					return
				}
			}
			batch = batch[:0]
		}
	}
}

// last returns the sequence of the last message now.
func (l *Log) last(ctx context.Context) (uint64, error) {
	ctx, cancel := withTimeout(ctx, readTimeout)
	defer cancel()
	info, err := l.stream.Info(ctx)
	if err != nil {
		return 0, wrap(err, "read the log")
	}
	return info.State.LastSeq, nil
}

// message is one message of the stream.
type message struct {
	seq         uint64
	part, parts int
	data        []byte
	blob        tutti.Digest
}

// messages yields the messages after the sequence after up to last, without a
// gap.
func (l *Log) messages(ctx context.Context, after, last uint64) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		if after >= last {
			return
		}
		consumer, err := l.consumer(ctx, after+1)
		if err != nil {
			yield(message{}, err)
			return
		}
		defer l.deleteConsumer(ctx, consumer)
		for next := after + 1; next <= last; {
			fetched, err := l.fetch(ctx, consumer, int(min(readBatch, last-next+1)))
			if err != nil {
				yield(message{}, err)
				return
			}
			for _, m := range fetched {
				if m.seq != next {
					yield(message{}, tutti.Errorf(tutti.CodeInternal, "read the log: event %d is missing, the next one is %d", next, m.seq))
					return
				}
				if !yield(m, nil) {
					return
				}
				next++
			}
		}
	}
}

func (l *Log) consumer(ctx context.Context, first uint64) (jetstream.Consumer, error) {
	ctx, cancel := withTimeout(ctx, readTimeout)
	defer cancel()
	consumer, err := l.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       first,
		AckPolicy:         jetstream.AckNonePolicy, // what gets lost on the way is found as a gap
		MemoryStorage:     true,
		InactiveThreshold: 2 * readTimeout,
	})
	if err != nil {
		return nil, wrap(err, "read the log")
	}
	return consumer, nil
}

// deleteConsumer is best effort: the bus removes an idle one by itself.
func (l *Log) deleteConsumer(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = l.stream.DeleteConsumer(ctx, consumer.CachedInfo().Name)
}

func (l *Log) fetch(ctx context.Context, consumer jetstream.Consumer, count int) ([]message, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap(err, "read the log")
	}
	batch, err := consumer.Fetch(count, jetstream.FetchMaxWait(readTimeout))
	if err != nil {
		return nil, wrap(err, "read the log")
	}
	var fetched []message
	for {
		select {
		case msg, ok := <-batch.Messages():
			if !ok {
				if err := batch.Error(); err != nil {
					return nil, wrap(err, "read the log")
				}
				if len(fetched) == 0 {
					return nil, tutti.Errorf(tutti.CodeDeadline, "read the log: no event within %s", readTimeout)
				}
				return fetched, nil
			}
			m, err := parse(msg)
			if err != nil {
				return nil, err
			}
			fetched = append(fetched, m)
		case <-ctx.Done():
			return nil, wrap(ctx.Err(), "read the log")
		}
	}
}

func parse(msg jetstream.Msg) (message, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return message{}, wrap(err, "read the log")
	}
	m := message{seq: meta.Sequence.Stream, data: msg.Data(), blob: tutti.Digest(msg.Headers().Get(headerBlob))}
	part := msg.Headers().Get(headerPart)
	if _, err := fmt.Sscanf(part, "%d/%d", &m.part, &m.parts); err != nil || m.part < 1 || m.part > m.parts {
		return m, tutti.Errorf(tutti.CodeInternal, "read the log: message %d was not written by this log (%s: %q)", m.seq, headerPart, part)
	}
	return m, nil
}

func (l *Log) decode(ctx context.Context, m message) (tutti.Event, error) {
	raw := m.data
	if m.blob != "" {
		var err error
		if raw, err = l.blobs.Get(ctx, m.blob); err != nil {
			return tutti.Event{}, tutti.Wrap("", err, "read the log: content of event %d", m.seq)
		}
	}
	var e tutti.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, tutti.Wrap(tutti.CodeInternal, err, "read the log: event %d", m.seq)
	}
	e.Seq = m.seq
	return e, nil
}

// findTorn looks whether the log ends in the middle of a batch.
func (l *Log) findTorn(ctx context.Context) error {
	last, err := l.last(ctx)
	if err != nil || last == 0 {
		return err
	}
	for m, err := range l.messages(ctx, last-1, last) {
		if err != nil {
			return err
		}
		if m.part < m.parts {
			l.mu.Lock()
			l.torn.before, l.torn.last = last-uint64(m.part), last
			l.mu.Unlock()
		}
	}
	return nil
}
