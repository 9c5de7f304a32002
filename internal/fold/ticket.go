package fold

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// Tickets say which machine is the node (ADR 0018).
type Tickets struct {
	Present    tutti.Digest   // the ticket of the machine that is the node; empty: it keeps no ticket
	Rivals     []tutti.Digest // if a machine comes with one of these, two machines are the node
	Out        []tutti.Digest // of machines that are not the node, by an operator's decision
	Machine    tutti.Digest   // the installation that the node was heard from last; empty: unknown
	Conflicted string         // why two machines are the node, empty: only one is
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

// Fits reports whether the machine with a ticket (empty: without one) is the node.
func (t Tickets) Fits(ticket tutti.Digest) bool {
	return t.Conflicted == "" && ticket == t.Present
}

// Rival reports whether a ticket shows that two machines are the node.
func (t Tickets) Rival(ticket tutti.Digest) bool { return slices.Contains(t.Rivals, ticket) }

// Left reports whether a ticket belongs to a machine that is no longer the node.
func (t Tickets) Left(ticket tutti.Digest) bool { return slices.Contains(t.Out, ticket) }
