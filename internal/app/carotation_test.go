package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/operator"
	"github.com/tutti-project/tutti/internal/serverdir"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
)

// The type `rotated` is a server whose keys the test rotates, with its first operator.
type rotated struct {
	dir, bus, https string
	admin           operator.ConnectOptions
	stop            func()
}

func startRotated(t *testing.T) *rotated {
	t.Helper()
	dir := t.TempDir()
	f := &rotated{dir: filepath.Join(dir, "server"), bus: bustest.Address(t), https: bustest.Address(t), admin: operator.ConnectOptions{OperatorDir: filepath.Join(dir, "operator")}}
	err := InitServer(InitOptions{Dir: f.dir, Host: "127.0.0.1", Listen: f.https, Bus: f.bus, Operator: "admin", OperatorDir: f.admin.OperatorDir})
	if err != nil {
		t.Fatal(err)
	}
	f.start(t)
	return f
}

func (f *rotated) start(t *testing.T) {
	t.Helper()
	s, err := NewServer(ServerOptions{Dir: f.dir, Socket: filepath.Join(f.dir, "socket"), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	f.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(f.stop)
}

// client returns a new client of the first operator. Each command of the command line also makes a new client.
func (f *rotated) client(t *testing.T) *httpapi.Client {
	t.Helper()
	c, err := operator.Connect(f.admin)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The method `step` runs one step of the rotation. If the server is restarting, step sends the request again.
func (f *rotated) step(t *testing.T, in api.RotateCA) (api.CARotation, error) {
	t.Helper()
	var out api.CARotation
	var err error
	f.served(t, func(c *httpapi.Client) error { out, err = c.RotateCA(t.Context(), in); return err })
	return out, err
}

// The method `served` repeats a request until the server answers it.
func (f *rotated) served(t *testing.T, ask func(*httpapi.Client) error) {
	t.Helper()
	for end := time.Now().Add(hang); ; {
		if err := ask(f.client(t)); tutti.CodeOf(err) != tutti.CodeUnavailable || time.Now().After(end) {
			return
		}
		breathe(t)
	}
}

// The function `breathe` waits 20 ms. A test calls it between two looks at the work of another goroutine.
func breathe(t *testing.T) {
	t.Helper()
	select {
	case <-time.After(20 * time.Millisecond):
	case <-t.Context().Done():
	}
}

func (f *rotated) must(t *testing.T, step tutti.RotationStep) api.CARotation {
	t.Helper()
	out, err := f.step(t, api.RotateCA{Step: step})
	if err != nil {
		t.Fatalf("%s: %v", step, err)
	}
	return out
}

// The method `until` polls the rotation's status, and returns when the status meets a condition.
func (f *rotated) until(t *testing.T, what string, is func(api.CARotation) bool) api.CARotation {
	t.Helper()
	var now api.CARotation
	for end := time.Now().Add(hang); ; {
		var err error
		f.served(t, func(c *httpapi.Client) error { now, err = c.ShowCARotation(t.Context()); return err })
		if err == nil && is(now) {
			return now
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not so: %+v, %v", what, now, err)
		}
		breathe(t)
	}
}

func behind(r api.CARotation) (out []string) {
	for _, b := range r.Behind {
		out = append(out, string(b.Node)+b.Operator)
	}
	return out
}

func nobodyBehind(r api.CARotation) bool { return len(r.Behind) == 0 }

// joinedNode is a machine that has joined the fleet.
type joinedNode struct {
	dir  string
	name tutti.NodeName
	stop func()
}

func (f *rotated) token(t *testing.T, name tutti.NodeName) string {
	t.Helper()
	var token api.CreatedToken
	var err error
	f.served(t, func(c *httpapi.Client) error {
		token, err = c.CreateToken(t.Context(), api.CreateToken{Name: string(name)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return token.Text
}

func (f *rotated) join(t *testing.T, name tutti.NodeName) *joinedNode {
	t.Helper()
	m := &joinedNode{dir: filepath.Join(t.TempDir(), string(name)), name: name}
	if _, err := machine.Join(t.Context(), machine.JoinOptions{Dir: m.dir, Token: f.token(t, name)}); err != nil {
		t.Fatal(err)
	}
	return m
}

// The method `start` starts the node's agent. The method returns the agent's log.
func (m *joinedNode) start(t *testing.T) *words {
	t.Helper()
	said := &words{}
	a, err := NewAgent(AgentOptions{Dir: m.dir, Root: t.TempDir(), Beat: 100 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stopped := false
	m.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(m.stop)
	return said
}

func (m *joinedNode) pins(t *testing.T) []tutti.Digest {
	t.Helper()
	on, err := identity.LoadMembership(machine.IdentityDir(m.dir))
	if err != nil {
		t.Fatal(err)
	}
	pins, err := identity.CAPins([]byte(on.CA))
	if err != nil {
		t.Fatal(err)
	}
	return pins
}

func (f *rotated) sets(t *testing.T) tutti.KeySets {
	t.Helper()
	a, err := identity.Load(filepath.Join(f.dir, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	sets, err := a.KeySets()
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

// The test rotates the keys. One node is connected all the time, and another node is away until after the switch. The
// operator's client gets the new keys with the answers to its requests.
func TestTheCAIsRotated(t *testing.T) {
	f := startRotated(t)
	there, away := f.join(t, "there"), f.join(t, "away")
	early := f.token(t, "early")
	there.start(t)
	away.start(t)
	f.until(t, "both nodes are seen", func(api.CARotation) bool {
		nodes, err := f.client(t).ListNodes(t.Context())
		return err == nil && len(nodes) == 2 && !slices.ContainsFunc(nodes, func(n api.NodeView) bool { return n.SeenAt.IsZero() })
	})
	away.stop()
	old := f.sets(t).Present
	bob := filepath.Join(t.TempDir(), "bob")
	if _, err := operator.CreateOperator(t.Context(), f.client(t), cli.Connection(f.admin), cli.OperatorCreate{Name: "bob", Out: bob}); err != nil {
		t.Fatal(err)
	}

	if r := f.must(t, tutti.RotationBegin); r.Phase != tutti.RotationBegun || r.CA != old.CA || r.Next == "" {
		t.Errorf("begun: %+v", r)
	}
	next := f.sets(t).Next
	both := []tutti.Digest{old.CA, next.CA}
	slices.Sort(both)
	f.until(t, "one node has pinned both", func(r api.CARotation) bool { return cmp.Equal(behind(r), []string{"away"}) })
	if diff := cmp.Diff(both, there.pins(t)); diff != "" {
		t.Errorf("pinned: -want +got\n%s", diff)
	}
	if _, err := f.step(t, api.RotateCA{Step: tutti.RotationFinish}); tutti.CodeOf(err) != tutti.CodeConflict {
		t.Errorf("the end before the switch: %v", err)
	}

	f.must(t, tutti.RotationSwitch)
	f.until(t, "one node and the admin have followed", func(r api.CARotation) bool { return cmp.Equal(behind(r), []string{"away", "bob"}) })
	if trusts, signer := load(t, f.admin.OperatorDir).StandsOn(); signer != next.CA || !cmp.Equal(trusts, both) {
		t.Errorf("the admin stands on %v, signed by %s", trusts, signer)
	}
	if _, err := f.step(t, api.RotateCA{Step: tutti.RotationFinish, Leave: []tutti.NodeName{"there"}}); tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), "node away, operator bob") {
		t.Errorf("the end while some are behind: %v", err)
	}
	if _, err := machine.Join(t.Context(), machine.JoinOptions{Dir: filepath.Join(t.TempDir(), "early"), Token: early}); err != nil {
		t.Errorf("a token from before the rotation: %v", err)
	}
	late := f.token(t, "late")
	if err := f.client(t).RemoveNode(t.Context(), "early"); err != nil {
		t.Fatal(err)
	}
	away.start(t)
	asBob := f.admin
	asBob.OperatorDir = bob
	if c, err := operator.Connect(asBob); err != nil {
		t.Error(err)
	} else if _, err := c.ListNodes(t.Context()); err != nil {
		t.Errorf("bob, who knows the old CA alone: %v", err)
	}
	f.until(t, "all have followed", nobodyBehind)

	if r := f.must(t, tutti.RotationFinish); r.Phase != tutti.RotationFinished || r.CA != next.CA {
		t.Errorf("finished: %+v", r)
	}
	if got := f.sets(t); got.Present != next || got.Phase != "" || !cmp.Equal(got.Was, []tutti.Digest{old.CA}) {
		t.Errorf("the keys are %+v", got)
	}
	for _, m := range []*joinedNode{there, away} {
		f.until(t, "the node has forgotten the old CA", func(api.CARotation) bool { return cmp.Equal(m.pins(t), []tutti.Digest{next.CA}) })
	}
	f.until(t, "both nodes are back", func(api.CARotation) bool {
		nodes, err := f.client(t).ListNodes(t.Context())
		return err == nil && len(nodes) == 2 && !slices.ContainsFunc(nodes, func(n api.NodeView) bool { return n.SeenAt.IsZero() })
	})
	if trusts, signer := load(t, f.admin.OperatorDir).StandsOn(); signer != next.CA || !cmp.Equal(trusts, []tutti.Digest{next.CA}) {
		t.Errorf("at the end the admin stands on %v, signed by %s", trusts, signer)
	}
	if _, err := machine.Join(t.Context(), machine.JoinOptions{Dir: filepath.Join(t.TempDir(), "late"), Token: late}); err == nil || !strings.Contains(err.Error(), "was rotated after the token was made") {
		t.Errorf("a token from before the end: %v", err)
	}
	f.join(t, "new").start(t)
	if r := f.must(t, tutti.RotationFinish); r.Phase != tutti.RotationFinished {
		t.Errorf("the end once more: %+v", r)
	}
	f.stop()
	f.start(t)
	f.until(t, "the server starts again", nobodyBehind)
	entries, err := os.ReadDir(filepath.Join(f.dir, "identity"))
	if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "rotation.json" }) {
		t.Errorf("%v, %v", entries, err)
	}
}

// The method `finished` completes a rotation. The nodes in `leave` do not get the new keys.
func (f *rotated) finished(t *testing.T, leave ...tutti.NodeName) {
	t.Helper()
	f.must(t, tutti.RotationBegin)
	f.must(t, tutti.RotationSwitch)
	f.until(t, "all but those who are away have followed", func(r api.CARotation) bool { return len(r.Behind) == len(leave) })
	if _, err := f.step(t, api.RotateCA{Step: tutti.RotationFinish, Leave: leave}); err != nil {
		t.Fatal(err)
	}
}

// The server refuses a node that was away for the whole rotation. The server names this node in the status of the
// rotation, and the node logs the reason. The test uses a node that knows only the old CA, and a node that knows both
// CAs. When the node joins again, the server accepts it without a restart of the agent. The node keeps its keys and
// its state.
func TestANodeThatWasLeftBehind(t *testing.T) {
	t.Parallel() // the test waits for the agent's next attempts to connect
	for _, tc := range []struct {
		reason string
		pinned bool
		says   string
	}{
		{"it was away since before the rotation", false, "a certificate of a CA that this node does not know: the fleet's CA was rotated"},
		{"it was away since it had pinned both CAs", true, "the keys that let it in were rotated while it was away"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			f := startRotated(t)
			m := f.join(t, "away")
			if tc.pinned {
				f.must(t, tutti.RotationBegin)
			}
			m.start(t)
			f.until(t, "the node is there", func(r api.CARotation) bool {
				nodes, err := f.client(t).ListNodes(t.Context())
				return err == nil && len(nodes) == 1 && !nodes[0].SeenAt.IsZero() && (!tc.pinned || nobodyBehind(r))
			})
			m.stop()
			ticket, err := os.ReadFile(filepath.Join(m.dir, "ticket.json"))
			if err != nil {
				t.Fatal(err)
			}
			f.finished(t, "away")
			if r := f.until(t, "the server is back", func(api.CARotation) bool { return true }); !cmp.Equal(r.Left, []tutti.NodeName{"away"}) {
				t.Errorf("the server says %+v", r)
			}
			said := m.start(t)
			f.until(t, "the node says why", func(api.CARotation) bool { return said.has(tc.says) && said.has("tutti join --again") })
			before, err := machine.LoadKeys(machine.IdentityDir(m.dir))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := machine.Join(t.Context(), machine.JoinOptions{Dir: m.dir, Token: f.token(t, "away"), Again: true}); err != nil {
				t.Fatal(err)
			}
			// the node has not connected yet, so it still has its old ticket
			if now, err := os.ReadFile(filepath.Join(m.dir, "ticket.json")); err != nil || string(now) != string(ticket) {
				t.Errorf("what it remembers: %s, %v", now, err)
			}
			f.until(t, "the node is back", func(r api.CARotation) bool {
				nodes, err := f.client(t).ListNodes(t.Context())
				return err == nil && len(nodes) == 1 && nodes[0].Connected && len(r.Left) == 0
			})
			after, err := machine.LoadKeys(machine.IdentityDir(m.dir))
			if err != nil || after.Key != before.Key {
				t.Errorf("its key is %s, %v; it was %s", after.Key, err, before.Key)
			}
		})
	}
}

// The operator abandons a rotation after the switch. Nodes and operators then get credentials of the old keys again,
// and no longer trust the new CA.
func TestARotationThatIsAbandoned(t *testing.T) {
	f := startRotated(t)
	m := f.join(t, "web")
	m.start(t)
	old := f.sets(t).Present
	f.must(t, tutti.RotationBegin)
	f.must(t, tutti.RotationSwitch)
	f.until(t, "all have followed", nobodyBehind)
	if r := f.must(t, tutti.RotationAbandon); r.Phase != tutti.RotationReturning {
		t.Fatalf("abandoned after the switch: %+v", r)
	}
	f.until(t, "all have come back", nobodyBehind)
	if r := f.must(t, tutti.RotationAbandon); r.Phase != tutti.RotationAbandoned || r.CA != old.CA {
		t.Fatalf("abandoned: %+v", r)
	}
	f.until(t, "the node has forgotten the new CA", func(api.CARotation) bool { return cmp.Equal(m.pins(t), []tutti.Digest{old.CA}) })
	f.until(t, "the admin has, too", func(api.CARotation) bool {
		trusts, signer := load(t, f.admin.OperatorDir).StandsOn()
		return signer == old.CA && cmp.Equal(trusts, []tutti.Digest{old.CA})
	})
	if got := f.sets(t); got.Present != old || got.Phase != "" {
		t.Errorf("the keys are %+v", got)
	}
	if _, err := f.client(t).ListNodes(t.Context()); err != nil {
		t.Error(err)
	}
}

// A backup contains both key sets, so the restored server continues the rotation at the same point. The restored
// server accepts nodes and operators that already use new keys.
func TestABackupWhileTheCAIsRotated(t *testing.T) {
	f := startRotated(t)
	m := f.join(t, "web")
	m.start(t)
	f.must(t, tutti.RotationBegin)
	f.must(t, tutti.RotationSwitch)
	f.until(t, "all have followed", nobodyBehind)
	sets := f.sets(t)
	file := filepath.Join(t.TempDir(), "all.tar")
	if _, err := serverdir.Backup(t.Context(), serverdir.BackupOptions{Dir: f.dir, Socket: filepath.Join(f.dir, "socket"), File: file}); err != nil {
		t.Fatal(err)
	}
	f.stop()
	f.dir = filepath.Join(t.TempDir(), "restored")
	if _, _, err := serverdir.Restore(t.Context(), file, f.dir); err != nil {
		t.Fatal(err)
	}
	f.start(t)
	r := f.until(t, "the restored server knows all", nobodyBehind)
	if got := f.sets(t); r.Phase != tutti.RotationSwitched || got.Next != sets.Next || got.Present != sets.Present {
		t.Errorf("it is %+v, with the keys %+v", r, got)
	}
	f.must(t, tutti.RotationFinish)
	f.until(t, "the node is back", func(api.CARotation) bool {
		nodes, err := f.client(t).ListNodes(t.Context())
		return err == nil && len(nodes) == 1 && nodes[0].Connected && cmp.Equal(m.pins(t), []tutti.Digest{sets.Next.CA})
	})
}

// In this test, the code-signing key is rotated before, during and after the rotation of the CA. All signatures stay
// valid, because the fleet's id is the id of its first CA. Signatures stay valid for existing nodes and operators, for
// new ones, and after a restart.
func TestWhatIsSignedOutlivesTheCA(t *testing.T) {
	f := startRotated(t)
	first := f.sets(t).Present.CA
	there := f.join(t, "there")
	there.start(t)
	p := newPusher(t, f.admin)
	rotate := func(in cli.RotateCodeKey) {
		t.Helper()
		if _, err := p.rotate(in); err != nil {
			t.Fatalf("%+v: %v", in, err)
		}
	}
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	rotate(cli.RotateCodeKey{})
	p.there(1)
	rotate(cli.RotateCodeKey{Finish: true})
	f.must(t, tutti.RotationBegin)
	rotate(cli.RotateCodeKey{}) // the rotation of the code key ends after the rotation of the CA
	p.there(1)
	f.finished(t)
	if now := f.sets(t).Present.CA; now == first {
		t.Fatal("the CA is the same")
	}
	f.stop()
	f.start(t)

	bob := f.admin
	bob.OperatorDir = filepath.Join(t.TempDir(), "bob")
	late := f.join(t, "late")
	late.start(t)
	p = newPusher(t, f.admin)
	if _, err := operator.CreateOperator(t.Context(), p.server, p.conn, cli.OperatorCreate{Name: "bob", Out: bob.OperatorDir, CodeKey: true}); err != nil {
		t.Fatal(err)
	}
	again := f.token(t, "there")
	there.stop()
	if _, err := machine.Join(t.Context(), machine.JoinOptions{Dir: there.dir, Token: again, Again: true}); err != nil {
		t.Fatal(err)
	}
	there.start(t)
	for _, m := range []*joinedNode{there, late} {
		if got := trusted(t, m.dir); got.Fleet != first || got.Counter != 3 || len(got.Keys) != 2 {
			t.Errorf("%s is of the fleet %s and trusts %d keys as of statement %d, want %s, 2 and 3", m.name, got.Fleet, len(got.Keys), got.Counter, first)
		}
	}
	for _, dir := range []string{f.admin.OperatorDir, bob.OperatorDir, filepath.Join(f.dir, "identity")} {
		if got, err := os.ReadFile(filepath.Join(dir, "fleet")); err != nil || string(got) != string(first) {
			t.Errorf("%s is of the fleet %s, %v, want %s", dir, got, err, first)
		}
	}
	p.there(2)
	rotate(cli.RotateCodeKey{Finish: true})
	p.there(2)
	if err := p.push("production", "two"); err != nil || p.counters()["production"] != 2 {
		t.Errorf("counters %v, %v", p.counters(), err)
	}
	if got := trusted(t, late.dir); got.Counter != 4 || len(got.Keys) != 1 || !got.Has(operator.PublicOf(load(t, f.admin.OperatorDir).CodeKey)) {
		t.Errorf("who came late trusts %d keys as of statement %d", len(got.Keys), got.Counter)
	}
}
