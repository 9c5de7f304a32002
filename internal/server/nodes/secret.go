package nodes

import (
	"context"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// The method `recipients` returns the nodes for which a publishing node must seal its secret.
func (s *Nodes) recipients(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[wire.RecipientsQuestion](wire.OpRecipients, payload)
	if err != nil {
		return nil, err
	}
	if err := s.Shares.ReadQuestion(key, payload); err != nil {
		return nil, err
	}
	var out wire.NodeRecipients
	var node tutti.NodeName
	return &out, s.answerBeside(ctx, key, inquiry{
		check: func(tx *tx) (cost int, err error) {
			n, r, err := tx.nodeRun(key, in.Run)
			if err != nil {
				return 0, err
			}
			node = n.Node
			if !r.Passed() || !slices.Contains(r.Values, in.Key) {
				return 0, tx.Deny(tutti.ActorNode(n.Node), "ask for the recipients of a secret "+in.Key,
					tutti.Errorf(tutti.CodeRefused, "run %s of node %s does not publish %q: the run has not named this key at its gate", r.Run, n.Node, in.Key))
			}
			if err := policy.MayWrite(tx.Fleet(), tx.Registry.Groups(n), n.Node, in.Key); err != nil {
				return 0, tx.Deny(tutti.ActorNode(n.Node), "write "+in.Key, err)
			}
			return len(tx.Registry.Nodes) * len(in.For), nil
		},
		answer: func(tx *tx) (err error) {
			if out.Recipients, err = tx.Recipients(in.For); err != nil {
				return err
			}
			if len(out.Unknown) > 0 {
				return core.UnknownGroup(out.Unknown[0])
			}
			if secret, is := tx.Data.Secret(in.Key); is && secret.View.Owner == node {
				out.Current = &wire.SealedTo{ID: secret.Secret.ID, For: secret.Secret.For, Boxes: secret.Boxes}
			}
			return nil
		},
	})
}

// handsOut refuses to give a secret to an agent that cannot open secrets. The function also refuses an agent
// that compiles for another node and has no piece of the secret.
func (tx *tx) handsOut(asker data.Asker, opens bool, value []byte) error {
	v, is := tutti.ParseSealed(value)
	switch {
	case !is:
		return nil
	case !opens:
		return tutti.Errorf(tutti.CodeRefused, "%q is a secret, and the agent of this node does not open secrets: upgrade tutti on this node", v.Key)
	case v.Sealed == nil:
		return tutti.Errorf(tutti.CodeRefused, "secret %q of node %s is not sealed to %s, which compiles for that node: use `tutti secret reseal --for` with the compiling node as well", v.Key, asker.Node, asker.Opener)
	}
	return nil
}

// The method `pieces` returns the pieces that are sealed to the asking node.
func (s *Nodes) pieces(ctx context.Context, key tutti.NodeKey, _ []byte) (any, error) {
	var out wire.OwnPieces
	return &out, s.do(ctx, func(tx *tx) error {
		n, err := tx.Node(key)
		if err != nil {
			return err
		}
		size := 0
		for _, p := range tx.ownPieces(n) {
			size += len(p.Sealed)
			out.Pieces = append(out.Pieces, p)
		}
		if size > wire.MaxOwnPieces {
			return tutti.Errorf(tutti.CodeRefused, "the secrets of node %s have %d bytes, more than %d: remove the node and let it join again with new keys", n.Node, size, wire.MaxOwnPieces)
		}
		return nil
	})
}

// ownPieces returns the pieces that a node must seal again when it changes its key. The function leaves out
// the pieces of secrets that another node has published under keys that this node may not read.
func (tx *tx) ownPieces(n *fold.Node) []wire.OwnPiece {
	groups := tx.Registry.Groups(n)
	if policy.MayCompile(tx.Fleet(), groups, n.Node) == nil { // a compile host also opens secrets that other nodes read, so it keeps all its pieces
		return tx.Data.PiecesOf(n.Node)
	}
	keys := policy.KeysOf(tx.Fleet(), groups, n.Node)
	return slices.DeleteFunc(tx.Data.PiecesOf(n.Node), func(p wire.OwnPiece) bool {
		secret, _ := tx.Data.Secret(p.Key)
		owner := secret.View.Owner
		return owner != "" && owner != n.Node && !keys.Reads(p.Key)
	})
}

// The method `box` replaces the key with which a node opens its secrets. No node has to run because of the
// new key, because the secrets do not change.
func (s *Nodes) box(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[wire.NewBox](wire.OpBox, payload)
	if err != nil {
		return nil, err
	}
	if err := seal.CheckKey(in.BoxKey); err != nil {
		return nil, err
	}
	return nil, s.do(ctx, func(tx *tx) error {
		n, err := tx.Node(key)
		if err != nil || n.BoxKey == in.BoxKey { // the node may send the key again because it missed the first answer
			return err
		}
		if err := s.Opts.Space(); err != nil {
			return err
		}
		has := tx.ownPieces(n)
		same := slices.EqualFunc(has, in.Pieces, func(a, b wire.OwnPiece) bool { return a.Key == b.Key && a.ID == b.ID })
		if !same {
			return tutti.Errorf(tutti.CodeConflict, "the secrets of node %s have changed meanwhile", n.Node)
		}
		var events []*tutti.SecretSealed
		for _, p := range in.Pieces {
			secret, _ := tx.Data.Secret(p.Key)
			more := tutti.Secret{
				Key: p.Key, ID: p.ID, For: secret.Secret.For, Pieces: []tutti.Piece{{Node: n.Node, Box: tutti.BoxDigest(in.BoxKey), Sealed: p.Sealed}},
			}
			if err := more.Validate(); err != nil {
				return err
			}
			events = append(events, &tutti.SecretSealed{Secret: more})
		}
		if !s.Presence.MayBox(n.Node, tx.Now) {
			return tutti.Errorf(tutti.CodeUnavailable, "node %s has taken another key for its secrets %d times in an hour; ask again later", n.Node, presence.MaxBoxes)
		}
		tx.Emit(tutti.ActorNode(n.Node), &tutti.NodeBoxed{Node: n.Node, BoxKey: in.BoxKey})
		for _, e := range events {
			tx.Emit(tutti.ActorNode(n.Node), e)
		}
		return nil
	})
}
