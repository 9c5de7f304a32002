package natsbus

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
)

const (
	// MaxPayload is the largest content of a call or an answer.
	MaxPayload = 64 << 20
	// MaxRing is the largest payload of a doorbell.
	MaxRing = chunkSize

	// chunkSize is the largest content of one message. Larger content is sent in chunks.
	chunkSize = 128 << 10

	defaultTimeout = 60 * time.Second
	maxTimeout     = 15 * time.Minute
)

// These are the headers of calls and answers. Every answer has a status. A message without a status is
// an error, even if the server has sent it.
const (
	headerStatus  = "Tutti-Status" // statusOK, statusMissing, or a tutti.Code
	headerTimeout = "Tutti-Timeout-Ms"
	headerTicket  = "Tutti-Ticket" // the ticket of the node's machine, see tutti.Hello
	headerParcel  = "Tutti-Parcel" // the id of content that is sent in chunks
	headerDigest  = "Tutti-Digest"
	headerOffset  = "Tutti-Offset"

	statusOK      = "ok"
	statusMissing = "missing" // the server does not have the parcel (any more), so the node must send it again
)

// These are the operations of the transport itself.
const (
	opPut  = "_put"  // the node sends a chunk, or asks how many bytes the server has
	opGet  = "_get"  // the node requests a chunk
	opDone = "_done" // the node has the whole parcel
)

var (
	opRE       = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
	parcelIDRE = regexp.MustCompile(`^[A-Za-z0-9]{1,32}$`)
)

func validateOp(op string) error {
	if !opRE.MatchString(op) {
		return tutti.Errorf(tutti.CodeInvalid, "operation %q: not a lower-case word", op)
	}
	return nil
}

func failure(err error) *nats.Msg {
	if tutti.CodeOf(err) == tutti.CodeInternal && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		err = wrap(err, "the server ended the call")
	}
	msg := &nats.Msg{Header: nats.Header{}}
	msg.Header.Set(headerStatus, string(tutti.CodeOf(err)))
	text := err.Error()
	msg.Data = []byte(text[:min(len(text), chunkSize)])
	return msg
}

func success(data []byte) *nats.Msg {
	msg := &nats.Msg{Header: nats.Header{}, Data: data}
	msg.Header.Set(headerStatus, statusOK)
	return msg
}

// failureOf returns the error in an answer, or nil if the answer means success.
func failureOf(op string, answer *nats.Msg) error {
	switch status := answer.Header.Get(headerStatus); status {
	case statusOK:
		return nil
	case "":
		return tutti.Errorf(tutti.CodeInternal, "%s: an answer without a status", op)
	default:
		return &tutti.Error{Code: tutti.Code(status), Message: string(answer.Data)}
	}
}

// parcel describes content that is sent in chunks.
type parcel struct {
	id     string
	digest tutti.Digest
	size   int64
}

func (p parcel) mark(header nats.Header) {
	header.Set(headerParcel, p.id)
	header.Set(headerDigest, string(p.digest))
	header.Set(headerSize, strconv.FormatInt(p.size, 10))
}

// parcelOf reads the headers that the method `mark` has written. parcelOf returns the zero value if there is no parcel.
func parcelOf(header nats.Header) (parcel, error) {
	p := parcel{id: header.Get(headerParcel), digest: tutti.Digest(header.Get(headerDigest))}
	if p.id == "" {
		return parcel{}, nil
	}
	var err error
	p.size, err = strconv.ParseInt(header.Get(headerSize), 10, 64)
	if err != nil || !parcelIDRE.MatchString(p.id) || p.digest.Validate() != nil || p.size <= 0 || p.size > MaxPayload {
		return parcel{}, tutti.Errorf(tutti.CodeInvalid, "content in chunks: id %q, size %q; at most %d bytes", p.id, header.Get(headerSize), MaxPayload)
	}
	return p, nil
}

func offsetOf(header nats.Header) (int64, error) {
	offset, err := strconv.ParseInt(header.Get(headerOffset), 10, 64)
	if err != nil || offset < 0 {
		return 0, tutti.Errorf(tutti.CodeInvalid, "content in chunks: offset %q", header.Get(headerOffset))
	}
	return offset, nil
}

// timeoutOf returns how long the sender will wait.
func timeoutOf(header nats.Header) time.Duration {
	ms, err := strconv.ParseInt(header.Get(headerTimeout), 10, 64)
	if err != nil || ms <= 0 || ms > maxTimeout.Milliseconds() {
		return defaultTimeout
	}
	return time.Duration(ms) * time.Millisecond
}

// senderOf parses the subject of a message from a node. The returned key can be trusted even if the
// rest of the subject is invalid. Only the owner of this key can publish to the subject.
func senderOf(subject string) (key tutti.NodeKey, op string, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) < 3 || parts[0] != "n" || tutti.NodeKey(parts[1]).Validate() != nil {
		return "", "", false
	}
	return tutti.NodeKey(parts[1]), parts[2], len(parts) == 3
}

// ownInbox reports whether reply is a plain subject in the inbox of this key. The bus does not check the reply
// address that a node sends.
func ownInbox(key tutti.NodeKey, reply string) bool {
	rest, ok := strings.CutPrefix(reply, "i."+string(key)+".")
	if !ok || strings.ContainsAny(rest, "*> \t\r\n") {
		return false
	}
	for part := range strings.SplitSeq(rest, ".") {
		if part == "" {
			return false
		}
	}
	return true
}
