package operators

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

const (
	defaultTokenTTL = time.Hour
	maxTokenTTL     = 30 * 24 * time.Hour
)

// CreateToken implements tutti.Tokens.
func (s *Keys) CreateToken(ctx context.Context, in api.CreateToken) (api.CreatedToken, error) {
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
	if err := s.Opts.Space(); err != nil {
		return api.CreatedToken{}, err
	}
	text, id, hash, err := s.Opts.Identity.NewToken(in)
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

// ReplaceNode implements tutti.Nodes.
func (s *Operators) ReplaceNode(ctx context.Context, name tutti.NodeName) error {
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
func (s *Operators) RemoveNode(ctx context.Context, name tutti.NodeName) error {
	var key tutti.NodeKey
	err := s.lasting(ctx, "remove node "+string(name), func(tx *tx) error {
		n := tx.Registry.Nodes[name]
		if n == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(name))
		}
		key = n.Key
		tx.Leave(tutti.Actor(ctx), n, "the node was removed from the fleet")
		tx.Emit(tutti.Actor(ctx), &tutti.NodeRemoved{Node: name})
		return nil
	})
	if err != nil {
		return err
	}
	return s.Opts.Identity.Revoke(key)
}
