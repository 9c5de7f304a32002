package natsbus

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/tutti-project/tutti"
)

const (
	// worthBatch is the smallest number of messages for which an atomic batch is cheaper than single messages. A
	// batch needs about four fsyncs, and each single message needs one.
	worthBatch = 5
	// maxGroup bounds the bytes of one batch.
	maxGroup = 4 << 20
)

// group gathers the messages that many callers store at the same time. If no other caller is storing, a
// new caller stores its messages at once. If another caller is storing, the new caller waits. Later one
// of the waiting callers becomes the leader and stores the messages of all waiting callers.
type group struct {
	mu      sync.Mutex
	waiting []*put
	busy    bool
}

// put is the set of messages that one caller stores.
type put struct {
	msgs []*nats.Msg
	size int
	done chan error    // its outcome
	lead chan struct{} // closed when this caller must store the messages of all waiting callers
}

// The method `store` writes those messages whose subject has no content yet. A subject is made of a
// digest, so an existing message with the same subject has the same content. store returns when the
// messages are on disk.
func (b *Blobs) store(ctx context.Context, msgs ...*nats.Msg) error {
	if err := ctx.Err(); err != nil {
		return wrap(err, "store a blob")
	}
	p := &put{msgs: msgs, done: make(chan error, 1), lead: make(chan struct{})}
	for _, m := range msgs {
		p.size += len(m.Data)
	}
	if !b.group.join(p) {
		select {
		case err := <-p.done:
			return err
		case <-p.lead:
		}
	}
	b.group.lead(func(all []*put) { b.storeAll(ctx, all) })
	return <-p.done
}

// The method `lead` stores the waiting puts, and then makes the next put the leader. lead also does this
// if the function `store` panics, because without a leader nobody could store again. After a panic, the
// puts that have no result yet get an error.
func (g *group) lead(store func([]*put)) {
	defer g.leave()
	all := g.take()
	defer func() {
		for _, p := range all {
			select {
			case p.done <- tutti.Errorf(tutti.CodeInternal, "store a blob: a mistake of the server, see its log"):
			default: // this put already has its result
			}
		}
	}()
	store(all)
}

// The method `join` returns true if p must store at once, and false if p must wait.
func (g *group) join(p *put) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, p)
	leads := !g.busy
	g.busy = true
	return leads
}

// The method `take` returns the puts to store together. The first of the puts is the leader's own put.
func (g *group) take() []*put {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 1, g.waiting[0].size
	for n < len(g.waiting) && size+g.waiting[n].size <= maxGroup {
		size += g.waiting[n].size
		n++
	}
	taken := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return taken
}

// The method `leave` chooses the next waiting put as the leader.
func (g *group) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy = len(g.waiting) > 0; g.busy {
		close(g.waiting[0].lead)
	}
}

// storeAll stores all puts and sends each put its result. storeAll goes on when the caller's ctx ends,
// because it also stores the puts of other callers.
func (b *Blobs) storeAll(ctx context.Context, all []*put) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), blobTimeout)
	defer cancel()
	if msgs := distinct(all); len(msgs) >= worthBatch {
		err := b.storeBatch(ctx, msgs)
		// If NATS refused the batch, it stored no message of the batch. The usual reason is that the stream already
		// has one of the messages.
		if _, refused := errors.AsType[*jetstream.APIError](err); !refused {
			for _, p := range all {
				p.done <- err
			}
			return
		}
	}
	for _, p := range all {
		p.done <- b.storeEach(ctx, p.msgs)
	}
}

// distinct returns the messages of all puts, one for each subject.
func distinct(all []*put) []*nats.Msg {
	seen := map[string]bool{}
	var out []*nats.Msg
	for _, p := range all {
		for _, m := range p.msgs {
			if !seen[m.Subject] {
				seen[m.Subject] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// storeBatch stores the messages as one atomic batch.
func (b *Blobs) storeBatch(ctx context.Context, msgs []*nats.Msg) error {
	batch := make([]*nats.Msg, len(msgs))
	for i, m := range msgs {
		batch[i] = fresh(m)
	}
	markBatch(batch)
	last := len(batch) - 1
	for _, m := range batch[:last] {
		if err := b.js.Conn().PublishMsg(m); err != nil {
			return wrap(err, "store blobs")
		}
	}
	ack, err := b.js.PublishMsg(ctx, batch[last])
	if err != nil {
		return wrap(err, "store blobs")
	}
	b.acknowledged(ack.Sequence)
	return nil
}

func (b *Blobs) storeEach(ctx context.Context, msgs []*nats.Msg) error {
	for _, m := range msgs {
		ack, err := b.js.PublishMsg(ctx, fresh(m))
		if api, ok := errors.AsType[*jetstream.APIError](err); ok && wrongLast(api) {
			continue
		}
		if err != nil {
			return wrap(err, "store a blob")
		}
		b.acknowledged(ack.Sequence)
	}
	return nil
}

// The function `fresh` returns a copy of the message for publishing. The stream stores the copy only if its subject
// has no message yet.
func fresh(m *nats.Msg) *nats.Msg {
	out := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
	for key, values := range m.Header {
		out.Header[key] = values
	}
	out.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	return out
}

// markBatch makes the messages one atomic batch of their stream.
func markBatch(msgs []*nats.Msg) {
	id := nuid.Next()
	for i, m := range msgs {
		m.Header.Set("Nats-Batch-Id", id)
		m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
	}
	msgs[len(msgs)-1].Header.Set("Nats-Batch-Commit", "1")
}

// putChunks stores the chunks of large content, several chunks at a time.
func (b *Blobs) putChunks(ctx context.Context, digest tutti.Digest, content []byte) (chunks int, err error) {
	var msgs []*nats.Msg
	for len(content) > 0 {
		n := min(blobChunk, len(content))
		chunk := nats.NewMsg(chunkSubject(digest, chunks))
		chunk.Data, content = content[:n], content[n:]
		chunks++
		if msgs = append(msgs, chunk); len(msgs) == maxGroup/blobChunk || len(content) == 0 {
			if err := b.store(ctx, msgs...); err != nil {
				return chunks, err
			}
			msgs = nil
		}
	}
	return chunks, nil
}
