package natsbus_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// attacker is a raw connection with a real node's credentials. attacker collects the bus's messages
// about actions that the bus does not permit.
type attacker struct {
	*nats.Conn
	mu      sync.Mutex
	refused []string
}

func attack(t *testing.T, bus *bustest.Bus, node bustest.Node) *attacker {
	t.Helper()
	a := &attacker{}
	nc, err := bus.Raw(t, node, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.refused = append(a.refused, err.Error())
	}))
	if err != nil {
		t.Fatal(err)
	}
	a.Conn = nc
	return a
}

// settle returns when the bus has handled all messages sent so far, and the attacker has noted all
// refusals. The bus sends its errors before the answer to the ping.
func (a *attacker) settle(t *testing.T) {
	t.Helper()
	if err := a.FlushWithContext(within(t)); err != nil {
		t.Fatal(err)
	}
}

func (a *attacker) wantRefused(t *testing.T, operation, subject string) {
	t.Helper()
	deadline := within(t)
	for deadline.Err() == nil {
		a.settle(t)
		a.mu.Lock()
		for _, r := range a.refused {
			if strings.Contains(strings.ToLower(r), "permissions violation for "+operation) && strings.Contains(r, `"`+subject+`"`) {
				a.mu.Unlock()
				return
			}
		}
		a.mu.Unlock()
	}
	t.Fatalf("%s %q was not refused; refused was %q", operation, subject, a.refused)
}

func TestNodeHasNoOtherSubjects(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	heard := make(chan string, 100)
	serve(t, bus, func(_ context.Context, from tutti.NodeKey, op string, _ []byte) ([]byte, error) {
		heard <- string(from) + " " + op
		return nil, nil
	})
	// The bus does not interpret node names. These names would do harm if the bus used them in
	// subjects.
	for _, name := range []tutti.NodeName{"web", "web.*", "*", ">"} {
		t.Run(string(name), func(t *testing.T) {
			victim, evil := bus.Join(t, "web.example.net"), bus.Join(t, name)
			v, e := string(victim.Key), string(evil.Key)
			a := attack(t, bus, evil)
			for _, subject := range []string{
				"n." + v + ".claim", "n." + v, "d." + v + ".claim", "i." + v + ".x", "d." + e + ".claim", "i." + e + ".x", "n." + e,
				"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.DELETE.TUTTI_LOG", "$JS.API.CONSUMER.CREATE.TUTTI_LOG", "$JS.ACK.x",
				"$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.USER.INFO",
				"log.run.claimed.x", "blob.x", "_INBOX.x", "x",
			} {
				if err := a.Publish(subject, []byte("{}")); err != nil {
					t.Fatal(err)
				}
				a.wantRefused(t, "publish", subject)
			}
			for _, subject := range []string{
				">", "*", "*.>", "n.>", "n.*.*", "d.>", "d.*.claim", "d." + v + ".>", "d." + v + ".claim", "i.>", "i.*.>", "i." + v + ".>",
				"n." + v + ".>", "n." + e + ".>", "_INBOX.>", "$JS.API.>", "$SYS.>", "$SYS.ACCOUNT.>", "log.>", "d." + e, "i." + e,
			} {
				if _, err := a.Subscribe(subject, func(m *nats.Msg) { heard <- "overheard " + m.Subject }); err != nil {
					t.Fatal(err)
				}
				a.wantRefused(t, "subscription", subject)
			}
			// The victim can still call the server, and no attack above had an effect on anybody.
			c := dial(t, bus, victim)
			if _, err := c.Call(within(t), "last", nil); err != nil {
				t.Fatal(err)
			}
			if err := natsbus.Ring(bus.Nodes(t), victim.Key, "claim", nil); err != nil {
				t.Fatal(err)
			}
			if got, want := receive(t, heard, "call"), v+" last"; got != want {
				t.Errorf("heard %q, want %q alone", got, want)
			}
			a.settle(t)
			if len(heard) != 0 {
				t.Errorf("heard %q too", <-heard)
			}
		})
	}
}

