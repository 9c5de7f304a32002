package natsbus_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// historyDir is set in the process that runs the bus of TestHistory.
const historyDir = "TUTTI_TEST_HISTORY_DIR"

// TestHistoryChild is not a test. TestHistoryChild runs a bus until it is killed.
func TestHistoryChild(t *testing.T) {
	dir := os.Getenv(historyDir)
	if dir == "" {
		return
	}
	fmt.Printf("bus %s\n", bustest.StartSyncIn(t, dir).URL())
	_, _ = io.Copy(io.Discard, os.Stdin) // the child ends when its parent ends
}

// relay forwards connections to a bus. After a restart, relay forwards to the new
// bus process. relay ends TLS on both sides, so it can look for appends in the data.
type relay struct {
	listener net.Listener
	running  sync.WaitGroup

	mu          sync.Mutex
	target      string
	bus, client *tls.Config // TLS settings: towards the clients, and towards the bus
	open        map[net.Conn]bool
	armed       bool // the next append will reach the bus, but its client will get no answer
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, open: map[net.Conn]bool{}}
	r.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.pass(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); r.cut(); r.running.Wait() })
	return r
}

// trust gives the relay a certificate of the given authority.
func (r *relay) trust(t *testing.T, authority *identity.Authority) {
	t.Helper()
	config, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = "127.0.0.1"
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bus, r.client = authority.Bus(), config
}

func (r *relay) pass(raw net.Conn) {
	r.mu.Lock()
	target, asBus, asClient := r.target, r.bus, r.client
	r.mu.Unlock()
	onward, err := net.Dial("tcp", target)
	if err != nil {
		_ = raw.Close()
		return
	}
	r.mu.Lock()
	r.open[raw], r.open[onward] = true, true
	r.mu.Unlock()
	client, server := net.Conn(tls.Server(raw, asBus)), net.Conn(tls.Client(onward, asClient))
	var both sync.WaitGroup
	var mute atomic.Bool // if true, the relay sends nothing more to the client
	for to, from := range map[net.Conn]net.Conn{client: server, server: client} {
		both.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := from.Read(buf)
				last := from == client && r.swallows(buf[:n])
				if last {
					mute.Store(true) // do this before the bus gets the append and can answer
				}
				if n > 0 && (from == client || !mute.Load()) {
					if _, wrote := to.Write(buf[:n]); wrote != nil {
						break
					}
				}
				if last {
					r.cut()
				}
				if err != nil {
					break
				}
			}
			_, _ = raw.Close(), onward.Close()
		})
	}
	both.Wait()
}

// The method `arm` makes the relay cut its connections when the bus has received the next append. The
// client then gets no answer.
func (r *relay) arm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = true
}

// swallows returns true if the relay is armed and the data is a part of an append. Then the relay is no longer armed.
func (r *relay) swallows(sent []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.armed || !bytes.Contains(sent, []byte(jetstream.ExpectedLastSeqHeader)) {
		return false
	}
	r.armed = false
	return true
}

// The method `cut` ends all connections at once.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		_ = c.Close()
		delete(r.open, c)
	}
}

// startBus runs a bus in a separate process and makes the relay forward to this bus.
func (r *relay) startBus(t *testing.T, dir string) (kill func()) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHistoryChild$")
	child.Env = append(os.Environ(), historyDir+"="+dir)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = child.Process.Kill()
		_, _ = child.Wait(), stdin.Close()
	})
	t.Cleanup(kill)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "bus nats://"); ok {
			r.mu.Lock()
			r.target = url
			r.mu.Unlock()
			return kill
		}
	}
	t.Fatal("the bus did not start")
	return nil
}

// An operation is what a client does: an append or a read. An append names the event after which
// its events shall be stored. A read returns all events.
type (
	operation struct {
		read   bool
		behind string   // the append comes after this event, the last one that the writer knows
		events []string // what is appended
	}
	result struct {
		conflict bool
		sum      tutti.Digest // for a read, the last link of the chain of all events
	}
	list struct {
		last string
		sum  tutti.Digest
	}
)

func (l list) with(events ...string) list {
	for _, e := range events {
		l = list{e, tutti.Link(l.sum, []byte(e))}
	}
	return l
}

// theLog is the model of the log: a list of events. An append is stored completely, directly after the event that it
// names. A read returns the whole list. A conflict changes nothing. An append that names the last event may still end
// in a conflict. This happens if the log ends in a torn append that the writer does not know.
var theLog = porcupine.Model{
	Init: func() any { return list{} },
	Step: func(state, input, output any) (bool, any) {
		l, op, res := state.(list), input.(operation), output.(result)
		switch {
		case op.read:
			return res.sum == l.sum, l
		case res.conflict:
			return true, l
		case op.behind != l.last:
			return false, l
		}
		return true, l.with(op.events...)
	},
}

// unknown is the model for an append without an answer. The append may happen at any later time, or
// never. In the model, an append that never happens is an append at the end of time: it comes after
// all other events, and no client reads it.
func unknown(state list, op operation) (bool, any) {
	if op.behind != state.last {
		return true, state
	}
	return true, state.with(op.events...)
}

