package server

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

const (
	defaultTokenTTL = time.Hour
	maxTokenTTL     = 30 * 24 * time.Hour
)

// CreateToken implements tutti.Tokens.
func (s *Server) CreateToken(ctx context.Context, in api.CreateToken) (api.CreatedToken, error) {
	in.TTL = cmp.Or(in.TTL, defaultTokenTTL)
	if tutti.NodeName(strings.ReplaceAll(in.Name, "*", "x")).Validate() != nil {
		return api.CreatedToken{}, tutti.Errorf(tutti.CodeInvalid, "name pattern %q: a node's name (lower-case letters, digits, '.', '_' and '-'), in which * stands for any of them", in.Name)
	}
	if in.TTL < time.Second || in.TTL > maxTokenTTL {
		return api.CreatedToken{}, tutti.Errorf(tutti.CodeInvalid, "ttl %s: from 1s to %s", in.TTL, maxTokenTTL)
	}
	for _, g := range in.Groups {
		if err := g.Validate(); err != nil {
			return api.CreatedToken{}, err
		}
	}
	if err := s.opts.Space(); err != nil {
		return api.CreatedToken{}, err
	}
	text, id, hash, err := s.opts.Identity.NewToken(in)
	if err != nil {
		return api.CreatedToken{}, err
	}
	out := api.CreatedToken{Token: id, Text: text}
	err = s.lasting(ctx, "make a token for "+in.Name, func(tx *tx) error {
		out.Expires = tx.Now.Add(in.TTL).UTC()
		tx.Emit(tutti.Actor(ctx), &tutti.TokenCreated{Token: id, Hash: hash, Name: in.Name, Groups: in.Groups, Expires: out.Expires})
		return nil
	})
	return out, err
}

// Enrol implements tutti.Nodes. It is the one call that needs no certificate:
// the token's secret and the key's signature are the proof. A key that was
// enrolled by the same token may ask again, since its answer may have been lost.
func (s *Server) Enrol(ctx context.Context, in api.EnrolRequest) (api.Enrolled, error) {
	if err := in.Name.Validate(); err != nil {
		return api.Enrolled{}, err
	}
	if err := s.opts.Space(); err != nil {
		return api.Enrolled{}, err
	}
	hash, err := s.opts.Identity.VerifyEnrol(in)
	if err != nil {
		return api.Enrolled{}, err
	}
	var old tutti.NodeKey
	var told api.Enrolled
	err = s.do(ctx, func(tx *tx) error {
		t, err := tx.admit(in, hash)
		if err != nil {
			return tx.denyJoin(in, hash, err)
		}
		if err := tx.trusted(&told); err != nil {
			return err
		}
		n := tx.Registry.Nodes[in.Name]
		if n != nil && n.Key == in.Key && n.Token == t.Token {
			return nil
		}
		switch {
		case n == nil:
		case n.Key != in.Key:
			old = n.Key
			tx.leave(tutti.ActorNode(in.Name), n, "another machine took the node's name over")
			tx.Emit(tutti.ActorNode(in.Name), &tutti.NodeRemoved{Node: in.Name, Replaced: true, Keeps: tx.Fleet().KeepReplaced})
		case !slices.Equal(slices.Sorted(slices.Values(n.Groups)), slices.Sorted(slices.Values(t.Groups))): // other grants, perhaps another mode
			tx.leave(tutti.ActorNode(in.Name), n, "the node has joined again, in other groups")
			tx.Emit(tutti.ActorNode(in.Name), &tutti.NodeRemoved{Node: in.Name, Replaced: true})
		}
		tx.Emit(tutti.ActorNode(in.Name), &tutti.NodeEnrolled{Node: in.Name, Key: in.Key, BoxKey: in.BoxKey, Token: t.Token, Groups: t.Groups})
		return nil
	})
	if err != nil {
		return api.Enrolled{}, err
	}
	if old != "" {
		if err := s.opts.Identity.Revoke(old); err != nil {
			return api.Enrolled{}, err
		}
	}
	out, err := s.opts.Identity.Enrol(in.Name, in.Key)
	out.Operators = told.Operators
	if told.Trust != nil {
		out.Trust, out.CodeKey = told.Trust, told.CodeKey
	}
	return out, err
}

