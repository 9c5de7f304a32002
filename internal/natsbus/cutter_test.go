package natsbus_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tutti-project/tutti/internal/bustest"
)

// cutter forwards connections to the bus. cutter cuts the first connection
// after a given number of bytes in one direction.
type cutter struct {
	listener net.Listener
	target   string
	up       bool
	after    int64
	passed   atomic.Int64 // number of bytes in that direction, over all connections
	cuts     atomic.Int64
	running  sync.WaitGroup
}

func newCutter(t *testing.T, bus *bustest.Bus, up bool, after int64) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, target: strings.TrimPrefix(bus.URL(), "nats://"), up: up, after: after}
	c.running.Go(c.accept)
	t.Cleanup(func() { _ = l.Close(); c.running.Wait() })
	return c
}

func (c *cutter) url() string { return "nats://" + c.listener.Addr().String() }

func (c *cutter) accept() {
	for {
		node, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.target)
		if err != nil {
			_ = node.Close()
			continue
		}
		c.running.Go(func() { c.pass(server, node, c.up) })
		c.running.Go(func() { c.pass(node, server, !c.up) })
	}
}

func (c *cutter) pass(to, from net.Conn, counted bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if counted && c.passed.Add(int64(n)) > c.after && c.cuts.CompareAndSwap(0, 1) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
