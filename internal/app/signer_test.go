package app

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti/internal/operator"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
)

// pusher pushes a directory of code to a server.
type pusher struct {
	t      *testing.T
	conn   cli.Connection
	server cli.Server
	dir    string
	again  bool
}

func newPusher(t *testing.T, o operator.ConnectOptions) *pusher {
	t.Helper()
	server, err := operator.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &pusher{t: t, conn: cli.Connection(o), server: server, dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(p.dir, "manifests"), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pusher) push(environment, content string) error {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "manifests/site.pp"), []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
	_, err := push(p.t.Context(), p.server, p.conn, cli.PushCode{Dir: p.dir, Environment: environment, Again: p.again})
	return err
}

// counters returns the counters of signed code that the server reports, by environment.
func (p *pusher) counters() map[string]uint64 {
	p.t.Helper()
	s, err := operator.NewSigner(p.t.Context(), p.server, p.conn.OperatorDir)
	if err != nil {
		p.t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, c := range s.Said.Codes {
		said, err := s.Known.Said(*c.Statement)
		if err != nil {
			p.t.Error(err)
		}
		out[c.Environment] = max(out[c.Environment], said.Counter)
	}
	return out
}

// TestACounterGoesUp checks that each push of new code increases the counter of its environment. The new counter is one
// more than the highest counter that this operator has signed or that the server shows.
func TestACounterGoesUp(t *testing.T) {
	p := newPusher(t, startServer(t))
	for _, step := range []struct {
		reason, environment, content string
		want                         uint64
	}{
		{"the first one", "production", "one", 1},
		{"the same", "production", "one", 1},
		{"other code", "production", "two", 2},
		{"back to the first: that takes a signature, too", "production", "one", 3},
		{"another environment", "staging", "one", 1},
	} {
		if err := p.push(step.environment, step.content); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if got := p.counters()[step.environment]; got != step.want {
			t.Errorf("%s: counter %d, want %d", step.reason, got, step.want)
		}
	}
	file := filepath.Join(p.conn.OperatorDir, operator.CountersFile)
	// the operator's counter is now above the server's counter, as if the server had been set
	// back
	if err := os.WriteFile(file, []byte(`{"production": 40}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.push("production", "three"); err != nil || p.counters()["production"] != 41 {
		t.Errorf("counters %v, %v: want one more than what was signed here", p.counters(), err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := p.push("production", "four"); err != nil || p.counters()["production"] != 42 {
		t.Errorf("counters %v, %v: want one more than what the server shows", p.counters(), err)
	}
	p.again = true // the code is already on the server, but nodes have run newer code since then
	if err := p.push("production", "four"); err != nil || p.counters()["production"] != 43 {
		t.Errorf("counters %v, %v: want one more than before", p.counters(), err)
	}
}

// liar is a server that returns statements without a valid signature, or the id of another fleet.
type liar struct {
	cli.Server
	change func(*tutti.Signing)
}

func (l liar) Signing(ctx context.Context) (tutti.Signing, error) {
	out, err := l.Server.Signing(ctx)
	l.change(&out)
	return out, err
}

// TestAServerThatLiesToASigner checks that a lying server cannot make the counter jump, and gets no signature
// for another fleet.
func TestAServerThatLiesToASigner(t *testing.T) {
	p := newPusher(t, startServer(t))
	if err := p.push("production", "one"); err != nil {
		t.Fatal(err)
	}
	honest := p.server
	p.server = liar{honest, func(s *tutti.Signing) {
		st := *s.Codes[0].Statement
		st.Body = []byte(`{"fleet":"` + string(s.Fleet) + `","environment":"production","counter":9007199254740000,"digest":"` + string(s.Codes[0].Code) + `"}`)
		s.Codes = append(s.Codes, tutti.SignedNow{Environment: "production", Code: s.Codes[0].Code, Statement: &st})
	}}
	if err := p.push("production", "two"); err != nil {
		t.Fatal(err)
	}
	p.server = honest
	if got := p.counters()["production"]; got != 2 {
		t.Errorf("counter %d, want 2", got)
	}
	p.server = liar{honest, func(s *tutti.Signing) { s.Fleet = tutti.DigestOf([]byte("another")) }}
	if err := p.push("production", "three"); tutti.CodeOf(err) != tutti.CodeRefused {
		t.Errorf("signed for another fleet: %v", err)
	}
}

// TestTheFleetFileIsSigned checks that an operator with the code key signs the fleet file, with a separate counter.
func TestTheFleetFileIsSigned(t *testing.T) {
	p := newPusher(t, startServer(t))
	set := func(text string, st *tutti.Statement) error {
		t.Helper()
		_, err := p.server.SetFleet(t.Context(), api.FleetSource{File: "tutti.yaml", Source: []byte(text), Statement: st})
		return err
	}
	sign := func(text string) *tutti.Statement {
		t.Helper()
		st, err := operator.SignFleet(t.Context(), p.server, p.conn, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	counter := func() uint64 {
		t.Helper()
		s, err := operator.NewSigner(t.Context(), p.server, p.conn.OperatorDir)
		if err != nil {
			t.Fatal(err)
		}
		if s.Said.Plans == nil {
			return 0
		}
		said, err := s.Known.Plans(*s.Said.Plans)
		if err != nil {
			t.Fatal(err)
		}
		return said.Counter
	}
	const one, two, three = "fleet: one\n", "fleet: two\n", "fleet: three\n"
	first := sign(one)
	if err := set(two, first); tutti.CodeOf(err) != tutti.CodeRefused {
		t.Errorf("another file than was signed: %v", err)
	}
	for i, step := range []struct {
		reason, text string
		signed       bool
		want         uint64
	}{
		{"the first one", one, true, 2}, // the counter 1 was signed above
		{"the same", one, true, 2},
		{"another", two, true, 3},
		{"by somebody without a key", three, false, 0},
		{"signed again", three, true, 4},
	} {
		var st *tutti.Statement
		if step.signed {
			st = sign(step.text)
		}
		if err := set(step.text, st); err != nil || counter() != step.want {
			t.Errorf("%d, %s: counter %d, %v, want %d", i, step.reason, counter(), err, step.want)
		}
	}
	if err := set(one, first); tutti.CodeOf(err) != tutti.CodeConflict {
		t.Errorf("an old signature again: %v", err)
	}
}
