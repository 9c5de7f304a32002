package agent

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/wire"
)

// The type `believing` implements Signers and accepts any code as signed.
type believing struct{}

func (believing) Code(tutti.SignedCode) (tutti.Signed, error) { return tutti.Signed{}, nil }
func (believing) Follow([]tutti.Statement) error              { return nil }
func (believing) Trusts() uint64                              { return 0 }

// FuzzCode: whatever a signed manifest contains, unpacking it writes nothing
// outside its own tree. The tree is complete or absent. No link in the tree leads
// outside.
func FuzzCode(f *testing.F) {
	content := tutti.DigestOf([]byte("x"))
	manifest := strings.ReplaceAll(`{"v":1,"environment":"production","files":{"manifests/site.pp":{"digest":"X","size":1},"a/b":{"digest":"X","exec":true},"a/l":{"link":"../manifests/site.pp"},"d":{"link":"a"},"e/f/up":{"link":"../../a/b"}}}`, "X", string(content))
	evil := `{"v":1,"environment":"production","files":{"l":{"link":"."},"m":{"link":"l/.."},"l/x":{"digest":"X"},"../x":{"digest":"X"},"/x":{"digest":"X"},"a\u0000b":{"digest":"X"}}}`
	for seed := range uint64(40) {
		f.Add([]byte(manifest), seed)
	}
	f.Add([]byte(strings.ReplaceAll(evil, "X", string(content))), uint64(0))
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		raw = hostile.Mangle(raw, seed)
		root := t.TempDir()
		store := codeStore{dir: filepath.Join(root, "agent"), signers: believing{}, begun: &counters{path: filepath.Join(root, "agent", SignedFile)}, needs: func() tutti.Digest { return "" }}
		store.call = func(_ context.Context, op string, _ []byte) ([]byte, error) {
			if op == wire.OpCode {
				return json.Marshal(tutti.SignedCode{Manifest: raw})
			}
			return []byte("x"), nil
		}
		order := tutti.Order{Run: "r", Environment: "production", Code: tutti.DigestOf(raw)}
		code, err := store.ensure(t.Context(), order, true)
		entries, _ := os.ReadDir(root)
		for _, e := range entries {
			if e.Name() != "agent" {
				t.Errorf("written outside: %s", e.Name())
			}
		}
		if err != nil {
			if _, stat := os.Stat(store.tree(order.Code)); stat == nil {
				t.Errorf("a tree is there although %v", err)
			}
			return
		}
		tree, err := filepath.EvalSymlinks(filepath.Join(code.environments, "production"))
		if err != nil {
			t.Fatal(err)
		}
		var m tutti.CodeManifest
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatalf("unpacked what is no manifest: %v", err)
		}
		checkTree(t, tree, m)
	})
}

// checkTree checks that the tree has exactly the files of its manifest, and that
// nothing in the tree leads outside.
func checkTree(t *testing.T, tree string, m tutti.CodeManifest) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		name, err := filepath.Rel(tree, path)
		if _, ok := m.Files[filepath.ToSlash(name)]; !ok || err != nil {
			t.Errorf("%q is not in the manifest", name)
		}
		if to, err := filepath.EvalSymlinks(path); err == nil && to != tree && !strings.HasPrefix(to, tree+"/") {
			t.Errorf("%q leads to %q", name, to)
		}
		return nil
	})
	if err != nil || found != len(m.Files) {
		t.Errorf("%d files of %d, %v", found, len(m.Files), err)
	}
}

// Compile implements agent.Signers.
func (believing) Compile(tutti.SignedCode) (tutti.SignedCompile, error) {
	return tutti.SignedCompile{}, nil
}
