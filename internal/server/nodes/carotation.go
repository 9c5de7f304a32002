package nodes

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// trust notes what a node stands on, and answers what it should.
func (s *Nodes) trust(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[tutti.Pinned](wire.OpTrust, payload)
	if err == nil {
		err = in.Validate()
	}
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "message %q", wire.OpTrust)
	}
	if s.Opts.Keys == nil {
		return wire.ToPin{}, nil
	}
	sets, err := s.Opts.Keys.KeySets()
	if err != nil {
		return nil, err
	}
	var name tutti.NodeName
	err = s.inVersion(ctx, func(tx *tx) error {
		n, err := tx.Node(key)
		if err != nil {
			return err
		}
		name = n.Node
		plain := in.Equal(tutti.Pinned{CAs: []tutti.Digest{sets.Present.CA}, Issuer: sets.Present.Issuer})
		if n.Pinned.Equal(in) || plain && n.Pinned.Issuer == "" && !tx.Registry.Rotation.Phase().Rotates() {
			return nil
		}
		if !tx.Looks && !s.Presence.MayPin(n.Node, tx.Now) {
			return tutti.Errorf(tutti.CodeUnavailable, "node %s has said more than %d times in a minute what it stands on", n.Node, presence.MaxPins)
		}
		tx.Emit(tutti.ActorNode(n.Node), &tutti.NodePinned{Node: n.Node, Pinned: in})
		return nil
	})
	if err != nil {
		return nil, err
	}
	enrolled, err := s.Opts.Identity.Enrol(name, key)
	if err != nil {
		return nil, err
	}
	out := wire.ToPin{CA: enrolled.CA}
	if in.Issuer != sets.Issuing().Issuer {
		out.JWT = enrolled.JWT
	}
	return out, nil
}
