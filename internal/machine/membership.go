package machine

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// Keeper is what lets a node onto the bus, and ends unless it is renewed.
type Keeper struct {
	identity.EnrolResponse
	Dir  string
	Conn memberConn
	Log  *slog.Logger
	// follow says that the server may want the node to stand on other keys. nil: it never says so.
	Rung <-chan struct{}
}

// memberConn is the node's connection.
type memberConn interface {
	Call(ctx context.Context, op string, payload []byte) ([]byte, error)
	UseJWT(ctx context.Context, jwt string) error
	UseCA(caPEM []byte) error
	// Proved is the CA by which the server has proved itself.
	Proved() tutti.Digest
	Connected() bool
}

// Keep renews the JWT with half of its life left, and follows the server when its keys are rotated, until ctx ends. What
// is new is on disk before it is used: a crash leaves what is good.
func (m Keeper) Keep(ctx context.Context) error {
	var again time.Time // when following is tried again that failed; zero: it did not
	for {
		from, until, err := identity.JWTLife(m.JWT)
		if err != nil {
			return err
		}
		next := from.Add(until.Sub(from) / 2)
		if !again.IsZero() && again.Before(next) {
			next = again
		}
		asked, err := m.wait(ctx, time.Until(next))
		switch {
		case err != nil:
			return err
		case asked || next.Equal(again):
			if again = m.followed(ctx); ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue
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
			m.Log.Warn("the membership was not renewed; it is tried again", "ends", until, "error", err)
		}
		if _, err := m.wait(ctx, min(max(left/20, retryEnded), time.Hour)); err != nil {
			return err
		}
		m.reload(ctx)
	}
}

// wait returns after d, or (asked) when the server wants something. While there is no connection it looks now and then
// whether somebody has joined again.
func (m *Keeper) wait(ctx context.Context, d time.Duration) (asked bool, err error) {
	end := time.Now().Add(d)
	for {
		timer := time.NewTimer(min(time.Until(end), lookAgain))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, context.Cause(ctx)
		case <-m.Rung:
			timer.Stop()
			return true, nil
		case <-timer.C:
		}
		if !time.Now().Before(end) {
			return false, nil
		}
		if !m.Conn.Connected() {
			m.reload(ctx)
		}
	}
}

const (
	// lookAgain is how often a node without a connection looks whether it has joined again.
	lookAgain = 15 * time.Second
	// followAgain is when following is tried again.
	followAgain = time.Minute
	// maxFollow bounds what a server may want one after the other: a node that is told something else each time stops.
	maxFollow = 4
)

// followed brings the node to stand on what the server wants. It returns when that is to be tried again, zero: not before
// it is asked.
func (m *Keeper) followed(ctx context.Context) time.Time {
	for range maxFollow {
		changed, err := m.stand(ctx)
		switch {
		case tutti.CodeOf(err) == tutti.CodeInvalid:
			m.Log.Debug("the server does not rotate its keys", "error", err) // of an earlier release
			return time.Time{}
		case err != nil:
			if ctx.Err() == nil && tutti.CodeOf(err) != tutti.CodeUnavailable {
				m.Log.Warn("the server's keys are not followed; it is tried again", "error", err)
			}
			return time.Now().Add(followAgain)
		case !changed:
			return time.Time{}
		}
	}
	return time.Now().Add(followAgain)
}

// stand says what the node stands on, and takes what it should.
func (m *Keeper) stand(ctx context.Context) (changed bool, err error) {
	issuer, err := identity.JWTIssuer(m.JWT)
	if err != nil {
		return false, tutti.Wrap(tutti.CodeInternal, err, "say what this node stands on")
	}
	pins, err := identity.CAPins([]byte(m.CA))
	if err != nil {
		return false, tutti.Wrap(tutti.CodeInternal, err, "say what this node stands on")
	}
	raw, err := json.Marshal(tutti.Pinned{CAs: pins, Issuer: issuer})
	if err != nil {
		return false, err
	}
	reply, err := m.Conn.Call(ctx, wire.OpTrust, raw)
	if err != nil {
		return false, err
	}
	var should wire.ToPin
	if err := json.Unmarshal(reply, &should); err != nil {
		return false, tutti.Wrap(tutti.CodeInternal, err, "answer to %s", wire.OpTrust)
	}
	next, err := m.Follow(should, m.Conn.Proved())
	if err != nil {
		return false, tutti.Wrap(tutti.CodeInternal, err, "answer to %s", wire.OpTrust)
	}
	if next.CA == m.CA && next.JWT == m.JWT {
		return false, nil
	}
	if err := changeMembership(m.Dir, func(on *identity.EnrolResponse) { on.CA, on.JWT = next.CA, next.JWT }); err != nil {
		return false, err
	}
	killpoint.Here("agent.pinned")
	m.Log.Info("this node follows the server's keys")
	return true, m.use(ctx, next)
}

// use goes on with what is on disk.
func (m *Keeper) use(ctx context.Context, next identity.EnrolResponse) error {
	before := m.EnrolResponse
	m.EnrolResponse = next
	if err := m.Conn.UseCA([]byte(next.CA)); err != nil {
		return tutti.Wrap(tutti.CodeInternal, err, "use other CAs")
	}
	if next.JWT == before.JWT {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, useWait)
	defer cancel()
	if err := m.Conn.UseJWT(within, next.JWT); err != nil {
		m.Log.Warn("the next connection uses the new JWT", "error", err)
	}
	return nil
}

// useWait bounds how long following waits for a quiet moment: the next connection uses the new JWT in any case.
const useWait = time.Minute

// retryEnded is the shortest pause before a renewal is tried again.
const retryEnded = time.Second

func (m *Keeper) renew(ctx context.Context) error {
	reply, err := m.Conn.Call(ctx, wire.OpRenew, []byte("{}"))
	if err != nil {
		return err
	}
	var renewed wire.Renewed
	if err := json.Unmarshal(reply, &renewed); err != nil {
		return tutti.Wrap(tutti.CodeInternal, err, "answer to %s", wire.OpRenew)
	}
	next := m.EnrolResponse
	next.JWT = renewed.JWT
	if _, _, err := identity.JWTLife(next.JWT); err != nil {
		return err
	}
	if err := changeMembership(m.Dir, func(on *identity.EnrolResponse) { on.JWT = renewed.JWT }); err != nil {
		return err
	}
	_, until, err := identity.JWTLife(m.JWT)
	if err != nil {
		return err
	}
	m.EnrolResponse = next
	m.Log.Info("the membership was renewed")
	// The connection lives as long as the JWT that it was made with: in a third of
	// the time that is left there is a quiet moment, or it is made anew at its end.
	ctx, cancel := context.WithTimeout(ctx, time.Until(until)/3)
	defer cancel()
	if err := m.Conn.UseJWT(ctx, next.JWT); err != nil {
		m.Log.Warn("the next connection uses the new JWT", "error", err)
	}
	return nil
}

// reload takes what a join in another process has written.
func (m *Keeper) reload(ctx context.Context) {
	if on, err := identity.LoadMembership(m.Dir); err == nil && (on.JWT != m.JWT || on.CA != m.CA) {
		_ = m.use(ctx, on) // it is there for the next connection in any case
	}
}
