package app

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/operator"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/identity"
)

// The type `deaf` is a server that acknowledges all signed statements and does nothing with them. The test can read
// them.
type deaf struct {
	cli.Server
	codes     *[]tutti.CodeSign
	keys      *[]tutti.Statement
	operators *[]tutti.Statement
}

func newDeaf(s cli.Server) deaf {
	return deaf{s, new([]tutti.CodeSign), new([]tutti.Statement), new([]tutti.Statement)}
}

func (d deaf) SignCode(_ context.Context, in tutti.CodeSign) error {
	*d.codes = append(*d.codes, in)
	return nil
}

func (d deaf) TrustKeys(_ context.Context, in tutti.Statement) error {
	*d.keys = append(*d.keys, in)
	return nil
}

func (d deaf) TrustOperators(_ context.Context, in tutti.Statement) error {
	*d.operators = append(*d.operators, in)
	return nil
}

// secretsOf returns the files of an operator's directory that a server must not be able to change.
func secretsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"code.key", "code-next.key", operator.TrustFile} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			out[name] = string(raw)
		}
	}
	return out
}

// TestWhatARotatedKeySignsIsNotSignedAgain: a thief has an old code key, controls the server, and waits for the
// next rotation or the next operator. The new key must not sign the thief's code.
func TestWhatARotatedKeySignsIsNotSignedAgain(t *testing.T) {
	p := newPusher(t, startServer(t))
	stolen := load(t, p.conn.OperatorDir).CodeKey
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	for _, in := range []cli.RotateCodeKey{{}, {Finish: true}} {
		if _, err := p.rotate(in); err != nil {
			t.Fatal(err)
		}
	}
	fleet := load(t, p.conn.OperatorDir).Pin()
	evil, err := identity.SignCode(tutti.Signed{Fleet: fleet, Environment: "production", Counter: 9}, []byte("{}"), stolen)
	if err != nil {
		t.Fatal(err)
	}
	list := saysOperators(t, fleet, 9, "eve", stolen)
	honest := p.server
	for what, change := range map[string]func(*tutti.Signing){
		"code": func(s *tutti.Signing) {
			s.Codes = append(s.Codes, tutti.SignedNow{Environment: "production", Code: tutti.DigestOf(evil.Manifest), Statement: evil.Statement})
		},
		"a list of operators": func(s *tutti.Signing) { s.Operators = list },
		"both, and a log that was put back": func(s *tutti.Signing) {
			s.Codes = append(s.Codes, tutti.SignedNow{Environment: "production", Code: tutti.DigestOf(evil.Manifest), Statement: evil.Statement})
			s.Operators, s.Trust = list, s.Trust[:1]
		},
	} {
		d := newDeaf(liar{honest, change})
		p.server = d
		_, _ = p.rotate(cli.RotateCodeKey{})
		_, _ = operator.TrustOperator(t.Context(), p.server, p.conn, cli.TrustOperator{Name: "bob", Key: identity.EncodeCodePublicKey(operator.PublicOf(newCodeKey(t)))})
		for _, in := range *d.codes {
			if in.Code == tutti.DigestOf(evil.Manifest) {
				t.Errorf("%s: the code of the rotated key was signed again", what)
			}
		}
		for _, in := range *d.operators {
			said, err := identity.ReadOperators(in)
			if err != nil || said.Operators[0].Operator == "eve" {
				t.Errorf("%s: the list of the rotated key was signed again: %+v, %v", what, said, err)
			}
		}
	}
}

