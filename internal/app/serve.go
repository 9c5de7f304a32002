package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
	"github.com/tutti-project/tutti/internal/server"
)

// serve runs the parts; the first to end ends all.
func (s *Server) serve(ctx context.Context, core *server.Server, nodeConn, sysConn *nats.Conn) error {
	group, ctx := errgroup.WithContext(ctx)
	d := denier{ctx: ctx, core: core, group: group}
	group.Go(func() error { return core.Run(ctx) })
	group.Go(func() error {
		select { // nodes are answered as soon as the log is folded
		case <-core.Ready():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return natsbus.Serve(ctx, nodeConn, natsbus.ServeOptions{
			Handler: core.Handle, SpoolDir: filepath.Join(s.opts.Dir, "spool"), Logger: s.opts.Logger,
			Ready: func() { notify("READY=1") }, Denied: d.node,
		})
	})
	s.guard(ctx, group, d, sysConn)
	door := httpapi.NewDoor(s.listener, httpapi.DoorOptions{TLS: s.authority.HTTPS(), Refused: func(from string, cause error) {
		core.Denied(ctx, addressOf(from), "finish TLS with the operators' port", cause)
	}})
	serveHTTP(ctx, group, s.web(ctx, core, operatorOf(core)), door)
	if s.unix != nil {
		local := func(r *http.Request) (context.Context, func(), error) {
			return tutti.WithActor(r.Context(), "operator:"+server.LocalOperator), func() {}, nil
		}
		serveHTTP(ctx, group, s.web(ctx, core, local), s.unix)
	}
	s.opts.Logger.Info("listening", "operators", s.Addr(), "nodes", s.bus.Addr().String(), "socket", s.opts.Socket)
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// guard watches who comes to the bus.
func (s *Server) guard(ctx context.Context, group *errgroup.Group, d denier, sysConn *nats.Conn) {
	visitors := natsbus.NewVisitors(natsbus.VisitorOptions{
		Disconnect: s.bus.Disconnect, Refused: d.stranger, Denied: d.node, Logger: s.opts.Logger,
	})
	group.Go(func() error { return visitors.Watch(ctx, sysConn) })
	group.Go(func() error {
		s.bus.Guard(ctx, embed.GuardOptions{Violated: visitors.Violated, Refused: func(from string, count int) {
			d.stranger(from, "finish TLS with the nodes' port", tutti.Errorf(tutti.CodeUnauthenticated, "%d connections at once that do not say who they are were ended", count))
		}})
		return nil
	})
}

// denier puts into the log what was refused, beside whoever tells of it.
type denier struct {
	ctx   context.Context //nolint:containedctx // that of its group, which waits for it
	core  *server.Server
	group *errgroup.Group
}

func (d denier) node(key tutti.NodeKey, what string) {
	d.group.Go(func() error { d.core.Refused(d.ctx, key, what); return nil })
}

func (d denier) stranger(from, what string, cause error) {
	d.group.Go(func() error { d.core.Denied(d.ctx, addressOf(from), what, cause); return nil })
}

func addressOf(host string) string { return "address:" + host }

// operatorOf admits operators by their certificate.
func operatorOf(core *server.Server) func(*http.Request) (context.Context, func(), error) {
	return func(r *http.Request) (context.Context, func(), error) {
		name, serial, err := identity.OperatorName(r.TLS)
		if err != nil {
			return nil, nil, err
		}
		return core.Admit(r.Context(), name, serial)
	}
}

// deniedTo records what was refused over HTTP: by the name in the certificate, if
// that is one of ours, else by the address.
func deniedTo(ctx context.Context, core *server.Server) func(*http.Request, string, error) {
	return func(r *http.Request, what string, cause error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = server.LocalOperator // the socket has no addresses
		}
		who := addressOf(host)
		if name, _, err := identity.OperatorName(r.TLS); err == nil {
			who, cause = "operator:"+name, fmt.Errorf("from %s: %w", host, cause)
		}
		core.Denied(ctx, who, what, cause)
	}
}

func (s *Server) web(ctx context.Context, core *server.Server, admit func(*http.Request) (context.Context, func(), error)) *http.Server {
	return &http.Server{
		Handler: httpapi.NewHandler(httpapi.Options{
			Services: httpapi.Services{Jobs: core, Nodes: core, Tokens: core, Operators: core, Codes: core, Values: core, Audits: core},
			Admit:    admit, Ready: core.Ready(), Logger: s.opts.Logger, Denied: deniedTo(ctx, core),
		}),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.With("part", "https").Handler(), slog.LevelDebug),
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
