package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-project/tutti/internal/serverdir"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/metrics"
	"github.com/tutti-project/tutti/internal/server"
)

// doors are the two ways by which operators connect. One is the network with a
// certificate, the other is the local socket. Both doors stay open as long as the
// process lives.
type doors struct {
	certificate, local *door
	refused            *atomic.Pointer[func(from string, cause error)]
}

func newDoors() doors {
	return doors{certificate: &door{first: make(chan struct{})}, local: &door{first: make(chan struct{})}, refused: &atomic.Pointer[func(string, error)]{}}
}

// The method `open` passes operators' requests to a server until ctx ends.
func (d *doors) open(ctx context.Context, core *server.Server, s *Server) {
	options := func(admit func(*http.Request, []tutti.Verb) (context.Context, func(), error)) httpapi.Options {
		return httpapi.Options{
			Services: httpapi.Services{Metrics: s.meters.Handler(), Jobs: core, Nodes: core, Tokens: core, Operators: core, Codes: core, Signings: core, Values: core, Pauses: core, Audits: core, Explains: core, Remotes: core, Reports: core, Secrets: core, Rotations: core},
			Admit:    admit, Ready: core.Ready(), Logger: s.opts.Logger, Denied: deniedTo(ctx, core), Position: core, Trust: s.authority.KeySets,
			Observer: s.meters,
		}
	}
	refused := func(from string, cause error) {
		s.meters.TurnedAway(metrics.DoorOperators, 1)
		core.Denied(ctx, addressOf(from), "finish TLS with the operators' port", cause)
	}
	d.refused.Store(&refused)
	byCertificate := options(operatorOf(core, s.authority))
	byCertificate.Names = s.authority.Names
	byCertificate.Binding = identity.Binding
	d.certificate.set(httpapi.NewHandler(byCertificate))
	local := http.NewServeMux()
	profiles(local)
	local.Handle("POST "+serverdir.CallBackup, serverdir.BackupHandler(core, s.opts.Dir, Version, s.authority.Hold, s.opts.Logger))
	local.Handle("/", httpapi.NewHandler(options(func(r *http.Request, _ []tutti.Verb) (context.Context, func(), error) {
		return tutti.WithActor(r.Context(), "operator:"+server.LocalOperator), func() {}, nil
	})))
	d.local.set(local)
}

// The method `close` refuses all requests and answers them with the reason.
func (d *doors) close(why func() error) {
	d.refused.Store(nil)
	d.certificate.set(httpapi.NewClosedHandler(why))
	d.local.set(httpapi.NewClosedHandler(why))
}

// turnedAway records clients that did not finish TLS, if the server runs and has a
// log.
func (d *doors) turnedAway(from string, cause error) {
	if f := d.refused.Load(); f != nil {
		(*f)(from, cause)
	}
}

// door is a handler that can be replaced while it serves. Requests wait until the
// first handler is set.
type door struct {
	handler atomic.Pointer[http.Handler]
	once    sync.Once
	first   chan struct{}
}

func (d *door) set(h http.Handler) {
	d.handler.Store(&h)
	d.once.Do(func() { close(d.first) })
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-d.first:
		(*d.handler.Load()).ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

// The method `web` serves the doors until ctx ends.
func (s *Server) web(ctx context.Context, group *errgroup.Group) {
	serve := func(d http.Handler, l net.Listener) {
		serveHTTP(ctx, group, &http.Server{
			Handler:           httpapi.Strangers(d),
			ConnContext:       httpapi.ConnContext,
			MaxHeaderBytes:    httpapi.MaxHeader,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       5 * time.Minute,
			IdleTimeout:       2 * time.Minute,
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ErrorLog:          slog.NewLogLogger(s.opts.Logger.With("part", "https").Handler(), slog.LevelDebug),
		}, l)
	}
	serve(s.doors.certificate, httpapi.NewDoor(s.listener, httpapi.DoorOptions{
		TLS: s.authority.HTTPS(), Refused: s.doors.turnedAway, Most: partOfFiles(16, 1024), Strangers: partOfFiles(32, 256), Operators: partOfFiles(16, 1024),
	}))
	if s.unix != nil {
		serve(s.doors.local, s.unix)
	}
	if s.scrapes != nil {
		serve(scrapeHandler(s.meters.Handler()), s.scrapes)
	}
}

const shutdownDeadline = 5 * time.Second

// serveHTTP serves on a listener until ctx ends. Then serveHTTP waits until running
// requests have ended.
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