// history records the operations of all clients and their results.
type history struct {
	began    time.Time
	mu       sync.Mutex
	ops      []porcupine.Operation
	acked    int
	unknowns int
	progress chan struct{} // gets one element for each acknowledged append
	damage   chan error
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

const never = int64(1) << 62

// checkDeadline only stops a test that hangs. The check of a history takes less than
// a second.
const checkDeadline = 5 * time.Minute

// note adds an operation to the history. The operation began at the time `call`. note does not add reads that failed.
func (h *history) note(client int, call int64, op operation, res result, err error) {
	end := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	var output any = res
	switch code := tutti.CodeOf(err); {
	case code == tutti.CodeConflict:
		output = result{conflict: true}
	case err != nil && op.read:
		return
	case err != nil:
		output, end = nil, never
		h.unknowns++
	case !op.read:
		h.acked++
		h.progress <- struct{}{}
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Call: call, Output: output, Return: end})
}

// client is a writer and a reader with its own connection.
type client struct {
	*history
	id    int
	nc    *nats.Conn
	log   *natsbus.Log
	known list
	seq   uint64
}

func (c *client) run(ctx context.Context) {
	refused := "nowhere"
	for i := 0; ctx.Err() == nil; i++ {
		if !c.connected(ctx) || c.read(ctx) != nil {
			continue
		}
		if refused == c.known.last { // two appends after the same event were refused, so the log ends in a torn append
			if again, err := natsbus.OpenLog(ctx, c.nc, natsbus.LogOptions{}); err == nil {
				c.log = again
			}
		}
		var events []tutti.Event
		op := operation{behind: c.known.last}
		for j := range 1 + i%3 {
			op.events = append(op.events, fmt.Sprintf("%d-%d-%d", c.id, i, j))
			events = append(events, setValue(op.events[j]))
		}
		call := c.now()
		opCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		seq, err := c.log.Append(opCtx, c.seq, events)
		cancel()
		c.note(c.id, call, op, result{}, err)
		switch refused = "nowhere"; tutti.CodeOf(err) {
		case "":
			c.seq, c.known = seq, c.known.with(op.events...)
		case tutti.CodeConflict:
			refused = op.behind
		default: // the client does not know whether the log has the append
		}
	}
}

func (c *client) connected(ctx context.Context) bool {
	back := c.nc.StatusChanged(nats.CONNECTED)
	defer c.nc.RemoveStatusListener(back)
	if c.nc.IsConnected() {
		return true
	}
	select {
	case <-back:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// The method `read` reads the events that are new for this client.
func (c *client) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	call, known, seq := c.now(), c.known, c.seq
	for e, err := range c.log.Read(ctx, seq) {
		if tutti.CodeOf(err) == tutti.CodeDamaged {
			c.damage <- err
		}
		if err != nil {
			return err
		}
		known, seq = known.with(e.Body.ID()), e.Seq
	}
	c.known, c.seq = known, seq
	c.note(c.id, call, operation{read: true}, result{sum: known.sum}, nil)
	return nil
}

// historyRounds is the number of rounds. The first round kills the bus, the second cuts the
// connections, the third suppresses the answer of an append, and so on.
const historyRounds = 9

// TestHistory lets several writers write to one log while it kills the bus and cuts connections.
// There must be an order of all operations with two properties. First, the order agrees with the
// clock. Second, a list that executes the operations in this order gives the clients the same
// results.
func TestHistory(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), newRelay(t)
	kill := r.startBus(t, dir)
	h := &history{began: time.Now(), progress: make(chan struct{}, 10_000), damage: make(chan error, 10_000)}
	authority, err := identity.Load(filepath.Join(dir, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	r.trust(t, authority)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for id := range 3 {
		c := &client{history: h, id: id, nc: dialLog(t, authority, "nats://"+r.listener.Addr().String())}
		if c.log, err = natsbus.OpenLog(t.Context(), c.nc, natsbus.LogOptions{}); err != nil {
			t.Fatal(err)
		}
		clients.Go(func() { c.run(ctx) })
	}
	for round := range historyRounds {
		h.grow(t)
		switch round % 3 {
		case 0:
			kill()
			kill = r.startBus(t, dir)
		case 1:
			r.cut()
		case 2:
			r.arm()
		}
	}
	h.grow(t)
	stop()
	clients.Wait()
	h.verify(t)
}

// grow waits until some more appends are acknowledged.
func (h *history) grow(t *testing.T) {
	t.Helper()
	for range 15 {
		select {
		case <-h.progress:
		case err := <-h.damage:
			h.verify(t)
			t.Fatalf("a reader: %v", err)
		}
	}
}

func (h *history) verify(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	model := theLog
	model.Step = func(state, input, output any) (bool, any) {
		if output == nil {
			return unknown(state.(list), input.(operation))
		}
		return theLog.Step(state, input, output)
	}
	t.Logf("%d operations, %d appends acknowledged, %d of unknown outcome", len(h.ops), h.acked, h.unknowns)
	if got := porcupine.CheckOperationsTimeout(model, h.ops, checkDeadline); got != porcupine.Ok {
		t.Errorf("the history is %s", got)
	}
	if h.unknowns < historyRounds/3 {
		t.Errorf("%d appends of unknown outcome, want each that the relay left without an answer: the test proves little", h.unknowns)
	}
}
