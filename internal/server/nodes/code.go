package nodes

import (
	"context"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/internal/share"
	"github.com/tutti-project/tutti/wire"
)

// codeGet gives a node the manifest of the code in its order.
func (s *Nodes) codeGet(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[wire.CodeGet](wire.OpCode, payload)
	if err != nil {
		return nil, err
	}
	out, leave, err := s.signedCode(ctx, key, in.Run, in.Code)
	if err != nil {
		return nil, err
	}
	tutti.TurnOf(ctx).AfterAnswer(leave)
	return out, nil
}

// signedCode reads the code that a node was told to run. The caller must call `leave`, as with Readings.Read.
func (s *Nodes) signedCode(ctx context.Context, key tutti.NodeKey, run tutti.RunID, code tutti.Digest) (out tutti.SignedCode, leave func(), err error) {
	var blob tutti.Digest
	var statement *tutti.Statement
	err = s.do(ctx, func(tx *tx) error {
		n, r, err := tx.nodeRun(key, run)
		if err != nil {
			return err
		}
		if code != "" && r.Code != code {
			err := tutti.Errorf(tutti.CodeRefused, "run %s was not told to use the code %s", r.Run, code)
			return tx.Deny(tutti.ActorNode(n.Node), "fetch code "+string(code), err)
		}
		blob = tx.Registry.Signed[r.Code]
		if r.Diff {
			j := tx.Engine.Jobs[r.Job]
			if j == nil || j.Diff == nil || j.Ended() {
				return tutti.Errorf(tutti.CodeConflict, "run %s compiles for a diff, and its job %s is over", r.Run, r.Job)
			}
			blob, statement = j.Diff.Signed, &j.Diff.Statement
			return nil
		}
		if blob == "" {
			return tutti.Errorf(tutti.CodeNotFound, "the code %s of run %s is not here", r.Code, r.Run)
		}
		if st, ok := tx.Registry.Statements[r.Code]; ok {
			statement = &st
		}
		return nil
	})
	if err != nil {
		return out, nil, err
	}
	size, _, err := s.sizeOf(ctx, blob)
	if err != nil {
		return out, nil, err
	}
	leave, err = s.Readings.Read(ctx, key, share.CostOfManifest*size, func() error {
		raw, err := s.Opts.Blobs.Get(ctx, blob)
		if err == nil {
			out, err = core.Decode[tutti.SignedCode]("signed code", raw)
		}
		return err
	})
	out.Statement = statement
	return out, leave, err
}

// blobGet gives a node one file of the code in its order, and no other content.
func (s *Nodes) blobGet(ctx context.Context, key tutti.NodeKey, payload []byte) ([]byte, error) {
	in, err := core.Decode[wire.BlobGet](wire.OpBlobGet, payload)
	if err != nil {
		return nil, err
	}
	files, err := s.codeFiles(ctx, key, in.Run)
	if err != nil {
		return nil, err
	}
	size, is := files[in.Digest]
	if !is {
		err := tutti.Errorf(tutti.CodeRefused, "%s is not a file of the code of run %s", in.Digest, in.Run)
		return nil, s.denyKey(ctx, key, "fetch "+string(in.Digest), err)
	}
	leave, err := s.Readings.Enter(ctx, key, size)
	if err != nil {
		return nil, err
	}
	tutti.TurnOf(ctx).AfterAnswer(leave)
	return s.Opts.Blobs.Get(ctx, in.Digest)
}

