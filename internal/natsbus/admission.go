package natsbus

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
)

const (
	// UseJWT replaces the connection when no call is running. Until then new calls wait, but at most
	// for stallFor. If calls are still running after stallFor, UseJWT tries again after the pause
	// stallAgain.
	stallFor   = time.Second
	stallAgain = 5 * time.Second
	// rejoinTimeout bounds how long calls wait for the new connection.
	rejoinTimeout = 10 * time.Second
	// refusedAgain is the shortest time between two reports that the server does not admit this node.
	refusedAgain = time.Hour
)

// UseJWT makes the connection use another JWT of the same key. When no call is running, UseJWT replaces the
// connection, and returns when the new connection is open. Calls that begin during the replacement wait for the new
// connection, so no call gets lost. If ctx ends before the replacement, the next connection uses the new JWT. Only
// one UseJWT may run at a time.
func (c *Conn) UseJWT(ctx context.Context, jwt string) error {
	c.jwt.Store(&jwt)
	for !c.turn.close(stallFor) {
		timer := time.NewTimer(stallAgain)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return wrap(ctx.Err(), "replace the JWT: the running calls do not end")
		}
	}
	defer c.turn.open()
	c.mu.Lock()
	back := c.back
	c.mu.Unlock()
	if !c.nc.IsConnected() {
		return nil // the client library is already opening a new connection, which will use the new JWT
	}
	if err := c.nc.ForceReconnect(); err != nil {
		return wrap(err, "use the new JWT")
	}
	timer := time.NewTimer(rejoinTimeout)
	defer timer.Stop()
	select {
	case <-back:
	case <-ctx.Done():
	case <-timer.C:
	case <-c.closed:
	}
	return nil
}

// admission reports that the server does not admit this node, or that the node does not trust the
// server. admission repeats the report every hour, because a person has to solve these problems.
type admission struct {
	refused func(err error)
	mu      sync.Mutex
	said    time.Time
}

// The method `tried` records the result of an attempt to connect.
func (a *admission) tried(log *slog.Logger, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.said = time.Time{}
	case !isRefusal(err) && !isStranger(err):
		log.Debug("server not reached", "error", err)
	case time.Since(a.said) >= refusedAgain:
		a.said = time.Now()
		if isStranger(err) {
			a.refused(tutti.Wrap(tutti.CodeRefused, err, "this node does not trust the CA of the server's certificate"))
			return
		}
		a.refused(tutti.Wrap(tutti.CodeUnauthenticated, err, "the server refuses this node"))
	}
}

// isRefusal reports whether the bus refused the credentials of a new connection. (When a JWT expires or is revoked,
// the bus sends this error on the open connection. The next attempt to connect then fails with the same error.)
func isRefusal(err error) bool { return errors.Is(err, nats.ErrAuthorization) }

// isStranger reports whether the server showed a certificate of a CA that this node does not trust.
func isStranger(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unknown
}
