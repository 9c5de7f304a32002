package natsbus_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// serve answers calls with the handler h until the test ends or calls the returned function.
func serve(t *testing.T, bus *bustest.Bus, h natsbus.Handler, change ...func(*natsbus.ServeOptions)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	o := natsbus.ServeOptions{Handler: h, SpoolDir: filepath.Join(t.TempDir(), "spool"), Ready: func() { close(ready) }}
	for _, f := range change {
		f(&o)
	}
	nc := bus.Nodes(t)
	go func() { done <- natsbus.Serve(ctx, nc, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatalf("Serve: %v", err)
	}
	return stop
}

func dial(t *testing.T, bus *bustest.Bus, node bustest.Node) *natsbus.Conn {
	t.Helper()
	c, err := natsbus.Dial(t.Context(), natsbus.DialOptions{
		URLs: []string{bus.URL()}, JWT: node.JWT, Seed: node.Seed, CA: bus.Authority.CA(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// within returns a context that ends long after the tested action. The context only stops a test that hangs.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// overdue is a context whose deadline passes when the test closes the channel `done`.
type overdue struct {
	context.Context
	done chan struct{}
}

func (o overdue) Done() <-chan struct{} { return o.done }

func (o overdue) Err() error {
	select {
	case <-o.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func receive[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-within(t).Done():
		t.Fatalf("no %s", what)
		panic("not reached")
	}
}

func wantCode(t *testing.T, err error, want tutti.Code) {
	t.Helper()
	if tutti.CodeOf(err) != want {
		t.Errorf("got error %v with code %q, want code %q", err, tutti.CodeOf(err), want)
	}
}

func pattern(size int) []byte {
	content := make([]byte, size)
	state := uint32(size)*2654435761 + 1
	for i := range content {
		state = state*1664525 + 1013904223
		content[i] = byte(state >> 24)
	}
	return content
}

func TestCall(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	node := bus.Join(t, "web.example.net")
	serve(t, bus, func(_ context.Context, from tutti.NodeKey, op string, payload []byte) ([]byte, error) {
		switch {
		case from != node.Key:
			return nil, tutti.Errorf(tutti.CodeInternal, "from %s", from)
		case op == "plain":
			return nil, errors.New("no code")
		case op != "echo":
			return nil, tutti.Errorf(tutti.Code(op), "as asked: %s", payload)
		}
		slices.Reverse(payload)
		return payload, nil
	})
	c := dial(t, bus, node)
	for _, size := range []int{0, 1, 128 << 10, 128<<10 + 1, 300 << 10, 5<<20 + 3} {
		want := pattern(size)
		got, err := c.Call(within(t), "echo", pattern(size))
		slices.Reverse(want)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("echo of %d bytes: %d bytes, %v", size, len(got), err)
		}
	}
	for _, code := range []tutti.Code{tutti.CodeInvalid, tutti.CodeNotFound, tutti.CodeConflict, tutti.CodeRefused, tutti.CodeUnavailable, tutti.CodeInternal} {
		_, err := c.Call(within(t), string(code), []byte("x"))
		wantCode(t, err, code)
		if diff := cmp.Diff("as asked: x", err.Error()); diff != "" {
			t.Errorf("message: -want +got\n%s", diff)
		}
	}
	_, err := c.Call(within(t), "plain", nil)
	wantCode(t, err, tutti.CodeInternal)
	for _, op := range []string{"", "_put", "A", "a.b", "*", ">", "a b"} {
		_, err := c.Call(within(t), op, nil)
		wantCode(t, err, tutti.CodeInvalid)
		wantCode(t, c.Send(op, nil), tutti.CodeInvalid)
		wantCode(t, natsbus.Ring(bus.Nodes(t), node.Key, op, nil), tutti.CodeInvalid)
	}
	_, err = c.Call(within(t), "echo", make([]byte, natsbus.MaxPayload+1))
	wantCode(t, err, tutti.CodeInvalid)
}

func TestCallOfTheLargestPayload(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	serve(t, bus, func(_ context.Context, _ tutti.NodeKey, _ string, payload []byte) ([]byte, error) {
		return payload, nil
	})
	c := dial(t, bus, bus.Join(t, "web"))
	want := pattern(natsbus.MaxPayload)
	got, err := c.Call(within(t), "echo", want)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestNoAnswerIsNoSuccess(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	c := dial(t, bus, bus.Join(t, "web"))
	_, err := c.Call(within(t), "op", nil)
	wantCode(t, err, tutti.CodeUnavailable) // nobody serves

	hold := make(chan struct{})
	entered := make(chan struct{}, 10)
	serve(t, bus, func(ctx context.Context, _ tutti.NodeKey, _ string, _ []byte) ([]byte, error) {
		entered <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
	t.Cleanup(func() { close(hold) })
	late := overdue{t.Context(), make(chan struct{})}
	go func() {
		<-entered
		close(late.done)
	}()
	_, err = c.Call(late, "slow", nil)
	wantCode(t, err, tutti.CodeDeadline)

	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(within(t), "slow", nil)
		failed <- err
	}()
	receive(t, entered, "call")
	c.Close()
	wantCode(t, receive(t, failed, "end of the call"), tutti.CodeUnavailable)
	_, err = c.Call(within(t), "op", nil)
	wantCode(t, err, tutti.CodeUnavailable)
}

func TestDialWithoutServer(t *testing.T) {
	bus := bustest.Start(t)
	node := bus.Join(t, "web")
	restart := bus.Stop()
	c, err := natsbus.Dial(t.Context(), natsbus.DialOptions{URLs: []string{bus.URL()}, JWT: node.JWT, Seed: node.Seed, CA: bus.Authority.CA()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	up := make(chan struct{}, 10)
	c.OnConnect(func() { up <- struct{}{} })
	if c.Connected() {
		t.Error("connected to a server that is not there")
	}
	_, err = c.Call(within(t), "op", nil)
	wantCode(t, err, tutti.CodeUnavailable)
	wantCode(t, c.Send("op", nil), tutti.CodeUnavailable)
	restart(t)
	receive(t, up, "connection")
	serve(t, bus, func(context.Context, tutti.NodeKey, string, []byte) ([]byte, error) { return []byte("hello"), nil })
	if got, err := c.Call(within(t), "op", nil); err != nil || string(got) != "hello" {
		t.Errorf("after the server came: %q, %v", got, err)
	}
}

// TestConnectedIsWhatCallsUse checks the method Connected in the moment when the client library has
// connected, but calls cannot use the connection yet.
func TestConnectedIsWhatCallsUse(t *testing.T) {
	bus := bustest.Start(t)
	node := bus.Join(t, "web")
	restart := bus.Stop()
	said := &holdUp{text: "connected to the server", reached: make(chan struct{}), on: make(chan struct{})}
	c, err := natsbus.Dial(t.Context(), natsbus.DialOptions{
		URLs: []string{bus.URL()}, JWT: node.JWT, Seed: node.Seed, CA: bus.Authority.CA(), Logger: slog.New(said),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	up := make(chan struct{}, 10)
	c.OnConnect(func() { up <- struct{}{} })
	restart(t)
	receive(t, said.reached, "connection of the client library")
	_, err = c.Call(within(t), "op", nil)
	wantCode(t, err, tutti.CodeUnavailable)
	if c.Connected() {
		t.Error("it says that it is connected, and a call says that it is not")
	}
	close(said.on)
	receive(t, up, "connection")
	if !c.Connected() {
		t.Error("it says that it is not connected")
	}
}

// holdUp is a log handler. On a message that begins with `text`, holdUp closes `reached` and waits for `on`.
type holdUp struct {
	slog.Handler
	text        string
	once        sync.Once
	reached, on chan struct{}
}

func (*holdUp) Enabled(context.Context, slog.Level) bool { return true }

func (h *holdUp) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.text) {
		h.once.Do(func() { close(h.reached); <-h.on })
	}
	return nil
}

func TestCallEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	entered := make(chan struct{}, 1)
	stop := serve(t, bus, func(ctx context.Context, _ tutti.NodeKey, _ string, _ []byte) ([]byte, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return nil, nil
	})
	c := dial(t, bus, bus.Join(t, "web"))
	failed := make(chan error, 1)
	go func() {
		_, err := c.Call(within(t), "op", nil)
		failed <- err
	}()
	receive(t, entered, "call")
	restart := bus.Stop()
	wantCode(t, receive(t, failed, "end of the call"), tutti.CodeUnavailable)
	restart(t)
	stop()
}

func TestLargePayloadOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	const size, cut = 16 << 20, 8 << 20
	for _, c := range []struct {
		reason string
		up     bool
	}{{"cut while the payload goes up", true}, {"cut while the answer comes down", false}} {
		t.Run(c.reason, func(t *testing.T) {
			bus := bustest.Start(t)
			serve(t, bus, func(_ context.Context, _ tutti.NodeKey, _ string, payload []byte) ([]byte, error) {
				if c.up {
					return []byte(digestOf(payload)), nil
				}
				return pattern(size), nil
			})
			proxy := newCutter(t, bus, c.up, cut)
			node := bus.Join(t, "web")
			conn, err := natsbus.Dial(t.Context(), natsbus.DialOptions{URLs: []string{proxy.url()}, JWT: node.JWT, Seed: node.Seed, CA: bus.Authority.CA()})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var got, want []byte
			if c.up {
				want = []byte(digestOf(pattern(size)))
				got, err = conn.Call(within(t), "put", pattern(size))
			} else {
				want = pattern(size)
				got, err = conn.Call(within(t), "get", nil)
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if proxy.cuts.Load() != 1 {
				t.Errorf("the connection was cut %d times, want 1: the test proves nothing", proxy.cuts.Load())
			}
			if passed := proxy.passed.Load(); passed > size*11/10 {
				t.Errorf("%d bytes passed for a payload of %d: it was not continued where it was cut", passed, size)
			}
		})
	}
}

// If the server has the payload but cannot handle the call yet, a repeated call does not upload it again.
func TestALargeCallMadeAgainIsNotSentAgain(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	bus := bustest.Start(t)
	var calls atomic.Int64
	serve(t, bus, func(_ context.Context, _ tutti.NodeKey, _ string, payload []byte) ([]byte, error) {
		if calls.Add(1) < 3 {
			return nil, tutti.Errorf(tutti.CodeUnavailable, "later")
		}
		return []byte(digestOf(payload)), nil
	})
	proxy := newCutter(t, bus, true, 1<<40)
	node := bus.Join(t, "web")
	conn, err := natsbus.Dial(t.Context(), natsbus.DialOptions{URLs: []string{proxy.url()}, JWT: node.JWT, Seed: node.Seed, CA: bus.Authority.CA()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		_, err := conn.Call(within(t), "put", pattern(size))
		wantCode(t, err, tutti.CodeUnavailable)
	}
	got, err := conn.Call(within(t), "put", pattern(size))
	if err != nil || string(got) != digestOf(pattern(size)) {
		t.Errorf("%q, %v", got, err)
	}
	if passed := proxy.passed.Load(); passed > size*11/10 {
		t.Errorf("%d bytes passed for a payload of %d: it was sent again", passed, size)
	}
	if _, err := conn.Call(within(t), "put", pattern(size)); err != nil {
		t.Errorf("once more: %v", err)
	}
	if passed := proxy.passed.Load(); passed < size*2 {
		t.Errorf("%d bytes passed for two calls of %d: the server keeps what it has taken", passed, size)
	}
}

// If each call with stored content fails, the server drops the content after some tries. The node must
// then send it again.
func TestALargeCallHasSomeTries(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	bus := bustest.Start(t)
	serve(t, bus, func(context.Context, tutti.NodeKey, string, []byte) ([]byte, error) {
		return nil, tutti.Errorf(tutti.CodeUnavailable, "later")
	})
	proxy := newCutter(t, bus, true, 1<<40)
	node := bus.Join(t, "web")
	conn, err := natsbus.Dial(t.Context(), natsbus.DialOptions{URLs: []string{proxy.url()}, JWT: node.JWT, Seed: node.Seed, CA: bus.Authority.CA()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for try := range 9 {
		_, err := conn.Call(within(t), "put", pattern(size))
		wantCode(t, err, tutti.CodeUnavailable)
		if passed, again := proxy.passed.Load(), try >= 8; (passed > 2*size) != again {
			t.Errorf("try %d: %d bytes passed, sent again: want %t", try+1, passed, again)
		}
	}
}

// Only a few calls with content in chunks run at once. Waiting calls of this kind do not delay calls without chunks.
func TestLargeCallsHoldUpNoOthers(t *testing.T) {
	bus := bustest.Start(t)
	hold, entered := make(chan struct{}), make(chan struct{}, 100)
	busy := bus.Join(t, "busy")
	serve(t, bus, func(_ context.Context, from tutti.NodeKey, _ string, _ []byte) ([]byte, error) {
		if from == busy.Key {
			entered <- struct{}{}
			<-hold
		}
		return nil, nil
	}, func(o *natsbus.ServeOptions) { o.Concurrency = 4 })
	c := dial(t, bus, busy)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if _, err := c.Call(within(t), "large", append(pattern(200<<10), byte(i))); err != nil {
				t.Errorf("a large call: %v", err)
			}
		})
	}
	for range 4 {
		receive(t, entered, "large call")
	}
	if _, err := dial(t, bus, bus.Join(t, "other")).Call(within(t), "op", nil); err != nil {
		t.Errorf("another node: %v", err)
	}
	close(hold)
	wg.Wait()
}

func TestSendAndRing(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	node, other := bus.Join(t, "web"), bus.Join(t, "web.example.net")
	got := make(chan string, 10)
	serve(t, bus, func(_ context.Context, from tutti.NodeKey, op string, payload []byte) ([]byte, error) {
		got <- string(from) + " " + op + " " + string(payload)
		return []byte("dropped"), nil
	})
	c, o := dial(t, bus, node), dial(t, bus, other)
	if err := c.Send("beat", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(node.Key)+" beat 1", receive(t, got, "message")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	rings := make(chan string, 10)
	for _, conn := range []struct {
		name string
		c    *natsbus.Conn
	}{{"node", c}, {"other", o}} {
		if err := conn.c.OnRing(func(op string, payload []byte) { rings <- conn.name + " " + op + " " + string(payload) }); err != nil {
			t.Fatal(err)
		}
	}
	// When this call is answered, the bus has also processed the subscription of OnRing.
	for _, conn := range []*natsbus.Conn{c, o} {
		if _, err := conn.Call(within(t), "sync", nil); err != nil {
			t.Fatal(err)
		}
	}
	nodes := bus.Nodes(t)
	for _, to := range []bustest.Node{node, other} {
		if err := natsbus.Ring(nodes, to.Key, "claim", []byte("now")); err != nil {
			t.Fatal(err)
		}
	}
	seen := []string{receive(t, rings, "ring"), receive(t, rings, "ring")}
	slices.Sort(seen)
	if diff := cmp.Diff([]string{"node claim now", "other claim now"}, seen); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestServeBoundsOneNode(t *testing.T) {
	bus := bustest.Start(t)
	hold, entered := make(chan struct{}), make(chan struct{}, 100)
	busy := bus.Join(t, "busy")
	serve(t, bus, func(ctx context.Context, from tutti.NodeKey, _ string, _ []byte) ([]byte, error) {
		if from == busy.Key {
			entered <- struct{}{}
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		return nil, nil
	})
	c := dial(t, bus, busy)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := c.Call(within(t), "slow", nil); err != nil {
				t.Errorf("a call within the bound: %v", err)
			}
		})
	}
	for range 16 {
		receive(t, entered, "call")
	}
	_, err := c.Call(within(t), "slow", nil)
	wantCode(t, err, tutti.CodeUnavailable)
	if _, err := dial(t, bus, bus.Join(t, "other")).Call(within(t), "op", nil); err != nil {
		t.Errorf("another node: %v", err)
	}
	close(hold)
	wg.Wait()
}

// TestBeatsDoNotWaitForCalls checks that the server handles light messages while all handlers are busy. If
// one node sends many light messages, only one of them is handled at a time.
func TestBeatsDoNotWaitForCalls(t *testing.T) {
	bus := bustest.Start(t)
	hold, entered, heard := make(chan struct{}), make(chan struct{}, 100), make(chan tutti.NodeKey, 100)
	serve(t, bus, func(_ context.Context, from tutti.NodeKey, op string, _ []byte) ([]byte, error) {
		if op == "beat" {
			heard <- from
		} else {
			entered <- struct{}{}
		}
		<-hold
		return nil, nil
	}, func(o *natsbus.ServeOptions) { o.Light, o.Concurrency = []string{"beat"}, 2 })
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	hear := func(of bustest.Node) {
		t.Helper()
		select {
		case got := <-heard:
			if got != of.Key {
				t.Errorf("heard %s, want %s", got, of.Key)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no beat of %s", of.Key)
		}
	}
	busy, quiet := bus.Join(t, "busy"), bus.Join(t, "quiet")
	c := dial(t, bus, busy)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := c.Call(within(t), "slow", nil); err != nil {
				t.Errorf("a call that waited for its turn: %v", err)
			}
		})
	}
	for range 2 {
		receive(t, entered, "call")
	}
	for range 5 {
		if err := c.Send("beat", nil); err != nil {
			t.Fatal(err)
		}
	}
	hear(busy)
	if err := dial(t, bus, quiet).Send("beat", nil); err != nil {
		t.Fatal(err)
	}
	hear(quiet)
	release()
	wg.Wait()
}

func BenchmarkCall(b *testing.B) {
	bus := bustest.Start(b)
	node := bus.Join(b, "web")
	ctx, cancel := context.WithCancel(b.Context())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() {
		done <- natsbus.Serve(ctx, bus.Nodes(b), natsbus.ServeOptions{
			Handler:  func(context.Context, tutti.NodeKey, string, []byte) ([]byte, error) { return nil, nil },
			SpoolDir: filepath.Join(b.TempDir(), "spool"), Ready: func() { close(ready) },
		})
	}()
	<-ready
	c, err := natsbus.Dial(ctx, natsbus.DialOptions{URLs: []string{bus.URL()}, JWT: node.JWT, Seed: node.Seed, CA: bus.Authority.CA()})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := c.Call(ctx, "op", nil); err != nil {
			b.Fatal(err)
		}
	}
	c.Close()
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}
