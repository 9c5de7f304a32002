package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/excerpt"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// codeStore keeps Puppet environments by digest:
//
//	code/<hex>/           the tree, complete or not there
//	code/<hex>.manifest   its manifest
//	code/<hex>.signed     the signed statement about the code; missing for code of an earlier release
//	environments/<name>   a link to the tree of the environment's latest run
//	diff/<name>           a link to the tree of the environment's latest compile for a diff (ADR 0038)
//
// Puppet sees only the path of the link. The digest of the code is not in this path, so the digest
// does not change catalogs.
type codeStore struct {
	dir     string
	call    func(ctx context.Context, op string, payload []byte) ([]byte, error)
	signers Signers
	begun   *counters
	needs   func() tutti.Digest // returns code that stays even if no environment links to this code, or an empty digest
	mu      sync.Mutex
}

// keepCode is how many trees stay in addition to the linked ones.
const keepCode = 2

// The type `ensured` is the code of an order, complete on this node.
type ensured struct {
	environments string       // the directory with the links
	said         tutti.Signed // the signed statement about the code
}

// The method `ensure` makes the environment's link lead to the order's code. The method returns
// CodeRefused if no operator has signed the code, or if the code is older than code that this node
// has begun. The method also refuses a manifest with a path that leads out of its tree. For a local
// run (ordered is false), the method does not check the signature of an intact tree. The agent has
// checked the signature when it fetched the code.
func (c *codeStore) ensure(ctx context.Context, order tutti.Order, ordered bool) (ensured, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := ensured{environments: filepath.Join(c.dir, "environments")}
	if order.Diff { // such code must never become the code of the environment
		out.environments = filepath.Join(c.dir, diffLinks)
	}
	if err := order.Code.Validate(); err != nil {
		return out, err
	}
	if name := order.Environment; path.Base(name) != name || strings.HasPrefix(name, ".") || name == "" {
		return out, tutti.Errorf(tutti.CodeRefused, "environment %q: not a name", name)
	}
	for _, d := range []string{out.environments, filepath.Join(c.dir, "code")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return out, err
		}
	}
	var err error
	switch {
	case !c.intact(order.Code):
		for _, part := range codeParts {
			if err := os.RemoveAll(c.tree(order.Code) + part); err != nil {
				return out, err
			}
		}
		out.said, err = c.fetch(ctx, order)
	case ordered:
		out.said, err = c.signed(ctx, order)
	}
	if err != nil {
		return out, err
	}
	if err := c.link(out.environments, order); err != nil {
		return out, err
	}
	return out, c.collect()
}

// diffLinks is the directory with the links to code that only compiles.
const diffLinks = "diff"

// codeParts are the endings of the paths that belong to the code with one digest. The agent removes
// the paths in the order of this list.
var codeParts = []string{"", ".signed", ".manifest"}

// The method `signed` returns the signed statement about code that is on this node. If this statement
// is not sufficient for the order, the method asks the server for another one. The server has another
// statement if somebody has pushed the code again. The node may also need another statement because it
// trusts other keys now.
func (c *codeStore) signed(ctx context.Context, order tutti.Order) (tutti.Signed, error) {
	if order.Diff { // a permission to compile is not kept, because it ends soon
		_, said, err := c.ask(ctx, order)
		return said, err
	}
	manifest, err := excerpt.Read(c.tree(order.Code)+".manifest", maxMessage)
	if err != nil {
		return tutti.Signed{}, err
	}
	if kept, err := readSealed[tutti.Statement](c.tree(order.Code) + ".signed"); err == nil {
		said, err := c.signers.Code(tutti.SignedCode{Manifest: manifest, Statement: &kept})
		if err == nil && c.begun.admits(order, said.Environment, said) == nil {
			return said, nil
		}
	}
	in, said, err := c.ask(ctx, order)
	if err != nil {
		return said, err
	}
	return said, c.keepStatement(order.Code, in)
}

// keepStatement stores the signed statement about code for the next run with this code.
func (c *codeStore) keepStatement(code tutti.Digest, in tutti.SignedCode) error {
	if in.Statement == nil {
		return nil
	}
	return writeSealed(c.tree(code)+".signed", in.Statement)
}

func (c *codeStore) tree(d tutti.Digest) string { return filepath.Join(c.dir, "code", d.Hex()) }

