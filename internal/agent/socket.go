package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// The type `socket` answers one run's Puppet (docs/run-protocol.md). When the agent restarts during
// the run, the next agent opens the socket again.
type socket struct {
	agent    *Agent
	dir      string
	spec     Spec
	book     *book
	listener net.Listener
	logger   *slog.Logger
	local    bool // the run has no order and gets only answers that are already known here

	asking    sync.Mutex
	awaySince time.Time // since when the server does not answer; zero while the server answers; guarded by the mutex `asking`
}

// protocol is the version of the run protocol that the socket speaks.
const protocol = 1

// listen opens the run's socket, for root only.
func (a *Agent) listen(dir string, spec Spec) (*socket, error) {
	b, err := openBook(dir)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(spec.Socket) // remove the socket of an earlier agent
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", spec.Socket)
	if err != nil {
		b.close()
		return nil, err
	}
	if err := os.Chmod(spec.Socket, 0o600); err != nil {
		l.Close()
		b.close()
		return nil, err
	}
	return &socket{
		agent: a, dir: dir, spec: spec, book: b, listener: l, logger: a.opts.Logger.With("run", spec.Order.Run), local: hasFile(dir, LocalFile),
	}, nil
}

func (s *socket) close() {
	s.listener.Close()
	s.book.close()
}

// The method `serve` answers until ctx ends. The method returns after all connections are closed.
func (s *socket) serve(ctx context.Context) {
	accept(ctx, s.listener, s.logger, func(conn net.Conn) { converse(ctx, conn, s.answer) })
}

// After an error, the function `accept` waits for acceptAgain and tries again. An error may come
// because the process has no free file descriptors. If the function gave up, clients would wait for
// ever.
const acceptAgain = time.Second

// The function `accept` serves connections until ctx ends. The function returns after all
// connections are closed.
func accept(ctx context.Context, l net.Listener, logger *slog.Logger, serve func(net.Conn)) {
	var conns sync.WaitGroup
	defer conns.Wait()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			logger.Error("a socket of the agent cannot accept a connection", "socket", l.Addr().String(), "error", err)
			if pause(ctx, acceptAgain) != nil {
				return
			}
			continue
		}
		conns.Go(func() { serve(conn) })
	}
}

// request is any request. Each op uses its own fields.
type request struct {
	Op       string          `json:"op"`
	Run      tutti.RunID     `json:"run"`
	Protocol int             `json:"protocol"`
	Module   string          `json:"module"`
	Puppet   string          `json:"puppet"`
	Certname tutti.NodeName  `json:"certname"`
	Path     string          `json:"path"`
	PID      int             `json:"pid"`
	Key      string          `json:"key"`
	Value    json.RawMessage `json:"value"`
	Type     string          `json:"type"`
	Filter   json.RawMessage `json:"filter"`
	At       tutti.Place     `json:"at"`
	Catalog  catalog         `json:"catalog"`
	Exports  []tutti.Export  `json:"exports"`
	Values   []string        `json:"values"`
	Keys     []tutti.KeyRead `json:"keys"`
	Facts    tutti.Digest    `json:"facts_digest"`
	Reads    []tutti.Read    `json:"reads"` // from a compile on a Puppet Server
	Waits    []tutti.Wait    `json:"waits"`
	Failed   bool            `json:"failed"`
	Lags     []tutti.Lag     `json:"lags"`
	Opens    bool            `json:"opens"` // in a hello: the module accepts secrets, and makes them Sensitive
	// Sensitive is true if a published value must be sealed. If Sensitive is true, the field For lists
	// the targets of the value.
	Sensitive bool     `json:"sensitive"`
	For       []string `json:"for"`
	Withdraw  bool     `json:"withdraw"` // in `published`: the run wants that no value is published

	Stored      map[tutti.NodeName]wire.Stored `json:"stored"`
	CatalogUUID string                         `json:"catalog_uuid"`
}

