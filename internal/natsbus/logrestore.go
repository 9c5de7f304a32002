package natsbus

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
)

const (
	restoreBatch      = 200
	restoreBatchBytes = 4 << 20
)

// Restorer rebuilds a log from its entries. The entries keep their sequences and links. Restorer writes the entries
// in batches. These batches need not be the original appends, because all entries come from complete appends.
type Restorer struct {
	log   *Log
	seq   uint64       // of the last message
	link  tutti.Digest // of the last entry
	msgs  []*nats.Msg
	bytes int
}

// RestoreLog begins a new log that continues after the event `after`. The argument `link` is the link of that event.
// The log must not exist yet. The caller must store the content that the entries need before somebody reads the log.
func RestoreLog(ctx context.Context, nc *nats.Conn, after uint64, link tutti.Digest) (*Restorer, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, wrap(err, "restore the log")
	}
	ctx, cancel := withTimeout(ctx, appendTimeout)
	defer cancel()
	config := logConfig(LogOptions{})
	if after > 0 {
		config.FirstSeq = after + 1
	}
	if _, err := js.CreateStream(ctx, config); err != nil {
		return nil, wrap(err, "restore the log")
	}
	return &Restorer{log: &Log{nc: nc}, seq: after, link: link}, nil
}

// Add adds the next entry. Add returns CodeInvalid if the entry does not fit the entry before it.
func (r *Restorer) Add(ctx context.Context, e tutti.Entry) error {
	if e.Seq <= r.seq || e.Link != tutti.Link(r.link, e.Raw) {
		return tutti.Errorf(tutti.CodeInvalid, "restore the log: event %d does not fit the entry before it, %d", e.Seq, r.seq)
	}
	for r.seq+1 < e.Seq { // no event has this sequence, because a loss of power has torn its append
		if err := r.put(ctx, r.torn()); err != nil {
			return err
		}
	}
	var event tutti.Event
	if err := event.UnmarshalJSON(e.Raw); err != nil {
		return tutti.Wrap("", err, "restore the log: event %d", e.Seq)
	}
	msg := nats.NewMsg(subjectOf(event.Body))
	if msg.Data = e.Raw; len(e.Raw) > maxInline {
		msg.Data = nil
		msg.Header.Set(headerBlob, string(tutti.DigestOf(e.Raw)))
	}
	msg.Header.Set(headerPart, "1/1")
	msg.Header.Set(headerLink, string(e.Link))
	r.link = e.Link
	return r.put(ctx, msg)
}

// torn returns a message that readers skip. The message looks like the beginning of a batch whose end is missing.
func (r *Restorer) torn() *nats.Msg {
	msg := nats.NewMsg("log.torn.restored")
	msg.Header.Set(headerPart, "1/2")
	msg.Header.Set(headerLink, string(tutti.Link(r.link, nil)))
	return msg
}

func (r *Restorer) put(ctx context.Context, msg *nats.Msg) error {
	r.seq++
	r.msgs = append(r.msgs, msg)
	if r.bytes += len(msg.Data); len(r.msgs) < restoreBatch && r.bytes < restoreBatchBytes {
		return nil
	}
	return r.Flush(ctx)
}

// Flush returns when all entries are on disk.
func (r *Restorer) Flush(ctx context.Context) error {
	if len(r.msgs) == 0 {
		return nil
	}
	ctx, cancel := withTimeout(ctx, appendTimeout)
	defer cancel()
	if before := r.seq - uint64(len(r.msgs)); before > 0 {
		r.msgs[0].Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(before, 10))
	}
	got, err := r.log.publish(ctx, r.msgs)
	if err == nil && got != r.seq {
		err = fmt.Errorf("restore the log: event %d was stored as %d", r.seq, got)
	}
	r.msgs, r.bytes = nil, 0
	return err
}