func TestAnswersGoToTheirSenderOnly(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	denied, called := make(chan string, 100), make(chan string, 100)
	serve(t, bus, func(_ context.Context, _ tutti.NodeKey, op string, _ []byte) ([]byte, error) {
		called <- op
		return []byte("secret"), nil
	}, func(o *natsbus.ServeOptions) {
		o.Denied = func(from tutti.NodeKey, what string) { denied <- string(from) + ": " + what }
	})
	victim := bus.Join(t, "web")
	inbox, err := bus.Raw(t, victim)
	if err != nil {
		t.Fatal(err)
	}
	got, err := inbox.SubscribeSync("i." + string(victim.Key) + ".>")
	if err != nil {
		t.Fatal(err)
	}
	bell, err := inbox.SubscribeSync("d." + string(victim.Key) + ".>")
	if err != nil {
		t.Fatal(err)
	}
	if err := inbox.FlushWithContext(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, reply := range []func(evil string) string{
		func(string) string { return "i." + string(victim.Key) + ".x" },
		func(string) string { return "d." + string(victim.Key) + ".claim" },
		func(string) string { return "i." + string(victim.Key) },
		func(string) string { return "n." + string(victim.Key) + ".claim" },
		func(string) string { return "i.*.x" },
		func(string) string { return "i.>" },
		func(evil string) string { return "i." + evil + ".*" },
		func(evil string) string { return "i." + evil + ".>" },
		func(evil string) string { return "i." + evil },
		func(evil string) string { return "i." + evil + "." },
		func(evil string) string { return "i." + evil + "..x" },
		func(evil string) string { return "i." + evil + "x.y" },
		func(string) string { return "log.run.claimed.x" },
		func(string) string { return "$SYS.REQ.SERVER.PING" },
	} {
		evil := bus.Join(t, "evil")
		a := attack(t, bus, evil)
		to := reply(string(evil.Key))
		if err := a.PublishRequest("n."+string(evil.Key)+".op", to, nil); err != nil {
			continue // the client library refuses to send this subject
		}
		want := string(evil.Key) + ": an answer to " + to
		if got := receive(t, denied, "denial of an answer to "+to); got != want {
			t.Errorf("denied %q, want %q", got, want)
		}
	}
	if len(called) != 0 {
		t.Errorf("the handler was called %d times", len(called))
	}
	if err := inbox.FlushWithContext(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []*nats.Subscription{got, bell} {
		if n, _, _ := sub.Pending(); n != 0 {
			t.Errorf("the victim got %d messages on %s", n, sub.Subject)
		}
	}
}

func TestOversizedMessageEndsTheConnection(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	evil := bus.Join(t, "evil")
	called := make(chan int, 10)
	serve(t, bus, func(_ context.Context, _ tutti.NodeKey, _ string, payload []byte) ([]byte, error) {
		called <- len(payload)
		return nil, nil
	})
	config := bus.TLS(t)
	for _, c := range []struct {
		reason string
		size   int
		passes bool
	}{{"as large as allowed", bustest.MaxPayload, true}, {"one byte more", bustest.MaxPayload + 1, false}, {"very large", 4 << 20, false}} {
		conn := rawTLS(t, bus, evil, config)
		conn.pub("n."+string(evil.Key)+".op", c.size)
		switch closed := conn.ping(); {
		case c.passes && closed:
			t.Errorf("%s: the connection was closed", c.reason)
		case c.passes:
			if got := receive(t, called, "call"); got != c.size {
				t.Errorf("%s: %d bytes came", c.reason, got)
			}
		case !closed:
			t.Errorf("%s: the connection is still open", c.reason)
		}
	}
	if len(called) != 0 {
		t.Errorf("a message of %d bytes came", <-called)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	bus, other := bustest.Start(t), bustest.Start(t)
	node, foreign := bus.Join(t, "web"), other.Join(t, "web")
	config, otherCA := bus.TLS(t), other.TLS(t)
	old := config.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	stolen := node
	stolen.Seed = bus.Join(t, "other").Seed
	for _, c := range []struct {
		reason  string
		node    bustest.Node
		config  *tls.Config
		options []nats.Option
	}{
		{"a JWT of another operator", foreign, config, nil},
		{"a JWT without its key", stolen, config, nil},
		{"no JWT", node, config, []nats.Option{func(o *nats.Options) error { o.UserJWT, o.SignatureCB = nil, nil; return nil }}},
		{"a client that trusts another CA", node, otherCA, nil},
		{"TLS 1.2", node, old, nil},
		{"no TLS", node, config, []nats.Option{func(o *nats.Options) error {
			o.Secure, o.TLSConfig, o.TLSHandshakeFirst = false, nil, false
			return nil
		}, nats.Timeout(time.Second)}},
	} {
		nc, err := bus.RawTLS(t, c.node, c.config, c.options...)
		if err == nil {
			t.Errorf("%s: connected to %s", c.reason, nc.ConnectedUrl())
		}
	}
	if _, err := bus.RawTLS(t, node, config); err != nil {
		t.Errorf("the same without a fault: %v", err)
	}
}

func TestRevokedNodeIsCutOff(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	node, innocent := bus.Join(t, "web"), bus.Join(t, "db")
	closed := make(chan struct{})
	if _, err := bus.Raw(t, node, nats.ClosedHandler(func(*nats.Conn) { close(closed) })); err != nil {
		t.Fatal(err)
	}
	stays, err := bus.Raw(t, innocent)
	if err != nil {
		t.Fatal(err)
	}
	account, err := bus.Authority.Revoke(node.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Server.UpdateAccount(account); err != nil {
		t.Fatal(err)
	}
	receive(t, closed, "end of the revoked connection")
	if _, err := bus.Raw(t, node); !errors.Is(err, nats.ErrAuthorization) && !errors.Is(err, nats.ErrAuthRevoked) {
		t.Errorf("the revoked node connects again: %v", err)
	}
	if err := stays.FlushWithContext(within(t)); err != nil {
		t.Errorf("another node: %v", err)
	}
	bus.Stop()(t)
	if _, err := bus.Raw(t, node); err == nil {
		t.Error("the revocation did not survive a restart")
	}
	if _, err := bus.Raw(t, innocent); err != nil {
		t.Errorf("another node after a restart: %v", err)
	}
}

// If a handler panics, only the call that it handles fails.
func TestAPanicFailsOneCall(t *testing.T) {
	bus := bustest.Start(t)
	denied := make(chan string, 10)
	serve(t, bus, func(_ context.Context, _ tutti.NodeKey, op string, _ []byte) ([]byte, error) {
		if op == "poison" {
			panic("a mistake")
		}
		return nil, nil
	}, func(o *natsbus.ServeOptions) { o.Denied = func(_ tutti.NodeKey, what string) { denied <- what } })
	c := dial(t, bus, bus.Join(t, "web"))
	for range 3 {
		if _, err := c.Call(within(t), "poison", nil); tutti.CodeOf(err) != tutti.CodeInternal {
			t.Errorf("poison: %v, want internal", err)
		}
	}
	if _, err := c.Call(within(t), "bread", nil); err != nil {
		t.Errorf("the next call: %v", err)
	}
	if got := receive(t, denied, "denial"); got != "cause a panic in poison" {
		t.Errorf("told of %q", got)
	}
}

// If a node sends far more than the server answers, the server closes its connections and refuses new
// ones. The server still answers other nodes.
func TestWhoFloodsIsPutOut(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	evil, honest := bus.Join(t, "evil"), bus.Join(t, "web")
	denied := make(chan string, 100)
	visitors := natsbus.NewVisitors(natsbus.VisitorOptions{
		Disconnect: bus.Server.Disconnect, Denied: func(key tutti.NodeKey, what string) { denied <- string(key) + ": " + what },
	})
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	system := bus.System(t)
	go func() { watched <- visitors.Watch(ctx, system) }()
	defer func() {
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
	}()
	free := make(chan struct{})
	serve(t, bus, func(ctx context.Context, from tutti.NodeKey, _ string, _ []byte) ([]byte, error) {
		if from == evil.Key {
			select {
			case <-free:
			case <-ctx.Done():
			}
		}
		return nil, nil
	}, func(o *natsbus.ServeOptions) { o.Excess = visitors.Excess })
	defer close(free)
	connect := func() (*nats.Conn, chan struct{}, error) {
		gone := make(chan struct{})
		nc, err := bus.Raw(t, evil, nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(gone) }))
		return nc, gone, err
	}
	nc, gone, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if err := nc.PublishRequest("n."+string(evil.Key)+".claim", "i."+string(evil.Key)+".x", make([]byte, 1<<10)); err != nil {
			break // it is closed
		}
	}
	receive(t, gone, "end of the connection")
	if got, want := receive(t, denied, "denial"), string(evil.Key)+": send far more than the server answers; the server closes its connections for some time"; got != want {
		t.Errorf("told of %q, want %q", got, want)
	}
	// if err is not nil, the server closed the connection before the client saw it open
	if _, gone, err = connect(); err == nil {
		receive(t, gone, "end of the next connection")
	}
	if _, err := dial(t, bus, honest).Call(within(t), "claim", nil); err != nil {
		t.Errorf("another node: %v", err)
	}
}