// The method `intact` reports whether the tree exists and equals its manifest, byte by byte. Puppet
// runs the tree's code as root.
func (c *codeStore) intact(code tutti.Digest) bool {
	m, err := c.kept(code)
	if err != nil {
		return false
	}
	for name, f := range m.Files {
		at := filepath.Join(c.tree(code), filepath.FromSlash(name))
		if f.Link != "" {
			if to, err := os.Readlink(at); err != nil || to != f.Link {
				return false
			}
			continue
		}
		if got, err := excerpt.Digest(at); err != nil || got != f.Digest {
			return false
		}
	}
	return true
}

// The method `kept` returns the manifest of a tree that is on this node.
func (c *codeStore) kept(code tutti.Digest) (tutti.CodeManifest, error) {
	var m tutti.CodeManifest
	name := c.tree(code) + ".manifest"
	raw, err := excerpt.Read(name, maxMessage)
	if err == nil && tutti.DigestOf(raw) != code {
		err = tutti.Errorf(tutti.CodeInternal, "%s is damaged", name)
	}
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	return m, err
}

// The method `fetch` builds the tree under a temporary name and renames it when it is complete.
func (c *codeStore) fetch(ctx context.Context, order tutti.Order) (tutti.Signed, error) {
	in, said, err := c.ask(ctx, order)
	if err != nil {
		return said, err
	}
	manifest, err := readManifest(in.Manifest)
	if err != nil {
		return said, err
	}
	if err := c.build(ctx, order, manifest, in.Manifest); err != nil || order.Diff {
		return said, err
	}
	return said, c.keepStatement(order.Code, in)
}