// denyJoin records who may not join: whoever has shown a token's secret is known by the token,
// so that a flood of strangers does not hide that somebody else has it.
func (tx *tx) denyJoin(in api.EnrolRequest, hash tutti.Digest, err error) error {
	who, what := "key:"+string(in.Key), "join as "+string(in.Name)
	if t := tx.Registry.Tokens[in.Token]; t != nil && t.Hash == hash {
		who, what = "token:"+string(t.Token), what+" with the key "+string(in.Key)
	}
	return tx.deny(who, what, err)
}

// renew gives a node a new JWT for its own key, as long as it is one.
func (s *Server) renew(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if _, err := decode[wire.Renew](wire.OpRenew, payload); err != nil {
		return nil, err
	}
	var name tutti.NodeName
	err := s.do(ctx, func(tx *tx) error {
		n, err := tx.node(key)
		if err == nil {
			name = n.Node
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	enrolled, err := s.opts.Identity.Enrol(name, key)
	return wire.Renewed{JWT: enrolled.JWT}, err
}

// admit says whether a token lets a key in under a name.
func (tx *tx) admit(in api.EnrolRequest, hash tutti.Digest) (*fold.Token, error) {
	t := tx.Registry.Tokens[in.Token]
	refused := func(format string, args ...any) error { return tutti.Errorf(tutti.CodeRefused, format, args...) }
	switch {
	case t == nil || t.Hash != hash:
		return nil, refused("this token is not known to the server; make one with: tutti token create --name %s", in.Name)
	case t.Revoked:
		return nil, refused("this token was revoked")
	case t.BoundTo != "" && t.BoundTo != in.Key:
		return nil, refused("this token was used by %s already; every node needs its own", t.Node)
	case t.BoundTo == in.Key && t.Node != in.Name:
		return nil, refused("this token was used for the name %s", t.Node)
	case t.BoundTo == "" && !tx.Now.Before(t.Expires):
		return nil, refused("this token expired at %s", t.Expires.Format(time.RFC3339))
	}
	if ok, _ := path.Match(t.Name, string(in.Name)); !ok {
		return nil, refused("this token is for the name %s, not for %s", t.Name, in.Name)
	}
	if n := tx.Registry.Nodes[in.Name]; n != nil && n.Key != in.Key && !n.Replaceable {
		return nil, tutti.Errorf(tutti.CodeConflict, "a node %s exists; if this machine takes its place, say so first: tutti node replace %s", in.Name, in.Name)
	}
	if other := tx.Registry.ByKey(in.Key); other != nil && other.Node != in.Name {
		return nil, refused("this key is node %s", other.Node)
	}
	return t, nil
}

// ReplaceNode implements tutti.Nodes.
func (s *Server) ReplaceNode(ctx context.Context, name tutti.NodeName) error {
	return s.lasting(ctx, "replace node "+string(name), func(tx *tx) error {
		n := tx.Registry.Nodes[name]
		if n == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(name))
		}
		if !n.Replaceable {
			tx.Emit(tutti.Actor(ctx), &tutti.NodeReplaceable{Node: name})
		}
		return nil
	})
}

// RemoveNode implements tutti.Nodes.
func (s *Server) RemoveNode(ctx context.Context, name tutti.NodeName) error {
	var key tutti.NodeKey
	err := s.lasting(ctx, "remove node "+string(name), func(tx *tx) error {
		n := tx.Registry.Nodes[name]
		if n == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(name))
		}
		key = n.Key
		tx.leave(tutti.Actor(ctx), n, "the node was removed from the fleet")
		tx.Emit(tutti.Actor(ctx), &tutti.NodeRemoved{Node: name})
		return nil
	})
	if err != nil {
		return err
	}
	return s.opts.Identity.Revoke(key)
}

// leave gives up what a machine does that is no longer the node: its run may go
// on there, and must not begin anywhere else.
func (tx *tx) leave(by string, n *fold.Node, why string) {
	if run := tx.Engine.Active[n.Node]; run != "" {
		tx.Emit(by, &tutti.RunLost{Run: run, Reason: why})
	}
	tx.server.presence.Forget(n.Node)
}
