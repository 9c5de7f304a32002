// Package embed runs a NATS server with JetStream inside the process. The embedded server is enough for most fleets.
// A larger fleet can use a NATS cluster with the same accounts instead. The other packages do not need to know
// whether the NATS server is embedded.
//
// The server accepts only TLS connections, and the TLS handshake comes before any other message. NATS acknowledges a
// write to a stream only after an fsync. NATS by itself would call fsync only every two minutes.
package embed

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
)

// Trust contains what the server must know about the bus's identities. The server must know its operator, its system
// account, and the JWTs of all accounts by public key.
type Trust struct {
	Operator string
	System   string
	Accounts map[string]string
}

// Options are the settings of the server.
type Options struct {
	Dir    string      // for JetStream
	Listen string      // host:port, where port 0 means any free port
	TLS    *tls.Config // required
	Trust  Trust
	LogTo  *slog.Logger // nil: silent
	// SyncEvery is how often the server rewrites files of which less than half is in use. If SyncEvery is 0, the
	// server does this every 2 minutes.
	SyncEvery time.Duration
	// HalfOpen limits the connections whose clients have not authenticated yet. If HalfOpen is 0, the limit is
	// 4096. Connections is how many connections the bus may have in all. If Connections is 0, there is no limit.
	HalfOpen, Connections int
	// AfterTLS limits the connections that have finished TLS, but whose clients have not authenticated
	// yet. If AfterTLS is 0, the limit is 1024.
	AfterTLS int
	// NoFiles is called when the server cannot accept a connection because the process has too many open files. The
	// server accepts no connection until NoFiles returns. The argument ends with Shutdown. If NoFiles is nil, the
	// server tries again after some milliseconds.
	NoFiles func(context.Context)
	// NoSync turns off fsync. Writes become faster, and a loss of power may lose data. Tests only.
	NoSync bool
}

const (
	// MaxPayload is the largest message, with 256 KiB of content and some room for headers.
	MaxPayload = 256<<10 + 8<<10
	// MaxBatch is the largest number of events of one atomic append.
	MaxBatch = 20000

	startTimeout = 30 * time.Second
	// helloTimeout is how long a client may take for TLS. After TLS, the client may take helloTimeout for its
	// authentication, too. If a whole fleet connects at once, the server may disconnect a slow client. The client
	// then connects again and has only lost time. Guard limits how many clients may be in TLS or authentication at
	// once.
	helloTimeout = 20 * time.Second
)

// Server is a running NATS server.
type Server struct {
	nats     *server.Server
	resolver *server.MemAccResolver
	sync     bool
	failed   chan error
	halfOpen int
	afterTLS int

	violations chan violation
	closing    context.CancelFunc
}

// Start returns when the server accepts connections.
func Start(o Options) (*Server, error) {
	if o.TLS == nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "embedded bus: the TLS configuration is missing")
	}
	opts, resolver, err := options(o)
	if err != nil {
		return nil, err
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "embedded bus")
	}
	s := &Server{nats: ns, resolver: resolver, sync: opts.SyncAlways, halfOpen: cmp.Or(o.HalfOpen, halfOpen), afterTLS: cmp.Or(o.AfterTLS, afterTLS), failed: make(chan error, 1), violations: make(chan violation, 1024)}
	if o.LogTo == nil {
		o.LogTo = slog.New(slog.DiscardHandler)
	}
	// Debug and trace stay off, because they would log the messages on the bus.
	open, end := context.WithCancel(context.Background())
	s.closing = end
	ns.SetLogger(logger{to: o.LogTo, failed: s.fail, violations: s.violations, open: open, noFiles: o.NoFiles}, false, false)
	ns.Start()
	if !ns.ReadyForConnections(startTimeout) {
		s.Shutdown()
		return nil, tutti.Errorf(tutti.CodeUnavailable, "embedded bus: not ready on %s after %s", o.Listen, startTimeout)
	}
	if !ns.JetStreamEnabled() {
		s.Shutdown()
		return nil, tutti.Errorf(tutti.CodeUnavailable, "embedded bus: JetStream did not start in %s", o.Dir)
	}
	return s, nil
}

