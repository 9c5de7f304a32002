package tutti

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// A ticket shows that who speaks with a node's key is the machine that spoke with it before. A
// copied disk has the same key and the same ticket: the first of the two machines that exchanges it
// leaves the other one with one that is no more good (ADR 0018).

// Hello exchanges a node's ticket, each time that it has connected. The new one is on the node's
// disk before. Said again it has no other effect.
type Hello struct {
	Ticket string `json:"ticket,omitempty"` // the one that the node has, empty: none yet
	Next   string `json:"next"`             // the one that it wants to have
	Boot   string `json:"boot,omitempty"`   // of its kernel; for people
	Host   string `json:"host,omitempty"`   // what its kernel is called; for people
	// Machine tells installations of machines apart: with the same ticket and another one, the agent's state was
	// brought to another machine, or stayed while that was installed again. Empty: nothing is known.
	Machine Digest `json:"machine,omitempty"`
}

// Bounds of a hello.
const (
	minTicket = 20  // bytes
	maxTicket = 100 // bytes
	maxHost   = 300 // bytes
)

// Validate refuses what no agent says.
func (h Hello) Validate() error {
	if len(h.Next) < minTicket || len(h.Next) > maxTicket || len(h.Ticket) > maxTicket || len(h.Boot) > maxTicket || len(h.Host) > maxHost || len(h.Machine) > maxTicket || h.Next == h.Ticket {
		return Errorf(CodeInvalid, "hello: tickets of %d and %d bytes, the new one has %d to %d and is another one", len(h.Ticket), len(h.Next), minTicket, maxTicket)
	}
	return nil
}

// Machine is one of those that speak with a node's key.
type Machine struct {
	Boot   string    `json:"boot,omitempty"`
	Host   string    `json:"host,omitempty"`
	Ticket Digest    `json:"ticket"` // that it has
	IsNode bool      `json:"is_node,omitempty"`
	SeenAt time.Time `json:"seen_at,omitzero"` // when it said hello last: one that is gone says it no more
}

// String is for people.
func (m Machine) String() string {
	_, ticket, _ := strings.Cut(string(m.Ticket), ":")
	out := fmt.Sprintf("boot %s, host %s, ticket %.12s", cmp.Or(m.Boot, "unknown"), cmp.Or(m.Host, "unknown"), ticket)
	if m.IsNode {
		out += ", which is the node"
	}
	return out
}

type ticketKey struct{}

// WithTicket says with which ticket a node's message came.
func WithTicket(ctx context.Context, ticket string) context.Context {
	return context.WithValue(ctx, ticketKey{}, ticket)
}

// TicketOf returns the digest of the ticket with which a node's message came, empty if it had none.
func TicketOf(ctx context.Context) Digest {
	ticket, _ := ctx.Value(ticketKey{}).(string)
	return TicketDigest(ticket)
}

// TicketDigest is by which a ticket is known; empty for none.
func TicketDigest(ticket string) Digest {
	if ticket == "" {
		return ""
	}
	return DigestOf([]byte("ticket " + ticket))
}
