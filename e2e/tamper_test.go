//go:build e2e

package e2e_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/operator"
)

// everyNode is a fleet file with the plan `every`, which runs all nodes at once.
const everyNode = `
fleet: e2e
groups:
  every: {nodes: [node-01, node-02, node-03]}
plans:
  every:
    steps:
      - run: every
`

// TestTamperedServer gives the server another code-signing key, and code that is signed with this
// key. The server accepts the code. The nodes must refuse the code, because they trust the key that
// they pinned when they joined.
func TestTamperedServer(t *testing.T) {
	push(t, everyNode, "notify { 'good': }\n")
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const key = "/var/lib/tutti/server/identity/code.pub"
	later(t, fleet.Server, fmt.Sprintf("mv %s.good %s; systemctl restart tutti-server", key, key))
	sh(t, fleet.Server, fmt.Sprintf("cp -a %s %s.good; cat > %s <<'END'\n%sEND\nsystemctl restart tutti-server",
		key, key, key, identity.EncodeCodePublicKey(public)))
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifests/site.pp"), []byte("file { '/run/e2e-tampered': content => 'x' }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	sign := func(manifest []byte) (tutti.SignedCode, error) {
		said, err := fleet.Client.Signing(t.Context())
		if err != nil {
			return tutti.SignedCode{}, err
		}
		return identity.SignCode(tutti.Signed{Fleet: said.Fleet, Environment: "production", Counter: 1 << 19}, manifest, private)
	}
	if _, err := operator.Push(t.Context(), fleet.Client, dir, "production", nil, nil, sign); err != nil {
		t.Fatalf("the server does not take code that its key signed: %v", err)
	}
	j := execute(t, "every", tutti.ModeApply)
	for _, h := range fleet.Nodes {
		r := j.last("run-every", tutti.NodeName(h.Name))
		j.expect(r, tutti.Failed, tutti.BecauseRefused, "not signed by the operator whose key this node knows")
		if out := sh(t, h, "ls /run/e2e-tampered 2> /dev/null || true"); out != "" {
			t.Errorf("%s: the tampered code got as far as: %s", h.Name, out)
		}
	}
	if s := j.Summary(j.EndedAt); s.Runs != 0 || s.Failed != 3 {
		t.Errorf("summary %+v, want no run that passed its gate", s)
	}
}
