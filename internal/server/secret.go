package server

import (
	"context"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/wire"
)

// SealSecret implements tutti.Secrets.
func (s *Server) SealSecret(ctx context.Context, in tutti.SealSecret) error {
	if err := s.opts.Space(); err != nil {
		return err
	}
	if err := in.Validate(); err != nil {
		return err
	}
	return s.lasting(ctx, "set "+in.Key, func(tx *tx) error {
		if err := tx.may(ctx, policy.Wish{Verbs: []tutti.Verb{tutti.VerbData}, What: "set " + in.Key, Key: in.Key}); err != nil {
			return err
		}
		before, _ := tx.Data.Value(in.Key)
		owner := tutti.NodeName("")
		if in.Adds {
			owner = before.Owner // it stays the node's
		}
		if err := tx.seal(tutti.Actor(ctx), owner, nil, in); err != nil {
			return err
		}
		if !in.Adds && before.Owner != "" {
			tx.tookFrom(tutti.Actor(ctx), before.Owner)
		}
		return nil
	})
}

// seal emits a secret, or pieces of the one that is there.
func (tx *tx) seal(by string, owner tutti.NodeName, r *engine.Run, in tutti.SealSecret) error {
	to, err := tx.Recipients(in.For)
	if err != nil {
		return err
	}
	if len(to.Unknown) > 0 && !in.Adds {
		if had, is := tx.Data.Secret(in.Key); !is || !slices.Contains(had.Secret.For, tutti.ForGroup(to.Unknown[0])) {
			return unknownGroup(to.Unknown[0])
		}
	}
	current, is := tx.Data.Secret(in.Key)
	switch {
	case in.Adds && (!is || current.Secret.ID != in.ID):
		return tutti.Errorf(tutti.CodeConflict, "secret %q has another value by now, or is gone: look with `tutti secret list`, and repeat", in.Key)
	case in.Adds && !in.Moves && !slices.Equal(in.For, current.Secret.For):
		return tutti.Errorf(tutti.CodeConflict, "secret %q is for %s by now: repeat", in.Key, strings.Join(current.Secret.For, " "))
	case in.Moves && len(in.Recovery) == 0:
		return tutti.Errorf(tutti.CodeInvalid, "secret %q: other targets come with what is sealed to the recovery key", in.Key)
	case in.Adds && !in.Moves && len(in.Recovery) > 0:
		return tutti.Errorf(tutti.CodeInvalid, "secret %q: what is sealed to the recovery key stays as long as value and targets do", in.Key)
	case !in.Adds && is && current.Secret.ID == in.ID:
		return tutti.Errorf(tutti.CodeConflict, "secret %q has this id already: a new value takes a new one", in.Key)
	case !in.Adds && len(in.Recovery) == 0:
		return tutti.Errorf(tutti.CodeInvalid, "secret %q is not sealed to the recovery key", in.Key)
	}
	boxes := map[tutti.NodeName]tutti.Digest{}
	compiles := false // somebody who compiles for others has it
	for _, n := range to.Nodes {
		boxes[n.Node] = tutti.BoxDigest(n.BoxKey)
		compiles = compiles || policy.MayCompile(tx.Fleet(), tx.Registry.GroupsOf(n.Node), n.Node) == nil
	}
	if n := tx.Registry.Nodes[owner]; n != nil { // who made it can open it
		boxes[owner] = tutti.BoxDigest(n.BoxKey)
	}
	var pieces []tutti.Piece
	for _, p := range in.Pieces {
		if in.Adds && current.Boxes[p.Node] == p.Box {
			continue // somebody else was faster, and nothing changes what a node has
		}
		pieces = append(pieces, p)
		switch box, named := boxes[p.Node]; {
		case !named:
			return tutti.Errorf(tutti.CodeConflict, "secret %q: node %s is not among those that it is for (any more): repeat", in.Key, p.Node)
		case box != p.Box:
			return tutti.Errorf(tutti.CodeConflict, "secret %q: node %s has another key by now: repeat", in.Key, p.Node)
		case !compiles && tx.ProgramOf(p.Node) == tutti.ProgramAgent && p.Node != owner:
			return tutti.Errorf(tutti.CodeInvalid, "secret %q: a Puppet Server compiles for node %s and has to open it: name its node, too, like --for node:puppet", in.Key, p.Node)
		}
	}
	if err := tx.Data.MayOwn(in.Key, owner); err != nil {
		return err
	}
	if in.Pieces = pieces; in.Adds && !in.Moves && len(pieces) == 0 {
		return nil
	}
	var run tutti.RunID
	var job tutti.JobID
	if r != nil {
		run, job = r.Run, r.Job
	}
	tx.Emit(by, &tutti.SecretSealed{Secret: in.Secret, Owner: owner, Run: run, Job: job})
	return nil
}

// RecoverSecret implements tutti.Secrets.
func (s *Server) RecoverSecret(ctx context.Context, key string) (tutti.Secret, error) {
	var out tutti.Secret
	err := s.do(ctx, func(tx *tx) error {
		if err := tx.may(ctx, policy.Wish{Verbs: []tutti.Verb{tutti.VerbData}, What: "recover " + key, Key: key}); err != nil {
			return err
		}
		secret, is := tx.Data.Secret(key)
		if !is {
			return tutti.Errorf(tutti.CodeNotFound, "no secret %q; see: tutti secret list", key)
		}
		out = secret.Secret
		return nil
	})
	return out, err
}

// SecretEffect implements tutti.Secrets. It would tell who reads a secret: so it is refused to whoever may neither read
// nor set it.
func (s *Server) SecretEffect(ctx context.Context, in api.AskSecretEffect) (api.Effect, error) {
	if err := s.seesKey(ctx, in.Key); err != nil {
		return api.Effect{}, err
	}
	return s.Reader.SecretEffect(ctx, in)
}

