package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
)

const (
	logStream     = "TUTTI_LOG"
	maxInline     = 128 << 10 // a larger event is stored as a blob
	appendTimeout = 15 * time.Second

	headerPart = "Tutti-Part" // i/n means that this is event i of an append of n events
	headerBlob = "Tutti-Blob" // the digest of the event
	headerLink = "Tutti-Link" // see tutti.Link
)

// Log is the tutti.Log on a JetStream stream. Any number of goroutines may use
// it.
type Log struct {
	nc     *nats.Conn
	stream jetstream.Stream
	blobs  tutti.Blobs

	mu   sync.Mutex
	tail tail
}

// tail is the end of the log, as far as this Log knows.
type tail struct {
	place
	// end is the last sequence in the stream. If end is larger than seq, a loss of power has cut off a batch, and the
	// messages after seq are the beginning of this batch. The batch was never acknowledged. Its messages stay in the
	// stream, but no reader returns them, and they are not part of the chain. The next append comes after end.
	end uint64
}

// place is the end of a complete append: the sequence and the link of its last event.
type place struct {
	seq  uint64
	link tutti.Digest
}

var (
	_ tutti.Log      = (*Log)(nil)
	_ tutti.Trimming = (*Log)(nil)
	_ tutti.Chained  = (*Log)(nil)
)

// LogOptions are the settings of the log.
type LogOptions struct {
	// Blobs stores the events that are too large for a message.
	Blobs tutti.Blobs
	// Replicas is how many servers of a cluster store the log. 0 means 1.
	Replicas int
}

// OpenLog opens the log. OpenLog creates the log's stream if it does not exist. OpenLog returns CodeDamaged if the
// log comes from a release that did not chain its entries. In this case the log stays unchanged.
func OpenLog(ctx context.Context, nc *nats.Conn, o LogOptions) (*Log, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, wrap(err, "open the log")
	}
	ctx, cancel := withTimeout(ctx, appendTimeout)
	defer cancel()
	config := logConfig(o)
	if old, err := js.Stream(ctx, logStream); err == nil {
		if old.CachedInfo().Config.DenyPurge {
			return nil, unchained("the log")
		}
		config.FirstSeq = old.CachedInfo().Config.FirstSeq // a restored log keeps its first sequence
	}
	stream, err := js.CreateOrUpdateStream(ctx, config)
	if err != nil {
		return nil, wrap(err, "open the log")
	}
	l := &Log{nc: nc, stream: stream, blobs: o.Blobs}
	state, err := l.state(ctx)
	if err != nil {
		return nil, err
	}
	whole, err := l.place(ctx, state.LastSeq)
	if err != nil {
		return nil, err
	}
	l.tail = tail{whole, state.LastSeq}
	return l, nil
}

func logConfig(o LogOptions) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               logStream,
		Subjects:           []string{"log.>"},
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardNew, // a full log refuses new events and never deletes old ones
		MaxMsgs:            -1,
		MaxBytes:           -1,
		MaxMsgsPerSubject:  -1,
		MaxConsumers:       -1,
		Storage:            jetstream.FileStorage,
		Replicas:           max(1, o.Replicas),
		DenyDelete:         true,
		AllowAtomicPublish: true,
	}
}

// Torn returns the last sequence of an incomplete batch at the end of the log. A loss of power leaves
// such a batch. Torn returns 0 if there is no such batch. The next append comes after this sequence.
func (l *Log) Torn() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tail.end == l.tail.seq {
		return 0
	}
	return l.tail.end
}

// End returns the sequence of the last event that this Log knows of.
func (l *Log) End() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail.seq
}

// Append implements tutti.Log. Append returns CodeUnavailable or CodeDeadline if the outcome is unknown. The caller
// must then read the log before it appends again. One append has at most 20,000 events.
func (l *Log) Append(ctx context.Context, last uint64, events []tutti.Event) (uint64, error) {
	if len(events) == 0 {
		return 0, tutti.Errorf(tutti.CodeInvalid, "append to the log: no events")
	}
	ctx, cancel := withTimeout(ctx, appendTimeout)
	defer cancel()
	behind, err := l.behind(ctx, last)
	if err != nil {
		return 0, err
	}
	msgs, links := make([]*nats.Msg, len(events)), make([]tutti.Digest, len(events))
	link := behind.link
	for i, e := range events {
		var digest tutti.Digest
		if msgs[i], digest, err = l.encode(ctx, e); err != nil {
			return 0, err
		}
		link = tutti.LinkOf(link, digest)
		links[i] = link
		msgs[i].Header.Set(headerPart, fmt.Sprintf("%d/%d", i+1, len(events)))
		msgs[i].Header.Set(headerLink, string(link))
	}
	msgs[0].Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(behind.end, 10))
	msgs[0].Header.Set(jetstream.ExpectedStreamHeader, logStream)
	seq, err := l.publishWhole(ctx, msgs)
	if err != nil {
		return 0, err
	}
	if want := behind.end + uint64(len(events)); seq != want {
		return 0, tutti.Errorf(tutti.CodeInternal, "append to the log after %d: acknowledged as %d, want %d", behind.end, seq, want)
	}
	for i := range events {
		events[i].Seq, events[i].Link = behind.end+uint64(i)+1, links[i]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = tail{place{seq, link}, seq}
	return seq, nil
}

