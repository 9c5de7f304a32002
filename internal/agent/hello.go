package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// TicketFile contains the node's ticket and the next ticket that the node asks for
// (ADR 0018).
const TicketFile = "ticket.json"

type tickets struct {
	Ticket string `json:"ticket,omitempty"`
	Next   string `json:"next,omitempty"`
}

// The method `hellos` exchanges the node's ticket after each connection, and when the server requests
// an exchange. The exchange also works during a run, because the server accepts the run's messages
// only after the exchange.
func (a *Agent) hellos(ctx context.Context) {
	timer := time.NewTimer(claimEvery)
	defer timer.Stop()
	defer a.exchange.leave()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.greet:
			a.setGreeted(false, nil)
		case <-timer.C:
		}
		if a.hasGreeted() {
			continue
		}
		a.exchange.due()
		err := a.hello(ctx)
		a.exchange.end()
		switch {
		case err == nil:
			a.setGreeted(true, nil)
			a.poke()
			a.opts.Follow()
			ring(a.lease)
			ring(a.lookAgain)
			ring(a.tellAgain)
			continue
		case away(err):
			timer.Reset(retryAfter)
			continue
		}
		if ctx.Err() == nil {
			a.opts.Logger.Error("the server does not accept this machine as the node", "error", err)
			a.noteDenied(err)
		}
		a.setGreeted(false, err)
		timer.Reset(claimEvery)
	}
}

// readTicket returns the tickets on disk. If the tickets cannot be read, readTicket returns empty
// tickets. The server then gets an empty ticket, and notices that this machine was set back.
func (a *Agent) readTicket() tickets {
	kept, err := readSealed[tickets](filepath.Join(a.opts.Dir, TicketFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.opts.Logger.Error("the ticket cannot be read; the agent asks the server for another one", "error", err)
		return tickets{}
	}
	return kept
}

// Ticket returns the ticket of the node with the state directory dir. Ticket returns an
// empty string if the node has no ticket.
func Ticket(dir string) string {
	kept, err := readSealed[tickets](filepath.Join(dir, TicketFile))
	if err != nil {
		return ""
	}
	return kept.Ticket
}

// Greet completes an exchange that an agent has left unfinished. After that, a bus can use the ticket
// of the node with the state directory dir.
func Greet(ctx context.Context, bus Bus, dir string) error {
	kept, err := readSealed[tickets](filepath.Join(dir, TicketFile))
	if err != nil || kept.Next == "" {
		bus.SetTicket(kept.Ticket)
		return nil //nolint:nilerr // no exchange is unfinished
	}
	raw, err := json.Marshal(wire.Hello{Ticket: kept.Ticket, Next: kept.Next})
	if err != nil {
		return err
	}
	_, err = bus.Call(ctx, wire.OpHello, raw)
	if tutti.CodeOf(err) == tutti.CodeInvalid { // a server of release 0.2.0 or earlier does not know the message
		return nil
	}
	bus.SetTicket(kept.Next)
	return err
}

// The method `hello` exchanges the ticket once. The agent writes the new ticket to disk before it
// sends the ticket. The bus uses the new ticket as soon as the server has it. If the agent is killed
// at any point, the next agent sends the same message again.
func (a *Agent) hello(ctx context.Context) error {
	path := filepath.Join(a.opts.Dir, TicketFile)
	kept := a.readTicket()
	asked := kept.Next != "" // the agent has asked for this ticket before, or this machine is a copy of the machine that has asked
	if !asked {
		kept.Next = rand.Text()
		if err := writeSealed(path, kept); err != nil {
			a.opts.Logger.Error("the requested ticket could not be stored", "error", err)
		}
	}
	killpoint.Here("agent.ticket")
	_, err := call[struct{}](ctx, a, wire.OpHello, wire.Hello{Ticket: kept.Ticket, Next: kept.Next, Boot: bootID(), Host: hostName(), Machine: a.opts.Machine})
	if tutti.CodeOf(err) == tutti.CodeInvalid { // a server of release 0.2.0 or earlier does not know the message
		a.opts.Logger.Info("the server keeps no tickets", "error", err)
		if err := writeSealed(path, tickets{Ticket: kept.Ticket}); err != nil {
			a.opts.Logger.Error("the requested ticket could not be removed", "error", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	a.opts.Bus.SetTicket(kept.Next)
	if err := writeSealed(path, tickets{Ticket: kept.Next}); err != nil {
		a.opts.Logger.Error("the new ticket could not be stored; the agent uses it now, and requests it again after the next start", "error", err)
		return nil
	}
	if asked {
		return a.hello(ctx) // the next exchange shows whether another machine has the ticket
	}
	return nil
}

// The type `exchange` is the state of the exchange of tickets. Messages wait for the end of the
// exchange, because the server would refuse messages with the previous ticket.
type exchange struct {
	mu    sync.Mutex
	count int           // how many exchanges have ended
	left  bool          // the agent ends: no further exchange comes
	cut   bool          // an exchange was due when the agent ended
	ended chan struct{} // closed when the due exchange has ended, with or without success; nil if no exchange is due
}

func (x *exchange) due() {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.left:
		x.cut = true
	case x.ended == nil:
		x.ended = make(chan struct{})
	}
}

// The method `leave` ends all waits, because the agent ends and makes no further exchange.
func (x *exchange) leave() {
	x.mu.Lock()
	x.left, x.cut = true, x.ended != nil
	x.mu.Unlock()
	x.end()
}

func (x *exchange) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended != nil {
		close(x.ended)
	}
	x.ended = nil
	x.count++
}

// The method `wait` waits until no exchange is due, and returns the number of ended exchanges.
func (x *exchange) wait(ctx context.Context) (int, error) {
	for {
		x.mu.Lock()
		count, ended, cut := x.count, x.ended, x.cut
		x.mu.Unlock()
		if cut {
			return 0, errNotGreeted
		}
		if ended == nil {
			return count, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return 0, tutti.Wrap(tutti.CodeUnavailable, context.Cause(ctx), "waiting for the exchange of the ticket")
		}
	}
}

// sendWait is how long Send waits at most for the exchange of the ticket.
const sendWait = 5 * time.Second

// greetedBus is a bus on which messages wait while an exchange is due. If a call reached the server
// with the previous ticket, the bus repeats the call once.
type greetedBus struct {
	Bus
	exchange *exchange
}

func (b greetedBus) Call(ctx context.Context, op string, payload []byte) ([]byte, error) {
	if op == wire.OpHello {
		return b.Bus.Call(ctx, op, payload)
	}
	before, err := b.exchange.wait(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := b.Bus.Call(ctx, op, payload)
	if tutti.CodeOf(err) != tutti.CodeUnavailable {
		return reply, err
	}
	if now, waited := b.exchange.wait(ctx); waited == nil && now != before {
		return b.Bus.Call(ctx, op, payload)
	}
	return reply, err
}

func (b greetedBus) Send(op string, payload []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), sendWait)
	defer cancel()
	if _, err := b.exchange.wait(ctx); err != nil {
		return err
	}
	return b.Bus.Send(op, payload)
}

func (a *Agent) setGreeted(done bool, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.greeted, a.notTaken = done, why
}

func (a *Agent) hasGreeted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.greeted
}

// isTaken reports whether the server accepts this machine as the node, as far as the agent
// knows.
func (a *Agent) isTaken() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notTaken == nil
}

// bootID returns the kernel's id of the present boot. The function returns an empty
// string if the kernel has no boot id.
func bootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
