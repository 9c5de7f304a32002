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

// Keeper renews a node's membership. A node needs its membership to connect to the bus. The
// membership ends if it is not renewed.
type Keeper struct {
	identity.EnrolResponse
	Dir  string
	Conn memberConn
	Log  *slog.Logger
	// Rung signals that the server may want the node to use other keys. If Rung is nil, no
	// signal comes.
	Rung <-chan struct{}
}

// memberConn is the node's connection.
type memberConn interface {
	Call(ctx context.Context, op string, payload []byte) ([]byte, error)
	UseJWT(ctx context.Context, jwt string) error
	UseCA(caPEM []byte) error
	// Proved returns the CA by which the server has proved its identity.
	Proved() tutti.Digest
	Connected() bool
}

// Keep works until ctx ends. Keep renews the JWT when half of the JWT's life is left. When the server's keys are
// rotated, Keep switches to the new keys. Keep writes new credentials to disk before it uses them, so good
// credentials exist after a crash.
func (m Keeper) Keep(ctx context.Context) error {
	var again time.Time // when to follow the server's keys again after a failure; zero: there was no failure
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
		if left > 0 { // after the end of the JWT, the connection already reports a clear error
			m.Log.Warn("the membership was not renewed; the agent tries again", "ends", until, "error", err)
		}
		if _, err := m.wait(ctx, min(max(left/20, retryEnded), time.Hour)); err != nil {
			return err
		}
		m.reload(ctx)
	}
}

// The method `wait` waits for the time d. If m.Rung signals before that, the method returns at once, and `asked` is
// true. Without a connection, the method checks at intervals of lookAgain whether the node has joined again.
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
	// lookAgain is how often a node without a connection checks whether it has joined
	// again.
	lookAgain = 15 * time.Second
	// followAgain is the pause before Keeper tries again to follow the server's keys.
	followAgain = time.Minute
	// maxFollow is how many changes of keys a node follows without a pause. Then the node waits for the
	// time followAgain, even if the server wants another change.
	maxFollow = 4
)

// The method `followed` makes the node use the keys that the server wants. The method returns when to
// try again. A zero time means that the node need not try again before the server requests it.
func (m *Keeper) followed(ctx context.Context) time.Time {
	for range maxFollow {
		changed, err := m.stand(ctx)
		switch {
		case tutti.CodeOf(err) == tutti.CodeInvalid:
			m.Log.Debug("the server does not rotate its keys", "error", err) // the server is of an earlier release
			return time.Time{}
		case err != nil:
			if ctx.Err() == nil && tutti.CodeOf(err) != tutti.CodeUnavailable {
				m.Log.Warn("the node does not follow the server's keys yet; the agent tries again", "error", err)
			}
			return time.Now().Add(followAgain)
		case !changed:
			return time.Time{}
		}
	}
	return time.Now().Add(followAgain)
}

// The method `stand` reports to the server which keys the node uses. The server answers which
// keys the node should use, and `stand` switches to the keys in the answer.
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

// The method `use` switches to the credentials `next`, which are already on disk.
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

// useWait is how long Keeper waits for a moment in which no call is running. If there is no such
// moment, the next connection uses the new JWT.
const useWait = time.Minute

// retryEnded is the shortest pause between two tries to renew the membership.
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
	// The connection lives as long as the JWT with which it was made. Wait for a moment in which no
	// call is running, but at most for a third of the remaining time. If there is no such moment,
	// the node connects again when the old JWT ends.
	ctx, cancel := context.WithTimeout(ctx, time.Until(until)/3)
	defer cancel()
	if err := m.Conn.UseJWT(ctx, next.JWT); err != nil {
		m.Log.Warn("the next connection uses the new JWT", "error", err)
	}
	return nil
}

// reload switches to the credentials that a join in another process has written.
func (m *Keeper) reload(ctx context.Context) {
	if on, err := identity.LoadMembership(m.Dir); err == nil && (on.JWT != m.JWT || on.CA != m.CA) {
		_ = m.use(ctx, on) // if this fails, the next connection still uses the credentials
	}
}
