package nodes

import (
	"context"
	"encoding/json"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// The method `trust` records which CAs and which issuer a node trusts, and answers which ones it should
// trust.
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
			return tutti.Errorf(tutti.CodeUnavailable, "node %s has reported a change of its trust more than %d times in a minute", n.Node, presence.MaxPins)
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

// The method `acting` returns the list of operators who sign actions, if the node has an older list. In
// all other cases the method returns nil.
func (tx *tx) acting(has *uint64) *tutti.Statement {
	if now := tx.Registry.Acting; has != nil && now != nil && now.Counter > *has {
		return &now.Statement
	}
	return nil
}

// The method `trusts` records which statements about code keys a node follows, and returns those that
// the node lacks.
func (tx *tx) trusts(n *fold.Node, says *uint64) []tutti.Statement {
	if says == nil {
		return nil
	}
	// a node that reports a different number each time must not fill the log
	if *says != n.Trusts && tx.Core.Presence.MayPin(n.Node, tx.Now) {
		tx.Emit(tutti.ActorNode(n.Node), &tutti.NodeTrusts{Node: n.Node, Counter: *says})
	}
	all := tx.Registry.Trust
	return all[min(*says, uint64(len(all))):]
}

// The method `trusted` adds to an enrolment the statement about the code keys that are valid now. An
// agent of an earlier release does not read this statement, and trusts only one key: the oldest of these
// keys.
func (tx *tx) trusted(out *api.Enrolled) error {
	out.Operators = tx.acting(new(uint64))
	if len(tx.Registry.Trust) == 0 {
		return nil
	}
	last := tx.Registry.Trust[len(tx.Registry.Trust)-1]
	var body tutti.Trusted
	if err := json.Unmarshal(last.Body, &body); err != nil {
		return tutti.Wrap(tutti.CodeDamaged, err, "which code keys sign")
	}
	out.Trust, out.CodeKey = &last, body.Keys[0]
	return nil
}
