package natsbus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
)

const (
	readBatch   = 512
	readTimeout = 30 * time.Second // for one batch
)

// Read implements tutti.Log.
func (l *Log) Read(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	return func(yield func(tutti.Event, error) bool) {
		for m, err := range l.chain(ctx, after) {
			var e tutti.Event
			if err == nil {
				e, err = l.decode(ctx, m)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Entries implements tutti.Chained.
func (l *Log) Entries(ctx context.Context, after uint64) iter.Seq2[tutti.Entry, error] {
	return func(yield func(tutti.Entry, error) bool) {
		for m, err := range l.chain(ctx, after) {
			e := tutti.Entry{Seq: m.seq, Link: m.link}
			if err == nil {
				e.Raw, err = l.raw(ctx, m)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// LinkAt implements tutti.Log.
func (l *Log) LinkAt(ctx context.Context, seq uint64) (tutti.Digest, error) {
	if seq == 0 { // the bus refuses 0 as an invalid sequence
		return "", tutti.Errorf(tutti.CodeNotFound, "read the log: there is no event 0")
	}
	m, err := l.get(ctx, seq)
	if err != nil {
		return "", err
	}
	if whole, err := l.whole(ctx, m); err != nil || !whole {
		return "", cmp.Or(err, tutti.Errorf(tutti.CodeNotFound, "read the log: event %d is part of an incomplete append that no reader has seen", seq))
	}
	return m.link, nil
}

// chain yields the messages of all complete appends that follow the sequence `after`. chain does not
// yield messages that are stored after the call. chain checks that each link fits the entry before it.
func (l *Log) chain(ctx context.Context, after uint64) iter.Seq2[message, error] {
	return func(yield func(message, error) bool) {
		state, err := l.state(ctx)
		var whole place
		if err == nil && after < state.LastSeq {
			whole, err = l.place(ctx, after)
		}
		if err != nil {
			yield(message{}, err)
			return
		}
		if after >= state.LastSeq {
			return
		}
		link := whole.link
		var batch []message // messages of one append; the method chain yields all of them or none
		for m, err := range l.messages(ctx, whole.seq, state.LastSeq) {
			// If the next message is part 1 of another batch, the messages in `batch` are torn.
			if err == nil && m.part == 1 {
				link, batch = whole.link, batch[:0]
			}
			if err == nil {
				link, err = m.follows(link)
			}
			if err != nil {
				yield(message{}, err)
				return
			}
			if batch = append(batch, m); m.part < m.parts {
				continue
			}
			for _, m := range batch {
				if m.seq > after && !yield(m, nil) {
					return
				}
			}
			whole, batch = place{m.seq, link}, batch[:0]
		}
	}
}

// The method `follows` checks that m directly follows the entry with the link `before`, and returns
// the link of m.
func (m message) follows(before tutti.Digest) (tutti.Digest, error) {
	digest := m.blob
	if digest == "" {
		digest = tutti.DigestOf(m.data)
	}
	if m.link != tutti.LinkOf(before, digest) {
		return "", tutti.Errorf(tutti.CodeDamaged, "read the log: event %d does not fit the event before it: one of them was changed, or an event between them was removed; "+
			"restore the log: tutti server restore", m.seq)
	}
	return m.link, nil
}

// The method `place` returns the end of the last complete append that ends with the event `after` or
// before it. If the log does not have this event (any more), it returns CodeNotFound.
func (l *Log) place(ctx context.Context, after uint64) (place, error) {
	for after > 0 {
		m, err := l.get(ctx, after)
		if tutti.CodeOf(err) == tutti.CodeNotFound {
			return l.trimmed(ctx, after)
		}
		if err != nil || m.part == m.parts {
			return place{after, m.link}, err
		}
		after -= uint64(m.part)
	}
	return place{}, nil
}

// The method `get` returns one message of the stream.
func (l *Log) get(ctx context.Context, seq uint64, options ...jetstream.GetMsgOpt) (message, error) {
	ctx, cancel := withTimeout(ctx, readTimeout)
	defer cancel()
	raw, err := l.stream.GetMsg(ctx, seq, options...)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return message{}, tutti.Errorf(tutti.CodeNotFound, "read the log: there is no event %d", seq)
	}
	if err != nil {
		return message{}, wrap(err, "read the log")
	}
	return parse(raw.Sequence, raw.Header, raw.Data)
}

// The method `state` returns the sequences that the stream has now.
func (l *Log) state(ctx context.Context) (jetstream.StreamState, error) {
	ctx, cancel := withTimeout(ctx, readTimeout)
	defer cancel()
	info, err := l.stream.Info(ctx)
	if err != nil {
		return jetstream.StreamState{}, wrap(err, "read the log")
	}
	return info.State, nil
}

// Bytes returns the size of the log.
func (l *Log) Bytes(ctx context.Context) (uint64, error) {
	state, err := l.state(ctx)
	return state.Bytes, err
}

// message is one message of the stream.
type message struct {
	seq         uint64
	part, parts int
	data        []byte
	blob, link  tutti.Digest
}

// The method `messages` yields the messages that follow the sequence `after`, up to the sequence
// `last`. If a message is missing, the method yields an error.
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
			fetched, err := l.fetch(ctx, consumer, next, int(min(readBatch, last-next+1)))
			for _, m := range fetched {
				if !yield(m, nil) {
					return
				}
			}
			if err != nil {
				yield(message{}, err)
				return
			}
			next += uint64(len(fetched))
		}
	}
}

func (l *Log) consumer(ctx context.Context, first uint64) (jetstream.Consumer, error) {
	ctx, cancel := withTimeout(ctx, readTimeout)
	defer cancel()
	consumer, err := l.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       first,
		AckPolicy:         jetstream.AckNonePolicy, // fetch notices a lost message as a gap
		MemoryStorage:     true,
		InactiveThreshold: 2 * readTimeout,
	})
	if err != nil {
		return nil, wrap(err, "read the log")
	}
	return consumer, nil
}

// deleteConsumer ignores errors, because the bus itself removes an idle consumer.
func (l *Log) deleteConsumer(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = l.stream.DeleteConsumer(ctx, consumer.CachedInfo().Name)
}

// fetch returns the messages that the bus sent within readTimeout, beginning with the sequence `next`.
// The result has at most `count` messages. If fetch returns an error, the error says why there are no
// more messages.
func (l *Log) fetch(ctx context.Context, consumer jetstream.Consumer, next uint64, count int) ([]message, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap(err, "read the log")
	}
	fetching, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	batch, err := consumer.Fetch(count, jetstream.FetchContext(fetching))
	if err != nil {
		return nil, wrap(err, "read the log")
	}
	var fetched []message
	for msg := range batch.Messages() {
		meta, err := msg.Metadata()
		if err != nil {
			return fetched, wrap(err, "read the log")
		}
		if meta.Sequence.Stream != next {
			return fetched, l.missing(ctx, next)
		}
		m, err := parse(next, msg.Headers(), msg.Data())
		if err != nil {
			return fetched, err
		}
		fetched = append(fetched, m)
		next++
	}
	if err := batch.Error(); err != nil {
		return fetched, wrap(err, "read the log")
	}
	if len(fetched) == 0 {
		return nil, tutti.Errorf(tutti.CodeDeadline, "read the log: no event within %s", readTimeout)
	}
	return fetched, nil
}

func parse(seq uint64, header nats.Header, data []byte) (message, error) {
	m := message{seq: seq, data: data, blob: tutti.Digest(header.Get(headerBlob)), link: tutti.Digest(header.Get(headerLink))}
	part := header.Get(headerPart)
	if _, err := fmt.Sscanf(part, "%d/%d", &m.part, &m.parts); err != nil || fmt.Sprintf("%d/%d", m.part, m.parts) != part || m.part < 1 || m.part > m.parts || uint64(m.part) > seq {
		return m, tutti.Errorf(tutti.CodeDamaged, "read the log: message %d was not written by this log (%s: %q)", seq, headerPart, part)
	}
	if m.link == "" {
		return m, unchained(fmt.Sprintf("event %d of the log", seq))
	}
	return m, nil
}

// unchained is the error for a log without links. Either an older release wrote the log, or someone removed the
// links. Tutti cannot distinguish the two cases, so it does not read the log.
func unchained(what string) error {
	return tutti.Errorf(tutti.CodeDamaged, "%s has no link to the entry before it: a release that did not chain logs has written it, or somebody has changed it; "+
		"set up the fleet again (tutti server init), or restore the log (tutti server restore)", what)
}

// The method `raw` returns the event in a message, as bytes.
func (l *Log) raw(ctx context.Context, m message) ([]byte, error) {
	if m.blob == "" {
		return m.data, nil
	}
	raw, err := l.blobs.Get(ctx, m.blob)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return nil, tutti.Wrap(tutti.CodeDamaged, err, "read the log: the content of event %d is gone; restore the log: tutti server restore", m.seq)
	}
	return raw, tutti.Wrap("", err, "read the log: content of event %d", m.seq)
}

func (l *Log) decode(ctx context.Context, m message) (tutti.Event, error) {
	raw, err := l.raw(ctx, m)
	if err != nil {
		return tutti.Event{}, err
	}
	var e tutti.Event
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, tutti.Wrap(tutti.CodeDamaged, err, "read the log: event %d", m.seq)
	}
	e.Seq, e.Link = m.seq, m.link
	return e, nil
}
