package fold

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// Tickets say which machine is the node (ADR 0018).
type Tickets struct {
	Present    tutti.Digest   // the ticket of the machine that is the node; empty if its agent has no tickets
	Rivals     []tutti.Digest // a machine that uses one of these tickets shows that two machines act as the node
	Out        []tutti.Digest // tickets of machines that are not the node, because an operator has decided so
	Machine    tutti.Digest   // the installation that last said hello for the node; empty if unknown
	Conflicted string         // why two machines act as the node; empty if only one does
}

func (t *Tickets) apply(body tutti.Body) {
	switch b := body.(type) {
	case *tutti.NodeConnected:
		t.Present, t.Rivals, t.Out = b.Ticket, b.Rivals, b.Out
		if b.Machine != "" {
			t.Machine = b.Machine
		}
	case *tutti.NodeConflicted:
		t.Conflicted = b.Why
	case *tutti.NodeKept:
		*t = Tickets{Present: b.Ticket, Out: b.Out, Machine: t.Machine}
	}
}

// Fits reports whether a machine with this ticket is the node. The ticket is empty if the machine has no ticket.
func (t Tickets) Fits(ticket tutti.Digest) bool {
	return t.Conflicted == "" && ticket == t.Present
}

// Rival reports whether a ticket shows that two machines act as the node.
func (t Tickets) Rival(ticket tutti.Digest) bool { return slices.Contains(t.Rivals, ticket) }

// Left reports whether a ticket belongs to a machine that is no longer the node.
func (t Tickets) Left(ticket tutti.Digest) bool { return slices.Contains(t.Out, ticket) }
