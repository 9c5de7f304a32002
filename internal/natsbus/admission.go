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
	// stallFor bounds how long new calls wait for the calls under way to end. stallAgain is the time until the next
	// try.
	stallFor   = time.Second
	stallAgain = 5 * time.Second
	// rejoinTimeout bounds how long calls wait for the new connection.
	rejoinTimeout = 10 * time.Second
	// refusedAgain is how often a node reports that it is not admitted.
	refusedAgain = time.Hour
)

// UseJWT uses another JWT of the same key from now on. When no call is under way, it replaces the connection, and
// returns when the new one is there. Calls that begin in between wait for it, so none is lost. If ctx ends earlier, the
// next connection uses the JWT. Only one UseJWT may run at a time.
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
			return wrap(ctx.Err(), "use the new JWT: a call goes on and on")
		}
	}
	defer c.turn.open()
	c.mu.Lock()
	back := c.back
	c.mu.Unlock()
	if !c.nc.IsConnected() {
		return nil // the next connection is on its way
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

// admission reports, once and then from time to time, that the server does not admit this node, or that the node does
// not know the server. Neither passes by itself.
type admission struct {
	refused func(err error)
	mu      sync.Mutex
	said    time.Time
}

// tried notes how an attempt to connect ended.
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
			a.refused(tutti.Wrap(tutti.CodeRefused, err, "the server is of a CA that this node does not know"))
			return
		}
		a.refused(tutti.Wrap(tutti.CodeUnauthenticated, err, "the server does not let this node in"))
	}
}

// isRefusal reports whether the bus refused the credentials of a new connection. (If they have expired or were revoked,
// the bus says so on an open connection. The next attempt to connect then ends with this error.)
func isRefusal(err error) bool { return errors.Is(err, nats.ErrAuthorization) }

// isStranger reports whether the server showed a certificate of a CA that this node does not trust.
func isStranger(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unknown
}
