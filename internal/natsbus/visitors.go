package natsbus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
)

// maxConnections is how many connections a node may have: its present one, one that is lost but that the bus still has,
// and one more.
const maxConnections = 3

// VisitorOptions are called when clients connect to the bus.
type VisitorOptions struct {
	// Disconnect ends a connection.
	Disconnect func(id uint64) error
	// Refused is called when the bus did not let a client in. It must not block.
	Refused func(from, what string, cause error)
	// Denied is called when a node did something that it may not do. It must not block.
	Denied func(key tutti.NodeKey, what string)
	Logger *slog.Logger // may be nil
}

// Visitors are the connections of nodes to the bus.
type Visitors struct {
	o      VisitorOptions
	excess *excess

	mu    sync.Mutex
	there map[tutti.NodeKey][]visitor // the oldest first
}

// NewVisitors returns Visitors without any connection.
func NewVisitors(o VisitorOptions) *Visitors {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Visitors{o: o, excess: newExcess(), there: map[tutti.NodeKey][]visitor{}}
}

type visitor struct {
	id   uint64
	host string
}

// visitorEvent is what the bus says about a connection.
type visitorEvent struct {
	Client struct {
		ID   uint64 `json:"id"`
		Host string `json:"host"`
		JWT  string `json:"jwt"`
	} `json:"client"`
	Reason string `json:"reason"`
}

// Watch follows which clients connect and which are refused, until ctx ends. nc is the server's connection to the
// system account. A node that opens too many connections loses the oldest one.
func (v *Visitors) Watch(ctx context.Context, nc *nats.Conn) error {
	msgs := make(chan *nats.Msg, 1<<14)
	for _, subject := range []string{"$SYS.ACCOUNT.*.CONNECT", "$SYS.ACCOUNT.*.DISCONNECT", "$SYS.SERVER.*.CLIENT.AUTH.ERR"} {
		sub, err := nc.ChanSubscribe(subject, msgs)
		if err != nil {
			return wrap(err, "watch who connects")
		}
		defer sub.Unsubscribe() //nolint:errcheck // the connection may be gone
	}
	if err := flush(ctx, nc); err != nil {
		return wrap(err, "watch who connects")
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case msg := <-msgs:
			v.handle(msg)
		}
	}
}

func (v *Visitors) handle(msg *nats.Msg) {
	var e visitorEvent
	if err := json.Unmarshal(msg.Data, &e); err != nil {
		v.o.Logger.Warn("the bus said something about a connection that nobody understands", "error", err)
		return
	}
	// The client chooses the user name that the bus reports. The bus has verified the JWT, except in the events that
	// say that it has not.
	key, known := keyOf(e.Client.JWT)
	switch {
	case strings.HasSuffix(msg.Subject, ".AUTH.ERR"):
		what := "connect to the bus"
		if known {
			what += " as " + string(key)
		}
		v.o.Refused(e.Client.Host, what, tutti.Errorf(tutti.CodeUnauthenticated, "%s", strings.ToLower(e.Reason)))
	case !known: // the server's own accounts
	case strings.HasSuffix(msg.Subject, ".CONNECT"):
		v.connected(key, visitor{e.Client.ID, e.Client.Host})
	default:
		v.left(key, e.Client.ID)
		if e.Reason == expired {
			v.o.Denied(key, "stay with a JWT that has ended")
		}
	}
}

// expired is the bus's reason for ending a connection with its JWT.
const expired = "Authentication Expired"

// keyOf returns the key of the node that a JWT is for.
func keyOf(text string) (tutti.NodeKey, bool) {
	claims, err := jwt.DecodeUserClaims(text)
	if err != nil {
		return "", false
	}
	key := tutti.NodeKey(claims.Subject)
	// The server's own users do not have the limits of nodes.
	return key, key.Validate() == nil && claims.Subs != jwt.NoLimit
}

func (v *Visitors) connected(key tutti.NodeKey, new visitor) {
	v.mu.Lock()
	defer v.mu.Unlock()
	there := v.there[key]
	if v.excess.isOut(key, time.Now()) {
		v.disconnect(new)
	}
	for _, old := range there {
		if old.host != new.host {
			v.o.Denied(key, fmt.Sprintf("be connected from %s and %s at once", old.host, new.host))
			break
		}
	}
	there = append(there, new)
	if len(there) > maxConnections {
		v.o.Denied(key, fmt.Sprintf("open more than %d connections at once", maxConnections))
		v.disconnect(there[0])
		there = there[1:]
	}
	v.there[key] = there
}

func (v *Visitors) disconnect(who visitor) {
	if err := v.o.Disconnect(who.id); err != nil {
		v.o.Logger.Debug("a connection of a node was gone already", "error", err)
	}
}

// Excess notes a message that is more than a node may send. A node that sends many of them loses its connections, and is
// let in again after some time. out: the node is out now.
func (v *Visitors) Excess(key tutti.NodeKey, bytes int) (out bool) {
	out, since := v.excess.more(key, bytes, time.Now())
	if !since {
		return out
	}
	v.o.Denied(key, "send far more than the server answers; its connections are ended for a while")
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, who := range v.there[key] {
		v.disconnect(who)
	}
	return out
}

// Violated notes that the holder of the JWT used a subject that it may not use.
func (v *Visitors) Violated(jwt, what string) {
	if key, known := keyOf(jwt); known {
		v.o.Denied(key, what)
		v.Excess(key, 0)
	}
}

func (v *Visitors) left(key tutti.NodeKey, id uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	there := v.there[key]
	for i, old := range there {
		if old.id == id {
			there = append(there[:i:i], there[i+1:]...)
			break
		}
	}
	if v.there[key] = there; len(there) == 0 {
		delete(v.there, key)
	}
}
