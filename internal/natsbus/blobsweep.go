package natsbus

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
)

var _ tutti.Sweeping = (*Blobs)(nil)

// List implements tutti.Sweeping.
func (b *Blobs) List(ctx context.Context) ([]tutti.Digest, error) {
	ctx, cancel := withTimeout(ctx, blobTimeout)
	defer cancel()
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return nil, wrap(err, "list the blobs")
	}
	seen := make(map[tutti.Digest]bool, len(info.State.Subjects))
	out := make([]tutti.Digest, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		_, rest, _ := strings.Cut(subject, ".")
		hex, _, _ := strings.Cut(rest, ".")
		if d := tutti.Digest("sha256:" + hex); !seen[d] {
			seen[d] = true
			out = append(out, d)
		}
	}
	return out, nil
}

// Delete implements tutti.Sweeping. The head is deleted first. If the deletion is cut off after that, what is left does
// not count as content, and List still returns it.
//
// The bus rewrites a block of its file when less than half of it is left (at its next sync, see embed.Options;
// nats-server, shouldCompactSync). It removes an empty block, except the last one, to which it writes.
func (b *Blobs) Delete(ctx context.Context, digest tutti.Digest) error {
	if err := digest.Validate(); err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, blobTimeout)
	defer cancel()
	b.deleted.Store(true)
	b.stored.Store(0) // the last stored content may be what is deleted
	for _, subject := range []string{"blob." + digest.Hex(), "chunk." + digest.Hex() + ".*"} {
		if err := b.stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return wrap(err, "delete a blob")
		}
	}
	return nil
}
