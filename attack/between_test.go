package attack

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"crypto/sha256"

	"github.com/tutti-project/tutti/internal/identity"
)

// between is an attacker who answers in place of the server, with his own CA.
type between struct {
	addr string
	mu   sync.Mutex
	came int
	got  bytes.Buffer
}

// The method `between` starts an attacker who listens until the test ends.
func (f *fleet) between(t *testing.T) *between {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &between{addr: l.Addr().String()}
	config := foreign(t).Bus()
	var wait sync.WaitGroup
	t.Cleanup(func() { l.Close(); wait.Wait() })
	wait.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wait.Go(func() { m.listen(c, config) })
		}
	})
	return m
}

// The method `listen` records everything that a client sends if it trusts the attacker.
func (m *between) listen(c net.Conn, config *tls.Config) {
	defer c.Close()
	m.mu.Lock()
	m.came++
	m.mu.Unlock()
	t := tls.Server(c, config)
	buf := make([]byte, 4096)
	for {
		n, err := t.Read(buf)
		m.mu.Lock()
		m.got.Write(buf[:n])
		m.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (m *between) read() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.got.String()
}

func (m *between) tried() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.came
}

// The method `redirect` changes the address in a join token to the attacker's address. The token's
// checksum is not secret, so the attacker can compute it.
func (m *between) redirect(t *testing.T, text string) string {
	t.Helper()
	token, err := identity.ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	token.Address = m.addr
	payload, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	prefix, _, _ := strings.Cut(text, ".")
	sum := sha256.Sum256(payload)
	return prefix + "." + base64.RawURLEncoding.EncodeToString(append(payload, sum[:8]...))
}

// tryJoin runs `tutti join` with the real program.
func (f *fleet) tryJoin(token string) (string, error) {
	cmd := exec.CommandContext(f.t.Context(), binary, "join", "--unit=false", "--dir", f.path("joins"))
	cmd.Stdin = strings.NewReader(token)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
