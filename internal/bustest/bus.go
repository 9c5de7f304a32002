// Package bustest runs a real bus with real credentials for tests. The bus has an authority, an
// embedded server on a free port, and any number of nodes.
package bustest

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
)

// Bus is a running bus.
type Bus struct {
	Authority *identity.Authority
	Server    *embed.Server

	dir, addr string
	change    func(*embed.Options)
}

// MaxPayload is the largest message that a node may send.
const MaxPayload = identity.MaxPayload

// patience is the time limit for one answer of the bus on a busy machine. With the client's own
// limits of two and five seconds, tests would fail on a busy machine.
const patience = time.Minute

// Node is a node that has joined.
type Node struct {
	identity.NodeIdentity
	JWT string
}

// Start creates an authority and starts its bus. The authority and the bus end with the test.
// The bus does not fsync.
func Start(t testing.TB) *Bus {
	t.Helper()
	return StartWith(t, func(*embed.Options) {})
}

// StartSync is like Start, but with an fsync after each write, as outside of tests.
func StartSync(t testing.TB) *Bus {
	t.Helper()
	return StartWith(t, func(o *embed.Options) { o.NoSync = false })
}

// StartWith is like Start, with other options.
func StartWith(t testing.TB, change func(*embed.Options)) *Bus {
	t.Helper()
	return startIn(t, t.TempDir(), change)
}

// StartSyncIn is like StartSync, in the given directory. The directory may contain the files of
// an earlier bus, even of a bus that was killed.
func StartSyncIn(t testing.TB, dir string) *Bus {
	t.Helper()
	return startIn(t, dir, func(o *embed.Options) { o.NoSync = false })
}

func startIn(t testing.TB, dir string, change func(*embed.Options)) *Bus {
	t.Helper()
	keys := filepath.Join(dir, "identity")
	authority, err := identity.Load(keys)
	if errors.Is(err, identity.ErrMissing) {
		authority, err = identity.Init(keys, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &Bus{Authority: authority, dir: dir, change: change}
	b.start(t, Address(t), change)
	t.Cleanup(func() { b.Server.Shutdown() })
	return b
}

// Dir returns the directory of the bus.
func (b *Bus) Dir() string { return filepath.Join(b.dir, "bus") }

// Stop ends the server of the bus. The returned function `restart` starts the server again,
// with the same address and the same files.
func (b *Bus) Stop() (restart func(t testing.TB)) {
	b.Server.Shutdown()
	return func(t testing.TB) {
		t.Helper()
		var err error
		if b.Authority, err = identity.Load(filepath.Join(b.dir, "identity")); err != nil {
			t.Fatal(err)
		}
		b.start(t, b.addr, b.change)
	}
}

func (b *Bus) start(t testing.TB, listen string, change func(*embed.Options)) {
	t.Helper()
	trust, err := b.Authority.Trust()
	if err != nil {
		t.Fatal(err)
	}
	o := embed.Options{
		Dir: filepath.Join(b.dir, "bus"), Listen: listen, TLS: b.Authority.Bus(), Trust: embed.Trust(trust), NoSync: true,
		LogTo: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}
	change(&o)
	if b.Server, err = embed.Start(o); err != nil {
		t.Fatal(err)
	}
	b.addr = b.Server.Addr().String()
}

// Log returns the server's connection to the account of the log. Nodes returns the server's
// connection to the account of the nodes. Both connections end with the test.
func (b *Bus) Log(t testing.TB) *nats.Conn {
	t.Helper()
	return b.connect(t, b.creds(t).Log)
}

// RemoteLog is like Log, but over the network. The connection reconnects after a restart.
func (b *Bus) RemoteLog(t testing.TB, options ...nats.Option) *nats.Conn {
	t.Helper()
	user := b.creds(t).Log
	nc, err := natsbus.Connect(t.Context(), b.URL(), user.JWT, user.Seed, append(options, nats.Secure(b.TLS(t)), nats.TLSHandshakeFirst())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream returns the API of the streams that store the log and the blobs.
func (b *Bus) JetStream(t testing.TB) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(b.Log(t), jetstream.WithDefaultTimeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Nodes returns the server's connection to the account of the nodes.
func (b *Bus) Nodes(t testing.TB) *nats.Conn {
	t.Helper()
	return b.connect(t, b.creds(t).Nodes)
}

// System returns a connection to the account of the bus itself.
func (b *Bus) System(t testing.TB) *nats.Conn { return b.connect(t, b.creds(t).System) }

func (b *Bus) creds(t testing.TB) identity.BusCreds {
	t.Helper()
	creds, err := b.Authority.ServerCreds()
	if err != nil {
		t.Fatal(err)
	}
	return creds
}

func (b *Bus) connect(t testing.TB, user identity.BusUser) *nats.Conn {
	t.Helper()
	nc, err := natsbus.Connect(t.Context(), "", user.JWT, user.Seed, b.Server.InProcess())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// URL returns the address of the bus for nodes.
func (b *Bus) URL() string { return "nats://" + b.addr }

// Join creates a node and admits it under the name.
func (b *Bus) Join(t testing.TB, name tutti.NodeName) Node {
	t.Helper()
	node, err := identity.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	jwt, err := b.Authority.NodeJWT(node.Key, name)
	if err != nil {
		t.Fatal(err)
	}
	return Node{NodeIdentity: node, JWT: jwt}
}

// Raw connects as the node without our client code, like an attacker.
func (b *Bus) Raw(t testing.TB, n Node, options ...nats.Option) (*nats.Conn, error) {
	t.Helper()
	return b.RawTLS(t, n, b.TLS(t), options...)
}

// TLS returns the configuration of a client that trusts only this bus.
func (b *Bus) TLS(t testing.TB) *tls.Config {
	t.Helper()
	config, err := identity.ClientTLS(b.Authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// RawTLS is like Raw, with another TLS configuration.
func (b *Bus) RawTLS(t testing.TB, n Node, config *tls.Config, options ...nats.Option) (*nats.Conn, error) {
	t.Helper()
	options = append([]nats.Option{
		nats.Secure(config), nats.TLSHandshakeFirst(), nats.UserJWTAndSeed(n.JWT, string(n.Seed)), nats.NoReconnect(),
		nats.CustomInboxPrefix("i." + string(n.Key)), nats.Timeout(patience),
	}, options...)
	nc, err := nats.Connect(b.URL(), options...)
	if err == nil {
		t.Cleanup(nc.Close)
	}
	return nc, err
}
