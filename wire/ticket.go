package wire

import (
	"context"

	"github.com/tutti-project/tutti"
)

// A ticket shows that the machine that uses a node's key is the machine that used it before. A
// copied disk has the same key and the same ticket. When the first of the two machines exchanges the
// ticket, the ticket of the other one becomes invalid (ADR 0018).

// Hello exchanges a node's ticket, each time that it has connected. The new one is on the node's
// disk before. If it is repeated, nothing else happens.
type Hello struct {
	Ticket string `json:"ticket,omitempty"` // the one that the node has, empty: none yet
	Next   string `json:"next"`             // the one that it wants to have
	Boot   string `json:"boot,omitempty"`   // of its kernel; for people
	Host   string `json:"host,omitempty"`   // what its kernel is called; for people
	// Machine tells installations of machines apart. If the ticket is the same and Machine is another one, the agent's
	// state was moved to another machine, or the machine was installed again and the state stayed. Empty: nothing is known.
	Machine tutti.Digest `json:"machine,omitempty"`
}

// Bounds of a hello.
const (
	minTicket = 20  // bytes
	maxTicket = 100 // bytes
	maxHost   = 300 // bytes
)

// Validate refuses a hello that no agent sends.
func (h Hello) Validate() error {
	if len(h.Next) < minTicket || len(h.Next) > maxTicket || len(h.Ticket) > maxTicket || len(h.Boot) > maxTicket || len(h.Host) > maxHost || len(h.Machine) > maxTicket || h.Next == h.Ticket {
		return tutti.Errorf(tutti.CodeInvalid, "hello: tickets of %d and %d bytes, the new one has %d to %d and is another one", len(h.Ticket), len(h.Next), minTicket, maxTicket)
	}
	return nil
}

type ticketKey struct{}

// WithTicket says with which ticket a node's message came.
func WithTicket(ctx context.Context, ticket string) context.Context {
	return context.WithValue(ctx, ticketKey{}, ticket)
}

// TicketOf returns the digest of the ticket with which a node's message came, empty if it had none.
func TicketOf(ctx context.Context) tutti.Digest {
	ticket, _ := ctx.Value(ticketKey{}).(string)
	return TicketDigest(ticket)
}

// TicketDigest is the digest by which a ticket is known; empty for no ticket.
func TicketDigest(ticket string) tutti.Digest {
	if ticket == "" {
		return ""
	}
	return tutti.DigestOf([]byte("ticket " + ticket))
}
