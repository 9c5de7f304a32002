package server

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

const (
	defaultTokenTTL = time.Hour
	maxTokenTTL     = 30 * 24 * time.Hour
)

// CreateToken implements tutti.Tokens.
func (s *Server) CreateToken(ctx context.Context, in tutti.CreateToken) (tutti.CreatedToken, error) {
	in.TTL = cmp.Or(in.TTL, defaultTokenTTL)
	if tutti.NodeName(strings.ReplaceAll(in.Name, "*", "x")).Validate() != nil {
		return tutti.CreatedToken{}, tutti.Errorf(tutti.CodeInvalid, "name pattern %q: a node's name (lower-case letters, digits, '.', '_' and '-'), in which * stands for any of them", in.Name)
	}
	if in.TTL < time.Second || in.TTL > maxTokenTTL {
		return tutti.CreatedToken{}, tutti.Errorf(tutti.CodeInvalid, "ttl %s: from 1s to %s", in.TTL, maxTokenTTL)
	}
	for _, g := range in.Groups {
		if err := g.Validate(); err != nil {
			return tutti.CreatedToken{}, err
		}
	}
	if err := s.opts.Space(); err != nil {
		return tutti.CreatedToken{}, err
	}
	text, id, hash, err := s.opts.Identity.NewToken(in)
	if err != nil {
		return tutti.CreatedToken{}, err
	}
	out := tutti.CreatedToken{Token: id, Text: text}
	err = s.do(ctx, func(tx *tx) error {
		out.Expires = tx.now.Add(in.TTL).UTC()
		tx.emit(tutti.Actor(ctx), &tutti.TokenCreated{Token: id, Hash: hash, Name: in.Name, Groups: in.Groups, Expires: out.Expires})
		return nil
	})
	return out, err
}

// Enrol implements tutti.Nodes. It is the one call that needs no certificate:
// the token's secret and the key's signature are the proof. A key that was
// enrolled by the same token may ask again, since its answer may have been lost.
func (s *Server) Enrol(ctx context.Context, in tutti.EnrolRequest) (tutti.Enrolled, error) {
	if err := in.Name.Validate(); err != nil {
		return tutti.Enrolled{}, err
	}
	if err := s.opts.Space(); err != nil {
		return tutti.Enrolled{}, err
	}
	hash, err := s.opts.Identity.VerifyEnrol(in)
	if err != nil {
		return tutti.Enrolled{}, err
	}
	var old tutti.NodeKey
	err = s.do(ctx, func(tx *tx) error {
		t, err := tx.admit(in, hash)
		if err != nil {
			return tx.deny("key:"+string(in.Key), "join as "+string(in.Name), err)
		}
		n := tx.registry.nodes[in.Name]
		if n != nil && n.Key == in.Key && n.Token == t.Token {
			return nil
		}
		if n != nil && n.Key != in.Key {
			old = n.Key
			tx.leave(actorNode(in.Name), n, "another machine took the node's name over")
		}
		tx.emit(actorNode(in.Name), &tutti.NodeEnrolled{Node: in.Name, Key: in.Key, BoxKey: in.BoxKey, Token: t.Token, Groups: t.Groups})
		return nil
	})
	if err != nil {
		return tutti.Enrolled{}, err
	}
	if old != "" {
		if err := s.opts.Identity.Revoke(old); err != nil {
			return tutti.Enrolled{}, err
		}
	}
	return s.opts.Identity.Enrol(in.Name, in.Key)
}

