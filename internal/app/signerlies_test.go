package app

import (
	"context"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/identity"
)

// deaf is a server that takes nothing that is signed for it, and keeps it.
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

// secretsOf are the files of an operator's directory that no server may change.
func secretsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"code.key", "code-next.key", trustFile} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			out[name] = string(raw)
		}
	}
	return out
}

// TestWhatARotatedKeySignsIsNotSignedAgain: the thief of a key that was rotated has the server, too, and waits for the next
// rotation, or for the next operator.
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
		_, _ = trustOperator(t.Context(), p.server, p.conn, cli.TrustOperator{Name: "bob", Key: identity.EncodeCodePublicKey(publicOf(newCodeKey(t)))})
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

// TestCodeKeysThatNobodyHasSigned change nothing in an operator's directory: the key that signs is not lost, and the honest
// server's statements are taken afterwards.
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
