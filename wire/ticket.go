package wire

import (
	"context"

	"github.com/tutti-project/tutti"
)

// A ticket shows that the same machine as before uses a node's key. A
// copied disk contains the same key and the same ticket. When the first of the two machines
// exchanges the ticket, the ticket of the other machine becomes invalid (ADR 0018).

// Hello exchanges a node's ticket. The agent sends a Hello after each connection. The agent writes
// the new ticket to disk before it sends the Hello. A repeated Hello has no further effect.
type Hello struct {
	// Ticket is the node's present ticket. Ticket is empty if the node has no ticket yet.
	Ticket string `json:"ticket,omitempty"`
	Next   string `json:"next"`           // The field Next is the new ticket that the node proposes.
	Boot   string `json:"boot,omitempty"` // Boot is the boot id of the node's kernel, for people.
	Host   string `json:"host,omitempty"` // Host is the hostname of the node's kernel, for people.
	// Machine is a digest that distinguishes installations of machines. If the ticket is the same and Machine differs,
	// either the agent's state was moved to another machine, or the machine was installed again and kept the state.
	// Machine is empty if the agent does not report it.
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
		return tutti.Errorf(tutti.CodeInvalid, "hello: tickets of %d and %d bytes; the new ticket needs %d to %d bytes and must differ from the old ticket", len(h.Ticket), len(h.Next), minTicket, maxTicket)
	}
	return nil
}

type ticketKey struct{}

// WithTicket stores the ticket of a node's message in the context.
func WithTicket(ctx context.Context, ticket string) context.Context {
	return context.WithValue(ctx, ticketKey{}, ticket)
}

// TicketOf returns the digest of the ticket of a node's message. The digest is empty if the message had no ticket.
func TicketOf(ctx context.Context) tutti.Digest {
	ticket, _ := ctx.Value(ticketKey{}).(string)
	return TicketDigest(ticket)
}

// TicketDigest returns the digest that stands for a ticket. The digest of an empty ticket is empty.
func TicketDigest(ticket string) tutti.Digest {
	if ticket == "" {
		return ""
	}
	return tutti.DigestOf([]byte("ticket " + ticket))
}
