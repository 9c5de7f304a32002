package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
)

// LockFile is a file of deployed code. It lists the modules with their commits or versions.
const LockFile = ".tutti-modules.json"

// maxEnvironment is the largest number of characters in the name of an environment.
const maxEnvironment = 63

// fetches is how many modules are fetched at the same time.
const fetches = 8

// Request names what is deployed.
type Request struct {
	Cache Cache
	// Repository is the address of the control repository. If it is empty, Dir is a directory in a working copy of it.
	Repository string
	Dir        string
	// Ref is a branch, a tag or a commit. If it is empty, it is the branch that the working copy has checked out, or the HEAD
	// of the repository.
	Ref         string
	Environment string // if it is empty, the name of the branch or tag decides
	Forge       string // for modules without git; it counts more than the address in the Puppetfile
	Dirty       bool   // deploy the working copy with its changes
}

// Locked is one module of the LockFile.
type Locked struct {
	Name    string       `json:"name"`
	Dir     string       `json:"dir"`
	Source  string       `json:"source"` // the repository or the forge
	Ref     string       `json:"ref,omitempty"`
	Commit  string       `json:"commit,omitempty"`
	Version string       `json:"version,omitempty"`
	SHA256  string       `json:"sha256,omitempty"` // of a forge's archive
	Digest  tutti.Digest `json:"digest"`           // of the list of the module's files
}

// Code is the code of an environment, ready to be pushed.
type Code struct {
	Manifest tutti.CodeManifest
	Source   tutti.CodeSource
	Modules  []Locked // sorted by directory
	cache    Cache
	parts    []part
	lock     []byte
}

// The type `source` is where a tree comes from.
type source interface {
	files(ctx context.Context) (files, error)
	// blobs reads the content of blobs, and passes each with its value in `want` to the function.
	blobs(ctx context.Context, want map[string][]string, do func([]string, []byte) error) error
}

// The type `commit` is a commit of a repository.
type commit struct {
	repository
	id string
}

func (c commit) files(ctx context.Context) (files, error) { return c.repository.files(ctx, c.id) }

func (c commit) blobs(ctx context.Context, want map[string][]string, do func([]string, []byte) error) error {
	if len(want) == 0 {
		return nil
	}
	if c.url != "" && c.has(ctx, c.id) == "" { // the list of files is known from another repository with this commit
		if _, err := c.fetched(ctx, c.id); err != nil {
			return err
		}
	}
	return c.repository.blobs(ctx, want, do)
}

// The type `part` is a part of the code: the control repository or a module.
type part struct {
	source
	files files
	tree  string // the name of the list in the cache; empty if it is not there
}

// Build fetches what is needed, and puts the code of the environment together.
func Build(ctx context.Context, in Request) (*Code, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "the program git is not installed, and a deploy needs it")
	}
	out := &Code{cache: in.Cache}
	if in.Dirty && (in.Ref != "" || in.Repository != "") {
		return nil, tutti.Errorf(tutti.CodeInvalid, "--dirty deploys the working copy as it is: leave out the branch and --repo")
	}
	base, branch, err := in.base(ctx, out)
	if err != nil {
		return nil, err
	}
	if in.Environment == "" {
		in.Environment = environmentOf(out.Source.Ref)
	}
	if in.Environment == "" {
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s has no branch and no tag: name the environment with --environment NAME", cmp.Or(in.Ref, "the commit"))
	}
	if len(in.Environment) > maxEnvironment {
		return nil, tutti.Errorf(tutti.CodeInvalid, "environment %q: %d characters, at most %d: give it a shorter name with --environment NAME", in.Environment, len(in.Environment), maxEnvironment)
	}
	out.Manifest = tutti.CodeManifest{Version: 1, Environment: in.Environment, Files: map[string]tutti.CodeFile{}}
	if err := out.add("", base); err != nil {
		return nil, err
	}
	if err := out.addModules(ctx, in, base, branch); err != nil {
		return nil, err
	}
	if len(out.Modules) > 0 {
		if out.lock, err = json.MarshalIndent(out.Modules, "", "  "); err != nil {
			return nil, err
		}
		out.lock = append(out.lock, '\n')
		out.Manifest.Files[LockFile] = tutti.CodeFile{Digest: tutti.DigestOf(out.lock), Size: int64(len(out.lock))}
	}
	if !out.Manifest.IsEnvironment() {
		what := fmt.Sprintf("commit %.12s of %s", out.Source.Commit, cmp.Or(out.Source.Repository, in.Dir))
		if out.Source.Dirty {
			what = in.Dir
		}
		return nil, tutti.Errorf(tutti.CodeInvalid, "%s is no Puppet environment: neither environment.conf nor manifests/ is in it", what)
	}
	return out, out.Manifest.Validate()
}

