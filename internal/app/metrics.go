package app

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/metrics"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
	"github.com/tutti-project/tutti/internal/outward"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/serverdir"
)

// openMetrics listens for scrapes without a certificate, if somebody wants that.
func (s *Server) openMetrics() error {
	at := s.opts.Metrics
	if at == "" {
		return nil
	}
	if err := isLoopback(at); err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", at)
	if err != nil {
		return tutti.Wrap(tutti.CodeUnavailable, err, "listen for Prometheus (--metrics %s)", at)
	}
	s.scrapes = l
	return nil
}

// isLoopback refuses an address that other machines could reach. It resolves no names: who answers for a name may change.
func isLoopback(at string) error {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return tutti.Wrap(tutti.CodeInvalid, err, "--metrics %q: an address and a port are needed, like 127.0.0.1:9150", at)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return tutti.Errorf(tutti.CodeInvalid, "--metrics %q: this door asks for no certificate, so only an address of this machine is allowed, like 127.0.0.1:9150; "+
			"for other machines, give a certificate the verb metrics and scrape https://…/metrics on the operators' port (docs/howto/metrics.md)", at)
	}
	return nil
}

// scrapeHandler answers scrapes on the loopback address. It refuses a request with the name of another host, because a
// browser on this machine sends such a request if a web page has taken over a name. While the server does not serve, it
// answers with the numbers that it still knows.
func scrapeHandler(m http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if isLoopback(net.JoinHostPort(host, "0")) != nil {
			http.Error(w, "this address answers only under its own name, like 127.0.0.1", http.StatusMisdirectedRequest)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// profiles adds Go's profiles to the local socket, which only root can use. A profile shows the server's memory, so no
// other door has profiles.
func profiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
}

// timedLog measures the appends to the log.
type timedLog struct {
	serverdir.Witnessed
	meters *metrics.Meters
}

// Append implements tutti.Log.
func (l timedLog) Append(ctx context.Context, last uint64, events []tutti.Event) (uint64, error) {
	began := time.Now()
	seq, err := l.Witnessed.Append(ctx, last, events)
	l.meters.Appended(len(events), time.Since(began))
	return seq, err
}

// sampleEvery is how often the server looks at its disk, bus and files for the metrics.
const sampleEvery = 10 * time.Second

// serving are the parts of a server that serves, for the metrics.
type serving struct {
	core  *server.Server
	bus   *embed.Server
	log   *natsbus.Log
	blobs *natsbus.Blobs
}

// The method `sample` takes samples for the metrics until ctx ends.
func (s *Server) sample(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error {
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		for {
			s.meters.SetHost(s.look(ctx))
			select {
			case <-ctx.Done():
				return nil
			case <-s.began:
			case <-ticker.C:
			}
		}
	})
}

// The method `look` takes one sample.
func (s *Server) look(ctx context.Context) metrics.Host {
	h := metrics.Host{At: time.Now(), Reports: map[string]metrics.Reports{}}
	if free, keep, err := s.reserve.Room(); err == nil {
		h.DiskFree, h.DiskReserve = &free, &keep
	}
	ca, https := identity.Ends(s.authority)
	h.Certificates = map[string]time.Time{"ca": ca, "server": https}
	for _, d := range s.destinations {
		if st, parked, err := outward.ReadStatus(s.opts.Dir, d.Name); err == nil {
			h.Reports[d.Name] = metrics.Reports{Sent: st.Sent, Dropped: st.Dropped, Waiting: st.Waiting, Parked: len(parked)}
		}
	}
	if now := s.serving.Load(); now != nil {
		h.SnapshotAt = now.core.SnapshotAt()
		connections, slow := now.bus.Connections()
		h.Connections, h.SlowConnections = &connections, &slow
		if size, err := now.log.Bytes(ctx); err == nil {
			h.LogBytes = &size
		}
		if size, err := now.blobs.Bytes(ctx); err == nil {
			h.BlobBytes = &size
		}
	}
	return h
}

// The method `measure` says where the metrics come from, now that the server serves.
func (s *Server) measure(now serving) {
	s.serving.Store(&now)
	s.meters.Serve(now.core.Tally)
	select {
	case s.began <- struct{}{}:
	default: // a sample is due already
	}
}

// The method `unmeasured` says that the server does not serve any more.
func (s *Server) unmeasured() {
	s.meters.Serve(nil)
	s.serving.Store(nil)
}
