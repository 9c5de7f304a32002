package nodes

import (
	"context"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// The method `answered` takes a node's answer to a question. The method does not use the writer,
// because a thousand answers can come at once.
func (s *Nodes) answered(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[tutti.RemoteReply](wire.OpAnswer, payload)
	if err != nil {
		return nil, err
	}
	if s.Presence.Who(key) != "" && s.Asks.Answer(key, in) {
		return nil, nil
	}
	return nil, s.unasked(ctx, key, "answer a question that it did not get", tutti.Errorf(tutti.CodeRefused, "this node was not asked"))
}

// The method `act` lets a node begin the change for which an operator has asked.
func (s *Nodes) act(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[tutti.RemoteAct](wire.OpAct, payload)
	if err != nil {
		return nil, err
	}
	if s.Presence.Who(key) == "" {
		return nil, s.unasked(ctx, key, "", nil)
	}
	if asker, node, action := s.Asks.Asker(key, in.Request); asker != nil {
		// The operator's access may have changed since the question began.
		if err := s.do(asker.In(ctx), func(tx *tx) error {
			return tx.MayAsk(asker.In(ctx), action, string(node), []tutti.NodeName{node})
		}); err != nil {
			return nil, err
		}
	}
	asked, err := s.Asks.Act(key, in.Request)
	if !asked {
		err = s.unasked(ctx, key, "act on a question that it did not get", err)
	}
	return nil, err
}

// The method `unasked` records that a node has answered a question although the node did not get
// the question.
func (s *Nodes) unasked(ctx context.Context, key tutti.NodeKey, what string, cause error) error {
	return s.do(ctx, func(tx *tx) error {
		n, err := tx.Node(key) // tx.Node returns why the node is refused
		if err != nil {
			return err
		}
		return tx.Deny(tutti.ActorNode(n.Node), what, cause)
	})
}
