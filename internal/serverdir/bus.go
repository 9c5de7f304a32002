package serverdir

import (
	"context"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
)

// ConnectBus makes one of the server's own connections to its bus.
func ConnectBus(ctx context.Context, bus *embed.Server, user identity.BusUser) (*nats.Conn, error) {
	return natsbus.Connect(ctx, "", user.JWT, user.Seed, bus.InProcess())
}

// Stores is the bus of a server that is not running, with its stored data.
type Stores struct {
	Bus   *embed.Server
	Conn  *nats.Conn
	Blobs *natsbus.Blobs
}

// Close ends the bus.
func (s Stores) Close() {
	if s.Conn != nil {
		s.Conn.Close()
	}
	s.Bus.Shutdown()
}

// OpenStores starts the bus of a server's directory without a public address.
func OpenStores(ctx context.Context, dir string) (Stores, error) {
	authority, err := LoadAuthority(dir)
	if err != nil {
		return Stores{}, err
	}
	trust, err := authority.Trust()
	if err != nil {
		return Stores{}, err
	}
	creds, err := authority.ServerCreds()
	if err != nil {
		return Stores{}, err
	}
	var s Stores
	s.Bus, err = embed.Start(embed.Options{
		Dir: filepath.Join(dir, "jetstream"), Listen: "127.0.0.1:0", TLS: authority.Bus(), Trust: embed.Trust(trust),
	})
	if err != nil {
		return Stores{}, err
	}
	if s.Conn, err = ConnectBus(ctx, s.Bus, creds.Log); err == nil {
		s.Blobs, err = natsbus.OpenBlobs(ctx, s.Conn)
	}
	if err != nil {
		s.Close()
		return Stores{}, err
	}
	return s, nil
}
