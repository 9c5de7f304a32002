package attack

import (
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/wire"
)

// The function `follow` lets a test node follow a rotation of the server's keys, like a real agent.
func (n *node) follow() {
	n.fleet.t.Helper()
	n.fleet.eventually(func() error {
		issuer, err := identity.JWTIssuer(n.membership.JWT)
		if err != nil {
			return err
		}
		pins, err := identity.CAPins([]byte(n.membership.CA))
		if err != nil {
			return err
		}
		var should wire.ToPin
		if err := n.call(n.fleet.t.Context(), wire.OpTrust, tutti.Pinned{CAs: pins, Issuer: issuer}, &should); err != nil {
			return err
		}
		next, err := n.membership.Follow(should, n.conn.Proved())
		if err != nil {
			return err
		}
		if next.CA == n.membership.CA && next.JWT == n.membership.JWT {
			return nil
		}
		n.membership = next
		if err := n.conn.UseCA([]byte(next.CA)); err != nil {
			return err
		}
		if err := n.conn.UseJWT(n.fleet.t.Context(), next.JWT); err != nil {
			return err
		}
		return tutti.Errorf(tutti.CodeUnavailable, "node %s has something else now, and says so", n.name)
	})
}

// The method `rotate` does one step of a rotation, and lets the honest nodes follow the rotation.
func (f *fleet) rotate(args ...string) {
	f.t.Helper()
	f.tutti(append([]string{"rotate", "ca"}, args...)...)
	f.admin = f.connect(f.path("operator"))
	for _, n := range f.honest {
		n.follow()
	}
}

// thief is an attacker with a backup of the server. The thief can issue credentials with the keys in the backup.
type thief struct {
	f     *fleet
	keys  *identity.Authority
	trust []byte // the CAs by which the thief recognises the server
}

// operator returns a client with a certificate that the thief has issued for himself.
func (th *thief) operator(t *testing.T) *httpapi.Client {
	t.Helper()
	bundle, err := th.keys.IssueOperator("mallory")
	if err != nil {
		t.Fatal(err)
	}
	config, err := identity.ClientTLS(th.trust)
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = bundle.TLS().Certificates
	client := &http.Client{Transport: httpapi.Transport(config, &net.Dialer{}), Timeout: patience}
	t.Cleanup(client.CloseIdleConnections)
	return httpapi.NewClient("https://"+th.f.https, client)
}

// bus connects to the bus with a JWT that the thief has signed.
func (th *thief) bus(t *testing.T, jwt string, seed []byte) error {
	t.Helper()
	config, err := identity.ClientTLS(th.trust)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("nats://"+th.f.bus, nats.Secure(config), nats.TLSHandshakeFirst(), nats.UserJWTAndSeed(jwt, string(seed)), nats.NoReconnect(), nats.Timeout(patience))
	if err == nil {
		nc.Close()
	}
	return err
}

// The method `users` returns JWTs that the thief signs for himself. The keys of the map are the roles of
// the users.
func (th *thief) users(t *testing.T) map[string]identity.BusUser {
	t.Helper()
	node, err := identity.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	jwt, err := th.keys.NodeJWT(node.Key, "mallory")
	if err != nil {
		t.Fatal(err)
	}
	own, err := th.keys.ServerCreds()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]identity.BusUser{"a node": {JWT: jwt, Seed: node.Seed}, "the server's log": own.Log, "the server among nodes": own.Nodes, "the bus's own account": own.System}
}

// takenForTheServer connects a client to a server that the thief plays, and returns the client's error.
func (th *thief) takenForTheServer(t *testing.T, play, client *tls.Config) error {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", play)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_ = c.(*tls.Conn).HandshakeContext(t.Context())
		_, _ = c.Read(make([]byte, 1))
	}()
	defer func() { _ = l.Close(); <-ended }()
	config := client.Clone()
	config.ServerName = "127.0.0.1"
	c, err := tls.Dial("tcp", l.Addr().String(), config)
	if err == nil {
		_ = c.Close()
	}
	return err
}

