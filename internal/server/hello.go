package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/wire"
)

// maxRivals bounds the tickets that are kept of machines that may be copies of a node.
const maxRivals = 16

// hello exchanges a node's ticket.
//
// Whoever has the present one is the node. A machine that comes with another one has fallen back, or
// is a copy: it becomes the node, and the ticket that was the present one becomes a rival. A rival comes
// back if a machine goes to and fro between snapshots. If two come back within a minute, two machines
// take turns: both live.
func (s *Server) hello(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := decode[wire.Hello](wire.OpHello, payload)
	if err == nil {
		err = in.Validate()
	}
	if err != nil {
		return nil, err
	}
	in.Boot, in.Host = plain.Words(in.Boot), plain.Words(in.Host)
	has, next := wire.TicketDigest(in.Ticket), wire.TicketDigest(in.Next)
	onTrial := false
	err = s.do(ctx, func(tx *tx) error {
		if ctx.Err() != nil { // the node has given up on it, and may have said another one since
			return tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "hello")
		}
		n, err := tx.member(key)
		if err != nil {
			return err
		}
		t := n.Tickets
		if next == t.Present && t.Conflicted == "" {
			return nil // its answer was lost
		}
		if t.Conflicted == "" && t.Present != "" && has != t.Present && !t.Rival(has) && !t.Left(has) && !s.presence.CameBefore(n.Node, has) && !s.presence.MayComeUnknown(n.Node, tx.Now) {
			// Else it would come until the tickets of the machine that is the node are no rivals any more.
			tx.Emit(actorServer, &tutti.NodeConflicted{Node: n.Node, Why: fmt.Sprintf("more than %d times in a minute somebody came with the key of node %s and none of its tickets", presence.MaxUnknown, n.Node)})
		}
		if t.Conflicted == "" && t.Rival(has) && !s.presence.MayReturn(n.Node, tx.Now) {
			tx.Emit(actorServer, &tutti.NodeConflicted{Node: n.Node, Why: fmt.Sprintf("two machines have the key of node %s: more than %d times in an hour one has come back that another one had taken the node from", n.Node, presence.MaxReturns)})
		}
		if err := tx.notTheNode(n, has); err != nil {
			s.presence.Met(n.Node, has, has, in)
			return err
		}
		if !s.presence.MayGreet(n.Node, tx.Now) {
			return tutti.Errorf(tutti.CodeUnavailable, "node %s has said hello more than %d times in a minute", n.Node, presence.MaxHellos)
		}
		s.presence.Met(n.Node, has, next, in)
		if t.Rival(has) {
			s.presence.Displaced(n.Node)
		}
		body := &tutti.NodeConnected{Node: n.Node, Ticket: next, Boot: in.Boot, Rivals: t.Rivals, Out: t.Out, Machine: in.Machine}
		switch {
		case has == t.Present:
			s.presence.Exchanged(n.Node, has)
		case t.Present != "" && s.presence.Replaced(n.Node, has, t.Rival(has), s.opts.Silence):
			onTrial = true
		}
		if has != t.Present && t.Present != "" {
			body.Rivals = append(slices.Clone(t.Rivals[max(0, len(t.Rivals)+1-maxRivals):]), t.Present)
		}
		tx.Emit(tutti.ActorNode(n.Node), body)
		if in.Machine != "" && t.Machine != "" && in.Machine != t.Machine {
			tx.moved(n.Node)
		}
		s.presence.Hear(n.Node)
		return nil
	})
	if err == nil && onTrial { // it may have missed a doorbell
		time.AfterFunc(presence.TrialFor, func() { s.ringClaims([]tutti.NodeKey{key}) })
	}
	if err == nil { // a copy that lives says so now, and not by its next beat
		if err := s.opts.Bus.Ring(key, wire.RingBeat, nil); err != nil {
			s.opts.Logger.Warn("doorbell not rung", "key", key, "error", err)
		}
	}
	return nil, err
}

