package control_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/control"
)

// The type `repo` is a working copy of git in a test.
type repo struct {
	t   testing.TB
	dir string
}

func newRepo(t testing.TB) repo {
	t.Helper()
	r := repo{t, t.TempDir()}
	r.git("init", "--quiet", "--initial-branch", "production", ".")
	return r
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.net", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.net", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r repo) write(name, content string) {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// The method `commit` writes files and commits everything. It returns the commit.
func (r repo) commit(message string, files ...string) string {
	r.t.Helper()
	for i := 0; i < len(files); i += 2 {
		r.write(files[i], files[i+1])
	}
	r.git("add", "-A")
	r.git("commit", "--quiet", "-m", message)
	return r.git("rev-parse", "HEAD")
}

func (r repo) url() string { return "file://" + r.dir }

// The type `forge` is a forge with some modules.
type forge struct {
	*httptest.Server
	archives map[string][]byte // by OWNER-NAME-VERSION
	asked    []string
	lies     bool // it names another SHA-256
}

func newForge(t testing.TB) *forge {
	f := &forge{archives: map[string][]byte{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *forge) add(t testing.TB, slug string, files map[string]string) {
	t.Helper()
	var raw bytes.Buffer
	packed := gzip.NewWriter(&raw)
	out := tar.NewWriter(packed)
	for name, content := range files {
		head := &tar.Header{Name: slug + "/" + name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if err := out.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	f.archives[slug] = raw.Bytes()
}

func (f *forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.asked = append(f.asked, r.URL.Path)
	last := filepath.Base(r.URL.Path)
	release := func(slug string) map[string]string {
		raw, is := f.archives[slug]
		if !is {
			return nil
		}
		sum := sha256.Sum256(raw)
		if f.lies {
			sum[0]++
		}
		return map[string]string{"version": slug[strings.LastIndex(slug, "-")+1:], "file_uri": "/v3/files/" + slug + ".tar.gz", "file_sha256": hex.EncodeToString(sum[:])}
	}
	var answer any
	switch filepath.Base(filepath.Dir(r.URL.Path)) {
	case "releases":
		if of := release(last); of != nil {
			answer = of
		}
	case "modules":
		var slugs []string
		for slug := range f.archives {
			if strings.HasPrefix(slug, last+"-") {
				slugs = append(slugs, slug)
			}
		}
		if len(slugs) > 0 {
			answer = map[string]any{"current_release": release(slices.Max(slugs))}
		}
	case "files":
		if raw, is := f.archives[strings.TrimSuffix(last, ".tar.gz")]; is {
			_, _ = w.Write(raw)
			return
		}
	}
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// The function `build` builds code and reads all its content.
func build(t testing.TB, in control.Request) (*control.Code, map[string]string) {
	t.Helper()
	code, err := control.Build(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return code, contentOf(t, code)
}

func contentOf(t testing.TB, code *control.Code) map[string]string {
	t.Helper()
	want, content := map[tutti.Digest]bool{}, map[tutti.Digest]string{}
	for _, f := range code.Manifest.Files {
		if f.Link == "" {
			want[f.Digest] = true
		}
	}
	if err := code.Read(t.Context(), want, func(raw []byte) error {
		content[tutti.DigestOf(raw)] = string(raw)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, f := range code.Manifest.Files {
		if out[name] = content[f.Digest]; f.Link != "" {
			out[name] = "-> " + f.Link
		}
		if f.Exec {
			out[name] += " (executable)"
		}
	}
	return out
}

// TestBuild deploys a branch with modules of git and of a forge.
func TestBuild(t *testing.T) {
	module, site, shop := newRepo(t), newRepo(t), newForge(t)
	module.commit("one", "manifests/init.pp", "class apache { }\n")
	module.git("tag", "v1")
	second := module.commit("two", "manifests/init.pp", "class apache { # two\n}\n")
	shop.add(t, "puppetlabs-stdlib-9.4.1", map[string]string{"lib/puppet/functions/x.rb": "# x\n", "metadata.json": "{}\n"})
	site.write("bin/run.sh", "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(site.dir, "bin/run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run.sh", filepath.Join(site.dir, "bin/link")); err != nil {
		t.Fatal(err)
	}
	puppetfile := fmt.Sprintf("forge '%s'\nmod 'puppetlabs/stdlib', '9.4.1'\nmod 'apache', git: '%s', branch: 'production'\nmod 'old', git: '%s', tag: 'v1'\n", shop.URL, module.url(), module.url())
	id := site.commit("Begin", "environment.conf", "", "manifests/site.pp", "node default { }\n", "Puppetfile", puppetfile)
	in := control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: site.url()}
	code, got := build(t, in)
	lock := got[control.LockFile]
	delete(got, control.LockFile)
	want := map[string]string{
		"environment.conf": "", "manifests/site.pp": "node default { }\n", "Puppetfile": puppetfile, "bin/run.sh": "#!/bin/sh\n (executable)", "bin/link": "-> run.sh",
		"modules/stdlib/lib/puppet/functions/x.rb": "# x\n", "modules/stdlib/metadata.json": "{}\n",
		"modules/apache/manifests/init.pp": "class apache { # two\n}\n", "modules/old/manifests/init.pp": "class apache { }\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files: -want +got\n%s", diff)
	}
	if s := code.Source; code.Manifest.Environment != "production" || s.Commit != id || s.Ref != "production" || s.Author != "Ada <ada@example.net>" || s.Subject != "Begin" || s.Dirty || s.At.IsZero() {
		t.Errorf("environment %q of %+v", code.Manifest.Environment, s)
	}
	if !strings.Contains(lock, second) || !strings.Contains(lock, `"version": "9.4.1"`) || len(code.Modules) != 3 {
		t.Errorf("the lock file does not say what the modules are:\n%s", lock)
	}

	// Nothing has changed: the forge is not asked again, and the code is the same.
	before := len(shop.asked)
	again, _ := build(t, in)
	if diff := cmp.Diff(code.Manifest, again.Manifest); diff != "" || len(shop.asked) != before {
		t.Errorf("asked the forge %q; the code: -want +got\n%s", shop.asked[before:], diff)
	}
	// A branch of a module has moved.
	module.commit("three", "manifests/init.pp", "class apache { # three\n}\n")
	if _, got = build(t, in); !strings.Contains(got["modules/apache/manifests/init.pp"], "three") || strings.Contains(got["modules/old/manifests/init.pp"], "three") {
		t.Errorf("after a push to the module: %q", got)
	}
}

// TestBuildNames checks which commit a reference is, and which environment it gives.
func TestBuildNames(t *testing.T) {
	site := newRepo(t)
	first := site.commit("one", "manifests/site.pp", "# one\n")
	site.git("tag", "-a", "-m", "release", "v1.0")
	site.git("checkout", "--quiet", "-b", "Feature/New-Thing")
	site.commit("two", "manifests/site.pp", "# two\n")
	site.git("checkout", "--quiet", "production")
	for _, tc := range []struct {
		repository, dir, ref, environment string
		want, content                     string
	}{
		{site.url(), "", "", "", "production", "# one\n"},
		{site.url(), "", "Feature/New-Thing", "", "feature_new_thing", "# two\n"},
		{site.url(), "", "v1.0", "", "v1_0", "# one\n"},
		{site.url(), "", "v1.0", "production", "production", "# one\n"},
		{site.url(), "", first, "pinned", "pinned", "# one\n"},
		{site.url(), "", first[:10], "pinned", "pinned", "# one\n"},
		{"", site.dir + "/manifests", "", "", "production", "# one\n"},
		{"", site.dir, "Feature/New-Thing", "", "feature_new_thing", "# two\n"},
		{"", site.dir, "v1.0", "", "v1_0", "# one\n"},
	} {
		code, got := build(t, control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: tc.repository, Dir: tc.dir, Ref: tc.ref, Environment: tc.environment})
		if code.Manifest.Environment != tc.want || got["manifests/site.pp"] != tc.content {
			t.Errorf("%+v: environment %q, %q", tc, code.Manifest.Environment, got)
		}
	}
	for ref, says := range map[string]string{"nothing": `has no branch, tag or commit "nothing"`, "--x": "is not a branch", first[:12]: "name the environment with --environment", "ffffffffffff": "has no branch"} {
		for _, repository := range []string{site.url(), ""} {
			_, err := control.Build(t.Context(), control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: repository, Dir: site.dir, Ref: ref})
			if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), "has no ref") {
				t.Errorf("%q of %q: %v, want %q", ref, repository, err, says)
			}
		}
	}
}

// TestBuildDirty checks that changes which are not committed are refused or said.
func TestBuildDirty(t *testing.T) {
	site := newRepo(t)
	site.commit("one", "manifests/site.pp", "# one\n", ".gitignore", "modules/\n", "gone.txt", "")
	site.write("manifests/site.pp", "# changed\n")
	site.write("manifests/new.pp", "# new\n")
	site.write("modules/old/x.pp", "# ignored\n")
	if err := os.Remove(filepath.Join(site.dir, "gone.txt")); err != nil {
		t.Fatal(err)
	}
	in := control.Request{Cache: control.Cache{Dir: t.TempDir()}, Dir: site.dir}
	_, err := control.Build(t.Context(), in)
	if tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), "--dirty") || !strings.Contains(err.Error(), "manifests/new.pp") {
		t.Errorf("%v, want a refusal that lists the changes", err)
	}
	in.Dirty = true
	code, got := build(t, in)
	want := map[string]string{"manifests/site.pp": "# changed\n", "manifests/new.pp": "# new\n", ".gitignore": "modules/\n"}
	if diff := cmp.Diff(want, got); diff != "" || !code.Source.Dirty {
		t.Errorf("dirty %t; files: -want +got\n%s", code.Source.Dirty, diff)
	}
	in.Ref = "production"
	if _, err := control.Build(t.Context(), in); tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), "leave out the branch") {
		t.Errorf("--dirty with a branch: %v", err)
	}
	in.Ref, in.Dirty = "production", false // a named branch is its commit
	if code, got = build(t, in); got["manifests/site.pp"] != "# one\n" || code.Source.Dirty {
		t.Errorf("the commit of the branch: dirty %t, %q", code.Source.Dirty, got)
	}
}

