package natsbus

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
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

	headerChunks = "Tutti-Chunks" // number of chunks. Without this header the whole content is in this message
	headerSize   = "Tutti-Size"
)

// Blobs is the tutti.Blobs on a JetStream stream. Content of up to 128 KiB is stored in the message blob.<hex>.
// Larger content is stored in the messages chunk.<hex>.<i>, and blob.<hex> has the number of chunks. Content that the
// stream already has is not written again. If a Put is cut off, the next Put of the same content continues it. Two
// Puts of the same content at the same time do no harm. If many callers store at the same time, their content goes to
// disk together. Any number of goroutines may use it.
type Blobs struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	group  group

	stored  atomic.Uint64 // see Stored
	deleted atomic.Bool
}

// Stored returns the last sequence of the stream that NATS acknowledged to this process. If the end of the stream's
// file is damaged, a caller can compare this sequence with the file. The damage has destroyed acknowledged messages
// only if the file ends before this sequence. If the file has this sequence, the damage has destroyed only a write
// that was never acknowledged. If `seq` is 0 and `known` is true, this process deleted content, perhaps the last
// stored content. If `known` is false, this process has not stored or deleted anything.
func (b *Blobs) Stored() (seq uint64, known bool) {
	seq = b.stored.Load()
	return seq, seq > 0 || b.deleted.Load()
}

// acknowledged records that the stream has stored everything up to seq.
func (b *Blobs) acknowledged(seq uint64) {
	for {
		before := b.stored.Load()
		if seq <= before || b.stored.CompareAndSwap(before, seq) {
			return
		}
	}
}

// Bytes returns the size of all stored content.
func (b *Blobs) Bytes(ctx context.Context) (uint64, error) {
	ctx, cancel := withTimeout(ctx, readTimeout)
	defer cancel()
	info, err := b.stream.Info(ctx)
	if err != nil {
		return 0, wrap(err, "read the size of the blobs")
	}
	return info.State.Bytes, nil
}

var (
	_ tutti.Blobs  = (*Blobs)(nil)
	_ tutti.Sizing = (*Blobs)(nil)
)

// OpenBlobs opens the stream. OpenBlobs creates the stream if it does not exist.
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

		AllowAtomicPublish: true,
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
	chunks, err := b.putChunks(ctx, digest, content)
	if err != nil {
		return "", err
	}
	head.Header.Set(headerChunks, strconv.Itoa(chunks))
	return digest, b.store(ctx, head)
}

// Get implements tutti.Blobs.
func (b *Blobs) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	ctx, cancel := withTimeout(ctx, blobTimeout)
	defer cancel()
	head, err := b.head(ctx, digest)
	if err != nil {
		return nil, err
	}
	size, err := sizeOf(digest, head)
	if err != nil {
		return nil, err
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
		return nil, tutti.Errorf(tutti.CodeDamaged, "blob %s: the stored size %d and the number of chunks %q do not fit", digest, size, text)
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

// Size implements tutti.Sizing.
func (b *Blobs) Size(ctx context.Context, digest tutti.Digest) (int64, error) {
	ctx, cancel := withTimeout(ctx, blobTimeout)
	defer cancel()
	head, err := b.head(ctx, digest)
	if err != nil {
		return 0, err
	}
	size, err := sizeOf(digest, head)
	return int64(size), err
}

func sizeOf(digest tutti.Digest, head *jetstream.RawStreamMsg) (int, error) {
	size, err := strconv.Atoi(head.Header.Get(headerSize))
	if err != nil || size < 0 || size > maxBlob {
		return 0, tutti.Errorf(tutti.CodeDamaged, "blob %s: the stored size %q is invalid", digest, head.Header.Get(headerSize))
	}
	return size, nil
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
