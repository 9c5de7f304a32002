// Package embed runs a NATS server with JetStream inside the process. It is
// the bus of a fleet that has outgrown nothing yet; where it has, a cluster
// with the same accounts takes its place and nothing above notices.
//
// It listens with TLS only, the handshake before anything else, and every
// write to a stream is fsynced before it is acknowledged: NATS itself would do
// so every two minutes.
package embed

import (
	"cmp"
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

// Trust is what the server must know of the bus's identities: its operator,
// its system account, and the JWTs of all accounts by public key.
type Trust struct {
	Operator string
	System   string
	Accounts map[string]string
}

// Options says how to run the server.
type Options struct {
	Dir    string      // for JetStream
	Listen string      // host:port, port 0 for any
	TLS    *tls.Config // required
	Trust  Trust
	LogTo  *slog.Logger // nil: silent
	// SyncEvery is how often the server writes files anew of which less than half
	// is left; 0: every 2 minutes.
	SyncEvery time.Duration
	// HalfOpen is how many connections may be in front of the bus that have not said who they
	// are, and Connections how many there may be in all; 0: 4096, and any number.
	HalfOpen, Connections int
	// NoSync gives up durability for speed. Tests only.
	NoSync bool
}

const (
	// MaxPayload is the largest message: 256 KiB of content and headers.
	MaxPayload = 256<<10 + 8<<10
	// MaxBatch bounds the events of one atomic append.
	MaxBatch = 20000

	startTimeout = 30 * time.Second
	// helloTimeout is for TLS, and then for who it is. When a fleet comes back at
	// once, whoever is put out for being slow comes again and has only cost time; how
	// many may be at it is bounded by Guard.
	helloTimeout = 20 * time.Second
)

// Server is a running NATS server.
type Server struct {
	nats     *server.Server
	resolver *server.MemAccResolver
	sync     bool
	failed   chan error
	halfOpen int

	violations chan violation
}

// Start returns when the server accepts connections.
func Start(o Options) (*Server, error) {
	if o.TLS == nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "embedded bus: no TLS configuration; it never listens without")
	}
	opts, resolver, err := options(o)
	if err != nil {
		return nil, err
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, tutti.Wrap(tutti.CodeUnavailable, err, "embedded bus")
	}
	s := &Server{nats: ns, resolver: resolver, sync: opts.SyncAlways, halfOpen: cmp.Or(o.HalfOpen, halfOpen), failed: make(chan error, 1), violations: make(chan violation, 1024)}
	if o.LogTo == nil {
		o.LogTo = slog.New(slog.DiscardHandler)
	}
	// Neither debug nor trace: these would show what passes over the bus.
	ns.SetLogger(logger{to: o.LogTo, failed: s.fail, violations: s.violations}, false, false)
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
		ServerName:             "tutti",
		Host:                   host,
		Port:                   port,
		TLS:                    true,
		TLSConfig:              config,
		TLSHandshakeFirst:      true,
		TLSTimeout:             helloTimeout.Seconds(),
		AuthTimeout:            helloTimeout.Seconds(),
		NoSigs:                 true,
		MaxConn:                o.Connections,
		MaxPayload:             MaxPayload,
		PingInterval:           20 * time.Second,
		MaxPingsOut:            2,
		WriteDeadline:          10 * time.Second,
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

// Failed yields the first failure of a write to disk: whoever waits for that
// write gets no answer, and no stream that failed takes another until the next
// Start.
func (s *Server) Failed() <-chan error { return s.failed }

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default: // the first one says it
	}
}

// Addr returns the address the server listens on.
func (s *Server) Addr() net.Addr { return s.nats.Addr() }

// SyncAlways reports whether every write is fsynced before it is acknowledged.
func (s *Server) SyncAlways() bool { return s.sync && s.nats.JetStreamConfig().SyncAlways }

// InProcess returns the option by which a client in this process connects
// without a socket; it still has to show its credentials.
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s.nats) }

// UpdateAccount puts a new JWT of an account into force; connections whose
// user it revokes are closed.
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

// Shutdown ends the server and returns when it has ended.
func (s *Server) Shutdown() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}