// TestBuildRefuses checks errors in repositories, Puppetfiles and forges.
func TestBuildRefuses(t *testing.T) {
	shop := newForge(t)
	shop.add(t, "a-b-1.0.0", map[string]string{"x": "y"})
	shop.add(t, "a-evil-1.0.0", map[string]string{"../../../x": "y"})
	lying := newForge(t)
	lying.lies = true
	lying.add(t, "a-b-1.0.0", map[string]string{"x": "y"})
	module := newRepo(t)
	module.commit("one", "manifests/init.pp", "")
	for puppetfile, says := range map[string]string{
		"mod 'a/b', '1.0.0'\n":                                            "Puppetfile:1: a/b: no address of a forge",
		"forge '" + shop.URL + "'\nmod 'a/b', '2.0.0'\n":                  "404 Not Found",
		"forge '" + shop.URL + "'\nmod 'a/b', '>= 1.0.0'\n":               "an exact version is needed",
		"forge '" + shop.URL + "'\nmod 'a/evil', '1.0.0'\n":               "leads out",
		"forge '" + lying.URL + "'\nmod 'a/b', '1.0.0'\n":                 "but the forge says",
		"forge 'file:///etc'\nmod 'a/b', '1.0.0'\n":                       "is not the address of a forge",
		"mod 'b', git: '" + module.url() + "', branch: 'none'\n":          `has no branch "none"`,
		"mod 'b', git: 'ext::sh -c touch% /tmp/x', branch: 'none'\n":      "not allowed",
		"mod 'b', git: '--upload-pack=touch', branch: 'none'\n":           "is not the address of a git repository",
		"mod 'b', git: 'file:///nothing/there', branch: 'x'\n":            "Puppetfile:1: b: file:///nothing/there",
		"mod 'here', git: '" + module.url() + "', branch: 'production'\n": "is in the control repository and in a module",
		"require 'x'\n": "Puppetfile:1:",
	} {
		site := newRepo(t)
		site.commit("one", "manifests/site.pp", "", "modules/here/manifests/init.pp", "", "Puppetfile", puppetfile)
		_, err := control.Build(t.Context(), control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: site.url()})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", puppetfile, err, says)
		}
	}
	empty := newRepo(t)
	empty.commit("one", "README", "")
	_, err := control.Build(t.Context(), control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: empty.url()})
	if err == nil || !strings.Contains(err.Error(), "no Puppet environment") {
		t.Errorf("a repository without an environment: %v", err)
	}
	if _, err := control.Build(t.Context(), control.Request{Cache: control.Cache{Dir: t.TempDir()}, Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "--repo URL") {
		t.Errorf("no repository: %v", err)
	}
}