// TestAStatusSaysWhatIsNotVerified: the server reports the keys that sign. The status command compares the report
// with the operator's directory.
func TestAStatusSaysWhatIsNotVerified(t *testing.T) {
	p := newPusher(t, startServer(t))
	stolen := load(t, p.conn.OperatorDir).CodeKey
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	for _, in := range []cli.RotateCodeKey{{}, {Finish: true}} {
		if _, err := p.rotate(in); err != nil {
			t.Fatal(err)
		}
	}
	honest, dir := p.server, p.conn.OperatorDir
	evil, err := identity.State(tutti.StatementTrust, tutti.Trusted{Fleet: load(t, dir).Pin(), Counter: 3, Keys: []string{identity.EncodeCodePublicKey(operator.PublicOf(stolen))}}, stolen)
	if err != nil {
		t.Fatal(err)
	}
	without := t.TempDir()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Name() == "code.key" || e.Name() == operator.TrustFile || e.IsDir() {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(without, e.Name()), raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	same := func(*tutti.Signing) {}
	for _, tc := range []struct {
		reason string
		dir    string
		change func(*tutti.Signing)
		want   string // empty: verified
	}{
		{"what is so", dir, same, ""},
		{"the key of before comes back", dir, func(s *tutti.Signing) { s.Trust = append(s.Trust, evil) }, "which code keys to trust: "},
		{"a log that was put back", dir, func(s *tutti.Signing) { s.Trust = s.Trust[:1] }, "an earlier statement"},
		{"without the key", without, same, "there is no code.key in"},
		{"root on the server", filepath.Join(without, "none"), same, "no operator's directory"},
	} {
		p.server, p.conn.OperatorDir = liar{honest, tc.change}, tc.dir
		out, err := p.rotate(cli.RotateCodeKey{Status: true})
		if err != nil || !strings.Contains(out.NotVerified, tc.want) || (out.NotVerified == "") != (tc.want == "") {
			t.Errorf("%s: not verified because %q, %v; want %q", tc.reason, out.NotVerified, err, tc.want)
		}
	}
}

// TestCodeKeysThatNobodyHasSigned checks that unsigned code keys change nothing in an operator's directory. The
// signing key is not lost, and the operator still accepts the honest server's statements afterwards.
func TestCodeKeysThatNobodyHasSigned(t *testing.T) {
	p := newPusher(t, startServer(t))
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.rotate(cli.RotateCodeKey{}); err != nil {
		t.Fatal(err)
	}
	fleet, junk := load(t, p.conn.OperatorDir).Pin(), newCodeKey(t)
	next, err := identity.NextCodeKey(p.conn.OperatorDir)
	if err != nil || next == nil {
		t.Fatal(next, err)
	}
	before, honest := secretsOf(t, p.conn.OperatorDir), p.server
	finished := *saysTrust(t, fleet, 2, []ed25519.PrivateKey{next}, junk)
	for what, change := range map[string]func(*tutti.Signing){
		"the end of the rotation": func(s *tutti.Signing) { s.Trust = append(s.Trust, finished) },
		"another beginning": func(s *tutti.Signing) {
			s.Trust = []tutti.Statement{*saysTrust(t, fleet, 1, []ed25519.PrivateKey{junk}, junk)}
		},
		"statements without number": func(s *tutti.Signing) {
			forged := *saysTrust(t, fleet, 700, []ed25519.PrivateKey{next}, junk)
			s.Trust = []tutti.Statement{forged, forged, forged}
		},
	} {
		p.server = newDeaf(liar{honest, change})
		for _, in := range []cli.RotateCodeKey{{}, {Finish: true}} {
			if _, err := p.rotate(in); tutti.CodeOf(err) != tutti.CodeRefused {
				t.Errorf("%s: %v, want that it is refused", what, err)
			}
		}
		if err := p.push("production", what); tutti.CodeOf(err) != tutti.CodeRefused {
			t.Errorf("%s: pushed: %v", what, err)
		}
		after := secretsOf(t, p.conn.OperatorDir)
		for name, text := range before {
			if after[name] != text {
				t.Errorf("%s: %s is another one", what, name)
			}
		}
	}
	p.server = honest
	if _, err := p.rotate(cli.RotateCodeKey{Finish: true}); err != nil {
		t.Errorf("by the honest server: %v", err)
	}
}

// TestACounterLeaps checks that counters cannot jump. If counters could jump, a thief of the code key could use up
// all numbers with one signature.
func TestACounterLeaps(t *testing.T) {
	p := newPusher(t, startServer(t))
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	dir := p.conn.OperatorDir
	key, fleet, far := load(t, dir).CodeKey, load(t, dir).Pin(), uint64(tutti.MaxCounter)
	said, err := p.server.Signing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.server.TrustOperators(t.Context(), *saysOperators(t, fleet, far, "eve", key)); tutti.CodeOf(err) != tutti.CodeRefused {
		t.Errorf("a list of operators: %v", err)
	}
	text := []byte("fleet: one\n")
	plans, err := identity.State(tutti.StatementPlans, tutti.SignedPlans{Fleet: fleet, Counter: far, Digest: tutti.DigestOf(text)}, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.server.SetFleet(t.Context(), api.FleetSource{File: "tutti.yaml", Source: text, Statement: &plans}); tutti.CodeOf(err) != tutti.CodeRefused {
		t.Errorf("a fleet file: %v", err)
	}
	code, err := identity.State(tutti.StatementCode, tutti.Signed{Fleet: fleet, Environment: "production", Counter: far, Digest: said.Codes[0].Code}, key)
	if err != nil {
		t.Fatal(err)
	}
	honest := p.server
	p.server = liar{honest, func(s *tutti.Signing) { s.Codes[0].Statement = &code }}
	if err := p.push("production", "two"); tutti.CodeOf(err) != tutti.CodeRefused {
		t.Errorf("the operator signs above what the server shows: %v", err)
	}
	p.server = honest
	if err := os.WriteFile(filepath.Join(dir, operator.CountersFile), []byte(`{"production": 9007199254740000}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.push("production", "two"); tutti.CodeOf(err) != tutti.CodeRefused {
		t.Errorf("code: %v", err)
	}
}

// TestARotationAsks checks that the operator must confirm before the new key signs everything that the old key has
// signed. Without this confirmation, the new key would also sign what a thief of the old key has signed.
func TestARotationAsks(t *testing.T) {
	p := newPusher(t, startServer(t))
	for _, environment := range []string{"production", "evil"} {
		if err := p.push(environment, environment); err != nil {
			t.Fatal(err)
		}
	}
	own, err := operator.OperatorsKey(p.conn.OperatorDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.TrustOperator(t.Context(), p.server, p.conn, cli.TrustOperator{Name: own.Operator, Key: own.Key}); err != nil {
		t.Fatal(err)
	}
	before := secretsOf(t, p.conn.OperatorDir)
	var asked []string
	answer := tutti.Errorf(tutti.CodeInvalid, "no")
	confirm := func(what []string) error { asked = what; return answer }
	if _, err := p.rotate(cli.RotateCodeKey{Confirm: confirm}); !errors.Is(err, answer) {
		t.Errorf("after a no: %v", err)
	}
	if len(asked) != 3 || !strings.Contains(asked[0], "environment evil, counter 1, pushed by operator:admin at ") || !strings.Contains(asked[1], "environment production") || !strings.Contains(asked[2], "admin (sha256:") {
		t.Errorf("asked for %q", asked)
	}
	said, err := p.server.Signing(t.Context())
	if err != nil || len(said.Trust) != 0 || len(secretsOf(t, p.conn.OperatorDir)) != len(before) {
		t.Errorf("a no has begun the rotation: %d statements, %v", len(said.Trust), err)
	}
	list := saysOperators(t, said.Fleet, 2, "eve", load(t, p.conn.OperatorDir).CodeKey) // by the thief
	if err := p.server.TrustOperators(t.Context(), *list); err != nil {
		t.Fatal(err)
	}
	if _, err := p.rotate(cli.RotateCodeKey{Confirm: confirm}); !errors.Is(err, answer) || !strings.Contains(asked[2], "kept here: eve (sha256:") || !strings.Contains(asked[2], "gone since then: admin (sha256:") {
		t.Errorf("asked for %q, %v, want that another list is told", asked, err)
	}
	answer = nil
	if _, err := p.rotate(cli.RotateCodeKey{Confirm: confirm}); err != nil {
		t.Fatal(err)
	}
	if asked = nil; p.push("production", "pushed meanwhile") != nil {
		t.Fatal("no push")
	}
	if _, err := p.rotate(cli.RotateCodeKey{Finish: true, Confirm: confirm}); err != nil || asked != nil {
		t.Errorf("asked for %q, which the new key has signed: %v", asked, err)
	}
}

// If something new arrives while the operator reads the question, the new key does not sign it.
func TestARotationSignsWhatItAskedFor(t *testing.T) {
	for what, do := range map[string]func(*pusher) error{
		"code": func(p *pusher) error { return p.push("evil", "evil") },
		"a list of operators": func(p *pusher) error {
			bundle := load(t, p.conn.OperatorDir)
			return p.server.TrustOperators(t.Context(), *saysOperators(t, bundle.Pin(), 1, "eve", bundle.CodeKey))
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := newPusher(t, startServer(t))
			if err := p.push("production", "one"); err != nil {
				t.Fatal(err)
			}
			_, err := p.rotate(cli.RotateCodeKey{Confirm: func([]string) error { return do(p) }})
			if tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), "since you were asked") {
				t.Errorf("%v, want that it is not signed", err)
			}
			next, err := identity.NextCodeKey(p.conn.OperatorDir)
			if err != nil {
				t.Fatal(err)
			}
			said, err := p.server.Signing(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			signed := func(st *tutti.Statement) bool {
				return st != nil && st.SignedBy(identity.KeyID(operator.PublicOf(next)))
			}
			for _, c := range said.Codes {
				if c.Environment == "evil" && signed(c.Statement) {
					t.Error("the new key has signed code that the question did not name")
				}
			}
			if signed(said.Operators) {
				t.Error("the new key has signed a list that the question did not name")
			}
			var asked []string
			if _, err := p.rotate(cli.RotateCodeKey{Confirm: func(what []string) error { asked = what; return nil }}); err != nil || len(asked) == 0 || !strings.Contains(strings.Join(asked, " "), "ev") {
				t.Errorf("asked for %q, %v", asked, err)
			}
		})
	}
}

// TestWhoWasDistrustedStaysOut: a server that was set back, or is dishonest, returns an old list of operators. The
// next list is based on the list in the operator's directory, and a rotation signs no older list.
func TestWhoWasDistrustedStaysOut(t *testing.T) {
	p := newPusher(t, startServer(t))
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	trust := func(name string, remove bool) (cli.OperatorsTrusted, error) {
		t.Helper()
		return operator.TrustOperator(t.Context(), p.server, p.conn, cli.TrustOperator{Name: name, Key: identity.EncodeCodePublicKey(operator.PublicOf(newCodeKey(t))), Remove: remove})
	}
	must := func(name string, remove bool) cli.OperatorsTrusted {
		t.Helper()
		out, err := trust(name, remove)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	shown := func() *tutti.Statement {
		t.Helper()
		said, err := p.server.Signing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return said.Operators
	}
	must("ada", false)
	must("eve", false)
	old, honest := shown(), p.server
	if out := must("eve", true); len(out.Left) != 1 || !strings.HasPrefix(out.Left[0], "eve (sha256:") || len(out.Added) != 0 || out.Note != "" {
		t.Errorf("eve is distrusted: %+v", out)
	}
	for what, list := range map[string]*tutti.Statement{"an earlier list": old, "no list": nil} {
		d := newDeaf(liar{honest, func(s *tutti.Signing) { s.Operators = list }})
		p.server = d
		out := must("bob", false)
		if strings.Join(out.Operators, " ") != "ada bob" || len(out.Added) != 1 || !strings.Contains(out.Note, "put back") {
			t.Errorf("%s: %+v", what, out)
		}
		// remove the list that only the deaf server has got
		if err := os.Remove(filepath.Join(p.conn.OperatorDir, operator.OperatorsFile)); err != nil {
			t.Fatal(err)
		}
		if err := operator.WriteOperators(p.conn.OperatorDir, *func() *tutti.Statement { p.server = honest; return shown() }()); err != nil {
			t.Fatal(err)
		}
		p.server = d
		if _, err := p.rotate(cli.RotateCodeKey{}); tutti.CodeOf(err) != tutti.CodeRefused {
			t.Errorf("%s: rotated: %v", what, err)
		}
		if len(*d.keys) != 0 {
			t.Errorf("%s: a rotation was begun", what)
		}
	}
	p.server = honest
	other, fleet := newCodeKey(t), load(t, p.conn.OperatorDir).Pin()
	list, err := identity.ReadOperators(*shown())
	if err != nil {
		t.Fatal(err)
	}
	fork := saysOperators(t, fleet, list.Counter, "eve", load(t, p.conn.OperatorDir).CodeKey, other)
	p.server = liar{honest, func(s *tutti.Signing) { s.Operators = fork }}
	if _, err := trust("bob", false); tutti.CodeOf(err) != tutti.CodeRefused || !strings.Contains(err.Error(), "differs from the list in") {
		t.Errorf("another list with the same counter: %v", err)
	}
}
