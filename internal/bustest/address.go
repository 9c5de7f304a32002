package bustest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Tests use ports below the range that Linux uses for outgoing connections
// (ip_local_port_range). A connection could take a port of that range while no server listens
// on the port.
const (
	firstPort = 20_000
	portCount = 12_000
)

// Address reserves a loopback address until the test ends. Address is for a server that another
// process starts, or that starts more than once.
func Address(t testing.TB) string {
	t.Helper()
	addr, release, err := ReserveAddress()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addr
}

// ReserveAddress is like Address, but the address is reserved until the caller calls the
// function `release`. Until then, no process that uses this function gets the same address. The
// function reserves a port by an abstract socket whose name contains the port (unix(7)). If the
// process dies, its abstract sockets disappear.
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