// TestStolenBackup plays an attacker with a backup of the server. Before the rotation of the keys, the attacker can do
// what the server can do. After the rotation, the attacker can neither admit anybody nor pose as the server, even with
// credentials from before the rotation.
func TestStolenBackup(t *testing.T) {
	f := start(t)
	backup := f.path("backup.tar")
	f.tutti("server", "backup", backup, "--dir", f.path("server"))
	f.tutti("server", "restore", backup, "--dir", f.path("stolen"))
	keys, err := identity.Load(filepath.Join(f.path("stolen"), "identity"))
	if err != nil {
		t.Fatal(err)
	}
	th := &thief{f: f, keys: keys, trust: keys.CA()}
	victims := func() map[string]*tls.Config {
		operator, err := identity.LoadOperator(f.path("operator"))
		if err != nil {
			t.Fatal(err)
		}
		node, err := identity.ClientTLS([]byte(f.honest[0].membership.CA))
		if err != nil {
			t.Fatal(err)
		}
		return map[string]*tls.Config{"an operator": operator.TLS(), "a node": node}
	}
	open := th.operator(t)
	key, err := identity.NewOperatorKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request("mallory")
	if err != nil {
		t.Fatal(err)
	}
	// These calls would give the attacker access after the end of his certificate, or help him to stay.
	stays := map[string]func() error{
		"renews": func() error { _, err := open.RenewOperator(t.Context(), request); return err },
		"lets another one in": func() error {
			_, err := open.IssueOperator(t.Context(), api.IssueOperator{Operator: "mallory", Request: request})
			return err
		},
		"puts admin out": func() error {
			_, err := open.RevokeOperator(t.Context(), api.RevokeOperator{Operator: "admin", Last: true})
			return err
		},
		"rotates": func() error {
			_, err := open.RotateCA(t.Context(), api.RotateCA{Step: tutti.RotationBegin})
			return err
		},
		"gives a rotation up": func() error {
			_, err := open.RotateCA(t.Context(), api.RotateCA{Step: tutti.RotationAbandon, LeaveOperators: []string{"admin"}, Last: true})
			return err
		},
	}
	t.Run("can, before", func(t *testing.T) {
		if _, err := open.ListNodes(t.Context()); err != nil {
			t.Errorf("his operator: %v", err)
		}
		for what, do := range stays {
			wantCode(t, "his operator "+what, do(), tutti.CodeRefused)
		}
		f.audited(denial{"operator:mallory", "renew a certificate", "somebody"})
		for what, user := range th.users(t) {
			if err := th.bus(t, user.JWT, user.Seed); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		for who, config := range victims() {
			if err := th.takenForTheServer(t, keys.Bus(), config); err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}
	})

	f.rotate()
	f.rotate("--switch")
	t.Run("cannot follow", func(t *testing.T) {
		_, err = open.FollowRotation(t.Context(), request)
		wantCode(t, "his operator follows", err, tutti.CodeRefused)
		_, err = open.ListNodes(t.Context())
		wantCode(t, "his operator looks", err, tutti.CodeRefused)
		for what, do := range stays {
			wantCode(t, "his operator "+what, do(), tutti.CodeRefused)
		}
		f.audited(denial{"operator:mallory", "call /v1/ca/rotate", "somebody"})
		if said := f.tutti("rotate", "ca", "--status"); !strings.Contains(said, "operator mallory") {
			t.Errorf("--status does not name it: %s", said)
		}
	})
	f.works("during")
	f.rotate("--finish", "--yes")

	t.Run("cannot, after", func(t *testing.T) {
		_, err := open.ListNodes(t.Context())
		wantCode(t, "his operator, on the connection from before", err, tutti.CodeUnauthenticated)
		if err == nil {
			return // the server refused nothing, so there is no entry to wait for
		}
		f.audited(denial{"", "", "by a CA that was rotated out"})
		th.trust = f.authority().CA()
		_, err = th.operator(t).ListNodes(t.Context())
		wantCode(t, "his operator, on a new connection", err, tutti.CodeUnauthenticated)
		f.audited(denial{"address:127.0.0.1", "finish TLS with the operators' port", ""})
		for what, user := range th.users(t) {
			if err := th.bus(t, user.JWT, user.Seed); err == nil {
				t.Errorf("he connects as %s", what)
			}
		}
		if t.Failed() {
			return // the server refused nothing, so there is no entry to wait for
		}
		f.audited(denial{"address:127.0.0.1", "connect to the bus", ""})
		for who, config := range victims() {
			if err := th.takenForTheServer(t, keys.Bus(), config); err == nil {
				t.Errorf("%s takes him for the server", who)
			}
		}
	})
	f.works("after")
}
