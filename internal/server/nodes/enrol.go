package nodes

import (
	"context"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// Enrol implements tutti.Nodes. Enrol needs no operator's certificate. The proof
// is the token's secret and the signature of the key. A key may enrol again with the same
// token, because the node may not have received the answer.
func (s *Nodes) Enrol(ctx context.Context, in api.EnrolRequest) (api.Enrolled, error) {
	if err := in.Name.Validate(); err != nil {
		return api.Enrolled{}, err
	}
	if err := s.Opts.Space(); err != nil {
		return api.Enrolled{}, err
	}
	hash, err := s.Opts.Identity.VerifyEnrol(in)
	if err != nil {
		return api.Enrolled{}, err
	}
	return s.enrol(ctx, in.Name, in.Key, func(tx *tx) (*tutti.NodeEnrolled, error) {
		t, err := tx.admit(in, hash)
		if err != nil {
			return nil, tx.denyJoin(in, hash, err)
		}
		return &tutti.NodeEnrolled{Node: in.Name, Key: in.Key, BoxKey: in.BoxKey, Token: t.Token, Groups: t.Groups}, nil
	})
}

// The method `enrol` makes a key the key of a node, if the function `admit` returns an event. If the event says what the
// log says already, the method changes nothing. If there is neither an event nor an error, the key does not become a
// node's key, and the result is empty.
func (s *Nodes) enrol(ctx context.Context, name tutti.NodeName, key tutti.NodeKey, admit func(*tx) (*tutti.NodeEnrolled, error)) (api.Enrolled, error) {
	var old tutti.NodeKey
	var told api.Enrolled
	var joins *tutti.NodeEnrolled
	err := s.do(ctx, func(tx *tx) error {
		var err error
		if joins, err = admit(tx); joins == nil || err != nil {
			return err
		}
		if err := tx.trusted(&told); err != nil {
			return err
		}
		n := tx.Registry.Nodes[name]
		if n != nil && n.Key == key && n.Token == joins.Token && sameGroups(n.Groups, joins.Groups) && sameCertificate(n.Certificate, joins.Certificate) {
			return nil
		}
		switch {
		case n == nil:
		case n.Key != key:
			old = n.Key
			tx.MakeWay(tutti.ActorNode(name), n, "another machine took over the name of the node")
			tx.Emit(tutti.ActorNode(name), &tutti.NodeRemoved{Node: name, Replaced: true, Keeps: tx.Fleet().KeepReplaced})
		// if the groups change, the grants change, and perhaps also the mode
		case !sameGroups(n.Groups, joins.Groups) || !sameGroups(tx.Registry.Groups(n), tx.Registry.GroupsWith(joins)):
			tx.MakeWay(tutti.ActorNode(name), n, "the node has joined again, in other groups")
			tx.Emit(tutti.ActorNode(name), &tutti.NodeRemoved{Node: name, Replaced: true})
		}
		tx.Emit(tutti.ActorNode(name), joins)
		return nil
	})
	if err != nil || joins == nil {
		return api.Enrolled{}, err
	}
	if old != "" {
		if err := s.Opts.Identity.Revoke(old); err != nil {
			return api.Enrolled{}, err
		}
	}
	out, err := s.Opts.Identity.Enrol(name, key)
	out.Operators = told.Operators
	if told.Trust != nil {
		out.Trust, out.CodeKey = told.Trust, told.CodeKey
	}
	return out, err
}

func sameGroups(a, b []tutti.GroupName) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// denyJoin records a machine that may not join. If the machine has shown the secret of a token, the
// entry names the token. So an attacker cannot hide a stolen token behind many other refusals.
func (tx *tx) denyJoin(in api.EnrolRequest, hash tutti.Digest, err error) error {
	who, what := "key:"+string(in.Key), "join as "+string(in.Name)
	if t := tx.Registry.Tokens[in.Token]; t != nil && t.Hash == hash {
		who, what = "token:"+string(t.Token), what+" with the key "+string(in.Key)
	}
	return tx.Deny(who, what, err)
}

// The method `renew` gives a node a new JWT for its own key, if the key still belongs to a node.
func (s *Nodes) renew(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	if _, err := core.Decode[wire.Renew](wire.OpRenew, payload); err != nil {
		return nil, err
	}
	var name tutti.NodeName
	err := s.do(ctx, func(tx *tx) error {
		n, err := tx.Node(key)
		if err == nil {
			name = n.Node
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	enrolled, err := s.Opts.Identity.Enrol(name, key)
	return wire.Renewed{JWT: enrolled.JWT}, err
}

// The method `admit` checks whether a token lets a key join under a name.
func (tx *tx) admit(in api.EnrolRequest, hash tutti.Digest) (*fold.Token, error) {
	t := tx.Registry.Tokens[in.Token]
	refused := func(format string, args ...any) error { return tutti.Errorf(tutti.CodeRefused, format, args...) }
	switch {
	case t == nil || t.Hash != hash:
		return nil, refused("this token is not known to the server; make one with: tutti token create --name %s", in.Name)
	case t.Revoked:
		return nil, refused("this token was revoked")
	}
	name, used := t.Used[in.Key]
	switch {
	case used && t.Ended[in.Key]:
		return nil, refused("the node that has joined with this token and this key is no longer in the fleet, or has joined in another way since")
	case used && name != in.Name:
		return nil, refused("this token was used for the name %s", name)
	case !used && t.Left() == 0 && t.Uses > 1:
		return nil, refused("this token was for %d machines, and all of them have joined", t.Uses)
	case !used && t.Left() == 0:
		return nil, refused("this token was used by %s already; every node needs its own", slices.Sorted(maps.Values(t.Used))[0])
	case !used && !tx.Now.Before(t.Expires):
		return nil, refused("this token expired at %s", t.Expires.Format(time.RFC3339))
	}
	if ok, _ := path.Match(t.Name, string(in.Name)); !ok {
		return nil, refused("this token is for the name %s, not for %s", t.Name, in.Name)
	}
	if err := tx.NoGroup(string(in.Name)); err != nil {
		return nil, err
	}
	if n := tx.Registry.Nodes[in.Name]; n != nil && n.Key != in.Key && !n.Replaceable {
		return nil, tutti.Errorf(tutti.CodeConflict, "a node %s exists; if this machine replaces it, first run: tutti node replace %s", in.Name, in.Name)
	}
	if n := tx.Registry.Nodes[in.Name]; n != nil && n.Tickets.Conflicted != "" && !n.Replaceable && n.Token != t.Token {
		// Each of the two machines can join again, so a machine must not become the node only
		// because it joins again.
		return nil, conflicted(in.Name)
	}
	if other := tx.Registry.ByKey(in.Key); other != nil && other.Node != in.Name {
		return nil, refused("this key already belongs to node %s", other.Node)
	}
	return t, nil
}

func conflicted(name tutti.NodeName) error {
	return tutti.Errorf(tutti.CodeConflict, "two machines act as node %s; first decide which one is the node: tutti node show %s, then tutti node keep %s BOOT or tutti node replace %s",
		name, name, name, name)
}
