package app

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/classify"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/metrics"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/operator"
	"github.com/tutti-project/tutti/internal/outward"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/serverdir"
	"github.com/tutti-project/tutti/internal/space"
)

// ServerOptions are the settings of a server. For empty fields, the server uses the values that
// `server init` wrote.
type ServerOptions struct {
	Dir      string
	Listen   string // HTTPS
	Bus      string
	Socket   string // socket for operators on this machine, with mode 0600. "-" means no socket
	Silence  time.Duration
	MaxRuns  int // simultaneous runs in the fleet. 0 means no limit
	Compiles int // simultaneous compiles while nodes converge. 0 means the default of server.Options
	KeepJobs int // how many finished jobs are kept. 0 means the default of server.Options
	Reports  retain.Reports
	// ScrubEvery is how often the server reads all stored content to check it. 0 means never.
	ScrubEvery time.Duration
	// AuditFile and AuditSyslog are the places to which the server sends each act. If AuditFile is empty and
	// AuditSyslog is false, the server sends no acts.
	AuditFile   string
	AuditSyslog bool
	// Metrics is an address of this machine at which Prometheus scrapes without a certificate. If Metrics is empty, there
	// is no such address.
	Metrics string

	// bytes of the disk that new work must leave free. 0 means 64 MiB, or a twentieth of a smaller disk
	Reserve uint64
	Lives   identity.Lives
	Logger  *slog.Logger
}

const defaultReserve = 64 << 20

// Server is the complete server process with bus, log, writer and HTTP API.
type Server struct {
	opts      ServerOptions
	config    serverdir.Config
	lock      *os.File
	authority *identity.Authority
	reserve   *space.Reserve
	listener  net.Listener
	unix      net.Listener
	doors     doors
	head      *serverdir.Head
	content   *serverdir.Content
	epochs    *serverdir.Epochs
	// destinations get the reports of runs.
	destinations []outward.Destination
	// enc is the site's ENC, or nil.
	enc *classify.Config

	meters  *metrics.Meters
	scrapes net.Listener            // for Prometheus, or nil
	serving atomic.Pointer[serving] // nil while the server does not serve
	began   chan struct{}           // says that the server began to serve
}

// NewServer takes the lock of the data directory and opens its listeners. Run then serves.
func NewServer(opts ServerOptions) (*Server, error) {
	s := &Server{opts: opts, doors: newDoors(), began: make(chan struct{}, 1)}
	if err := s.open(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) open() error {
	var err error
	if s.config, err = serverdir.ReadConfig(s.opts.Dir); err != nil {
		return err
	}
	if s.destinations, err = outward.ReadConfig(s.opts.Dir); err != nil {
		return err
	}
	if s.enc, err = classify.ReadConfig(s.opts.Dir); err != nil {
		return err
	}
	names := make([]string, len(s.destinations))
	for i, d := range s.destinations {
		names[i] = d.Name
	}
	s.meters = metrics.New(metrics.Options{Destinations: names})
	s.opts.Listen = cmp.Or(s.opts.Listen, s.config.Listen)
	s.opts.Bus = cmp.Or(s.opts.Bus, s.config.Bus)
	if s.lock, err = durable.Lock(s.opts.Dir); err != nil {
		return err
	}
	if s.authority, err = serverdir.LoadAuthority(s.opts.Dir); err != nil {
		return err
	}
	s.authority.Lives = s.opts.Lives
	if s.epochs, err = serverdir.OpenEpochs(s.opts.Dir); err != nil {
		return err
	}
	s.content = serverdir.OpenContent(s.opts.Dir)
	if s.head, err = serverdir.OpenHead(s.opts.Dir, s.opts.Logger); err != nil {
		return err
	}
	s.reserve = space.NewReserve("the server's", s.opts.Dir, cmp.Or(s.opts.Reserve, defaultReserve))
	if s.listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.opts.Listen); err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "listen for operators")
	}
	if err := s.openMetrics(); err != nil {
		return err
	}
	return s.openSocket()
}

func (s *Server) openSocket() error {
	if s.opts.Socket == "-" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.opts.Socket), 0o755); err != nil {
		return err
	}
	_ = os.Remove(s.opts.Socket) // a killed server may have left the socket, and this process holds the lock
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", s.opts.Socket)
	if err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "listen on the local socket")
	}
	s.unix = l
	return os.Chmod(s.opts.Socket, 0o600)
}

func (s *Server) close() {
	for _, l := range []net.Listener{s.listener, s.unix, s.scrapes} {
		if l != nil {
			l.Close()
		}
	}
	if s.head != nil {
		s.head.File.Close()
	}
	if s.lock != nil {
		s.lock.Close()
	}
}

// MetricsAddr returns the address at which Prometheus scrapes without a certificate. It is nil if there is none.
func (s *Server) MetricsAddr() net.Addr {
	if s.scrapes == nil {
		return nil
	}
	return s.scrapes.Addr()
}

// Addr returns the address at which operators reach the server.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// ringer rings nodes' doorbells over NATS.
type ringer struct{ nc *nats.Conn }

func (r ringer) Ring(key tutti.NodeKey, op string, payload []byte) error {
	return natsbus.Ring(r.nc, key, op, payload)
}

// InitOptions are the settings of `server init`.
type InitOptions struct {
	Dir         string
	Host        string   // name or address under which nodes and operators reach the server
	Also        []string // more names and addresses for the server's certificate
	Listen      string
	Bus         string
	Operator    string // name
	OperatorDir string
}

// InitServer creates a server's data directory and the first operator's credentials. If there is already a server or an
// operator, InitServer changes nothing.
func InitServer(o InitOptions) error {
	if _, err := os.Stat(filepath.Join(o.Dir, serverdir.ConfigFile)); err == nil {
		return tutti.Errorf(tutti.CodeConflict, "there is a server in %s already", o.Dir)
	}
	if _, err := os.Stat(o.OperatorDir); err == nil {
		return tutti.Errorf(tutti.CodeConflict, "%s already exists; name another place with --operator", o.OperatorDir)
	}
	if err := o.validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return err
	}
	authority, err := identity.Init(filepath.Join(o.Dir, "identity"), append([]string{o.Host}, o.Also...))
	if err != nil {
		return err
	}
	bundle, err := authority.IssueOperator(o.Operator)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.OperatorDir), 0o700); err != nil {
		return err
	}
	if err := bundle.Write(o.OperatorDir); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return err // this error cannot happen, because the method `validate` has checked the address
	}
	if err := operator.WriteServer(o.OperatorDir, "https://"+net.JoinHostPort(o.Host, port)); err != nil {
		return err
	}
	if err := authority.ForgetCodeKey(); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(serverdir.Config{Host: o.Host, Listen: o.Listen, Bus: o.Bus, First: bundle.Issued()}, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(o.Dir, serverdir.ConfigFile), append(raw, '\n'), 0o600)
}

// validate finds invalid options before keys are made.
func (o InitOptions) validate() error {
	for _, listen := range []string{o.Listen, o.Bus} {
		if _, err := net.ResolveTCPAddr("tcp", listen); err != nil {
			return tutti.Wrap(tutti.CodeInvalid, err, "listen address %q", listen)
		}
	}
	if strings.ContainsAny(o.Host, ":/ ") && net.ParseIP(o.Host) == nil || o.Host == "" {
		return tutti.Errorf(tutti.CodeInvalid, "host %q must be a name or an address, without a port", o.Host)
	}
	return tutti.ValidateOperator(o.Operator)
}