func options(o Options) (*server.Options, *server.MemAccResolver, error) {
	host, portText, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, nil, tutti.Wrap(tutti.CodeInvalid, err, "embedded bus: listen address %q", o.Listen)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, nil, tutti.Wrap(tutti.CodeInvalid, err, "embedded bus: listen address %q", o.Listen)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	operator, err := jwt.DecodeOperatorClaims(o.Trust.Operator)
	if err != nil {
		return nil, nil, tutti.Wrap(tutti.CodeInvalid, err, "embedded bus: operator")
	}
	resolver := &server.MemAccResolver{}
	for key, text := range o.Trust.Accounts {
		if err := resolver.Store(key, text); err != nil {
			return nil, nil, tutti.Wrap(tutti.CodeInvalid, err, "embedded bus: account %s", key)
		}
	}
	config := o.TLS.Clone()
	config.MinVersion = tls.VersionTLS13
	opts := &server.Options{
		ServerName:        "tutti",
		Host:              host,
		Port:              port,
		TLS:               true,
		TLSConfig:         newTurns().bound(config),
		TLSHandshakeFirst: true,
		TLSTimeout:        helloTimeout.Seconds(),
		AuthTimeout:       helloTimeout.Seconds(),
		NoSigs:            true,
		MaxConn:           o.Connections,
		MaxPayload:        MaxPayload,
		PingInterval:      20 * time.Second,
		MaxPingsOut:       2,
		WriteDeadline:     10 * time.Second,
		// One connection of the server answers all nodes. Without this option, that connection would
		// have to wait for each node that does not read.
		NoFastProducerStall:    true,
		JetStream:              true,
		StoreDir:               o.Dir,
		SyncAlways:             !o.NoSync,
		SyncInterval:           o.SyncEvery,
		DisableJetStreamBanner: true,
		JetStreamLimits:        server.JSLimitOpts{MaxBatchSize: MaxBatch},
		TrustedOperators:       []*jwt.OperatorClaims{operator},
		SystemAccount:          o.Trust.System,
		AccountResolver:        resolver,
	}
	return opts, resolver, nil
}

// Failed returns a channel that gets the first failure of a write to disk. The caller of that write gets no answer.
// After a failure, the stream refuses all writes until the next Start.
func (s *Server) Failed() <-chan error { return s.failed }

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default: // only the first failure is reported
	}
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() net.Addr { return s.nats.Addr() }

// SyncAlways reports whether every write is fsynced before it is acknowledged.
func (s *Server) SyncAlways() bool { return s.sync && s.nats.JetStreamConfig().SyncAlways }

// Connections returns how many clients are connected, and how many clients the server has disconnected since its start
// because they did not read.
func (s *Server) Connections() (now int, slow int64) {
	return s.nats.NumClients(), s.nats.NumSlowConsumers()
}

// InProcess returns the option with which a client in this process connects without a socket. The client still has to
// send its credentials.
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s.nats) }

// UpdateAccount replaces the JWT of an account. The server closes the connections of all users that the new JWT
// revokes.
func (s *Server) UpdateAccount(text string) error {
	claims, err := jwt.DecodeAccountClaims(text)
	if err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "update an account of the bus")
	}
	if err := s.resolver.Store(claims.Subject, text); err != nil {
		return tutti.Wrap(tutti.CodeInternal, err, "update an account of the bus")
	}
	account, err := s.nats.LookupAccount(claims.Subject)
	if err != nil {
		return tutti.Wrap(tutti.CodeNotFound, err, "update an account of the bus")
	}
	s.nats.UpdateAccountClaims(account, claims)
	return nil
}

// Shutdown stops the server and returns when it has stopped.
func (s *Server) Shutdown() {
	s.closing()
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}
