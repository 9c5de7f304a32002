package natsbus

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
)

const (
	chunkTimeout = 15 * time.Second
	// retryPause is the wait after a chunk that got no answer.
	retryPause = 250 * time.Millisecond
	// maxUploads is how often Call sends the same parcel if the server loses it.
	maxUploads = 3
)

// Call sends a request to the server and returns the answer. Errors have the code that the server sent.
// CodeUnavailable means that there is no connection, that the connection broke during the call, or that no server is
// running. CodeDeadline means that no answer came before ctx's deadline, or within a minute if ctx has no deadline.
// After CodeUnavailable and after CodeDeadline, it is possible that the server has executed the request.
//
// The payload and the answer may each have up to 64 MiB. Large payloads and answers are sent in chunks. If the
// connection breaks, Call continues with the next chunk on a new connection until ctx ends. If a call ended with
// CodeUnavailable and the caller repeats it, Call sends only the chunks that the server does not have yet.
func (c *Conn) Call(ctx context.Context, op string, payload []byte) ([]byte, error) {
	if err := validateOp(op); err != nil {
		return nil, err
	}
	if len(payload) > MaxPayload {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s: %d bytes, at most %d", op, len(payload), MaxPayload)
	}
	ctx, cancel := withTimeout(ctx, defaultTimeout)
	defer cancel()
	for range maxUploads {
		msg := nats.NewMsg("")
		if len(payload) <= chunkSize {
			msg.Data = payload
		} else {
			p := payloadParcel(payload)
			if err := c.upload(ctx, p, payload); err != nil {
				return nil, err
			}
			p.mark(msg.Header)
		}
		answer, err := c.request(ctx, op, msg)
		if err != nil {
			return nil, err
		}
		if answer.Header.Get(headerStatus) == statusMissing {
			continue // the server has lost the parcel, because it restarted after the upload. Upload the parcel again
		}
		if err := failureOf(op, answer); err != nil {
			return nil, err
		}
		return c.contentOf(ctx, op, answer)
	}
	return nil, tutti.Errorf(tutti.CodeUnavailable, "%s: the server lost the content %d times", op, maxUploads)
}

// Send sends a message to the server and does not wait for an answer. The message may get lost. The message has at
// most 128 KiB.
func (c *Conn) Send(op string, payload []byte) error {
	if err := validateOp(op); err != nil {
		return err
	}
	if len(payload) > chunkSize {
		return tutti.Errorf(tutti.CodeInvalid, "%s: %d bytes, at most %d", op, len(payload), chunkSize)
	}
	if err := c.turn.enter(context.Background()); err != nil {
		return wrap(err, op)
	}
	defer c.turn.leave()
	msg := nats.NewMsg("n." + string(c.key) + "." + op)
	msg.Data = payload
	c.present(msg)
	if err := c.nc.PublishMsg(msg); err != nil {
		return wrap(err, op)
	}
	return nil
}

// SetTicket sets the ticket. Conn adds the ticket to each message that it sends after this call.
func (c *Conn) SetTicket(ticket string) { c.ticket.Store(&ticket) }

func (c *Conn) present(msg *nats.Msg) {
	if ticket := c.ticket.Load(); ticket != nil {
		msg.Header.Set(headerTicket, *ticket)
	}
}

