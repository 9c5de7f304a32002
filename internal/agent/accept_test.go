package agent_test

import (
	"context"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/tutti-project/tutti/internal/agent"
)

// brokenListener returns two errors from Accept and then one connection.
type brokenListener struct {
	net.Listener
	errs   []error
	conn   net.Conn
	closed chan struct{}
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, err
	}
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *brokenListener) Addr() net.Addr { return &net.UnixAddr{} }

func (l *brokenListener) Close() error {
	close(l.closed)
	return nil
}

// After a listener has returned errors for a while, the socket serves the
// connections that follow.
func TestASocketOutlivesAnErrorOfAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		l := &brokenListener{errs: []error{syscall.EMFILE, syscall.ECONNABORTED}, conn: there, closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			agent.Accept(ctx, l, slog.New(slog.DiscardHandler), func(conn net.Conn) {
				conn.Close()
				close(served)
			})
		}()
		select {
		case <-served:
		case <-ended:
			t.Error("nobody serves the socket, which is open")
		}
		cancel()
		<-ended
	})
}
