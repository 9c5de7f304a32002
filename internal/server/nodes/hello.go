package nodes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/server/core"
	"github.com/tutti-project/tutti/wire"
)

// maxRivals is the largest number of tickets of possible copies that the server keeps for one node.
const maxRivals = 16

// The method `hello` checks the ticket of a machine and gives the machine a new ticket.
//
// The machine with the present ticket is the node. A machine with another ticket was reset to a
// snapshot, or is a copy of the node. This machine becomes the node, and the previous ticket
// becomes a rival. A rival comes back if somebody switches a machine between two snapshots. If
// rivals come back twice within a minute, two running machines act as the node in turns.
func (s *Nodes) hello(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := core.Decode[wire.Hello](wire.OpHello, payload)
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
		if ctx.Err() != nil { // the node has given up this hello, and may have sent another hello
			return tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "hello")
		}
		n, err := tx.KeyOwner(key)
		if err != nil {
			return err
		}
		t := n.Tickets
		if next == t.Present && t.Conflicted == "" {
			return nil // the node has not received the answer
		}
		if t.Conflicted == "" && t.Present != "" && has != t.Present && !t.Rival(has) && !t.Left(has) && !s.Presence.CameBefore(n.Node, has) && !s.Presence.MayComeUnknown(n.Node, tx.Now) {
			// Without this limit, hellos with unknown tickets would remove the tickets of the real node from the list
			// of rivals.
			tx.Emit(core.ActorServer, &tutti.NodeConflicted{Node: n.Node, Why: fmt.Sprintf("more than %d times in a minute, a machine used the key of node %s and none of its tickets", presence.MaxUnknown, n.Node)})
		}
		if t.Conflicted == "" && t.Rival(has) && !s.Presence.MayReturn(n.Node, tx.Now) {
			tx.Emit(core.ActorServer, &tutti.NodeConflicted{Node: n.Node, Why: fmt.Sprintf("two machines have the key of node %s: more than %d times in an hour, a machine has come back after another machine had become the node", n.Node, presence.MaxReturns)})
		}
		if err := tx.NotTheNode(n, has); err != nil {
			s.Presence.Met(n.Node, has, has, in)
			return err
		}
		if !s.Presence.MayGreet(n.Node, tx.Now) {
			return tutti.Errorf(tutti.CodeUnavailable, "node %s has said hello more than %d times in a minute", n.Node, presence.MaxHellos)
		}
		s.Presence.Met(n.Node, has, next, in)
		if t.Rival(has) {
			s.Presence.Displaced(n.Node)
		}
		body := &tutti.NodeConnected{Node: n.Node, Ticket: next, Boot: in.Boot, Rivals: t.Rivals, Out: t.Out, Machine: in.Machine}
		switch {
		case has == t.Present:
			s.Presence.Exchanged(n.Node, has)
		case t.Present != "" && s.Presence.Replaced(n.Node, has, t.Rival(has), s.Opts.Silence):
			onTrial = true
		}
		if has != t.Present && t.Present != "" {
			body.Rivals = append(slices.Clone(t.Rivals[max(0, len(t.Rivals)+1-maxRivals):]), t.Present)
		}
		tx.Emit(tutti.ActorNode(n.Node), body)
		if in.Machine != "" && t.Machine != "" && in.Machine != t.Machine {
			tx.moved(n.Node)
		}
		s.Presence.Hear(n.Node)
		return nil
	})
	if err == nil && onTrial { // the node may have missed a doorbell
		time.AfterFunc(presence.TrialFor, func() { s.RingClaims([]tutti.NodeKey{key}) })
	}
	if err == nil { // if another copy is running, it answers this doorbell, and the server need not wait for its next beat
		if err := s.Opts.Bus.Ring(key, wire.RingBeat, nil); err != nil {
			s.Opts.Logger.Warn("doorbell not rung", "key", key, "error", err)
		}
	}
	return nil, err
}
