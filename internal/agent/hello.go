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

// TicketFile has the node's ticket, and the one that it asks to have (ADR 0018).
const TicketFile = "ticket.json"

type tickets struct {
	Ticket string `json:"ticket,omitempty"`
	Next   string `json:"next,omitempty"`
}

// hellos exchanges the node's ticket after each connection, and when the server rings for it. It
// goes on beside a run: nothing that a run says is taken before.
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
			a.opts.Logger.Error("this machine is not taken for the node", "error", err)
			a.noteDenied(err)
		}
		a.setGreeted(false, err)
		timer.Reset(claimEvery)
	}
}

// readTicket returns what is kept of tickets; nothing if it cannot be read: then the server knows this
// machine as one that has fallen back.
func (a *Agent) readTicket() tickets {
	kept, err := readSealed[tickets](filepath.Join(a.opts.Dir, TicketFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.opts.Logger.Error("the ticket cannot be read; the server is asked for another one", "error", err)
		return tickets{}
	}
	return kept
}

// Ticket is the one of the node whose state is in dir, empty if it has none.
func Ticket(dir string) string {
	kept, err := readSealed[tickets](filepath.Join(dir, TicketFile))
	if err != nil {
		return ""
	}
	return kept.Ticket
}

// Greet says an exchange to its end that an agent has left, so that a bus can be used with the ticket of
// the node whose state is in dir.
func Greet(ctx context.Context, bus Bus, dir string) error {
	kept, err := readSealed[tickets](filepath.Join(dir, TicketFile))
	if err != nil || kept.Next == "" {
		bus.SetTicket(kept.Ticket)
		return nil //nolint:nilerr // it has none
	}
	raw, err := json.Marshal(wire.Hello{Ticket: kept.Ticket, Next: kept.Next})
	if err != nil {
		return err
	}
	_, err = bus.Call(ctx, wire.OpHello, raw)
	if tutti.CodeOf(err) == tutti.CodeInvalid { // a server of release 0.2.0 or before
		return nil
	}
	bus.SetTicket(kept.Next)
	return err
}

// hello exchanges the ticket once. The new one is on disk before it is told, and used once the server
// has it: whenever this agent is killed, the next one says the same again.
func (a *Agent) hello(ctx context.Context) error {
	path := filepath.Join(a.opts.Dir, TicketFile)
	kept := a.readTicket()
	asked := kept.Next != "" // before; perhaps by a machine of which this one is a copy
	if !asked {
		kept.Next = rand.Text()
		if err := writeSealed(path, kept); err != nil {
			a.opts.Logger.Error("the ticket that is asked for could not be kept", "error", err)
		}
	}
	killpoint.Here("agent.ticket")
	_, err := call[struct{}](ctx, a, wire.OpHello, wire.Hello{Ticket: kept.Ticket, Next: kept.Next, Boot: bootID(), Host: hostName(), Machine: a.opts.Machine})
	if tutti.CodeOf(err) == tutti.CodeInvalid { // a server of release 0.2.0 or before does not know it
		a.opts.Logger.Info("the server keeps no tickets", "error", err)
		if err := writeSealed(path, tickets{Ticket: kept.Ticket}); err != nil {
			a.opts.Logger.Error("the ticket that was asked for is still kept", "error", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	a.opts.Bus.SetTicket(kept.Next)
	if err := writeSealed(path, tickets{Ticket: kept.Next}); err != nil {
		a.opts.Logger.Error("the new ticket is used, and asked for again after the next start", "error", err)
		return nil
	}
	if asked {
		return a.hello(ctx) // whoever else has asked for the same one is found out by the next
	}
	return nil
}

// exchange is the exchange of the ticket. What is to be said waits for its end: with the ticket of
// before it would be refused.
type exchange struct {
	mu    sync.Mutex
	count int           // that have ended
	left  bool          // the agent ends: none comes any more
	cut   bool          // and one was due
	ended chan struct{} // closed when the one that is due has ended, well or not; nil: none is
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

// leave ends the wait of whoever waits: the agent ends, and exchanges nothing more.
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

// wait returns how many exchanges have ended, when none is due.
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

// sendWait bounds how long what may be lost waits.
const sendWait = 5 * time.Second

// greetedBus is a bus on which nothing is said while an exchange is due, and once more what came to
// the server with the ticket of before.
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

// isTaken reports whether the server has not said that this machine is not the node.
func (a *Agent) isTaken() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notTaken == nil
}

// bootID is by which the kernel of this machine tells its boots apart, empty if it does not.
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