// catalog describes a compiled catalog. Sources or Lib is empty if the module cannot know the content.
type catalog struct {
	Digest    tutti.Digest `json:"digest"`
	Sources   tutti.Digest `json:"sources"`
	Lib       tutti.Digest `json:"lib"`
	Deferred  bool         `json:"deferred"`
	Resources int          `json:"resources"`
}

// response is a successful response.
type response map[string]any

// converse answers the requests of one connection. The first request must be hello.
func converse(ctx context.Context, conn net.Conn, answer func(context.Context, request) (response, error)) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	in := bufio.NewScanner(conn)
	in.Buffer(nil, maxMessage)
	greeted := false
	for in.Scan() {
		var req request
		err := tutti.Wrap(tutti.CodeInvalid, json.Unmarshal(in.Bytes(), &req), "request")
		if err == nil && !greeted && req.Op != "hello" {
			err = tutti.Errorf(tutti.CodeRefused, "%s before hello", req.Op)
		}
		var out response
		if err == nil {
			killpoint.Here("agent.asked", req.Op)
			out, err = answer(ctx, req)
			killpoint.Here("agent.replies", req.Op)
			greeted = greeted || req.Op == "hello" && err == nil
		}
		if ctx.Err() != nil {
			return // an answer now would only say that this agent ends; the next agent answers
		}
		if writeErr := reply(conn, out, err); writeErr != nil {
			return // Puppet connects again and repeats its request
		}
		killpoint.Here("agent.replied", req.Op)
	}
}

func reply(conn net.Conn, out response, err error) error {
	if out == nil {
		out = response{}
	}
	out["ok"] = err == nil
	if err != nil {
		out = response{"ok": false, "code": tutti.CodeOf(err), "error": err.Error()}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(raw, '\n'))
	return err
}

func (s *socket) answer(ctx context.Context, req request) (response, error) {
	switch req.Op {
	case "hello":
		return s.hello(req)
	case "lock_wait":
		return s.lockWait(ctx, req)
	case "hiera":
		return s.hiera(ctx)
	case "value":
		return s.value(ctx, req)
	case "collect":
		return s.collect(ctx, req)
	case "enc":
		return s.enc(ctx, req)
	case "groups":
		return s.groups(ctx, req)
	case "gate":
		return s.gate(ctx, req)
	case "asked":
		return s.asked(req)
	case "published":
		return s.published(ctx, req)
	case "publish", "withdraw":
		return s.publish(ctx, req)
	}
	return nil, tutti.Errorf(tutti.CodeInvalid, "op %q is not known to this agent (protocol %d)", req.Op, protocol)
}

// hello is what a launcher reports about itself.
type hello struct {
	Puppet string `json:"puppet"`
	Module string `json:"module"`
	PID    int    `json:"pid"`
	Opens  bool   `json:"opens,omitempty"`
}

func (s *socket) hello(req request) (response, error) {
	switch {
	case req.Protocol != protocol:
		return nil, tutti.Errorf(tutti.CodeRefused, "the module speaks protocol %d, this agent %d: the code contains another version of the module tutti", req.Protocol, protocol)
	case req.Run != s.spec.Order.Run:
		return nil, tutti.Errorf(tutti.CodeRefused, "this is the socket of run %s, not of %q", s.spec.Order.Run, string(req.Run))
	case req.Certname != s.spec.Node:
		return nil, tutti.Errorf(tutti.CodeRefused, "this is node %s, and Puppet compiles for %q", s.spec.Node, string(req.Certname))
	}
	s.agent.known.setPuppet(req.Puppet)
	err := s.book.write(entry{Hello: &hello{Puppet: req.Puppet, Module: req.Module, PID: req.PID, Opens: req.Opens}})
	return response{"mode": s.spec.Order.Mode}, err
}

// lines yields the complete lines of raw, without their line ends.
func lines(raw []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			line, rest, ok := bytes.Cut(raw, []byte("\n"))
			if !ok || !yield(line) {
				return
			}
			raw = rest
		}
	}
}
