package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/metrics"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/wire"
)

// The method `serve` runs the parts of a round. When one part ends, all parts end.
func (s *Server) serve(ctx context.Context, core *server.Server, p parts) error {
	group, ctx := errgroup.WithContext(ctx)
	s.sendReports(ctx, group, core)
	s.classify(ctx, group, core)
	s.match(ctx, group, core)
	d := denier{ctx: ctx, core: core, group: group, meters: s.meters}
	visitors := natsbus.NewVisitors(natsbus.VisitorOptions{
		Disconnect: p.bus.Disconnect, Refused: d.stranger, Denied: d.node, Logger: s.opts.Logger,
	})
	group.Go(func() error { return core.Run(ctx) })
	group.Go(func() error {
		select { // wait until the log is folded; the server cannot answer nodes before that
		case <-core.Ready():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.measure(p.stores)
		return natsbus.Serve(ctx, p.nodes, natsbus.ServeOptions{
			Handler: core.Handle, SpoolDir: filepath.Join(s.opts.Dir, "spool"), Logger: s.opts.Logger,
			Ready: func() { notify("READY=1\nSTATUS=") }, Denied: d.node, Excess: visitors.Excess, Light: []string{wire.OpBeat},
		})
	})
	guard(ctx, group, d, p, visitors)
	s.tellAudit(ctx, group, core)
	var broken error
	group.Go(func() error {
		select {
		case broken = <-p.bus.Failed():
			s.reserve.Stale()
			p.log.Close() // end the appends that still wait, because they get no answer from the bus
			return broken
		case <-ctx.Done():
			return nil
		}
	})
	group.Go(func() error {
		select {
		case <-p.rotated:
			return errRotated
		case <-ctx.Done():
			return nil
		}
	})
	s.doors.open(ctx, core, s)
	s.opts.Logger.Info("listening", "operators", s.Addr(), "nodes", p.bus.Addr().String(), "socket", s.opts.Socket)
	err := group.Wait()
	if broken != nil {
		return broken
	}
	return err
}

// The function `guard` monitors the connections to the bus.
func guard(ctx context.Context, group *errgroup.Group, d denier, p parts, visitors *natsbus.Visitors) {
	group.Go(func() error { return visitors.Watch(ctx, p.sys) })
	group.Go(func() error {
		p.bus.Guard(ctx, embed.GuardOptions{Violated: visitors.Violated, Unread: visitors.Unread, Refused: func(from, what string, count int) {
			d.meters.TurnedAway(metrics.DoorNodes, count)
			d.stranger(from, what, tutti.Errorf(tutti.CodeUnauthenticated, "closed %d connections that did not authenticate", count))
		}})
		return nil
	})
}

// denier records refusals in the log. The denier uses its own goroutines, so callers
// need not wait.
type denier struct {
	ctx   context.Context // the context of `group`; the group waits for the denier's goroutines
	core  *server.Server
	group *errgroup.Group

	meters *metrics.Meters
}

func (d denier) node(key tutti.NodeKey, what string) {
	d.group.Go(func() error { d.core.Refused(d.ctx, key, what); return nil })
}

func (d denier) stranger(from, what string, cause error) {
	d.group.Go(func() error { d.core.Denied(d.ctx, addressOf(from), what, cause); return nil })
}

func addressOf(host string) string { return "address:" + host }

// operatorOf identifies operators by their certificate and checks their verbs.
func operatorOf(core *server.Server, authority *identity.Authority) func(*http.Request, []tutti.Verb) (context.Context, func(), error) {
	return func(r *http.Request, verbs []tutti.Verb) (context.Context, func(), error) {
		name, serial, err := authority.OperatorName(r.TLS)
		if err != nil {
			return nil, nil, err
		}
		return core.Admit(r.Context(), name, serial, verbs...)
	}
}

// deniedTo records refused HTTP requests. If our CA signed the operator's certificate, deniedTo
// records the name in the certificate. If not, deniedTo records the client's address.
func deniedTo(ctx context.Context, core *server.Server) func(*http.Request, string, error) {
	return func(r *http.Request, what string, cause error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = server.LocalOperator // a Unix socket has no remote address
		}
		who := addressOf(host)
		if name, _, err := identity.OperatorName(r.TLS); err == nil {
			who, cause = "operator:"+name, fmt.Errorf("from %s: %w", host, cause)
		}
		core.Denied(ctx, who, what, cause)
	}
}
