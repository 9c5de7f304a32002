package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// CompileSocket is a permanent socket. The Puppet Server of this node uses the socket to ask questions
// for the nodes for which it compiles (ADR 0013). The Tutti server refuses these questions until it has
// granted `compile` to this node.
type CompileSocket struct {
	Path string
	UID  int // user id of the only user who may ask questions
	GID  int // group of the socket
}

// listenCompile opens the socket for one user and their group. listenCompile returns nil if
// no compile socket is configured.
func (a *Agent) listenCompile() (*net.UnixListener, error) {
	c := a.opts.Compile
	if c == nil {
		return nil, nil
	}
	// Everyone may pass through the directory. Only one group may use the socket itself.
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o755); err != nil {
		return nil, tutti.Wrap("", err, "the compile socket's directory")
	}
	if err := os.Chmod(filepath.Dir(c.Path), 0o755); err != nil { // the Puppet Server's user must pass through the directory
		return nil, tutti.Wrap("", err, "the compile socket's directory")
	}
	_ = os.Remove(c.Path) // remove the socket of an earlier agent
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.Path, Net: "unix"})
	if err != nil {
		return nil, tutti.Wrap("", err, "the compile socket")
	}
	if err = os.Chmod(c.Path, 0o660); err == nil { // only the group of the Puppet Server may use the socket
		err = os.Chown(c.Path, -1, c.GID)
	}
	if err != nil {
		return nil, tutti.Wrap("", errors.Join(err, l.Close()), "the compile socket")
	}
	return l, nil
}

// The method `compiles` answers the Puppet Server's questions until ctx ends.
func (a *Agent) compiles(ctx context.Context, l *net.UnixListener) {
	logger := a.opts.Logger
	accept(ctx, l, logger, func(conn net.Conn) {
		answer := (&compileConn{agent: a}).answer
		if err := a.isCompiler(conn); err != nil {
			logger.Warn("a connection to the compile socket was refused", "error", err)
			answer = func(context.Context, request) (response, error) { return nil, err }
		}
		converse(ctx, conn, answer)
	})
}

// isCompiler refuses every user except the user of the Puppet Server, even if somebody changed the
// socket's mode.
func (a *Agent) isCompiler(conn net.Conn) error {
	peer, err := peerOf(conn.(*net.UnixConn))
	if err != nil {
		return err
	}
	if peer.uid != a.opts.Compile.UID {
		return tutti.Errorf(tutti.CodeRefused, "this socket is for the Puppet Server, of user %d; process %d is of user %d", a.opts.Compile.UID, peer.pid, peer.uid)
	}
	return nil
}

// peer is the process at the other end of a socket.
type peer struct{ uid, pid int }

// compileConn is the connection of one compile. The agent keeps only the hello of the connection.
// The agent keeps no answers, because the Puppet Server asks each question once.
type compileConn struct {
	agent *Agent
	by    request // the hello of this connection
}

func (c *compileConn) answer(ctx context.Context, req request) (response, error) {
	switch req.Op {
	case "hello":
		return c.hello(ctx, req)
	case "hiera":
		return c.hiera(ctx)
	case "value":
		return c.value(ctx, req)
	case "collect":
		return c.collect(ctx, req)
	case "groups":
		return c.groups(ctx)
	case "compiled":
		return c.compiled(ctx, req)
	}
	return nil, tutti.Errorf(tutti.CodeInvalid, "op %q is not known to the compile socket (protocol %d)", req.Op, protocol)
}

func (c *compileConn) hello(ctx context.Context, req request) (response, error) {
	if req.Protocol != protocol {
		return nil, tutti.Errorf(tutti.CodeRefused, "the module on the Puppet Server speaks protocol %d, this agent %d: install it again with `tutti puppet-server install`", req.Protocol, protocol)
	}
	compiling, err := persist[wire.ServedBegun](ctx, c.agent, wire.OpCompile, wire.BeginServed{Run: req.Run, For: req.Certname})
	if err != nil {
		return nil, err
	}
	c.by = req
	return response{"node": compiling.Node, "recorded": compiling.Recorded}, nil
}

func (c *compileConn) ask(ctx context.Context, q tutti.Query, stored map[tutti.NodeName]wire.Stored) (wire.Answer, error) {
	answer, err := persist[wire.Answer](ctx, c.agent, wire.OpAsk, wire.Question{Run: c.by.Run, For: c.by.Certname, Query: q, Stored: stored, Opens: true})
	if err == nil {
		err = checkAnswered(q, c.by.Certname, answer)
	}
	return answer, err
}

func (c *compileConn) value(ctx context.Context, req request) (response, error) {
	a, err := c.ask(ctx, tutti.Query{Kind: tutti.QueryValue, Key: req.Key}, nil)
	if err != nil {
		return nil, err
	}
	out, err := c.agent.valueResponse(a, c.by.Opens)
	if err == nil {
		out["digest"], out["seq"] = a.Digest, a.Seq
	}
	return out, err
}

func (c *compileConn) collect(ctx context.Context, req request) (response, error) {
	a, err := c.ask(ctx, collectQuery(req), req.Stored)
	if err != nil {
		return nil, err
	}
	out := response{"exports": orNone(a.Exports), "digest": a.Digest, "seq": a.Seq}
	if req.Stored != nil {
		if a.Lags == nil { // a server that is older than this agent does not report the nodes whose catalog PuppetDB lacks
			return nil, tutti.Errorf(tutti.CodeInternal, "the server does not report whether PuppetDB is up to date, because the server is older than this agent")
		}
		out["lags"] = a.Lags
	}
	return out, nil
}

func (c *compileConn) hiera(ctx context.Context) (response, error) {
	level, err := persist[wire.HieraData](ctx, c.agent, wire.OpHiera, wire.HieraQuestion{Run: c.by.Run, For: c.by.Certname, Opens: true})
	if err == nil {
		err = checkHiera(c.by.Certname, level)
	}
	if err != nil {
		return nil, err
	}
	out, err := c.agent.hieraResponse(level, c.by.Opens)
	if err == nil {
		out["digests"], out["seq"] = level.Digests, level.Seq
	}
	return out, err
}

// The method `compiled` sends the server what the compile has read and what it exports.
func (c *compileConn) compiled(ctx context.Context, req request) (response, error) {
	// The server does not need the places in the code.
	gate := wire.Gate{Run: c.by.Run, Reads: req.Reads, Keys: req.Keys, Exports: req.Exports}
	_, err := persist[struct{}](ctx, c.agent, wire.OpCompiled, wire.ServedCatalog{
		For: c.by.Certname, Gate: gate, Waits: req.Waits, Failed: req.Failed, CatalogUUID: req.CatalogUUID, Lags: req.Lags,
	})
	return nil, err
}

// The function `persist` sends a request to the server. While the server is away, the function repeats
// the request as long as the agent's patience lasts. A restart of the server must not make a compile
// fail.
func persist[T any](ctx context.Context, a *Agent, op string, in any) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.Patience)
	defer cancel()
	for {
		out, err := call[T](ctx, a, op, in)
		if err == nil || !away(err) {
			return out, err
		}
		if pause(ctx, insistEvery) != nil {
			return out, tutti.Wrap(tutti.CodeUnavailable, err, "the Tutti server does not answer")
		}
	}
}