// seesKey refuses whoever may neither read nor set a key.
func (s *Server) seesKey(ctx context.Context, key string) error {
	sees := false
	if err := s.look(ctx, func(v explain.View) error { sees = v.Sees()(key); return nil }); err != nil || sees {
		return err
	}
	return s.do(ctx, func(tx *tx) error {
		if err := tx.may(ctx, policy.Wish{Verbs: []tutti.Verb{tutti.VerbData}, What: "set " + key, Key: key}); err != nil {
			return err
		}
		return tutti.Errorf(tutti.CodeUnavailable, "the access of the fleet file has just changed; ask again")
	})
}

// recipients tells a node to whom a secret is to be sealed that it publishes.
func (s *Server) recipients(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := decode[wire.AskRecipients](wire.OpRecipients, payload)
	if err != nil {
		return nil, err
	}
	if err := s.shares.ReadQuestion(key, payload); err != nil {
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
				return 0, tx.deny(tutti.ActorNode(n.Node), "ask for whom to seal "+in.Key,
					tutti.Errorf(tutti.CodeRefused, "run %s of node %s does not publish %q: its catalog has not named it at the gate", r.Run, n.Node, in.Key))
			}
			if err := policy.MayWrite(tx.Fleet(), tx.Registry.Groups(n), n.Node, in.Key); err != nil {
				return 0, tx.deny(tutti.ActorNode(n.Node), "write "+in.Key, err)
			}
			return len(tx.Registry.Nodes) * len(in.For), nil
		},
		answer: func(tx *tx) (err error) {
			if out.Recipients, err = tx.Recipients(in.For); err != nil {
				return err
			}
			if len(out.Unknown) > 0 {
				return unknownGroup(out.Unknown[0])
			}
			if secret, is := tx.Data.Secret(in.Key); is && secret.View.Owner == node {
				out.Current = &wire.SealedTo{ID: secret.Secret.ID, For: secret.Secret.For, Boxes: secret.Boxes}
			}
			return nil
		},
	})
}

func unknownGroup(name tutti.GroupName) error {
	return tutti.Errorf(tutti.CodeNotFound, "no group %q in the fleet file", name)
}

// handsOut refuses to give a secret to an agent that would not open it, or to one that compiles for another node and that
// it is not sealed to.
func (tx *tx) handsOut(asker data.Asker, opens bool, value []byte) error {
	v, is := tutti.ParseSealed(value)
	switch {
	case !is:
		return nil
	case !opens:
		return tutti.Errorf(tutti.CodeRefused, "%q is a secret, and the agent of this node does not open secrets: upgrade tutti on it", v.Key)
	case v.Sealed == nil:
		return tutti.Errorf(tutti.CodeRefused, "secret %q of node %s is not sealed to %s, which compiles for it: `tutti secret reseal --for` its node, too", v.Key, asker.Node, asker.Opener)
	}
	return nil
}

// pieces tells a node what is sealed to it.
func (s *Server) pieces(ctx context.Context, key tutti.NodeKey, _ []byte) (any, error) {
	var out wire.OwnPieces
	return &out, s.do(ctx, func(tx *tx) error {
		n, err := tx.node(key)
		if err != nil {
			return err
		}
		size := 0
		for _, p := range tx.ownPieces(n) {
			size += len(p.Sealed)
			out.Pieces = append(out.Pieces, p)
		}
		if size > wire.MaxOwnPieces {
			return tutti.Errorf(tutti.CodeRefused, "the secrets of node %s have %d bytes, more than %d: remove the node and let it join with keys of its own", n.Node, size, wire.MaxOwnPieces)
		}
		return nil
	})
}

// ownPieces are those that a node seals again when it takes another key: not what another node has published for it
// under keys that it may not read.
func (tx *tx) ownPieces(n *fold.Node) []wire.OwnPiece {
	groups := tx.Registry.Groups(n)
	if policy.MayCompile(tx.Fleet(), groups, n.Node) == nil { // it opens what others read
		return tx.Data.PiecesOf(n.Node)
	}
	keys := policy.KeysOf(tx.Fleet(), groups, n.Node)
	return slices.DeleteFunc(tx.Data.PiecesOf(n.Node), func(p wire.OwnPiece) bool {
		secret, _ := tx.Data.Secret(p.Key)
		owner := secret.View.Owner
		return owner != "" && owner != n.Node && !keys.Reads(p.Key)
	})
}

// box gives a node another key for its secrets. Nobody becomes stale by it: each secret stays what it is.
func (s *Server) box(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := decode[wire.NewBox](wire.OpBox, payload)
	if err != nil {
		return nil, err
	}
	if err := seal.CheckKey(in.BoxKey); err != nil {
		return nil, err
	}
	return nil, s.do(ctx, func(tx *tx) error {
		n, err := tx.node(key)
		if err != nil || n.BoxKey == in.BoxKey { // it has not heard that it was done
			return err
		}
		if err := s.opts.Space(); err != nil {
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
		if !s.presence.MayBox(n.Node, tx.Now) {
			return tutti.Errorf(tutti.CodeUnavailable, "node %s has taken another key for its secrets %d times in an hour; ask again later", n.Node, presence.MaxBoxes)
		}
		tx.Emit(tutti.ActorNode(n.Node), &tutti.NodeBoxed{Node: n.Node, BoxKey: in.BoxKey})
		for _, e := range events {
			tx.Emit(tutti.ActorNode(n.Node), e)
		}
		return nil
	})
}
