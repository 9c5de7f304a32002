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

// maxConnections is how many connections a node may have. A node has its present connection. It may
// also have a lost connection whose loss the bus has not noticed yet. One more is for safety.
const maxConnections = 3

// VisitorOptions are functions that Visitors calls when clients connect to the bus.
type VisitorOptions struct {
	// Disconnect ends a connection.
	Disconnect func(id uint64) error
	// Visitors calls Refused when the bus has refused a client. Refused must not block.
	Refused func(from, what string, cause error)
	// Visitors calls Denied when a node has tried an action without permission. Denied must not block.
	Denied func(key tutti.NodeKey, what string)
	Logger *slog.Logger // may be nil
}

// Visitors tracks the connections of nodes to the bus.
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

// visitorEvent is a message of the bus about a connection.
type visitorEvent struct {
	Client struct {
		ID   uint64 `json:"id"`
		Host string `json:"host"`
		JWT  string `json:"jwt"`
	} `json:"client"`
	Reason string `json:"reason"`
}

// Watch observes which clients connect and which clients the bus refuses, until ctx ends. nc is the server's
// connection to the system account. If a node opens too many connections, Watch closes its oldest one.
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
		v.o.Logger.Warn("the bus sent an unknown message about a connection", "error", err)
		return
	}
	// Use only the JWT in the bus's message. The user name comes from the client and cannot be trusted.
	// If the message is about a failed authentication, the bus has not verified the JWT. In all other
	// messages the JWT is verified.
	key, known := keyOf(e.Client.JWT)
	switch {
	case strings.HasSuffix(msg.Subject, ".AUTH.ERR"):
		what := "connect to the bus"
		if known {
			what += " as " + string(key)
		}
		v.o.Refused(e.Client.Host, what, tutti.Errorf(tutti.CodeUnauthenticated, "%s", strings.ToLower(e.Reason)))
	case !known: // a connection of the server itself
	case strings.HasSuffix(msg.Subject, ".CONNECT"):
		v.connected(key, visitor{e.Client.ID, e.Client.Host})
	default:
		v.left(key, e.Client.ID)
		if e.Reason == expired {
			v.o.Denied(key, "use a JWT that has expired")
		}
	}
}

// expired is the reason that the bus gives when it closes a connection whose JWT has expired.
const expired = "Authentication Expired"

// keyOf returns the key of the node to which a JWT belongs.
func keyOf(text string) (tutti.NodeKey, bool) {
	claims, err := jwt.DecodeUserClaims(text)
	if err != nil {
		return "", false
	}
	key := tutti.NodeKey(claims.Subject)
	// The JWT of a node has a limit for subscriptions. The JWTs of the server's own connections have no such limit.
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
		v.o.Logger.Debug("a connection of a node was already closed", "error", err)
	}
}

// Excess counts a message that exceeds the node's limit. If a node sends many such messages, Excess closes its
// connections. The node may connect again after some time. Excess returns true if the node is locked out now.
func (v *Visitors) Excess(key tutti.NodeKey, bytes int) (out bool) {
	out, since := v.excess.more(key, bytes, time.Now())
	if since {
		v.putOut(key, "send far more than the server answers")
	}
	return out
}

// Unread handles a client that leaves more answers unread than an honest node can have. The client is the owner of
// this JWT. Unread closes the node's connections. The node may connect again after some time.
func (v *Visitors) Unread(jwt string) {
	if key, known := keyOf(jwt); known && v.excess.lockOut(key, time.Now()) {
		v.putOut(key, "leave more than 4 MiB of answers unread")
	}
}

// putOut closes the connections of a node that is locked out.
func (v *Visitors) putOut(key tutti.NodeKey, what string) {
	v.o.Denied(key, what+"; the server closes its connections for some time")
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, who := range v.there[key] {
		v.disconnect(who)
	}
}

// Violated records that the client with this JWT has used a subject without permission.
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
