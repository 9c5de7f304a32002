package embed_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
)

// TestStrangersAfterTLSAreFew checks the limit for connections that finish TLS and then say nothing. Guard closes the
// oldest of them. Connections that are still in TLS do not count. A node can still connect.
func TestStrangersAfterTLSAreFew(t *testing.T) {
	const most, finish, begin = 100, 130, 200
	bus := bustest.StartWith(t, func(o *embed.Options) { o.AfterTLS = most })
	var guard, strangers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan string, finish+begin)
	told := make(chan int, finish+begin)
	address := strings.TrimPrefix(bus.URL(), "nats://")
	config := bus.TLS(t)
	config.ServerName = "127.0.0.1"
	connect := func(kind string, tlsFirst bool) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if tlsFirst {
			c = tls.Client(c, config)
		}
		in := bufio.NewReader(c)
		if tlsFirst {
			if _, err := in.ReadString('\n'); err != nil { // the bus sends INFO when TLS is finished
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { c.Close() })
		strangers.Go(func() {
			_, _ = in.ReadByte()
			if ctx.Err() == nil {
				closed <- kind
			}
		})
		context.AfterFunc(ctx, func() { c.Close() })
	}
	defer func() { cancel(); guard.Wait(); strangers.Wait() }()
	for range begin {
		connect("in TLS", false)
	}
	for i := range finish {
		connect(map[bool]string{true: "old", false: "new"}[i < finish-most], true)
	}
	guard.Go(func() {
		bus.Server.Guard(ctx, embed.GuardOptions{Unread: func(string) {}, Refused: func(_, what string, count int) {
			if what != "authenticate with the nodes' port" {
				t.Errorf("told of %q", what)
			}
			told <- count
		}})
	})
	patience := time.After(15 * time.Second) // shorter than helloTimeout, so Guard must have closed the connections
	for range finish - most {
		select {
		case kind := <-closed:
			if kind != "old" {
				t.Errorf("closed a connection that is %s", kind)
			}
		case <-patience:
			t.Fatal("connections that say nothing stay open")
		}
	}
	if n := <-told; n != finish-most {
		t.Errorf("told of %d connections, want %d", n, finish-most)
	}
	if nc, err := bus.Raw(t, bus.Join(t, "web")); err != nil || !nc.IsConnected() {
		t.Errorf("a node that comes now: %v", err)
	}
	if len(closed) > 0 {
		t.Errorf("closed a connection that is %s", <-closed)
	}
}
