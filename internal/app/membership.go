package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

// membership is what lets a node onto the bus, and ends unless it is renewed.
type membership struct {
	identity.EnrolResponse
	dir  string
	conn memberConn
	log  *slog.Logger
}

// memberConn is the node's connection.
type memberConn interface {
	Call(ctx context.Context, op string, payload []byte) ([]byte, error)
	UseJWT(ctx context.Context, jwt string) error
}

// keep renews the JWT with half of its life left, until ctx ends. The new one is
// on disk before it is used: a crash leaves one that is good.
func (m membership) keep(ctx context.Context) error {
	for {
		from, until, err := identity.JWTLife(m.JWT)
		if err != nil {
			return err
		}
		if err := pause(ctx, time.Until(from.Add(until.Sub(from)/2))); err != nil {
			return err
		}
		err = m.renew(ctx)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		left := time.Until(until)
		if left > 0 { // after it, the connection says what is the matter
			m.log.Warn("the membership was not renewed; it is tried again", "ends", until, "error", err)
		}
		if err := pause(ctx, min(max(left/20, retryEnded), time.Hour)); err != nil {
			return err
		}
		m.reload(ctx)
	}
}

// retryEnded is the shortest pause before a renewal is tried again.
const retryEnded = time.Second

func (m *membership) renew(ctx context.Context) error {
	reply, err := m.conn.Call(ctx, tutti.OpRenew, []byte("{}"))
	if err != nil {
		return err
	}
	var renewed tutti.Renewed
	if err := json.Unmarshal(reply, &renewed); err != nil {
		return tutti.Wrap(tutti.CodeInternal, err, "answer to %s", tutti.OpRenew)
	}
	next := m.EnrolResponse
	next.JWT = renewed.JWT
	if _, _, err := identity.JWTLife(next.JWT); err != nil {
		return err
	}
	if err := changeMembership(m.dir, func(on *identity.EnrolResponse) { on.JWT = renewed.JWT }); err != nil {
		return err
	}
	_, until, err := identity.JWTLife(m.JWT)
	if err != nil {
		return err
	}
	m.EnrolResponse = next
	m.log.Info("the membership was renewed")
	// The connection lives as long as the JWT that it was made with: in a third of
	// the time that is left there is a quiet moment, or it is made anew at its end.
	ctx, cancel := context.WithTimeout(ctx, time.Until(until)/3)
	defer cancel()
	if err := m.conn.UseJWT(ctx, next.JWT); err != nil {
		m.log.Warn("the connection is not made anew until it breaks", "error", err)
	}
	return nil
}

// reload takes what a join in another process has written.
func (m *membership) reload(ctx context.Context) {
	if on, err := identity.LoadMembership(m.dir); err == nil && on.JWT != m.JWT {
		m.EnrolResponse = on
		_ = m.conn.UseJWT(ctx, on.JWT) // it is there for the next connection in any case
	}
}