// TestTheForgeIsTheOneThatWasNamed checks that another host cannot say which archive a version has.
func TestTheForgeIsTheOneThatWasNamed(t *testing.T) {
	shop, site := newForge(t), newRepo(t)
	shop.add(t, "a-b-1.0.0", map[string]string{"x": "y"})
	elsewhere := httptest.NewServer(http.RedirectHandler(strings.Replace(shop.URL, "127.0.0.1", "localhost", 1)+"/v3/releases/a-b-1.0.0", http.StatusFound))
	t.Cleanup(elsewhere.Close)
	site.commit("one", "manifests/site.pp", "", "Puppetfile", "forge '"+elsewhere.URL+"'\nmod 'a/b', '1.0.0'\n")
	_, err := control.Build(t.Context(), control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: site.url()})
	if err == nil || !strings.Contains(err.Error(), "it redirects to another host, localhost:") {
		t.Errorf("%v, want a refusal", err)
	}
}

// TestADamagedListIsForgotten checks that a list of the cache that does not fit its content is an error once.
func TestADamagedListIsForgotten(t *testing.T) {
	site := newRepo(t)
	id := site.commit("one", "manifests/site.pp", "# one\n")
	in := control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: site.url()}
	code, _ := build(t, in)
	lists, err := filepath.Glob(filepath.Join(in.Cache.Dir, "trees", "*"+id+"*"))
	if err != nil || len(lists) != 1 {
		t.Fatalf("lists %v, %v", lists, err)
	}
	raw, err := os.ReadFile(lists[0])
	if err != nil {
		t.Fatal(err)
	}
	other := tutti.DigestOf([]byte("other"))
	raw = bytes.ReplaceAll(raw, []byte(code.Manifest.Files["manifests/site.pp"].Digest), []byte(other))
	if err := os.WriteFile(lists[0], raw, 0o600); err != nil {
		t.Fatal(err)
	}
	wrong, err := control.Build(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	err = wrong.Read(context.Background(), map[tutti.Digest]bool{other: true}, func([]byte) error { return nil })
	if tutti.CodeOf(err) != tutti.CodeDamaged {
		t.Errorf("%v, want an error about damage", err)
	}
	if again, _ := build(t, in); !cmp.Equal(again.Manifest, code.Manifest) {
		t.Error("the damaged list is still used")
	}
}

