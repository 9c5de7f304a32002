package fold

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// Tickets say which machine is a node (ADR 0018).
type Tickets struct {
	Present    tutti.Digest   // that of the machine that is the node; empty: it keeps none
	Rivals     []tutti.Digest // heard again, they show that two machines are the node
	Out        []tutti.Digest // of machines that are not the node, as an operator has said
	Machine    tutti.Digest   // the installation that the node was heard from last; empty: unknown
	Conflicted string         // why two machines are the node, empty: they are not
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

// Fits reports whether who comes with a ticket (empty: without) is the node.
func (t Tickets) Fits(ticket tutti.Digest) bool {
	return t.Conflicted == "" && ticket == t.Present
}

// Rival reports whether a ticket shows that two machines are the node.
func (t Tickets) Rival(ticket tutti.Digest) bool { return slices.Contains(t.Rivals, ticket) }

// Left reports whether a ticket is of a machine that is the node no more.
func (t Tickets) Left(ticket tutti.Digest) bool { return slices.Contains(t.Out, ticket) }
