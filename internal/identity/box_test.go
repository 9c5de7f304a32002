package identity_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

// TestBoxes checks after each step that the keys on disk are the keys in memory, and that the present key
// is the node's key.
func TestBoxes(t *testing.T) {
	dir := t.TempDir()
	node, err := identity.NewNode()
	if err == nil {
		err = node.Write(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	load := func() *identity.Boxes {
		t.Helper()
		b, err := identity.LoadBoxes(dir)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := load()
	if keys := b.Keys(); len(keys) != 1 || !keys[0].Equal(node.Box) || b.Pending() {
		t.Errorf("at first %d keys, pending %t", len(keys), b.Pending())
	}
	next, err := b.Next()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := load().Next(); err != nil || !again.Equal(next) || !load().Pending() {
		t.Errorf("the next key is another one after a restart: %v", err)
	}
	if keys := load().Keys(); len(keys) != 2 || !keys[0].Equal(node.Box) || !keys[1].Equal(next) {
		t.Errorf("with a next one: %d keys", len(keys))
	}
	if err := b.Switch(); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*identity.Boxes{b, load()} {
		if keys := b.Keys(); len(keys) != 2 || !keys[0].Equal(next) || !keys[1].Equal(node.Box) || b.Pending() {
			t.Errorf("switched: %d keys, pending %t", len(keys), b.Pending())
		}
	}
	if loaded, err := identity.LoadNode(dir); err != nil || !loaded.Box.Equal(next) {
		t.Errorf("the node has another key: %v", err)
	}
	for _, name := range []string{"node.x25519.old", "node.x25519"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", name, info.Mode(), err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("!"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.LoadBoxes(dir); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("a damaged %s: %v", name, err)
		}
	}
}
