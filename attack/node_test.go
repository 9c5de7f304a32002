package attack

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/wire"
)

// node is a machine that has joined the fleet.
type node struct {
	identity.NodeIdentity
	fleet      *fleet
	name       tutti.NodeName
	dir        string
	membership identity.EnrolResponse
	conn       *natsbus.Conn
	started    []tutti.RunID // runs for which a real agent would have started Puppet
}

// The method `join` lets a machine join as a node, like `tutti join`, and connects it.
func (f *fleet) join(name tutti.NodeName) *node {
	f.t.Helper()
	token, err := f.admin.CreateToken(f.t.Context(), api.CreateToken{Name: string(name)})
	if err != nil {
		f.t.Fatal(err)
	}
	dir := f.path(string(name))
	if _, err := machine.Join(f.t.Context(), machine.JoinOptions{Dir: dir, Token: token.Text}); err != nil {
		f.t.Fatal(err)
	}
	return f.node(filepath.Join(dir, "identity"))
}

// node connects a machine with the identity in a directory.
func (f *fleet) node(dir string) *node {
	f.t.Helper()
	n := &node{fleet: f, dir: dir}
	var err error
	if n.NodeIdentity, err = identity.LoadNode(dir); err != nil {
		f.t.Fatal(err)
	}
	if n.membership, err = identity.LoadMembership(dir); err != nil {
		f.t.Fatal(err)
	}
	n.name = n.membership.Node
	n.conn, err = natsbus.Dial(f.t.Context(), natsbus.DialOptions{
		URLs: []string{"nats://" + n.membership.Bus}, JWT: n.membership.JWT, Seed: n.Seed, CA: []byte(n.membership.CA),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(n.conn.Close)
	f.eventually(func() error {
		if !n.conn.Connected() {
			return tutti.Errorf(tutti.CodeUnavailable, "node %s is not connected", n.name)
		}
		return nil
	})
	return n
}

// The method `work` does the work of an agent, without Puppet, until the test ends.
func (n *node) work() {
	wake := make(chan struct{}, 1)
	poke := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	ctx, cancel := context.WithCancel(n.fleet.t.Context())
	ended := make(chan struct{})
	n.fleet.t.Cleanup(func() { cancel(); <-ended })
	if err := n.conn.OnRing(func(string, []byte) { poke() }); err != nil {
		n.fleet.t.Fatal(err)
	}
	n.conn.OnConnect(poke)
	go func() {
		defer close(ended)
		again := time.NewTicker(time.Second)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-wake:
			case <-again.C:
			}
			for ctx.Err() == nil && n.pass(ctx) {
			}
		}
	}()
}

// The method `pass` claims a run and ends it successfully. The method returns false if there was no
// run or no answer.
func (n *node) pass(ctx context.Context) bool {
	var claimed wire.Claimed
	if n.call(ctx, wire.OpClaim, wire.Claim{}, &claimed) != nil || claimed.Order == nil {
		return false
	}
	var gated wire.Gated
	if n.call(ctx, wire.OpGate, wire.Gate{Run: claimed.Order.Run}, &gated) != nil || gated.Verdict != tutti.GateGo {
		return false
	}
	n.started = append(n.started, claimed.Order.Run)
	return n.call(ctx, wire.OpResult, result(claimed.Order.Run), nil) == nil
}

func result(run tutti.RunID) tutti.Result {
	now := time.Now().UTC()
	return tutti.Result{Run: run, Outcome: tutti.Unchanged, StartedAt: now, EndedAt: now}
}

// The method `call` sends a request to the server. The argument out may be nil.
func (n *node) call(ctx context.Context, op string, in, out any) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := n.conn.Call(ctx, op, raw)
	if err != nil || out == nil || len(reply) == 0 {
		return err
	}
	return json.Unmarshal(reply, out)
}

// The method `raw` connects to the bus with the node's credentials and without our client code, from
// the given local address.
func (n *node) raw(t *testing.T, from string, options ...nats.Option) (*nats.Conn, error) {
	t.Helper()
	config, err := identity.ClientTLS([]byte(n.membership.CA))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("nats://"+n.membership.Bus, append([]nats.Option{
		nats.Secure(config), nats.TLSHandshakeFirst(), nats.UserJWTAndSeed(n.membership.JWT, string(n.Seed)),
		nats.CustomInboxPrefix("i." + string(n.Key)), nats.NoReconnect(), nats.Timeout(patience),
		nats.SetCustomDialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}),
	}, options...)...)
	if err == nil {
		t.Cleanup(nc.Close)
	}
	return nc, err
}

// wantOwnJWT fails the test if the JWT in a renewal's answer is not for the node's own key.
func wantOwnJWT(t *testing.T, reply json.RawMessage, n *node) {
	t.Helper()
	var renewed wire.Renewed
	if err := json.Unmarshal(reply, &renewed); err != nil {
		t.Fatal(err)
	}
	claims, err := jwt.DecodeUserClaims(renewed.JWT)
	if err != nil || claims.Subject != string(n.Key) || claims.Name != string(n.name) {
		t.Errorf("the new JWT is of %+v, %v: want that of %s", claims, err, n.name)
	}
}
