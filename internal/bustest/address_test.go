package bustest_test

import (
	"net"
	"testing"

	"github.com/tutti-project/tutti/internal/bustest"
)

// TestAddressesAreReserved checks that nobody gets a reserved address before its release, even
// while no server listens on the address.
func TestAddressesAreReserved(t *testing.T) {
	seen := map[string]bool{}
	for range 500 {
		addr := bustest.Address(t)
		if seen[addr] {
			t.Fatalf("%s was given twice", addr)
		}
		seen[addr] = true
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("an address that is free: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
