package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/machine"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/wire"
)

// A test fails if an event has not come after the time `hang`. Even a slow machine does
// not need so long.
const hang = 3 * time.Minute

// memberBus is a bus whose JWTs are valid for a few seconds. memberBus records the
// requests that it gets.
type memberBus struct {
	*bustest.Bus
	mu       sync.Mutex
	came     []string
	renewals atomic.Int32
	issue    atomic.Bool
}

func startMemberBus(t *testing.T, life time.Duration) *memberBus {
	t.Helper()
	b := &memberBus{Bus: bustest.Start(t)}
	b.Authority.Lives.Node = life
	b.issue.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	ended, ready := make(chan struct{}), make(chan struct{})
	nc := b.Nodes(t)
	go func() {
		defer close(ended)
		err := natsbus.Serve(ctx, nc, natsbus.ServeOptions{Handler: b.handle, SpoolDir: t.TempDir(), Ready: func() { close(ready) }})
		if err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-ready
	return b
}

func (b *memberBus) handle(_ context.Context, key tutti.NodeKey, op string, payload []byte) ([]byte, error) {
	if op != wire.OpRenew {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.came = append(b.came, string(payload))
		return payload, nil
	}
	if !b.issue.Load() {
		return nil, tutti.Errorf(tutti.CodeUnavailable, "not now")
	}
	jwt, err := b.Authority.NodeJWT(key, "web")
	if err != nil {
		return nil, err
	}
	b.renewals.Add(1)
	return json.Marshal(wire.Renewed{JWT: jwt})
}

// member connects as a node and renews its membership until the test ends.
func (b *memberBus) member(t *testing.T, notAdmitted func(error)) (conn *natsbus.Conn, dir string, joined identity.EnrolResponse) {
	t.Helper()
	node := b.Join(t, "web")
	dir = t.TempDir()
	joined = identity.EnrolResponse{
		Node: "web", JWT: node.JWT, CA: string(b.Authority.CA()), Bus: strings.TrimPrefix(b.URL(), "nats://"),
		CodeKey: identity.EncodeCodePublicKey(b.Authority.CodePublicKey()),
	}
	if err := joined.Write(dir); err != nil {
		t.Fatal(err)
	}
	conn, err := natsbus.Dial(t.Context(), natsbus.DialOptions{
		URLs: []string{b.URL()}, JWT: node.JWT, Seed: node.Seed, CA: b.Authority.CA(), NotAdmitted: notAdmitted,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = machine.Keeper{EnrolResponse: joined, Dir: dir, Conn: conn, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}.Keep(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended; conn.Close() })
	return conn, dir, joined
}

// A node sends calls for longer than its first JWT is valid. No call gets lost, none
// arrives twice, and the JWT on disk is always accepted.
func TestAMembershipRenewsWithoutALostMessage(t *testing.T) {
	b := startMemberBus(t, 3*time.Second)
	conn, dir, first := b.member(t, nil)
	_, until, err := identity.JWTLife(first.JWT)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for ; time.Now().Before(until.Add(2*time.Second)) && !t.Failed(); calls++ {
		if _, err := conn.Call(t.Context(), "count", fmt.Append(nil, calls)); err != nil {
			t.Errorf("call %d: %v", calls, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, got := range b.came {
		if got != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, got)
		}
	}
	if len(b.came) != calls || b.renewals.Load() < 2 {
		t.Errorf("%d of %d messages came, over %d renewals", len(b.came), calls, b.renewals.Load())
	}
	now, err := identity.LoadMembership(dir)
	if err != nil || now.JWT == first.JWT {
		t.Fatalf("on disk is %v, the first JWT: %v", err, now.JWT == first.JWT)
	}
}

// When a node's JWT has expired, the bus closes the connection. The node reports the
// closed connection once. After joining again, the node connects without a restart.
func TestAMembershipThatEnds(t *testing.T) {
	b := startMemberBus(t, 2*time.Second)
	b.issue.Store(false)
	said := make(chan error, 100)
	conn, dir, joined := b.member(t, func(err error) { said <- err })
	lost := make(chan struct{}, 100)
	conn.OnConnect(func() { lost <- struct{}{} })
	select { // the first signal is about the present connection; if the JWT has already expired, there may be an error instead
	case <-lost:
	case err := <-said:
		said <- err
	}
	select {
	case err := <-said:
		if tutti.CodeOf(err) != tutti.CodeUnauthenticated {
			t.Errorf("it says %v", err)
		}
	case <-time.After(hang):
		t.Fatal("it does not say that it is not admitted")
	}
	if conn.Connected() {
		t.Error("it is connected still")
	}
	_, err := conn.Call(t.Context(), "count", nil)
	if tutti.CodeOf(err) != tutti.CodeUnavailable {
		t.Errorf("a call: %v", err)
	}
	b.Authority.Lives.Node = time.Hour
	if joined.JWT, err = b.Authority.NodeJWT(conn.Key(), "web"); err != nil {
		t.Fatal(err)
	}
	if err := joined.Write(dir); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lost:
	case <-time.After(hang):
		t.Fatal("it does not come back")
	}
	if len(said) != 0 {
		t.Errorf("it said it again: %v", <-said)
	}
}
