package embed_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
)

// TestTheBusWaitsForFiles checks that the bus calls NoFiles when it cannot accept a connection because no file can be
// opened. The bus accepts the connection after NoFiles has returned. The test also checks that Shutdown ends the wait.
func TestTheBusWaitsForFiles(t *testing.T) { // not parallel, because the limit applies to the whole process
	called := make(chan context.Context, 1)
	back := make(chan struct{}, 1)
	bus := bustest.StartWith(t, func(o *embed.Options) {
		o.NoFiles = func(ctx context.Context) {
			called <- ctx
			select {
			case <-back:
			case <-ctx.Done():
			}
		}
	})
	config := bus.TLS(t)
	config.ServerName = "127.0.0.1"
	address := strings.TrimPrefix(bus.URL(), "nats://")
	full := func() (c net.Conn, free func()) {
		t.Helper()
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", address) // the bus accepts this connection
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		next, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		low := limit
		low.Cur = uint64(next.Fd()) + 1 // only the number of this file is free
		free = func() {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
				t.Error(err)
			}
		}
		t.Cleanup(free)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		next.Close()
		if c, err = net.Dial("tcp", address); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c, free
	}
	waits := func() context.Context {
		t.Helper()
		select {
		case ctx := <-called:
			return ctx
		case <-time.After(20 * time.Second):
			t.Fatal("NoFiles was not called")
			return nil
		}
	}
	c, free := full()
	waits()
	free()
	back <- struct{}{}
	if err := tls.Client(c, config).HandshakeContext(t.Context()); err != nil {
		t.Errorf("after NoFiles: %v", err)
	}
	_, free = full()
	ctx := waits()
	free()
	bus.Server.Shutdown()
	if ctx.Err() == nil {
		t.Error("Shutdown did not end the wait")
	}
}
