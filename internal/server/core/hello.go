package core

import (
	"fmt"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

// NotTheNode refuses a ticket that no machine may have that is the node, and finds out that two are.
func (tx *Tx) NotTheNode(n *fold.Node, ticket tutti.Digest) error {
	t := n.Tickets
	switch {
	case t.Left(ticket):
		return tx.Deny(tutti.ActorNode(n.Node), "speak for the node from a machine that is it no more",
			tutti.Errorf(tx.notNow, "this machine is not node %s: an operator has kept another one; if this is the right one, or the only one: tutti node keep %s BOOT; else make it a node of its own: tutti leave --offline, then tutti join", n.Node, n.Node))
	case t.Conflicted == "" && t.Rival(ticket) && tx.Core.Presence.TakesTurns(n.Node):
		why := fmt.Sprintf("two machines have the key of node %s: one is a copy of the other", n.Node)
		tx.Emit(ActorServer, &tutti.NodeConflicted{Node: n.Node, Why: why})
	case t.Conflicted == "":
		return nil
	}
	return tx.Deny(tutti.ActorNode(n.Node), "speak for a node that is two machines",
		tutti.Errorf(tx.notNow, "%s; nothing is taken from it: tutti node show %s, then tutti node keep %s BOOT", n.Tickets.Conflicted, n.Node, n.Node))
}

// fits refuses a message of a machine that is not the node, or of which that is not known.
func (tx *Tx) fits(n *fold.Node) error {
	if n.Tickets.Fits(tx.ticket) {
		return nil
	}
	if err := tx.NotTheNode(n, tx.ticket); err != nil {
		return err
	}
	if tx.ticket == "" && !tx.Core.Presence.Greeted(n.Node, tx.Core.Opts.Silence) {
		return tx.Deny(tutti.ActorNode(n.Node), "speak without a ticket",
			tutti.Errorf(tx.notNow, "the agent on %s keeps no ticket any more: it was downgraded; upgrade it, or: tutti node keep %s", n.Node, n.Node))
	}
	tx.Core.RingHello(n.Key)
	return tutti.Errorf(tutti.CodeUnavailable, "the ticket of node %s was exchanged since: it has to say hello first", n.Node)
}

func (s *Core) RingHello(key tutti.NodeKey) {
	if err := s.Opts.Bus.Ring(key, wire.RingHello, nil); err != nil {
		s.Opts.Logger.Warn("doorbell not rung", "key", key, "error", err) // it says hello when it connects
	}
}