// The method `request` sends one message and waits for its answer. It stops waiting when the connection that it used
// breaks.
func (c *Conn) request(ctx context.Context, op string, msg *nats.Msg) (*nats.Msg, error) {
	if err := c.turn.enter(ctx); err != nil {
		return nil, wrap(err, op)
	}
	defer c.turn.leave()
	c.mu.Lock()
	online := c.online
	c.mu.Unlock()
	if online.Err() != nil {
		return nil, tutti.Errorf(tutti.CodeUnavailable, "%s: not connected to the server", op)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(online, func() { cancel(errDisconnected) })()
	if deadline, ok := ctx.Deadline(); ok {
		msg.Header.Set(headerTimeout, strconv.FormatInt(max(1, time.Until(deadline).Milliseconds()), 10))
	}
	msg.Subject = "n." + string(c.key) + "." + op
	c.present(msg)
	answer, err := c.nc.RequestMsgWithContext(ctx, msg)
	if err == nil {
		return answer, nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, errDisconnected) {
		err = cause
	}
	return nil, wrap(err, op+": no answer from the server")
}

// payloadParcel returns a parcel with an id from the payload's digest. So a repeated call uses the same parcel.
func payloadParcel(payload []byte) parcel {
	digest := tutti.DigestOf(payload)
	return parcel{id: digest.Hex()[:32], digest: digest, size: int64(len(payload))}
}

// The method `upload` sends a parcel in chunks. The server answers with the offset of the next chunk.
func (c *Conn) upload(ctx context.Context, p parcel, content []byte) error {
	var chunk []byte // the first message has no content, it only requests the offset
	for offset := int64(0); ; {
		answer, err := c.exchange(ctx, opPut, p, offset, chunk)
		if err != nil {
			return err
		}
		if err := failureOf(opPut, answer); err != nil {
			return err
		}
		if offset, err = offsetOf(answer.Header); err != nil || offset > p.size {
			return tutti.Errorf(tutti.CodeInternal, "content in chunks: the server has %q of %d bytes", answer.Header.Get(headerOffset), p.size)
		}
		if offset == p.size {
			return nil
		}
		chunk = content[offset:min(offset+chunkSize, p.size)]
	}
}

// contentOf returns the content of an answer. If the answer is a parcel, contentOf fetches its content in chunks.
func (c *Conn) contentOf(ctx context.Context, op string, answer *nats.Msg) ([]byte, error) {
	p, err := parcelOf(answer.Header)
	if err != nil || p.id == "" {
		return answer.Data, err
	}
	content := make([]byte, 0, p.size)
	for int64(len(content)) < p.size {
		chunk, err := c.exchange(ctx, opGet, p, int64(len(content)), nil)
		if err != nil {
			return nil, err
		}
		if chunk.Header.Get(headerStatus) == statusMissing {
			return nil, tutti.Errorf(tutti.CodeUnavailable, "%s: the server restarted before this node had received the whole answer", op)
		}
		if err := failureOf(opGet, chunk); err != nil {
			return nil, err
		}
		if len(chunk.Data) == 0 || int64(len(content)+len(chunk.Data)) > p.size {
			return nil, tutti.Errorf(tutti.CodeInternal, "%s: the content of the answer does not have the announced %d bytes", op, p.size)
		}
		content = append(content, chunk.Data...)
	}
	if tutti.DigestOf(content) != p.digest {
		return nil, tutti.Errorf(tutti.CodeInternal, "%s: the content of the answer does not have the announced digest", op)
	}
	done := nats.NewMsg("n." + string(c.key) + "." + opDone)
	p.mark(done.Header)
	_ = c.nc.PublishMsg(done) // if this message is lost, the server drops the parcel later
	return content, nil
}

// The method `exchange` sends a message about a chunk. It sends the message again until the server
// answers or ctx ends. A repeated message does no harm, because the server may get the same chunk
// twice.
func (c *Conn) exchange(ctx context.Context, op string, p parcel, offset int64, chunk []byte) (*nats.Msg, error) {
	for {
		msg := nats.NewMsg("")
		p.mark(msg.Header)
		setOffset(msg.Header, offset)
		msg.Data = chunk
		c.mu.Lock()
		back := c.back
		c.mu.Unlock()
		once, cancel := context.WithTimeout(ctx, chunkTimeout)
		answer, err := c.request(once, op, msg)
		cancel()
		if err == nil {
			return answer, nil
		}
		if err := c.pause(ctx, back); err != nil {
			return nil, wrap(err, "content in chunks: no answer from the server")
		}
	}
}

// The method `pause` waits until the connection is back, but at most for retryPause.
func (c *Conn) pause(ctx context.Context, back <-chan struct{}) error {
	timer := time.NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return nats.ErrConnectionClosed
	case <-back:
		return nil
	case <-timer.C:
		return nil
	}
}

func setOffset(header nats.Header, offset int64) {
	header.Set(headerOffset, strconv.FormatInt(offset, 10))
}
