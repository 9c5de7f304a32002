package natsbus_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/nats-io/nats.go"

	tutti "github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// closesFirst connects to the bus, but closes the first connections before the bus sends anything.
type closesFirst struct {
	bus   *bustest.Bus
	times int
	end   context.CancelFunc // if set, called when a connection is closed
	tries int
}

// InProcessConn makes one connection.
func (c *closesFirst) InProcessConn() (net.Conn, error) {
	if c.tries++; c.tries > c.times {
		var real nats.Options
		if err := c.bus.Server.InProcess()(&real); err != nil {
			return nil, err
		}
		return real.InProcessServer.InProcessConn()
	}
	if c.end != nil {
		c.end()
	}
	here, there := net.Pipe()
	return here, there.Close()
}

func TestTheFirstConnectionIsTriedAgain(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	creds, err := bus.Authority.ServerCreds()
	if err != nil {
		t.Fatal(err)
	}
	way := &closesFirst{bus: bus, times: 3}
	nc, err := natsbus.Connect(t.Context(), "", creds.Log.JWT, creds.Log.Seed, nats.InProcessServer(way))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if way.tries != 4 || !nc.IsConnected() {
		t.Errorf("connected after %d tries: %t, want true after 4", way.tries, nc.IsConnected())
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	creds, err := bus.Authority.ServerCreds()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	way := &closesFirst{bus: bus, times: 1 << 30, end: cancel}
	nc, err := natsbus.Connect(ctx, "", creds.Log.JWT, creds.Log.Seed, nats.InProcessServer(way))
	if err == nil {
		nc.Close()
	}
	if !errors.Is(err, context.Canceled) || tutti.CodeOf(err) != tutti.CodeUnavailable || way.tries != 1 {
		t.Errorf("after %d tries: %v, want unavailable, canceled, after 1", way.tries, err)
	}
}

// TestRefusedCredentialsAreNotTriedAgain connects over the network. On an in-process connection, the bus closes the
// pipe before the client has read the refusal.
func TestRefusedCredentialsAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	bus, other := bustest.Start(t), bustest.Start(t)
	creds, err := other.Authority.ServerCreds()
	if err != nil {
		t.Fatal(err)
	}
	tries := 0
	nc, err := natsbus.Connect(t.Context(), bus.URL(), creds.Log.JWT, creds.Log.Seed, nats.TLSHandshakeFirst(),
		nats.Secure(bus.TLS(t)), func(*nats.Options) error { tries++; return nil })
	if err == nil {
		nc.Close()
	}
	if !errors.Is(err, nats.ErrAuthorization) || tries != 1 {
		t.Errorf("after %d tries: %v, want authorization violation after 1", tries, err)
	}
}
