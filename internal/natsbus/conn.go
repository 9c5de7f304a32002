package natsbus

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti"
)

// DialOptions are what a node needs to reach the bus.
type DialOptions struct {
	URLs   []string // nats://host:port
	JWT    string
	Seed   []byte
	CA     []byte       // one or several CAs in PEM. The node trusts no other CA
	Local  net.IP       // source address. If Local is nil, the system chooses an address
	Logger *slog.Logger // may be nil
	// NotAdmitted is called when the server starts to refuse the node's JWT, and then once an hour. Conn still tries
	// to connect, because the server may accept the JWT again later. NotAdmitted must not block. May be nil.
	NotAdmitted func(err error)
}

const (
	dialTimeout = 5 * time.Second
	// the time for TLS and the first messages. A server is slow when all nodes connect at once
	helloTimeout = 20 * time.Second
	reconnectMin = 100 * time.Millisecond
	reconnectMax = 15 * time.Second
	pingInterval = 10 * time.Second // a server that does not answer is noticed after two pings
)

// Conn is a node's connection to the bus. It reconnects for ever. Any number of goroutines may use it.
type Conn struct {
	nc     *nats.Conn
	key    tutti.NodeKey
	closed chan struct{}
	jwt    atomic.Pointer[string]
	dialer *dialer
	ticket atomic.Pointer[string]
	// turn is a turnstile that every call passes through. The turnstile is shut while the connection is being
	// replaced.
	turn      turnstile
	admission admission

	mu        sync.Mutex
	onConnect []func()
	online    context.Context // online ends when the present connection ends
	offline   context.CancelFunc
	back      chan struct{} // back is closed when there is a connection again
}

var errDisconnected = errors.New("the connection to the server was lost")

// Dial connects to the bus. Dial returns after the first attempt to connect, even if the attempt failed. After the
// first attempt, Conn goes on trying. Connected and OnConnect tell the caller when there is a connection. Dial
// returns an error if the options are invalid or ctx has ended.
func Dial(ctx context.Context, o DialOptions) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, wrap(err, "connect to the bus")
	}
	kp, err := nkeys.FromSeed(o.Seed)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "connect to the bus: seed")
	}
	key, err := kp.PublicKey()
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeInvalid, err, "connect to the bus: seed")
	}
	to := dialerFrom(o.Local)
	if err := to.use(o.CA); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	first := make(chan struct{})
	c := &Conn{key: tutti.NodeKey(key), dialer: to, closed: make(chan struct{}), back: first}
	c.jwt.Store(&o.JWT)
	if c.admission.refused = o.NotAdmitted; o.NotAdmitted == nil {
		c.admission.refused = func(err error) { o.Logger.Error("not admitted", "error", err) }
	}
	c.online, c.offline = context.WithCancel(context.Background())
	c.offline()
	nc, err := nats.Connect(strings.Join(o.URLs, ","), append(c.handlers(o.Logger),
		nats.Name("tutti node"),
		nats.Secure(), // this demands TLS; the dialer does the handshake
		nats.TLSHandshakeFirst(),
		nats.SkipHostLookup(), // the dialer needs the host's name, because the certificate contains the name
		nats.UserJWT(func() (string, error) { return *c.jwt.Load(), nil }, kp.Sign),
		nats.CustomInboxPrefix("i."+key),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		// after a restore from a backup, the server may accept this node's JWT again
		nats.IgnoreAuthErrorAbort(),
		nats.IgnoreDiscoveredServers(),
		nats.CustomReconnectDelay(reconnectDelay),
		// The client must not keep messages and send them after a reconnect. Each caller repeats its
		// request with newer data.
		nats.ReconnectBufSize(-1),
		nats.Timeout(helloTimeout),
		nats.SetCustomDialer(to),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
	)...)
	if err != nil {
		return nil, wrap(err, "connect to the bus")
	}
	c.nc = nc
	if nc.IsConnected() {
		// wait for the connect handler, because calls before it would fail with "not connected"
		<-first
	}
	return c, nil
}

func dialerFrom(local net.IP) *dialer {
	d := &dialer{Dialer: net.Dialer{Timeout: dialTimeout}}
	if local != nil {
		d.LocalAddr = &net.TCPAddr{IP: local}
	}
	return d
}

func reconnectDelay(attempts int) time.Duration {
	delay := min(reconnectMin<<min(attempts, 10), reconnectMax)
	return delay/2 + rand.N(delay) //nolint:gosec // spreads the nodes, keeps no secret
}

func (c *Conn) handlers(log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(*nats.Conn) { log.Info("connected to the server"); c.connected() }),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("connected to the server again"); c.connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Warn("connection to the server lost", "error", err)
			c.disconnected()
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { c.admission.tried(log, err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if isRefusal(err) { // the client library uses this error for a refusal
				c.admission.tried(log, err)
				return
			}
			log.Warn("bus", "error", err)
		}),
		nats.ClosedHandler(func(*nats.Conn) { c.disconnected(); close(c.closed) }),
	}
}

func (c *Conn) connected() {
	c.admission.tried(nil, nil)
	c.mu.Lock()
	c.offline()
	c.online, c.offline = context.WithCancel(context.Background())
	close(c.back)
	c.back = make(chan struct{})
	calls := c.onConnect
	c.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

func (c *Conn) disconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offline()
}

// OnConnect registers f. Conn calls f after each new connection, and at once if it is connected now. f must not
// block.
func (c *Conn) OnConnect(f func()) {
	c.mu.Lock()
	c.onConnect = append(c.onConnect[:len(c.onConnect):len(c.onConnect)], f)
	there := c.online.Err() == nil
	c.mu.Unlock()
	if there {
		f()
	}
}

// OnRing registers f. Conn calls f for each doorbell of the server, one call at a time. Call OnRing once. Doorbells
// get lost while there is no connection. So request news from the server after each OnConnect.
func (c *Conn) OnRing(f func(op string, payload []byte)) error {
	prefix := "d." + string(c.key) + "."
	_, err := c.nc.Subscribe(prefix+">", func(msg *nats.Msg) {
		f(strings.TrimPrefix(msg.Subject, prefix), msg.Data)
	})
	if err != nil {
		return wrap(err, "listen for doorbells")
	}
	return nil
}

// UseCA replaces the trusted CAs by the CAs in a PEM text. The change applies from the next connection on.
func (c *Conn) UseCA(caPEM []byte) error { return c.dialer.use(caPEM) }

// Proved returns the digest of the public key of the CA that signed the server's certificate on the latest
// connection. Proved returns an empty digest if there was no connection yet.
func (c *Conn) Proved() tutti.Digest {
	if pin := c.dialer.proved.Load(); pin != nil {
		return *pin
	}
	return ""
}

// Key is the node's key.
func (c *Conn) Key() tutti.NodeKey { return c.key }

// Connected reports whether calls can use a connection now.
func (c *Conn) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.online.Err() == nil && c.nc.IsConnected()
}

// Close ends the connection and returns when the connection is completely closed. Running calls end with
// CodeUnavailable.
func (c *Conn) Close() {
	c.nc.Close()
	<-c.closed
}