// notTheNode refuses a ticket that no machine may have that is the node, and finds out that two are.
func (tx *tx) notTheNode(n *fold.Node, ticket tutti.Digest) error {
	t := n.Tickets
	switch {
	case t.Left(ticket):
		return tx.deny(tutti.ActorNode(n.Node), "speak for the node from a machine that is it no more",
			tutti.Errorf(tx.notNow, "this machine is not node %s: an operator has kept another one; if this is the right one, or the only one: tutti node keep %s BOOT; else make it a node of its own: tutti leave --offline, then tutti join", n.Node, n.Node))
	case t.Conflicted == "" && t.Rival(ticket) && tx.server.presence.TakesTurns(n.Node):
		why := fmt.Sprintf("two machines have the key of node %s: one is a copy of the other", n.Node)
		tx.Emit(actorServer, &tutti.NodeConflicted{Node: n.Node, Why: why})
	case t.Conflicted == "":
		return nil
	}
	return tx.deny(tutti.ActorNode(n.Node), "speak for a node that is two machines",
		tutti.Errorf(tx.notNow, "%s; nothing is taken from it: tutti node show %s, then tutti node keep %s BOOT", n.Tickets.Conflicted, n.Node, n.Node))
}

// fits refuses a message of a machine that is not the node, or of which that is not known.
func (tx *tx) fits(n *fold.Node) error {
	if n.Tickets.Fits(tx.ticket) {
		return nil
	}
	if err := tx.notTheNode(n, tx.ticket); err != nil {
		return err
	}
	if tx.ticket == "" && !tx.server.presence.Greeted(n.Node, tx.server.opts.Silence) {
		return tx.deny(tutti.ActorNode(n.Node), "speak without a ticket",
			tutti.Errorf(tx.notNow, "the agent on %s keeps no ticket any more: it was downgraded; upgrade it, or: tutti node keep %s", n.Node, n.Node))
	}
	tx.server.ringHello(n.Key)
	return tutti.Errorf(tutti.CodeUnavailable, "the ticket of node %s was exchanged since: it has to say hello first", n.Node)
}

func (s *Server) ringHello(key tutti.NodeKey) {
	if err := s.opts.Bus.Ring(key, wire.RingHello, nil); err != nil {
		s.opts.Logger.Warn("doorbell not rung", "key", key, "error", err) // it says hello when it connects
	}
}

// KeepNode implements tutti.Nodes.
func (s *Server) KeepNode(ctx context.Context, in api.KeepNode) error {
	return s.lasting(ctx, "keep node "+string(in.Node), func(tx *tx) error {
		n := tx.Registry.Nodes[in.Node]
		if n == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(in.Node))
		}
		met := s.presence.Machines(in.Node)
		body := &tutti.NodeKept{Node: in.Node, Out: n.Tickets.Out}
		switch {
		case in.Boot != "":
			kept, others, err := choose(met, in.Boot)
			if err != nil {
				return err
			}
			body.Ticket, body.Out = kept, others
		case n.Tickets.Conflicted != "":
			return tutti.Errorf(tutti.CodeInvalid, "two machines are node %s: say which one it is: %s", in.Node, describeMachines(met))
		}
		tx.Emit(tutti.Actor(ctx), body)
		tx.server.ringHello(n.Key)
		return nil
	})
}

// choose returns the ticket of the machine whose boot id, or whose ticket's digest, begins so, and
// those of the others.
func choose(met []tutti.Machine, begins string) (kept tutti.Digest, others []tutti.Digest, err error) {
	for _, m := range met {
		_, ticket, _ := strings.Cut(string(m.Ticket), ":")
		switch {
		case !strings.HasPrefix(m.Boot, begins) && !strings.HasPrefix(ticket, begins):
			others = append(others, m.Ticket)
		case kept != "":
			return "", nil, tutti.Errorf(tutti.CodeInvalid, "%q fits more than one machine: %s", begins, describeMachines(met))
		default:
			kept = m.Ticket
		}
	}
	if kept == "" {
		return "", nil, tutti.Errorf(tutti.CodeNotFound, "no machine with %q has said hello since the server was started: %s", begins, describeMachines(met))
	}
	return kept, others, nil
}

func describeMachines(met []tutti.Machine) string {
	if len(met) == 0 {
		return "none has; they say it every half minute"
	}
	var out []string
	for _, m := range met {
		out = append(out, m.String())
	}
	return strings.Join(out, "; ")
}
