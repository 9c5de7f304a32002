package app

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/space"
)

// lookForRoom is how often a server looks whether it can go on.
const lookForRoom = time.Second

// Run serves until ctx ends or a part fails, and returns after all of it has
// ended. It closes what NewServer opened. A full disk ends the bus and the
// writer, not the process: operators are told why nothing goes on, and when
// there is room again everything is started anew.
func (s *Server) Run(ctx context.Context) error {
	defer s.close()
	group, ctx := errgroup.WithContext(ctx)
	s.doors.close(func() error { return tutti.Errorf(tutti.CodeUnavailable, "the server is starting; try again") })
	s.web(ctx, group)
	group.Go(func() error { return s.rounds(ctx) })
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// rounds starts bus, log and writer again whenever a full disk has ended them.
func (s *Server) rounds(ctx context.Context) error {
	for {
		for s.reserve.Exhausted() != nil {
			s.opts.Logger.Error("not serving", "because", s.full())
			s.doors.close(s.full)
			notify("READY=1\nSTATUS=" + s.full().Error())
			if err := pause(ctx, lookForRoom); err != nil {
				return err
			}
		}
		err := s.round(ctx)
		if ctx.Err() != nil || !space.Full(err) && s.reserve.Exhausted() == nil {
			return err
		}
		s.opts.Logger.Error("the disk is full, serving ends for now", "error", err)
		s.doors.close(s.full)
		if err := pause(ctx, lookForRoom); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// full says why nothing is served.
func (s *Server) full() error {
	if err := s.reserve.Check(); err != nil {
		return err
	}
	return tutti.Errorf(tutti.CodeUnavailable, "the server's disk was full (%s); it starts again", s.opts.Dir)
}

// round runs bus, log and writer until ctx ends or one of them fails.
func (s *Server) round(ctx context.Context) error {
	trust, err := s.authority.Trust()
	if err != nil {
		return err
	}
	bus, err := embed.Start(embed.Options{
		Dir: filepath.Join(s.opts.Dir, "jetstream"), Listen: s.opts.Bus, TLS: s.authority.Bus(),
		Trust: embed.Trust(trust), LogTo: s.opts.Logger.With("part", "nats"),
	})
	if err != nil {
		return err
	}
	defer bus.Shutdown()
	s.opts.Bus = bus.Addr().String() // the next round is where nodes look for it
	creds, err := s.authority.ServerCreds()
	if err != nil {
		return err
	}
	logConn, err := connectBus(bus, creds.Log)
	if err != nil {
		return err
	}
	defer logConn.Close()
	nodeConn, err := connectBus(bus, creds.Nodes)
	if err != nil {
		return err
	}
	defer nodeConn.Close()
	blobs, err := natsbus.OpenBlobs(ctx, logConn)
	if err != nil {
		return err
	}
	eventLog, err := natsbus.OpenLog(ctx, logConn, natsbus.LogOptions{Blobs: blobs})
	if err != nil {
		return err
	}
	core := server.New(server.Options{
		Log: eventLog, Blobs: blobs, Bus: ringer{nodeConn}, Logger: s.opts.Logger,
		Identity: &serverIdentity{authority: s.authority, bus: bus, config: s.config},
		Space:    s.reserve.Check,
		Silence:  s.opts.Silence, InFlight: s.opts.MaxRuns,
		NewRunID: func() tutti.RunID { return tutti.RunID(uuid.Must(uuid.NewV7()).String()) },
	})
	return s.serve(ctx, core, parts{bus: bus, log: logConn, nodes: nodeConn})
}

// parts are what a round stands on.
type parts struct {
	bus        *embed.Server
	log, nodes *nats.Conn
}

// serve runs the parts; the first to end ends all.
func (s *Server) serve(ctx context.Context, core *server.Server, p parts) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return core.Run(ctx) })
	group.Go(func() error {
		select { // nodes are answered as soon as the log is folded
		case <-core.Ready():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return natsbus.Serve(ctx, p.nodes, natsbus.ServeOptions{
			Handler: core.Handle, SpoolDir: filepath.Join(s.opts.Dir, "spool"), Logger: s.opts.Logger,
			Ready: func() { notify("READY=1\nSTATUS=") },
			Denied: func(key tutti.NodeKey, what string) {
				group.Go(func() error { core.Refused(ctx, key, what); return nil })
			},
		})
	})
	var broken error
	group.Go(func() error {
		select {
		case broken = <-p.bus.Failed():
			s.reserve.Stale()
			p.log.Close() // the append that waits is never answered
			return broken
		case <-ctx.Done():
			return nil
		}
	})
	s.doors.open(httpapi.Options{
		Services: httpapi.Services{Jobs: core, Nodes: core, Codes: core, Values: core}, Ready: core.Ready(),
	})
	s.opts.Logger.Info("listening", "operators", s.Addr(), "nodes", p.bus.Addr().String(), "socket", s.opts.Socket)
	err := group.Wait()
	if broken != nil {
		return broken
	}
	return err
}

// connectBus makes one of the server's own connections to its bus.
func connectBus(bus *embed.Server, user identity.BusUser) (*nats.Conn, error) {
	return natsbus.Connect("", user.JWT, user.Seed, bus.InProcess())
}

// doors are where operators come in, as long as the process lives: by
// certificate and, on this machine, by the local socket.
type doors struct{ certificate, local door }

// open lets operators in.
func (d *doors) open(o httpapi.Options) {
	o.Operator = func(r *http.Request) (string, error) { return identity.OperatorName(r.TLS) }
	d.certificate.set(httpapi.NewHandler(o))
	o.Operator = func(*http.Request) (string, error) { return "local", nil }
	d.local.set(httpapi.NewHandler(o))
}

// close tells everybody why nobody gets in.
func (d *doors) close(why func() error) {
	d.certificate.set(httpapi.NewClosedHandler(why))
	d.local.set(httpapi.NewClosedHandler(why))
}

// door is a handler that may be exchanged while it serves.
type door struct{ handler atomic.Pointer[http.Handler] }

func (d *door) set(h http.Handler) { d.handler.Store(&h) }

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*d.handler.Load()).ServeHTTP(w, r)
}

// web serves the doors until ctx ends.
func (s *Server) web(ctx context.Context, group *errgroup.Group) {
	serve := func(d *door, l net.Listener) {
		serveHTTP(ctx, group, &http.Server{
			Handler:           d,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       5 * time.Minute,
			IdleTimeout:       2 * time.Minute,
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ErrorLog:          slog.NewLogLogger(s.opts.Logger.With("part", "https").Handler(), slog.LevelDebug),
		}, l)
	}
	serve(&s.doors.certificate, tls.NewListener(s.listener, s.authority.HTTPS()))
	if s.unix != nil {
		serve(&s.doors.local, s.unix)
	}
}

const shutdownDeadline = 5 * time.Second

// serveHTTP serves on a listener until ctx ends, then lets requests end.
func serveHTTP(ctx context.Context, group *errgroup.Group, web *http.Server, l net.Listener) {
	group.Go(func() error {
		err := web.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	})
	group.Go(func() error {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownDeadline)
		defer cancel()
		if err := web.Shutdown(last); err != nil {
			return web.Close()
		}
		return nil
	})
}
