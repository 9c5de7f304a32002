package bustest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// The ports from which addresses are taken, below those that Linux gives to
// connections by itself (ip_local_port_range): a port from among these may be one of
// a connection as soon as nobody listens on it.
const (
	firstPort = 20_000
	portCount = 12_000
)

// Address reserves an address on loopback until the test ends. It is for a server that
// is started in another process, or again.
func Address(t testing.TB) string {
	t.Helper()
	addr, release, err := ReserveAddress()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addr
}

// ReserveAddress is Address until release is called. No other process that calls it
// gets the same one meanwhile: a name among the abstract sockets (unix(7)) stands for
// the port, and goes with its process.
func ReserveAddress() (addr string, release func(), err error) {
	for range 1000 {
		port := firstPort + rand.IntN(portCount)
		name, err := net.Listen("unix", fmt.Sprintf("@tutti-test-port-%d", port)) //nolint:noctx // it does not wait
		if err != nil {
			continue // somebody else's
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if l, err := net.Listen("tcp", addr); err == nil && l.Close() == nil { //nolint:noctx // closed at once
			return addr, func() { _ = name.Close() }, nil
		}
		_ = name.Close()
	}
	return "", nil, errors.New("no port is free for a test")
}