func (c *codeStore) build(ctx context.Context, order tutti.Order, manifest tutti.CodeManifest, raw []byte) error {
	final := c.tree(order.Code)
	tmp, err := os.MkdirTemp(filepath.Dir(final), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	had := c.files()
	for _, name := range sortedKeys(manifest.Files) {
		if err := c.place(ctx, order, filepath.Join(tmp, filepath.FromSlash(name)), manifest.Files[name], had); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	killpoint.Here("agent.code-written")
	if err := durable.SyncAll(tmp); err != nil {
		return err
	}
	killpoint.Here("agent.code-synced")
	if err := durable.WriteFile(final+".manifest", raw, 0o644); err != nil {
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		return err
	}
	killpoint.Here("agent.code-renamed")
	return durable.SyncDir(filepath.Dir(final))
}

// The method `ask` requests the signed statement about the order's code, and checks everything. The order must name
// the digest, an operator must have signed the code, and the code must not be older than code that this node has
// begun.
func (c *codeStore) ask(ctx context.Context, order tutti.Order) (tutti.SignedCode, tutti.Signed, error) {
	var in tutti.SignedCode
	ask, err := json.Marshal(wire.CodeGet{Run: order.Run, Code: order.Code})
	if err != nil {
		return in, tutti.Signed{}, err
	}
	reply, err := c.call(ctx, wire.OpCode, ask)
	if err != nil {
		return in, tutti.Signed{}, err
	}
	if err := json.Unmarshal(reply, &in); err != nil {
		return in, tutti.Signed{}, tutti.Wrap(tutti.CodeInternal, err, "answer to %s", wire.OpCode)
	}
	if got := tutti.DigestOf(in.Manifest); got != order.Code {
		return in, tutti.Signed{}, tutti.Errorf(tutti.CodeRefused, "the manifest has the digest %s", got)
	}
	if order.Diff {
		return in, tutti.Signed{}, c.mayCompile(order, in)
	}
	said, err := c.signers.Code(in)
	if err != nil {
		return in, said, tutti.Wrap(tutti.CodeRefused, err, "the manifest is not signed by the operator whose key this node knows")
	}
	manifest, err := readManifest(in.Manifest)
	if err != nil {
		return in, said, err
	}
	return in, said, c.begun.admits(order, manifest.Environment, said)
}

// mayCompile returns an error if nobody has permitted this node to compile the order's code now. Such a permission is not
// sufficient for other orders, and has no counter.
func (c *codeStore) mayCompile(order tutti.Order, in tutti.SignedCode) error {
	said, err := c.signers.Compile(in)
	if err == nil {
		err = said.At(time.Now())
	}
	if err == nil && said.Environment != order.Environment {
		err = tutti.Errorf(tutti.CodeRefused, "it is signed for environment %s, but the order is for environment %s", said.Environment, order.Environment)
	}
	return err
}

func readManifest(raw []byte) (tutti.CodeManifest, error) {
	var m tutti.CodeManifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, tutti.Wrap(tutti.CodeInvalid, err, "manifest")
	}
	return m, m.Validate()
}

// The method `place` writes one file of the tree. The method copies the content from an older tree
// if an older tree has the file.
func (c *codeStore) place(ctx context.Context, order tutti.Order, to string, f tutti.CodeFile, had map[tutti.Digest]string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if f.Link != "" {
		return os.Symlink(f.Link, to)
	}
	mode := os.FileMode(0o644)
	if f.Exec {
		mode = 0o755
	}
	if from, ok := had[f.Digest]; ok {
		if raw, err := excerpt.Read(from, maxMessage); err == nil && tutti.DigestOf(raw) == f.Digest {
			return os.WriteFile(to, raw, mode)
		}
	}
	ask, err := json.Marshal(wire.BlobGet{Run: order.Run, Digest: f.Digest})
	if err != nil {
		return err
	}
	raw, err := c.call(ctx, wire.OpBlobGet, ask)
	if err != nil {
		return err
	}
	if got := tutti.DigestOf(raw); got != f.Digest {
		return tutti.Errorf(tutti.CodeRefused, "came with the digest %s instead of %s", got, f.Digest)
	}
	return os.WriteFile(to, raw, mode)
}

// The method `files` returns the paths of all files of the trees on this node, by digest.
func (c *codeStore) files() map[tutti.Digest]string {
	out := map[tutti.Digest]string{}
	manifests, _ := filepath.Glob(filepath.Join(c.dir, "code", "*.manifest"))
	for _, name := range manifests {
		m, err := c.kept(tutti.Digest("sha256:" + strings.TrimSuffix(filepath.Base(name), ".manifest")))
		if err != nil {
			continue // the files of a damaged tree are fetched again
		}
		for p, f := range m.Files {
			if f.Link == "" {
				out[f.Digest] = filepath.Join(strings.TrimSuffix(name, ".manifest"), filepath.FromSlash(p))
			}
		}
	}
	return out
}

// The method `link` makes the environment's name lead to the order's tree. The method replaces the
// link by rename.
func (c *codeStore) link(links string, order tutti.Order) error {
	target, at := filepath.Join("..", "code", order.Code.Hex()), filepath.Join(links, order.Environment)
	if now, err := os.Readlink(at); err == nil && now == target {
		return nil
	}
	tmp := at + ".new"
	_ = os.Remove(tmp)
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, at); err != nil {
		return err
	}
	killpoint.Here("agent.code-linked")
	return durable.SyncDir(links)
}

// The method `collect` removes the trees to which no environment links, and the half-built trees of
// an agent that was killed. The method keeps the tree that a local run needs, and the latest trees.
func (c *codeStore) collect() error {
	half, _ := filepath.Glob(filepath.Join(c.dir, "code", ".new-*"))
	for _, dir := range half {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	linked := map[string]bool{}
	for _, links := range []string{"environments", diffLinks} {
		entries, err := os.ReadDir(filepath.Join(c.dir, links))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if target, err := os.Readlink(filepath.Join(c.dir, links, e.Name())); err == nil {
				linked[filepath.Base(target)] = true
			}
		}
	}
	manifests, _ := filepath.Glob(filepath.Join(c.dir, "code", "*.manifest"))
	old := slices.DeleteFunc(manifests, func(m string) bool {
		return linked[strings.TrimSuffix(filepath.Base(m), ".manifest")]
	})
	slices.SortFunc(old, func(a, b string) int { return modified(a).Compare(modified(b)) })
	needed := c.tree(c.needs()) + ".manifest"
	if i := slices.Index(old, needed); i >= 0 {
		old = append(slices.Delete(old, i, i+1), needed)
	}
	for len(old) > keepCode {
		for _, part := range codeParts { // remove the manifest last, so that the next `collect` can finish an interrupted removal
			if err := os.RemoveAll(strings.TrimSuffix(old[0], ".manifest") + part); err != nil {
				return err
			}
		}
		old = old[1:]
	}
	return nil
}
