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

// Delete implements tutti.Sweeping. Delete deletes the message blob.<hex> first, and then the chunks. If the process
// ends between the two, the chunks do not count as content, but List still returns their digest.
//
// The bus rewrites a block of its file when less than half of the block is still in use. The bus rewrites blocks
// at its next sync (see embed.Options, and shouldCompactSync in nats-server). The bus removes empty blocks,
// except the last block, because new messages go to the last block.
func (b *Blobs) Delete(ctx context.Context, digest tutti.Digest) error {
	if err := digest.Validate(); err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, blobTimeout)
	defer cancel()
	b.deleted.Store(true)
	b.stored.Store(0) // perhaps Delete has deleted the last stored content
	for _, subject := range []string{"blob." + digest.Hex(), "chunk." + digest.Hex() + ".*"} {
		if err := b.stream.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			return wrap(err, "delete a blob")
		}
	}
	return nil
}
