package core

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/past"
)

func (tx *Tx) SetExports(n *fold.Node, r *engine.Run, exports []tutti.Export, set tutti.Digest, overlay bool) {
	if !overlay && n.Exports == set && !tx.Data.Overlaid(r.Job, n.Node) {
		return // what others read is as it was
	}
	body := &tutti.ExportsSet{Node: n.Node, Run: r.Run, Job: r.Job, Overlay: overlay, Set: set, Count: len(exports), Exports: exports}
	tx.Emit(tutti.ActorNode(n.Node), body)
}

// StoreExports keeps a set as a blob; equal sets have equal digests.
func (s *Core) StoreExports(ctx context.Context, room past.Room, exports []tutti.Export) (tutti.Digest, error) {
	if len(exports) == 0 {
		return "", nil
	}
	digest, err := s.Past.Store(ctx, room, exports)
	return digest, tutti.Wrap("", err, "keep %d exports", len(exports))
}
