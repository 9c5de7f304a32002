package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// line is an agent.Bus to a server. The test can cut the line.
type line struct {
	t   *testing.T
	key tutti.NodeKey

	mu      sync.Mutex
	fleet   *servertest.Fleet
	rings   []func(op string, payload []byte)
	cut     bool
	ticket  string
	ops     []string
	sent    map[string][][]byte                   // the payloads of each operation
	refuse  map[string]error                      // by operation
	fails   func(op string, payload []byte) error // simulates an error in the server
	alter   func(op string, reply []byte) []byte  // simulates an attacker
	answer  string                                // the function `alter` answers this operation even if the server refuses it
	connect []func()
	stop    *stop
	calls   chan struct{} // closed by the next call
}

// The type `stop` is a place at which the test kills an agent.
type stop struct {
	op       string
	answered bool // true if the server has carried out the request, and its answer is lost
	reached  chan struct{}
}

// stopAt makes the next call of an operation hang until its agent is killed.
func (l *line) stopAt(op string, answered bool) *stop {
	s := &stop{op: op, answered: answered, reached: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop = s
	return s
}

// The method `hang` waits for the agent's end if the agent has reached the stop.
func (l *line) hang(ctx context.Context, op string, answered bool) error {
	l.mu.Lock()
	s := l.stop
	if s == nil || s.op != op || s.answered != answered {
		l.mu.Unlock()
		return nil
	}
	l.stop = nil
	l.mu.Unlock()
	close(s.reached)
	<-ctx.Done()
	return tutti.Wrap(tutti.CodeUnavailable, context.Cause(ctx), "%s", op)
}

func newLine(t *testing.T, n *servertest.Node) *line {
	return &line{t: t, fleet: n.Fleet, key: n.Key, sent: map[string][][]byte{}, refuse: map[string]error{}, calls: make(chan struct{})}
}

// payload returns the last payload of an operation. The method returns nil if there is
// none.
func (l *line) payload(op string) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sent[op]) == 0 {
		return nil
	}
	return l.sent[op][len(l.sent[op])-1]
}

// payloads returns all payloads that were sent for an operation.
func (l *line) payloads(op string) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.sent[op])
}

func (l *line) Call(ctx context.Context, op string, payload []byte) ([]byte, error) {
	l.mu.Lock()
	ctx = wire.WithTicket(ctx, l.ticket)
	l.ops = append(l.ops, op)
	l.sent[op] = append(l.sent[op], bytes.Clone(payload))
	l.tell()
	cut, refused, alter, answer, fleet := l.cut, l.refuse[op], l.alter, l.answer, l.fleet
	if l.fails != nil && refused == nil {
		refused = l.fails(op, payload)
	}
	l.mu.Unlock()
	if err := l.hang(ctx, op, false); err != nil {
		return nil, err
	}
	if cut {
		return nil, tutti.Errorf(tutti.CodeUnavailable, "%s: not connected to the server", op)
	}
	if refused != nil {
		return nil, refused
	}
	reply, err := fleet.Handle(ctx, l.key, op, bytes.Clone(payload))
	if lost := l.hang(ctx, op, true); lost != nil {
		return nil, lost
	}
	if alter != nil && (err == nil || op == answer) {
		return alter(op, reply), nil
	}
	return reply, err
}

func (l *line) Send(op string, payload []byte) error {
	l.mu.Lock()
	cut, ctx, fleet := l.cut, wire.WithTicket(context.Background(), l.ticket), l.fleet
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tell()
	}()
	if cut {
		return tutti.Errorf(tutti.CodeUnavailable, "not connected")
	}
	_, err := fleet.Handle(ctx, l.key, op, bytes.Clone(payload))
	return err
}

// The method `tell` wakes everyone who waits for a call or a beat. The caller holds l.mu.
func (l *line) tell() {
	close(l.calls)
	l.calls = make(chan struct{})
}

// The method `wait` waits until the condition is true. The method checks the condition after each
// call and each beat.
func (l *line) wait(what string, so func() bool) {
	l.t.Helper()
	deadline := time.NewTimer(hang)
	defer deadline.Stop()
	for {
		l.mu.Lock()
		next := l.calls
		l.mu.Unlock()
		if so() {
			return
		}
		select {
		case <-next:
		case <-deadline.C:
			l.t.Errorf("waited %s for %s", hang, what)
			return
		}
	}
}

func (l *line) OnRing(f func(op string, payload []byte)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rings = append(l.rings, f)
	l.fleet.Bus.Listen(l.key, f)
	return nil
}

// The method `to` changes the server to which the line is connected.
func (l *line) to(fleet *servertest.Fleet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fleet = fleet
	for _, f := range l.rings {
		fleet.Bus.Listen(l.key, f)
	}
}

func (l *line) SetTicket(ticket string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ticket = ticket
}

func (l *line) OnConnect(f func()) {
	l.mu.Lock()
	l.connect = append(l.connect, f)
	l.mu.Unlock()
	f()
}

// The method `sever` cuts the line, and the method `mend` connects the line again.
func (l *line) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
}

func (l *line) mend() {
	l.mu.Lock()
	l.cut = false
	calls := slices.Clone(l.connect)
	l.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// refuseWith makes the server refuse an operation. If err is nil, the server accepts the
// operation again.
func (l *line) refuseWith(op string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse[op] = err
	if err == nil {
		delete(l.refuse, op)
	}
}

// The method `failing` makes a call fail if the function f returns an error for this call.
func (l *line) failing(f func(op string, payload []byte) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = f
}

// The method `said` returns the operations so far, without the operations in `but`. An operation
// that comes several times in a row is listed once. The method always leaves out hellos, because
// each connection begins with a hello.
func (l *line) said(but ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ops := slices.DeleteFunc(slices.Clone(l.ops), func(op string) bool { return op == wire.OpHello || slices.Contains(but, op) })
	return strings.Join(slices.Compact(ops), " ")
}

// The method `until` returns when the operation was called n times.
func (l *line) until(op string, n int) {
	l.t.Helper()
	l.wait(fmt.Sprintf("call %d of %s", n, op), func() bool { return l.count(op) >= n })
}

// The method `settle` waits until the agent has finished its present work.
func (l *line) settle() {
	n := l.count(wire.OpClaim)
	l.mend()
	l.until(wire.OpClaim, n+1)
}

func (l *line) count(op string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, o := range l.ops {
		if o == op {
			n++
		}
	}
	return n
}