// renew gives a node a new JWT for its own key, as long as it is one.
func (s *Server) renew(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if _, err := decode[tutti.Renew](tutti.OpRenew, payload); err != nil {
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
	return tutti.Renewed{JWT: enrolled.JWT}, err
}

// admit says whether a token lets a key in under a name.
func (tx *tx) admit(in tutti.EnrolRequest, hash tutti.Digest) (*token, error) {
	t := tx.registry.tokens[in.Token]
	refused := func(format string, args ...any) error { return tutti.Errorf(tutti.CodeRefused, format, args...) }
	switch {
	case t == nil || t.Hash != hash:
		return nil, refused("this token is not known to the server; make one with: tutti token create --name %s", in.Name)
	case t.revoked:
		return nil, refused("this token was revoked")
	case t.boundTo != "" && t.boundTo != in.Key:
		return nil, refused("this token was used by %s already; every node needs its own", t.node)
	case t.boundTo == in.Key && t.node != in.Name:
		return nil, refused("this token was used for the name %s", t.node)
	case t.boundTo == "" && !tx.now.Before(t.Expires):
		return nil, refused("this token expired at %s", t.Expires.Format(time.RFC3339))
	}
	if ok, _ := path.Match(t.Name, string(in.Name)); !ok {
		return nil, refused("this token is for the name %s, not for %s", t.Name, in.Name)
	}
	if n := tx.registry.nodes[in.Name]; n != nil && n.Key != in.Key && !n.replaceable {
		return nil, tutti.Errorf(tutti.CodeConflict, "a node %s exists; if this machine takes its place, say so first: tutti node replace %s", in.Name, in.Name)
	}
	if other := tx.registry.byKey(in.Key); other != nil && other.Node != in.Name {
		return nil, refused("this key is node %s", other.Node)
	}
	return t, nil
}

// ListNodes implements tutti.Nodes, sorted by name.
func (s *Server) ListNodes(ctx context.Context) ([]tutti.NodeView, error) {
	var out []tutti.NodeView
	err := s.do(ctx, func(tx *tx) error {
		for _, n := range tx.registry.nodes {
			out = append(out, s.nodeView(tx, n))
		}
		for i, paused := 0, tx.paused(); i < len(out); i++ {
			out[i].Paused = paused(out[i].Node)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b tutti.NodeView) int { return cmp.Compare(a.Node, b.Node) })
	return out, err
}

func (s *Server) nodeView(tx *tx, n *node) tutti.NodeView {
	seen, beat := s.presence.last(n.Node)
	v := tutti.NodeView{
		Node: n.Node, Key: n.Key, Groups: tx.registry.groups(n), JoinedAt: n.joinedAt,
		SeenAt: seen, Connected: s.connected(seen, tx.now), Version: beat.Version, Puppet: beat.Puppet, Trouble: beat.Trouble, Warm: beat.Warm,
		Active: tx.engine.Active[n.Node],
	}
	if j := tx.engine.ExclusiveOn(n.Node); j != nil {
		v.HeldBy = j.ID
	}
	r := tx.engine.Runs[n.lastClaimed]
	if f := tx.lastForeign(n.Node, r); f != nil {
		fillRun(&v, f)
		v.Foreign, v.RunAt = true, f.Result.StartedAt
	} else if r != nil {
		fillRun(&v, r)
	}
	return v
}

func fillRun(v *tutti.NodeView, r *engine.Run) {
	v.LastRun, v.LastJob, v.Outcome, v.RunAt = r.Run, r.Job, r.Outcome(), r.ClaimedAt
	if r.Result != nil {
		v.Reason, v.Message, v.Failures = r.Result.Reason, r.Result.Message, r.Result.Failures
	}
	switch {
	case r.Lost != "" && r.Result != nil: // which is the node's record all the same
		v.Outcome = r.Result.Outcome
		v.Message = strings.TrimPrefix(r.Result.Message+"; it was given up ("+r.Lost+"), and this came later", "; ")
	case r.Lost != "":
		v.Message = r.Lost
	}
}

// ReplaceNode implements tutti.Nodes.
func (s *Server) ReplaceNode(ctx context.Context, name tutti.NodeName) error {
	return s.do(ctx, func(tx *tx) error {
		n := tx.registry.nodes[name]
		if n == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(name))
		}
		if !n.replaceable {
			tx.emit(tutti.Actor(ctx), &tutti.NodeReplaceable{Node: name})
		}
		return nil
	})
}

// RemoveNode implements tutti.Nodes.
func (s *Server) RemoveNode(ctx context.Context, name tutti.NodeName) error {
	var key tutti.NodeKey
	err := s.do(ctx, func(tx *tx) error {
		n := tx.registry.nodes[name]
		if n == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(name))
		}
		key = n.Key
		tx.leave(tutti.Actor(ctx), n, "the node was removed from the fleet")
		tx.emit(tutti.Actor(ctx), &tutti.NodeRemoved{Node: name})
		return nil
	})
	if err != nil {
		return err
	}
	return s.opts.Identity.Revoke(key)
}

// leave gives up what a machine does that is no longer the node: its run may go
// on there, and must not begin anywhere else.
func (tx *tx) leave(by string, n *node, why string) {
	if run := tx.engine.Active[n.Node]; run != "" {
		tx.emit(by, &tutti.RunLost{Run: run, Reason: why})
	}
	tx.server.presence.forget(n.Node)
}
