package natsbus

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
)

const (
	blobStream  = "TUTTI_BLOBS"
	blobChunk   = 128 << 10
	maxBlob     = 1 << 30
	blobTimeout = 60 * time.Second

	headerChunks = "Tutti-Chunks" // how many; absent: the content is in this message
	headerSize   = "Tutti-Size"
)

// Blobs is the tutti.Blobs on a JetStream stream. Content of up to 128 KiB is
// the message blob.<hex>; larger content is chunk.<hex>.<i>, and then
// blob.<hex> says how many. Nothing is written twice, so a Put that was cut off
// is continued by the next one, and two at once do no harm. Any number of
// goroutines may use it.
type Blobs struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

var _ tutti.Blobs = (*Blobs)(nil)

// OpenBlobs makes the stream if it is not there.
func OpenBlobs(ctx context.Context, nc *nats.Conn) (*Blobs, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, wrap(err, "open the blobs")
	}
	ctx, cancel := withTimeout(ctx, blobTimeout)
	defer cancel()
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name:        blobStream,
		Subjects:    []string{"blob.*", "chunk.*.*"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Replicas:    1,
		AllowDirect: true,
	})
	if err != nil {
		return nil, wrap(err, "open the blobs")
	}
	return &Blobs{js: js, stream: stream}, nil
}

// Put implements tutti.Blobs, for content of up to 1 GiB.
func (b *Blobs) Put(ctx context.Context, content []byte) (tutti.Digest, error) {
	if len(content) > maxBlob {
		return "", tutti.Errorf(tutti.CodeInvalid, "blob of %d bytes: at most %d", len(content), maxBlob)
	}
	digest := tutti.DigestOf(content)
	ctx, cancel := withTimeout(ctx, blobTimeout)
	defer cancel()
	head := nats.NewMsg("blob." + digest.Hex())
	head.Header.Set(headerSize, strconv.Itoa(len(content)))
	if len(content) <= blobChunk {
		head.Data = content
		return digest, b.store(ctx, head)
	}
	if found, err := b.Has(ctx, digest); found || err != nil {
		return digest, err
	}
	chunks := (len(content) + blobChunk - 1) / blobChunk
	for i := range chunks {
		chunk := nats.NewMsg(chunkSubject(digest, i))
		chunk.Data = content[i*blobChunk : min((i+1)*blobChunk, len(content))]
		if err := b.store(ctx, chunk); err != nil {
			return "", err
		}
	}
	head.Header.Set(headerChunks, strconv.Itoa(chunks))
	return digest, b.store(ctx, head)
}

// store writes msg unless its subject has content already: the same, since
// subjects are made of digests.
func (b *Blobs) store(ctx context.Context, msg *nats.Msg) error {
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	_, err := b.js.PublishMsg(ctx, msg)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && wrongLast(api) {
		return nil
	}
	if err != nil {
		return wrap(err, "store a blob")
	}
	return nil
}

// Get implements tutti.Blobs.
func (b *Blobs) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	ctx, cancel := withTimeout(ctx, blobTimeout)
	defer cancel()
	head, err := b.head(ctx, digest)
	if err != nil {
		return nil, err
	}
	size, err := strconv.Atoi(head.Header.Get(headerSize))
	if err != nil || size < 0 || size > maxBlob {
		return nil, tutti.Errorf(tutti.CodeDamaged, "blob %s: stored with size %q", digest, head.Header.Get(headerSize))
	}
	content := head.Data
	if text := head.Header.Get(headerChunks); text != "" {
		if content, err = b.chunks(ctx, digest, text, size); err != nil {
			return nil, err
		}
	}
	if tutti.DigestOf(content) != digest {
		return nil, tutti.Errorf(tutti.CodeDamaged, "blob %s: the stored content has another digest; the store is damaged", digest)
	}
	return content, nil
}

func (b *Blobs) chunks(ctx context.Context, digest tutti.Digest, text string, size int) ([]byte, error) {
	count, err := strconv.Atoi(text)
	if err != nil || count != (size+blobChunk-1)/blobChunk {
		return nil, tutti.Errorf(tutti.CodeDamaged, "blob %s: stored with size %d in %q chunks", digest, size, text)
	}
	content := make([]byte, 0, size)
	for i := range count {
		msg, err := b.stream.GetLastMsgForSubject(ctx, chunkSubject(digest, i))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, tutti.Errorf(tutti.CodeDamaged, "blob %s: chunk %d of %d is gone; the store is damaged", digest, i, count)
		}
		if err != nil {
			return nil, wrap(err, "read a blob")
		}
		content = append(content, msg.Data...)
	}
	return content, nil
}

// Has implements tutti.Blobs.
func (b *Blobs) Has(ctx context.Context, digest tutti.Digest) (bool, error) {
	ctx, cancel := withTimeout(ctx, blobTimeout)
	defer cancel()
	_, err := b.head(ctx, digest)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return false, nil
	}
	return err == nil, err
}

func (b *Blobs) head(ctx context.Context, digest tutti.Digest) (*jetstream.RawStreamMsg, error) {
	if err := digest.Validate(); err != nil {
		return nil, err
	}
	head, err := b.stream.GetLastMsgForSubject(ctx, "blob."+digest.Hex())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, tutti.Errorf(tutti.CodeNotFound, "blob %s is not stored", digest)
	}
	if err != nil {
		return nil, wrap(err, "read a blob")
	}
	return head, nil
}

func chunkSubject(digest tutti.Digest, i int) string {
	return "chunk." + digest.Hex() + "." + strconv.Itoa(i)
}