// codeFiles reads the manifest of a run's code and returns the digests of its files with their sizes.
// The function remembers the result for the code of the last call.
func (s *Nodes) codeFiles(ctx context.Context, key tutti.NodeKey, run tutti.RunID) (map[tutti.Digest]int64, error) {
	var code tutti.Digest
	err := s.do(ctx, func(tx *tx) error {
		_, r, err := tx.nodeRun(key, run)
		if err == nil {
			code = r.Code
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if last := s.files.Load(); last != nil && last.code == code {
		return last.sizes, nil
	}
	signed, leave, err := s.signedCode(ctx, key, run, code)
	if err != nil {
		return nil, err
	}
	defer leave()
	manifest, err := core.Decode[tutti.CodeManifest]("manifest", signed.Manifest)
	if err != nil {
		return nil, err
	}
	sizes := map[tutti.Digest]int64{}
	for _, f := range manifest.Files {
		sizes[f.Digest] = max(sizes[f.Digest], f.Size)
	}
	s.files.Store(&codeFiles{code: code, sizes: sizes})
	return sizes, nil
}

type codeFiles struct {
	code  tutti.Digest
	sizes map[tutti.Digest]int64
}

func (s *Nodes) denyKey(ctx context.Context, key tutti.NodeKey, what string, cause error) error {
	return s.do(ctx, func(tx *tx) error {
		n, err := tx.Node(key)
		if err != nil {
			return err
		}
		return tx.Deny(tutti.ActorNode(n.Node), what, cause)
	})
}

// blobPut stores a report, a log or a record. The node sends this content before the result that
// names it. If the server has the content already, blobPut does not store it again, and the content
// does not count for the node's limit.
func (s *Nodes) blobPut(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	out := wire.BlobStored{Digest: tutti.DigestOf(payload)}
	may := func(check func(*tx, *fold.Node) error) error {
		return s.do(ctx, func(tx *tx) error {
			n, err := tx.Node(key)
			if err != nil {
				return err
			}
			return check(tx, n)
		})
	}
	// First check whether the node may send content. Without this check, a node that may send nothing could find out
	// whether another node has sent the same content.
	if err := may(func(tx *tx, n *fold.Node) error { return tx.mayBring(n, out.Digest) }); err != nil {
		return nil, err
	}
	has, err := s.Opts.Blobs.Has(ctx, out.Digest)
	if err != nil || has {
		return out, err
	}
	if err := may(func(tx *tx, n *fold.Node) error { return tx.mayStore(n, int64(len(payload))) }); err != nil {
		return nil, err
	}
	if len(payload) > core.MaxBlob {
		return out, tutti.Errorf(tutti.CodeInvalid, "%d bytes, at most %d", len(payload), core.MaxBlob)
	}
	out.Digest, err = s.Opts.Blobs.Put(ctx, slices.Clone(payload))
	return out, err
}

// mayBring refuses content from a node if the server expects no result from this node. The function accepts the
// content of the node's last result again, because the node may not have received the answer.
func (tx *tx) mayBring(n *fold.Node, digest tutti.Digest) error {
	if n.Unended > 0 {
		return nil
	}
	if r := tx.Engine.Runs[n.LastClaimed]; r != nil && r.Result != nil && slices.Contains([]tutti.Digest{r.Result.Report, r.Result.Log, r.Result.Record}, digest) {
		return nil
	}
	return tx.mayStore(n, 0)
}

// mayStore limits how much content a node can store for each run that has no result yet.
func (tx *tx) mayStore(n *fold.Node, size int64) error {
	refused := func(format string, args ...any) error {
		return tx.Deny(tutti.ActorNode(n.Node), "store a blob", tutti.Errorf(tutti.CodeRefused, format, args...))
	}
	switch {
	case n.LastClaimed == "":
		return refused("node %s never claimed a run", n.Node)
	case n.Unended == 0:
		return refused("every run of node %s already has its result", n.Node)
	}
	return tx.mayKeep(n, size, MaxStored)
}

// mayKeep counts the bytes of content that a node stores before the server knows which run this content belongs to.
// The limit is needed because a node may disconnect after it has sent content. Then the server keeps the content,
// although no run uses it.
func (tx *tx) mayKeep(n *fold.Node, size, most int64) error {
	if stored := tx.Core.Stored[n.Key]; stored+size > most {
		return tx.Deny(tutti.ActorNode(n.Node), "store a blob",
			tutti.Errorf(tutti.CodeRefused, "node %s has stored %d bytes since its last result, at most %d", n.Node, stored, most))
	}
	tx.Core.Stored[n.Key] += size
	return nil
}

// sizeOf returns the size of content, and whether the store knows the size. If the store does not know the size,
// sizeOf returns the maximum.
func (s *base) sizeOf(ctx context.Context, digest tutti.Digest) (size int64, known bool, err error) {
	sizing, is := s.Opts.Blobs.(tutti.Sizing)
	if !is {
		return core.MaxBlob, false, nil
	}
	size, err = sizing.Size(ctx, digest)
	return size, true, err
}
