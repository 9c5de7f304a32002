package app

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/operator"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
)

// joinNode adds a node to a fleet and returns its state directory.
func joinNode(t *testing.T, server cli.Server, name tutti.NodeName) string {
	t.Helper()
	token, err := server.CreateToken(t.Context(), api.CreateToken{Name: string(name)})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "agent")
	if _, err := machine.Join(t.Context(), machine.JoinOptions{Dir: dir, Token: token.Text, Name: name}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startAgent starts the agent of a node. The agent runs until the caller stops it or the test ends.
func startAgent(t *testing.T, dir string) (stop func()) {
	t.Helper()
	a, err := NewAgent(AgentOptions{Dir: dir, Root: t.TempDir(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	done := false
	stop = func() {
		if done {
			return
		}
		done = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func (p *pusher) rotate(in cli.RotateCodeKey) (cli.CodeKeyRotation, error) {
	p.t.Helper()
	return operator.RotateCodeKey(p.t.Context(), p.server, p.conn, in)
}

// The method `there` polls the server until the given number of nodes trust the keys that sign now.
func (p *pusher) there(nodes int) cli.CodeKeyRotation {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), hang)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := p.rotate(cli.RotateCodeKey{Status: true})
		if err != nil {
			p.t.Fatal(err)
		}
		if out.There >= nodes {
			return out
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("rotation %+v, want that %d nodes are there", out, nodes)
		}
	}
}

// The function `trusted` returns the code keys that a node has stored on its disk.
func trusted(t *testing.T, dir string) identity.Trust {
	t.Helper()
	m, err := identity.LoadMembership(machine.IdentityDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.Trusts()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTheCodeKeyIsRotated rotates the code key while one node is connected, one node is away for the whole time, and
// one node joins during the rotation.
func TestTheCodeKeyIsRotated(t *testing.T) {
	p := newPusher(t, startServer(t))
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	old := load(t, p.conn.OperatorDir).CodeKey
	here, away := joinNode(t, p.server, "here"), joinNode(t, p.server, "away")
	startAgent(t, here)
	if out, err := p.rotate(cli.RotateCodeKey{Status: true}); err != nil || out.GoesOn || len(out.Keys) != 0 {
		t.Errorf("before: %+v, %v", out, err)
	}
	if _, err := p.rotate(cli.RotateCodeKey{Finish: true}); tutti.CodeOf(err) != tutti.CodeConflict {
		t.Errorf("what was not begun is finished: %v", err)
	}
	out, err := p.rotate(cli.RotateCodeKey{})
	if err != nil || !out.GoesOn || len(out.Keys) != 2 {
		t.Fatalf("rotation %+v, %v, want that two keys sign", out, err)
	}
	_, err = p.rotate(cli.RotateCodeKey{Finish: true, Leave: []tutti.NodeName{"here"}})
	// the code is CodeInvalid if the node `here` already trusts both keys, because only a node
	// that does not trust both can be left behind
	if tutti.CodeOf(err) != tutti.CodeConflict && tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("finished without a node: %v", err)
	}
	newcomer := joinNode(t, p.server, "newcomer")
	if got := trusted(t, newcomer); len(got.Keys) != 2 || got.Counter != 1 {
		t.Errorf("a newcomer trusts %d keys as of statement %d", len(got.Keys), got.Counter)
	}
	startAgent(t, newcomer)
	p.there(2)
	if _, err := p.rotate(cli.RotateCodeKey{Finish: true}); tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), "away (not connected)") {
		t.Errorf("a node that was away is left behind without a word: %v", err)
	}
	if err := p.push("production", "two"); err != nil { // at this time two keys sign
		t.Fatal(err)
	}
	out, err = p.rotate(cli.RotateCodeKey{Finish: true, Leave: []tutti.NodeName{"away"}})
	if err != nil || !out.Finished || len(out.Keys) != 1 {
		t.Fatalf("finished: %+v, %v", out, err)
	}
	if now := load(t, p.conn.OperatorDir).CodeKey; now.Equal(old) || out.Keys[0] != identity.KeyID(operator.PublicOf(now)) {
		t.Error("the operator's directory has another key than the one that signs")
	}
	startAgent(t, away) // the server sends the node all statements that it has missed
	p.there(3)
	for _, dir := range []string{here, away, newcomer} {
		if got := trusted(t, dir); got.Counter != 2 || len(got.Keys) != 1 || got.Has(operator.PublicOf(old)) {
			t.Errorf("%s trusts %d keys as of statement %d", dir, len(got.Keys), got.Counter)
		}
	}
	if err := p.push("production", "three"); err != nil || p.counters()["production"] != 3 {
		t.Errorf("counters %v, %v, want that they go on", p.counters(), err)
	}
	if _, err := p.rotate(cli.RotateCodeKey{}); err != nil { // and again
		t.Error(err)
	}
	p.there(3)
	if _, err := p.rotate(cli.RotateCodeKey{Finish: true}); err != nil {
		t.Error(err)
	}

	stolen := cli.Connection{Server: p.conn.Server, OperatorDir: filepath.Join(t.TempDir(), "stolen")}
	if err := os.CopyFS(stolen.OperatorDir, os.DirFS(p.conn.OperatorDir)); err != nil {
		t.Fatal(err)
	}
	thief := &pusher{t: t, conn: stolen, server: p.server, dir: p.dir}
	thief.become(old)
	if err := thief.push("production", "evil"); tutti.CodeOf(err) != tutti.CodeRefused || !strings.Contains(err.Error(), "was rotated, and nodes no longer trust it") {
		t.Errorf("the old key signs: %v", err)
	}
	if _, err := thief.rotate(cli.RotateCodeKey{}); tutti.CodeOf(err) != tutti.CodeRefused {
		t.Errorf("the old key makes another one: %v", err)
	}
}

// The method `private` changes the mode of the files in a copied directory, so that only their owner can read them.
func (p *pusher) private() {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.conn.OperatorDir, "*"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Chmod(file, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

// The method `become` replaces the code-signing key in the operator's directory.
func (p *pusher) become(key ed25519.PrivateKey) {
	p.t.Helper()
	p.private()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(p.conn.OperatorDir, "code.key"), text, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// The type `cut` is a server that counts the calls that change something. The connection breaks at the call with the
// number `at`: before the call arrives, or, if `after` is set, after the call is done.
type cut struct {
	cli.Server
	at    int
	after bool
	calls *int
}

var errCut = errors.New("the connection broke")

func (c cut) call(f func() error) error {
	*c.calls++
	if *c.calls == c.at && !c.after {
		return errCut
	}
	if err := f(); err != nil {
		return err
	}
	if *c.calls == c.at {
		return errCut
	}
	return nil
}

func (c cut) SignCode(ctx context.Context, in tutti.CodeSign) error {
	return c.call(func() error { return c.Server.SignCode(ctx, in) })
}

func (c cut) TrustKeys(ctx context.Context, in tutti.Statement) error {
	return c.call(func() error { return c.Server.TrustKeys(ctx, in) })
}

// TestARotationGoesOn checks that a rotation can be interrupted at any point. If the same command is run again, it
// finishes the rotation.
func TestARotationGoesOn(t *testing.T) {
	p := newPusher(t, startServer(t))
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	honest, cuts := p.server, 0
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			calls, broke := 0, false
			for _, in := range []cli.RotateCodeKey{{}, {Finish: true}} {
				p.server = cut{honest, at, after, &calls}
				_, err := p.rotate(in)
				if errors.Is(err, errCut) {
					broke = true
					p.server = honest
					if err := p.push("production", "pushed meanwhile"); err != nil {
						t.Fatalf("cut at call %d, after %t: no push: %v", at, after, err)
					}
					_, err = p.rotate(in)
				}
				if in.Finish && tutti.CodeOf(err) == tutti.CodeConflict && strings.Contains(err.Error(), "no rotation goes on") {
					err = nil // the first call of the second command has already finished the rotation
				}
				if err != nil {
					t.Fatalf("cut at call %d, after %t: %v", at, after, err)
				}
			}
			p.server = honest
			out, err := p.rotate(cli.RotateCodeKey{Status: true})
			if err != nil || out.GoesOn || len(out.Keys) != 1 || out.Keys[0] != identity.KeyID(operator.PublicOf(load(t, p.conn.OperatorDir).CodeKey)) {
				t.Fatalf("cut at call %d, after %t: %+v, %v, want that the key of the directory signs alone", at, after, out, err)
			}
			if !broke {
				break
			}
			cuts++
		}
	}
	if cuts < 6 {
		t.Errorf("cut off %d times, want each call, before and after it", cuts)
	}
}

// putBack is a server that was set back to a time before it knew the code keys.
type putBack struct {
	cli.Server
	heard *int
}

func (s putBack) Signing(ctx context.Context) (tutti.Signing, error) {
	out, err := s.Server.Signing(ctx)
	out.Trust = out.Trust[:min(*s.heard, len(out.Trust))]
	return out, err
}

func (s putBack) TrustKeys(ctx context.Context, in tutti.Statement) error {
	*s.heard++
	return s.Server.TrustKeys(ctx, in)
}

// TestAServerThatWasPutBackIsToldAgain checks that the operator sends all statements about code keys again, in
// order, to a server that was set back.
func TestAServerThatWasPutBackIsToldAgain(t *testing.T) {
	p := newPusher(t, startServer(t))
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	for _, in := range []cli.RotateCodeKey{{}, {Finish: true}} {
		if _, err := p.rotate(in); err != nil {
			t.Fatal(err)
		}
	}
	heard := 0
	p.server = putBack{p.server, &heard}
	out, err := p.rotate(cli.RotateCodeKey{})
	if err != nil || heard != 3 || !out.GoesOn {
		t.Errorf("%d statements were told, %+v, %v, want the two of before and the one that begins the next rotation", heard, out, err)
	}
}

// The type `first` is a server on which another operator is faster. That operator changes the code keys just before
// each change by the tested operator.
type first struct {
	cli.Server
	other func()
}

func (s first) TrustKeys(ctx context.Context, in tutti.Statement) error {
	s.other()
	return s.Server.TrustKeys(ctx, in)
}

// TestTwoRotationsAtOnce checks two operators who begin a rotation at the same time. The server refuses the second
// operator's rotation. This operator can still push with the present key.
func TestTwoRotationsAtOnce(t *testing.T) {
	p := newPusher(t, startServer(t))
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	other := *p
	other.conn.OperatorDir = filepath.Join(t.TempDir(), "other")
	if err := os.CopyFS(other.conn.OperatorDir, os.DirFS(p.conn.OperatorDir)); err != nil {
		t.Fatal(err)
	}
	other.private()
	honest := p.server
	p.server = first{honest, sync.OnceFunc(func() {
		if _, err := other.rotate(cli.RotateCodeKey{}); err != nil {
			t.Error(err)
		}
	})}
	if _, err := p.rotate(cli.RotateCodeKey{}); tutti.CodeOf(err) != tutti.CodeConflict {
		t.Errorf("rotated second: %v, want a conflict", err)
	}
	p.server = honest
	if err := p.push("production", "two"); err != nil {
		t.Errorf("pushed with the key that still signs: %v", err)
	}
	if _, err := p.rotate(cli.RotateCodeKey{}); tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), "another rotation goes on") {
		t.Errorf("rotated again: %v", err)
	}
}