// TestTheSameCommitElsewhere checks a repository that has moved to another address, while its list of files is known.
func TestTheSameCommitElsewhere(t *testing.T) {
	site := newRepo(t)
	site.commit("one", "manifests/site.pp", "# one\n")
	in := control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: site.url()}
	build(t, in)
	moved := t.TempDir() + "/moved"
	if err := os.Rename(site.dir, moved); err != nil {
		t.Fatal(err)
	}
	in.Repository = "file://" + moved
	if _, got := build(t, in); got["manifests/site.pp"] != "# one\n" {
		t.Errorf("files %q", got)
	}
}

// TestSourceOf checks what a push tells about a directory.
func TestSourceOf(t *testing.T) {
	site := newRepo(t)
	id := site.commit("one", "code/manifests/site.pp", "# one\n", ".gitignore", "*.log\n")
	site.git("remote", "add", "origin", "https://ada:secret@git.example.net/site.git")
	dir := filepath.Join(site.dir, "code")
	got := control.SourceOf(t.Context(), dir)
	if got == nil || got.Commit != id || got.Dirty || got.Ref != "production" || got.Repository != "https://git.example.net/site.git" || got.Validate() != nil {
		t.Errorf("%+v", got)
	}
	site.write("code/x.log", "")
	if got = control.SourceOf(t.Context(), dir); got == nil || !got.Dirty {
		t.Errorf("a file that git ignores is pushed, too: %+v", got)
	}
	site.write("other/x.pp", "")
	if got = control.SourceOf(t.Context(), filepath.Join(site.dir, "other")); got != nil {
		t.Errorf("a directory that no commit has: %+v", got)
	}
	if got = control.SourceOf(t.Context(), t.TempDir()); got != nil {
		t.Errorf("a directory without git: %+v", got)
	}
}
