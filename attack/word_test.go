package attack

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/wire"
)

// site is the only file in the code of these tests.
const site = "notify { 'hello': }\n"

// usurper is an attacker with everything from the server's disk. The usurper answers a node in place of the server.
type usurper struct {
	t     *testing.T
	bus   *bustest.Bus
	node  *node
	fleet tutti.Digest
	said  chan tutti.Result
	heard chan wire.Claim
	told  chan tutti.RemoteReply

	mu    sync.Mutex
	seq   uint64
	claim wire.Claimed
	code  tutti.SignedCode
}

// The method `usurp` replaces the server of a node, so that the node's real agent talks to the usurper. The given
// files are the only files of Puppet on the machine.
func (f *fleet) usurp(n *node, files ...string) *usurper {
	f.t.Helper()
	n.conn.Close()
	dir := f.path("usurper")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "identity"), os.DirFS(f.path("server/identity"))); err != nil {
		f.t.Fatal(err)
	}
	stolen, err := filepath.Glob(filepath.Join(dir, "identity", "*"))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, file := range stolen {
		if err := os.Chmod(file, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
	u := &usurper{
		t: f.t, bus: bustest.StartSyncIn(f.t, dir), node: n, fleet: f.authority().Fleet(),
		said: make(chan tutti.Result, 10), heard: make(chan wire.Claim, 100),
		told: make(chan tutti.RemoteReply, 10),
	}
	m := n.membership
	m.Bus = strings.TrimPrefix(u.bus.URL(), "nats://")
	if err := m.Write(n.dir); err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	nc, ready := u.bus.Nodes(f.t), make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		if err := natsbus.Serve(ctx, nc, natsbus.ServeOptions{Handler: u.handle, SpoolDir: f.t.TempDir(), Ready: func() { close(ready) }}); err != nil {
			f.t.Error(err)
		}
	})
	<-ready
	root := f.t.TempDir()
	for _, name := range files {
		at := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o700); err != nil {
			f.t.Fatal(err)
		}
	}
	agent, err := app.NewAgent(app.AgentOptions{
		Dir: filepath.Dir(n.dir), Root: root, Logger: slog.New(slog.NewTextHandler(f.t.Output(), nil)),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	working.Go(func() {
		if err := agent.Run(ctx); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(func() { cancel(); working.Wait() })
	return u
}

func (u *usurper) handle(_ context.Context, _ tutti.NodeKey, op string, payload []byte) ([]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch op {
	case wire.OpClaim:
		var c wire.Claim
		if err := json.Unmarshal(payload, &c); err != nil {
			return nil, err
		}
		select {
		case u.heard <- c:
		default:
		}
		return json.Marshal(u.claim)
	case wire.OpAnswer:
		var reply tutti.RemoteReply
		err := json.Unmarshal(payload, &reply)
		u.told <- reply
		return nil, err
	case wire.OpCode:
		return json.Marshal(u.code)
	case wire.OpBlobGet:
		return []byte(site), nil
	case wire.OpResult:
		ended, err := wire.DecodeEnded(payload)
		if err == nil && u.claim.Order != nil && ended.Run == u.claim.Order.Run {
			u.claim.Order = nil
			u.said <- ended.Result
		}
		return []byte("{}"), err
	}
	return []byte("{}"), nil
}

// The method `order` sends the node an order to run the given code, and returns the node's result.
func (u *usurper) order(environment string, code tutti.SignedCode) tutti.Result {
	u.t.Helper()
	u.mu.Lock()
	u.seq++
	u.code = code
	u.claim.Fence = tutti.Fence{Epoch: 1, Seq: u.seq}
	u.claim.Order = &tutti.Order{
		Run: tutti.RunID(uuid.Must(uuid.NewV7()).String()), Node: u.node.name, Job: "every-1", Step: "run", Mode: tutti.ModeApply,
		Environment: environment, Code: tutti.DigestOf(code.Manifest), Attempt: 1,
	}
	u.mu.Unlock()
	u.ring()
	select {
	case said := <-u.said:
		return said
	case <-time.After(patience):
		u.t.Fatalf("the node says nothing of its order within %s", patience)
		return tutti.Result{}
	}
}

// The method `claims` waits for the node's next claim.
func (u *usurper) claims() wire.Claim {
	u.t.Helper()
	select {
	case c := <-u.heard:
		return c
	case <-time.After(patience):
		u.t.Fatalf("the node does not claim within %s", patience)
		return wire.Claim{}
	}
}

// The method `follows` waits until the node reports that it has accepted the given number of statements about
// code keys.
func (u *usurper) follows(want uint64) {
	u.t.Helper()
	u.ring()
	for {
		switch c := u.claims(); {
		case c.Trusts == nil || *c.Trusts > want:
			u.t.Fatalf("the node follows %v, want %d statements", c.Trusts, want)
		case *c.Trusts == want:
			return
		}
	}
}

// The method `tells` sets the statements about code keys that the usurper sends.
func (u *usurper) tells(chain ...tutti.Statement) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.claim.Trust = chain
}

func (u *usurper) ring() {
	u.t.Helper()
	if err := natsbus.Ring(u.bus.Nodes(u.t), u.node.Key, wire.RingClaim, nil); err != nil {
		u.t.Fatal(err)
	}
}

// The method `begins` checks that the node begins the order. The machine has no Puppet, so the run ends at
// its start.
func (u *usurper) begins(what string, code tutti.SignedCode) {
	u.t.Helper()
	if got := u.order("production", code); got.Reason != tutti.BecauseMachinery || !strings.Contains(got.Message, "puppet") {
		u.t.Errorf("%s: %+v, want that the node begins it", what, got)
	}
}

// The method `refused` checks that the node refuses the order.
func (u *usurper) refused(what string, code tutti.SignedCode, says string) {
	u.t.Helper()
	if got := u.order("production", code); got.Reason != tutti.BecauseRefused || !strings.Contains(got.Message, says) {
		u.t.Errorf("%s: %+v, want that it is refused: %q", what, got, says)
	}
}

// manifest returns the manifest of an environment's code. Different file names make different code.
func manifest(t *testing.T, environment, name string) []byte {
	t.Helper()
	raw, err := json.Marshal(tutti.CodeManifest{Version: 1, Environment: environment, Files: map[string]tutti.CodeFile{
		name: {Digest: tutti.DigestOf([]byte(site)), Size: int64(len(site))},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestAServerThatWasTakenOverAndCode plays an attacker who controls the server and therefore has all code
// that was ever signed. A node may begin only the code that is meant for the node now.
func TestAServerThatWasTakenOverAndCode(t *testing.T) {
	f := start(t)
	u := f.usurp(f.join("taken"))
	operator, err := identity.LoadOperator(f.path("operator"))
	if err != nil {
		t.Fatal(err)
	}
	signed := func(said tutti.Signed, name string, keys ...ed25519.PrivateKey) tutti.SignedCode {
		t.Helper()
		if said.Fleet == "" {
			said.Fleet = u.fleet
		}
		out, err := identity.SignCode(said, manifest(t, said.Environment, name), append(keys, operator.CodeKey)[0])
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	production := func(counter uint64) tutti.Signed {
		return tutti.Signed{Environment: "production", Counter: counter}
	}
	_, own, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := production(9)
	elsewhere.Fleet = tutti.DigestOf([]byte("another fleet"))
	forged := signed(production(4), "manifests/old.pp")
	forged.Statement.Body = []byte(strings.Replace(string(forged.Statement.Body), `"counter":4`, `"counter":6`, 1))
	before := signed(production(4), "manifests/old.pp")
	before.Statement = nil

	u.begins("the code of now", signed(production(5), "manifests/site.pp"))
	u.refused("an old manifest", signed(production(4), "manifests/old.pp"), "push it again to go back")
	u.refused("an old manifest with a counter that nobody has signed", forged, "not signed")
	u.refused("an old manifest in the form of before", before, "without a counter")
	// the server chooses the name of the environment in the order
	for _, name := range []string{"production", "invented"} {
		moved := signed(tutti.Signed{Environment: name, Counter: 1}, "manifests/moved.pp")
		moved.Statement = nil
		if got := u.order("invented", moved); got.Reason != tutti.BecauseRefused {
			t.Errorf("a manifest of %s in the form of before, in an environment that nobody knows: %+v", name, got)
		}
	}
	u.refused("other code of the same counter", signed(production(5), "manifests/other.pp"), "other code with the same counter")
	u.refused("code of another environment", signed(tutti.Signed{Environment: "staging", Counter: 9}, "manifests/site.pp"), "for environment staging")
	u.refused("code of another fleet", signed(elsewhere, "manifests/elsewhere.pp"), "for the fleet")
	u.refused("code that the server has signed", signed(production(9), "manifests/own.pp", own), "not signed")
	u.begins("the code of now, again", signed(production(5), "manifests/site.pp"))
	f.works("after")
}

// TestAServerThatWasTakenOverAndCodeKeys checks that a compromised server cannot make a node trust another key. The
// server also cannot make the node forget that a stolen key was rotated.
func TestAServerThatWasTakenOverAndCodeKeys(t *testing.T) {
	f := start(t)
	u := f.usurp(f.join("taken"))
	operator, err := identity.LoadOperator(f.path("operator"))
	if err != nil {
		t.Fatal(err)
	}
	stolen := operator.CodeKey
	key := func() ed25519.PrivateKey {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	next, own := key(), key()
	trust := func(counter uint64, keys []ed25519.PrivateKey, by ...ed25519.PrivateKey) tutti.Statement {
		t.Helper()
		body := tutti.Trusted{Fleet: u.fleet, Counter: counter}
		for _, k := range keys {
			body.Keys = append(body.Keys, identity.EncodeCodePublicKey(k.Public().(ed25519.PublicKey)))
		}
		out, err := identity.State(tutti.StatementTrust, body, by...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	code := func(counter uint64, by ed25519.PrivateKey) tutti.SignedCode {
		t.Helper()
		out, err := identity.SignCode(tutti.Signed{Fleet: u.fleet, Environment: "production", Counter: counter}, manifest(t, "production", "manifests/"+rand.Text()+".pp"), by)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	both, alone := trust(1, []ed25519.PrivateKey{stolen, next}, stolen, next), trust(2, []ed25519.PrivateKey{next}, next)
	u.begins("before the rotation", code(1, stolen))
	u.tells(both, alone)
	u.follows(2)
	u.tells()
	u.refused("code that the stolen key has signed since", code(2, stolen), "not signed")
	u.begins("code of the new key", code(3, next))

	for what, st := range map[string]tutti.Statement{
		"a key of the server's own":              trust(3, []ed25519.PrivateKey{own}, own),
		"a key that the stolen key vouches for":  trust(3, []ed25519.PrivateKey{stolen, own}, stolen, own),
		"the stolen key, by a statement of then": trust(3, []ed25519.PrivateKey{stolen}, stolen),
		"a key that nobody has":                  trust(3, []ed25519.PrivateKey{next, own}, next),
		"a statement with a gap before it":       trust(4, []ed25519.PrivateKey{next, own}, next, own),
	} {
		u.tells(st)
		for range 2 { // the second claim comes after the answer to the first claim
			u.ring()
			u.claims()
		}
		u.tells()
		u.follows(2)
		u.refused(what, code(4, own), "not signed")
	}
	u.tells(both, alone) // a restored or malicious server sends the same statements again
	u.follows(2)
	u.refused("the old chain again", code(4, stolen), "not signed")
	u.begins("still the new key", code(4, next))
	f.works("after")
}

// The method `asks` sends the node a request for a change in the operator's name, and returns the node's
// answer.
func (u *usurper) asks(q tutti.RemoteRequest) tutti.RemoteReply {
	u.t.Helper()
	q.Request, q.Caller, q.Wait = rand.Text(), "operator:admin", patience
	raw, err := json.Marshal(q)
	if err != nil {
		u.t.Fatal(err)
	}
	if err := natsbus.Ring(u.bus.Nodes(u.t), u.node.Key, wire.RingRemote, raw); err != nil {
		u.t.Fatal(err)
	}
	select {
	case reply := <-u.told:
		if reply.Request != q.Request {
			u.t.Fatalf("answer %+v to question %s", reply, q.Request)
		}
		return reply
	case <-time.After(patience):
		u.t.Fatalf("the node does not answer within %s", patience)
		return tutti.RemoteReply{}
	}
}

// TestAServerThatWasTakenOverAndActions checks a fleet whose operators sign changes on nodes. A compromised server
// cannot make its own changes. The compromised server also cannot repeat a signed change, use it later, or use it
// on other nodes.
func TestAServerThatWasTakenOverAndActions(t *testing.T) {
	f := start(t)
	f.tutti("operator", "trust")
	u := f.usurp(f.join("taken"), "usr/bin/ruby", "usr/bin/puppet") // the node gets the list when it joins
	// the agent hears doorbells only after its first claim, so wait for this claim before you ring
	u.claims()
	key, err := identity.ActionKey(f.path("operator"))
	if err != nil || key == nil {
		t.Fatal(key, err)
	}
	_, own, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(key ed25519.PrivateKey, change func(*tutti.SignedAction)) *tutti.Statement {
		t.Helper()
		said := tutti.SignedAction{
			Fleet: u.fleet, Operator: "admin", Action: tutti.RemoteDisable, Nodes: []tutti.NodeName{"taken"}, Message: "new disk",
			Until: time.Now().Add(10 * time.Minute), Nonce: rand.Text(),
		}
		change(&said)
		out, err := identity.State(tutti.StatementAction, said, key)
		if err != nil {
			t.Fatal(err)
		}
		return &out
	}
	as := func(*tutti.SignedAction) {}
	disable := func(signed *tutti.Statement) tutti.RemoteRequest {
		return tutti.RemoteRequest{Action: tutti.RemoteDisable, Message: "new disk", Signed: signed}
	}
	once := sign(key, as)
	list := func(by ed25519.PrivateKey) tutti.Statement {
		out, err := identity.State(tutti.StatementOperators, tutti.TrustedOperators{Fleet: u.fleet, Counter: 9, Operators: []tutti.OperatorKey{
			{Operator: "admin", Key: identity.EncodeCodePublicKey(own.Public().(ed25519.PublicKey))},
		}}, by)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := u.asks(disable(once)); got.Verdict != tutti.RemoteOK || got.Status == nil || got.Status.Enabled {
		t.Fatalf("what an operator has signed: %+v", got)
	}
	forged := list(own)
	u.mu.Lock()
	u.claim.Operators = &forged
	u.mu.Unlock()
	for range 2 {
		u.ring()
		u.claims()
	}
	for what, tc := range map[string]struct {
		q    tutti.RemoteRequest
		says string
	}{
		"without a signature":    {disable(nil), "no operator has signed"},
		"again":                  {disable(once), "has already done the action"},
		"by the server":          {disable(sign(own, as)), "not signed by an operator"},
		"by another operator":    {disable(sign(key, func(a *tutti.SignedAction) { a.Operator = "eve" })), "not signed by an operator"},
		"after it had ended":     {disable(sign(key, func(a *tutti.SignedAction) { a.Until = time.Now().Add(-time.Minute) })), "mend the clocks"},
		"for a day":              {disable(sign(key, func(a *tutti.SignedAction) { a.Until = time.Now().Add(24 * time.Hour) })), "mend the clocks"},
		"for another node":       {disable(sign(key, func(a *tutti.SignedAction) { a.Nodes = []tutti.NodeName{"node-01"} })), "for other nodes"},
		"of another fleet":       {disable(sign(key, func(a *tutti.SignedAction) { a.Fleet = tutti.DigestOf([]byte("x")) })), "for the fleet"},
		"another action":         {tutti.RemoteRequest{Action: tutti.RemoteEnable, Signed: sign(key, as)}, "has signed something else"},
		"with other words":       {tutti.RemoteRequest{Action: tutti.RemoteDisable, Message: "x", Signed: sign(key, as)}, "has signed something else"},
		"by force":               {tutti.RemoteRequest{Action: tutti.RemoteDisable, Message: "new disk", Force: true, Signed: sign(key, as)}, "has signed something else"},
		"with a list of its own": {disable(sign(own, as)), "not signed by an operator"},
	} {
		if got := u.asks(tc.q); got.Verdict == tutti.RemoteOK || !strings.Contains(got.Message, tc.says) {
			t.Errorf("%s: %+v, want that it is refused: %q", what, got, tc.says)
		}
	}
	f.works("after")
}

// TestActionsAreSigned plays the honest side. The command line signs, and an operator without a key gets an error.
func TestActionsAreSigned(t *testing.T) {
	f := start(t)
	f.join("taken") // this node gets the question, and does not answer
	if out, err := f.try(f.path("operator"), "puppet", "disable", "--on", "true", "--wait", "1s"); err == nil || !strings.Contains(out, "silent") {
		t.Errorf("before operators sign: %v, %s", err, out)
	}
	f.tutti("operator", "trust")
	if out, err := f.try(f.path("operator"), "puppet", "disable", "--on", "true", "--wait", "1s"); err == nil || !strings.Contains(out, "silent") {
		t.Errorf("an operator who signs: %v, %s", err, out)
	}
	f.tutti("operator", "create", "eve", "--out", f.path("eve"))
	for what, operator := range map[string]string{"an operator without a key": f.path("eve"), "root on the server": f.path("nobody")} {
		if out, err := f.try(operator, "puppet", "disable", "--on", "true", "--wait", "1s"); err == nil || !strings.Contains(out, "operators sign actions in this fleet") {
			t.Errorf("%s: %v, %s", what, err, out)
		}
	}
	err := f.issued("mallory").AskNodes(t.Context(), api.NodesQuestion{Action: tutti.RemoteDisable, On: "true"}, func([]api.NodeAnswer) error { return nil })
	wantCode(t, "what is not signed", err, tutti.CodeRefused)
	f.works("after")
}