// The method `behind` returns the end of the log after which an append writes. The append names the
// event `last`. If `last` is not the end that this Log knows, another writer may have written, and
// `behind` reads the stream. If the result is not the real end of the log, the stream refuses the
// append.
func (l *Log) behind(ctx context.Context, last uint64) (tail, error) {
	l.mu.Lock()
	known := l.tail
	l.mu.Unlock()
	if last == known.seq || last == known.end {
		return known, nil
	}
	at, err := l.place(ctx, last)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return tail{}, tutti.Errorf(tutti.CodeConflict, "append to the log after %d: the log has no such event", last)
	}
	return tail{at, last}, err
}

// encode returns the message of an event, and its digest. encode stores a large event as a blob first.
func (l *Log) encode(ctx context.Context, e tutti.Event) (*nats.Msg, tutti.Digest, error) {
	if e.Body == nil {
		return nil, "", tutti.Errorf(tutti.CodeInvalid, "append to the log: an event has no body")
	}
	e.Seq = 0 // the stream sets the sequence
	raw, err := json.Marshal(e)
	if err != nil {
		return nil, "", tutti.Wrap(tutti.CodeInvalid, err, "append to the log")
	}
	if len(raw) > tutti.MaxEvent {
		return nil, "", tutti.Errorf(tutti.CodeInvalid, "append to the log: a %s event has %d bytes, at most %d", e.Body.Kind(), len(raw), tutti.MaxEvent)
	}
	msg := nats.NewMsg(subjectOf(e.Body))
	if len(raw) <= maxInline {
		msg.Data = raw
		return msg, tutti.DigestOf(raw), nil
	}
	digest, err := l.blobs.Put(ctx, raw)
	if err != nil {
		return nil, "", tutti.Wrap("", err, "append to the log: store a large %s event", e.Body.Kind())
	}
	msg.Header.Set(headerBlob, string(digest))
	return msg, digest, nil
}

// If the bus cannot assemble a batch, Append sends the batch again after batchAgain.
const batchAgain = 100 * time.Millisecond

// publishWhole calls the method `publish` until the bus has assembled the batch, or ctx ends. The bus
// assembles a batch in a file. If the bus can open no more files, it reports that the batch is
// incomplete, and stores nothing. When the process has closed some files, a later call succeeds.
func (l *Log) publishWhole(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	for {
		seq, err := l.publish(ctx, msgs)
		if e, ok := errors.AsType[*jetstream.APIError](err); !ok || e.ErrorCode != errCodeIncompleteBatch {
			return seq, err
		}
		select {
		case <-ctx.Done():
			return 0, tutti.Wrap(tutti.CodeDeadline, err, "append to the log: the bus could not put %d events together in time (too many open files?)", len(msgs))
		case <-time.After(batchAgain):
		}
	}
}

// errCodeIncompleteBatch is JSAtomicPublishIncompleteBatchErr of the bus. errCodeIncompleteBatch means that the bus
// stored nothing of the batch.
const errCodeIncompleteBatch = 10176

// The method `publish` stores either all messages or none. It returns the sequence of the last message.
func (l *Log) publish(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	if len(msgs) > 1 {
		markBatch(msgs)
	}
	for i, msg := range msgs[:len(msgs)-1] {
		// This loop does not wait for an answer to each message. A large batch needs no memory in the
		// bus, because the bus writes each batch into a separate file. The loop waits for an answer
		// only after each 500 messages, to notice a refusal early.
		if i%500 == 499 {
			if _, err := l.request(ctx, msg); err != nil {
				return 0, err
			}
			continue
		}
		if err := l.nc.PublishMsg(msg); err != nil {
			return 0, wrap(err, "append to the log")
		}
	}
	ack, err := l.request(ctx, msgs[len(msgs)-1])
	if err != nil {
		return 0, err
	}
	if ack.Stream != logStream || ack.Sequence == 0 {
		return 0, tutti.Errorf(tutti.CodeUnavailable, "append to the log: the stream did not acknowledge; it is unknown whether the event is stored")
	}
	return ack.Sequence, nil
}

type pubAck struct {
	Stream   string              `json:"stream"`
	Sequence uint64              `json:"seq"`
	Error    *jetstream.APIError `json:"error"`
}

// request publishes msg and waits for the stream's answer. An empty answer means that the bus accepted a message of a
// batch, but has stored nothing yet.
func (l *Log) request(ctx context.Context, msg *nats.Msg) (pubAck, error) {
	var ack pubAck
	reply, err := l.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case err != nil:
		return ack, wrap(err, "append to the log; it is unknown whether the event is stored")
	case len(reply.Data) == 0:
		return ack, nil
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return ack, tutti.Wrap(tutti.CodeUnavailable, err, "append to the log: decode the acknowledgement")
	}
	if ack.Error == nil {
		return ack, nil
	}
	code := tutti.CodeUnavailable
	if wrongLast(ack.Error) {
		code = tutti.CodeConflict
	}
	return ack, tutti.Wrap(code, ack.Error, "append to the log")
}

// wrongLast reports whether the stream refused an append because its expected sequence was wrong. A
// cluster may use the code 10164 instead. The text of this code does not name the right sequence.
func wrongLast(err *jetstream.APIError) bool {
	return err.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || err.ErrorCode == 10164
}

// wrap adds a code to an error of the NATS client.
func wrap(err error, doing string) error {
	code := tutti.CodeUnavailable
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		code = tutti.CodeDeadline
	}
	return tutti.Wrap(code, err, "%s", doing)
}

// withTimeout adds a deadline to ctx if ctx has none.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