// The method `base` reads the control repository. It returns the branch for :control_branch; it is empty if a tag or a
// commit is deployed.
func (in Request) base(ctx context.Context, out *Code) (part, string, error) {
	r, ref := repository{cache: in.Cache}, in.Ref
	if in.Repository != "" {
		address, err := addressOf(in.Repository)
		if err != nil {
			return part{}, "", err
		}
		if r, err = in.Cache.clone(ctx, address); err != nil {
			return part{}, "", err
		}
	} else {
		top, err := run(ctx, in.Dir, "rev-parse", "--show-toplevel")
		if err != nil {
			return part{}, "", tutti.Wrap("", err, "%s is in no working copy of git; name the control repository with --repo URL", in.Dir)
		}
		r.dir = strings.TrimSuffix(string(top), "\n")
	}
	if strings.HasPrefix(ref, "-") || strings.ContainsAny(ref, " ~^:?*[\\\x00") {
		return part{}, "", tutti.Errorf(tutti.CodeInvalid, "%q is not a branch, tag or commit", ref)
	}
	id, name, err := r.resolve(ctx, ref, kindAny, "")
	if err != nil {
		return part{}, "", err
	}
	if ref == "" {
		if head := r.head(ctx); head != "" {
			name = "refs/heads/" + head
		}
	}
	if r.url != "" && r.has(ctx, id) == "" { // only the list of its files is known, from another address
		if _, err := r.fetched(ctx, id); err != nil {
			return part{}, "", err
		}
	}
	out.Source = r.sourceOf(ctx, id)
	branch, isBranch := strings.CutPrefix(name, "refs/heads/")
	if out.Source.Ref = strings.TrimPrefix(branch, "refs/tags/"); !isBranch {
		branch = ""
	}
	out.Source = out.Source.Clean()
	if in.Repository == "" && in.Ref == "" {
		changes, err := run(ctx, r.dir, "status", "--porcelain", "--untracked-files=normal")
		switch {
		case err != nil:
			return part{}, "", err
		case len(changes) > 0 && !in.Dirty:
			return part{}, "", tutti.Errorf(tutti.CodeConflict, "%s has changes that are not committed: commit them, or deploy them with --dirty:\n%s", r.dir, tutti.Plain(strings.TrimRight(string(changes), "\n"), 1000))
		case len(changes) > 0:
			out.Source.Dirty = true
			of := working{r}
			list, err := of.files(ctx)
			return part{source: of, files: list}, branch, err
		}
	}
	of := commit{r, id}
	list, err := of.files(ctx)
	return part{source: of, files: list, tree: id}, branch, err
}

// addressOf returns the address of a repository. A relative path begins at the present directory, not at that of the clone.
func addressOf(repository string) (string, error) {
	first, _, _ := strings.Cut(repository, "/")
	if strings.Contains(first, ":") || strings.HasPrefix(first, "-") {
		return repository, nil // a URL, or the address of ssh
	}
	return filepath.Abs(repository)
}

var notWord = regexp.MustCompile(`[^a-z0-9_]`)

// environmentOf returns the environment of a branch, as r10k makes it: characters that an environment cannot have become
// underscores.
func environmentOf(ref string) string { return notWord.ReplaceAllString(strings.ToLower(ref), "_") }

// The method `add` adds the files of a part below a directory.
func (c *Code) add(dir string, p part) error {
	for name, e := range p.files {
		if !utf8.ValidString(name) {
			return tutti.Errorf(tutti.CodeInvalid, "the name %q is no UTF-8, in %s", name, cmp.Or(dir, "the repository"))
		}
		if !fs.ValidPath(name) {
			return tutti.Errorf(tutti.CodeInvalid, "%q leads out of %s", name, cmp.Or(dir, "the repository"))
		}
		at := path.Join(dir, name)
		if _, twice := c.Manifest.Files[at]; twice || at == LockFile {
			return tutti.Errorf(tutti.CodeInvalid, "%s is in the control repository and in a module: add `:local => true` to the module, or remove its directory %s from the repository", at, dir)
		}
		c.Manifest.Files[at] = e.CodeFile
	}
	c.parts = append(c.parts, p)
	return nil
}

