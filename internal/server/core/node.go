package core

import (
	"fmt"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/wire"
)

// Node returns the node that has the key. Node refuses a message from a machine that is not the node.
func (tx *Tx) Node(key tutti.NodeKey) (*fold.Node, error) {
	n, err := tx.KeyOwner(key)
	if err == nil {
		err = tx.fits(n)
	}
	if err != nil {
		return nil, err
	}
	tx.Core.Presence.Hear(n.Node)
	return n, nil
}

// KeyOwner returns the node that has the key.
func (tx *Tx) KeyOwner(key tutti.NodeKey) (*fold.Node, error) {
	n := tx.Registry.ByKey(key)
	if n == nil {
		err := tutti.Errorf(tutti.CodeUnauthenticated, "no node of this fleet has the key %s; it was removed or replaced: join again", key)
		return nil, tx.Deny("key:"+string(key), "act as a node", err)
	}
	return n, nil
}

// HasNow returns the inputs that the node would use if it ran now.
func (tx *Tx) HasNow(name tutti.NodeName) converge.Has {
	_, beat := tx.Core.Presence.Last(name)
	has := tx.Has(name, beat.Puppet)
	has.TellsFacts = tx.Core.Presence.TellsFacts(name)
	return has
}

// NotTheNode refuses a ticket if an operator has decided that its machine is not the node, or if two machines act as
// the node. NotTheNode also notices when two machines begin to act as the node.
func (tx *Tx) NotTheNode(n *fold.Node, ticket tutti.Digest) error {
	t := n.Tickets
	switch {
	case t.Left(ticket):
		return tx.Deny(tutti.ActorNode(n.Node), "act as the node from a machine that is no longer the node",
			tutti.Errorf(tx.notNow, "this machine is not node %s, because an operator has kept another machine; if this machine is the right one or the only one, run: tutti node keep %s BOOT; otherwise make this machine a separate node: tutti leave --offline, then tutti join", n.Node, n.Node))
	case t.Conflicted == "" && t.Rival(ticket) && tx.Core.Presence.TakesTurns(n.Node):
		why := fmt.Sprintf("two machines have the key of node %s: one is a copy of the other", n.Node)
		tx.Emit(ActorServer, &tutti.NodeConflicted{Node: n.Node, Why: why})
	case t.Conflicted == "":
		return nil
	}
	return tx.Deny(tutti.ActorNode(n.Node), "act as a node that is two machines",
		tutti.Errorf(tx.notNow, "%s; the server takes no messages from the node: tutti node show %s, then tutti node keep %s BOOT", n.Tickets.Conflicted, n.Node, n.Node))
}

// fits refuses a message if its machine is not the node, or if the server does not know whether its
// machine is the node.
func (tx *Tx) fits(n *fold.Node) error {
	if n.Tickets.Fits(tx.ticket) {
		return nil
	}
	if err := tx.NotTheNode(n, tx.ticket); err != nil {
		return err
	}
	if tx.ticket == "" && !tx.Core.Presence.Greeted(n.Node, tx.Core.Opts.Silence) {
		return tx.Deny(tutti.ActorNode(n.Node), "speak without a ticket",
			tutti.Errorf(tx.notNow, "the agent on %s has no ticket any more, because it was downgraded; upgrade the agent, or run: tutti node keep %s", n.Node, n.Node))
	}
	tx.Core.RingHello(n.Key)
	return tutti.Errorf(tutti.CodeUnavailable, "node %s has got another ticket in the meantime: its agent must say hello first", n.Node)
}

// RingHello tells the machine with this key to say hello.
func (s *Core) RingHello(key tutti.NodeKey) {
	if err := s.Opts.Bus.Ring(key, wire.RingHello, nil); err != nil {
		s.Opts.Logger.Warn("doorbell not rung", "key", key, "error", err) // the machine also says hello when it connects
	}
}

// Leave records that the run of a machine that is no longer the node is lost. Puppet may still be
// running on that machine, so the run must not begin anywhere else.
func (tx *Tx) Leave(by string, n *fold.Node, why string) { tx.giveUp(by, n, why, true) }

// MakeWay does the same as Leave for a machine whose name stays in the fleet.
func (tx *Tx) MakeWay(by string, n *fold.Node, why string) { tx.giveUp(by, n, why, false) }

func (tx *Tx) giveUp(by string, n *fold.Node, why string, left bool) {
	if run := tx.Engine.Active[n.Node]; run != "" {
		tx.Emit(by, &tutti.RunLost{Run: run, Reason: why, Left: left})
	}
	tx.Core.Presence.Forget(n.Node)
}

// LeaveGrace is how long the server keeps open the connection of a node that has left. If
// the server closed the connection at once, the node would miss the answer.
const LeaveGrace = 2 * time.Second

// Leaver is a key that no node has any more. The server will end the connection of this key.
type Leaver struct {
	Key tutti.NodeKey
	At  time.Time
}

// PausedOrHeld returns a function that says why no run may begin by itself on a node. The
// text is empty if runs may begin.
func (tx *Tx) PausedOrHeld() func(tutti.NodeName) string {
	paused := tx.Paused(tx.Now)
	return func(n tutti.NodeName) string {
		if node := tx.Registry.Nodes[n]; node != nil && node.Tickets.Conflicted != "" {
			return node.Tickets.Conflicted
		}
		if j := tx.Engine.ExclusiveOn(n); j != nil {
			return HeldBy(j)
		}
		return paused(n)
	}
}

// HeldBy names the exclusive job that holds a node.
func HeldBy(j *engine.Job) string { return "held by job " + string(j.ID) }