// addModules adds the modules of the Puppetfile.
func (c *Code) addModules(ctx context.Context, in Request, base part, branch string) error {
	e, is := base.files["Puppetfile"]
	if !is {
		return nil
	}
	var text []byte
	if err := base.blobs(ctx, map[string][]string{e.Blob: nil}, func(_ []string, content []byte) error {
		text = bytes.Clone(content)
		return nil
	}); err != nil {
		return err
	}
	p, err := ParsePuppetfile("Puppetfile", text, branch)
	if err != nil {
		return err
	}
	forge := cmp.Or(in.Forge, p.Forge)
	found := make([]struct {
		part
		locked Locked
	}, len(p.Modules))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetches)
	for i, m := range p.Modules {
		if m.Local {
			continue
		}
		group.Go(func() error {
			var err error
			found[i].part, found[i].locked, err = in.Cache.module(ctx, forge, m)
			return tutti.Wrap("", err, "Puppetfile:%d: %s", m.Line, m.Name)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, m := range p.Modules {
		if m.Local {
			continue
		}
		if err := c.add(m.Dir, found[i].part); err != nil {
			return tutti.Wrap("", err, "Puppetfile:%d: %s", m.Line, m.Name)
		}
		c.Modules = append(c.Modules, found[i].locked)
	}
	slices.SortFunc(c.Modules, func(a, b Locked) int { return cmp.Compare(a.Dir, b.Dir) })
	return nil
}

// The method `module` fetches a module.
func (c Cache) module(ctx context.Context, forge string, m Module) (part, Locked, error) {
	out, locked := part{}, Locked{Name: m.Name, Dir: m.Dir}
	if m.Git != "" {
		r, err := c.clone(ctx, m.Git)
		if err != nil {
			return out, locked, err
		}
		id, _, err := r.resolve(ctx, m.Ref, m.Kind, m.Default)
		if err != nil {
			return out, locked, err
		}
		out.source, out.tree = commit{r, id}, id
		locked.Source, locked.Ref, locked.Commit = withoutPassword(m.Git), m.Ref, id
	} else {
		if forge == "" {
			return out, locked, tutti.Errorf(tutti.CodeInvalid, "no address of a forge: write forge \"URL\" in the Puppetfile, or give --forge URL")
		}
		r, err := c.release(ctx, forge, m.Name, m.Version)
		if err != nil {
			return out, locked, err
		}
		out.source, out.tree = packed{c, forge, r}, r.SHA256
		locked.Source, locked.Version, locked.SHA256 = withoutPassword(forge), r.Version, r.SHA256
	}
	var err error
	if out.files, err = out.source.files(ctx); err != nil {
		return out, locked, err
	}
	plain := map[string]tutti.CodeFile{}
	for name, e := range out.files {
		plain[name] = e.CodeFile
	}
	raw, err := json.Marshal(plain)
	locked.Digest = tutti.DigestOf(raw)
	return out, locked, err
}

// Read passes the content of the wanted files to a function, each content once. It checks each content against its digest.
func (c *Code) Read(ctx context.Context, want map[tutti.Digest]bool, do func(content []byte) error) error {
	left := maps.Clone(want)
	if left[tutti.DigestOf(c.lock)] && len(c.lock) > 0 {
		delete(left, tutti.DigestOf(c.lock))
		if err := do(c.lock); err != nil {
			return err
		}
	}
	for _, p := range c.parts {
		blobs := map[string][]string{}
		for _, e := range p.files {
			if left[e.Digest] {
				delete(left, e.Digest)
				blobs[e.Blob] = []string{string(e.Digest)}
			}
		}
		if err := p.blobs(ctx, blobs, func(digest []string, content []byte) error {
			if string(tutti.DigestOf(content)) != digest[0] {
				return tutti.Errorf(tutti.CodeDamaged, "a file of %s is not what it was when its list was made: deploy again", cmp.Or(p.tree, "the working copy"))
			}
			return do(content)
		}); err != nil {
			if tutti.CodeOf(err) == tutti.CodeDamaged && p.tree != "" {
				c.cache.forgetTree(p.tree)
			}
			return err
		}
	}
	if len(left) > 0 {
		return tutti.Errorf(tutti.CodeDamaged, "%d files of the code are in no part of it", len(left))
	}
	return nil
}

// The type `working` is a working copy with its changes.
type working struct{ repository }

// The method `files` returns the files of the working copy, without files that git ignores.
func (w working) files(ctx context.Context) (files, error) {
	raw, err := run(ctx, w.dir, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return nil, err
	}
	out := files{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(raw), "\x00"), "\x00") {
		file := filepath.Join(w.dir, name)
		info, err := os.Lstat(file)
		switch {
		case os.IsNotExist(err): // removed, but not committed
			continue
		case err != nil:
			return nil, err
		case info.IsDir():
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s is a git submodule: name the module in the Puppetfile instead", name)
		case info.Mode()&os.ModeSymlink != 0:
			link, err := os.Readlink(file)
			if err != nil {
				return nil, err
			}
			out[name] = entry{CodeFile: tutti.CodeFile{Link: link}, Blob: name}
			continue
		case !info.Mode().IsRegular() || info.Size() > maxFile:
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s: code is files of at most %d bytes, and links", name, maxFile)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		out[name] = entry{CodeFile: tutti.CodeFile{Digest: tutti.DigestOf(content), Size: int64(len(content)), Exec: info.Mode()&0o111 != 0}, Blob: name}
	}
	return out, nil
}

// The method `blobs` reads files of the working copy.
func (w working) blobs(_ context.Context, want map[string][]string, do func([]string, []byte) error) error {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		content, err := os.ReadFile(filepath.Join(w.dir, name))
		if err == nil {
			err = do(want[name], content)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
