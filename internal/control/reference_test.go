package control_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/control"
)

// TestControlBranch checks for which references :control_branch has a branch.
func TestControlBranch(t *testing.T) {
	module, site, cache := newRepo(t), newRepo(t), control.Cache{Dir: t.TempDir()}
	module.commit("one", "manifests/init.pp", "class a { }\n")
	module.git("branch", "feature")
	first := site.commit("one", "manifests/site.pp", "#\n", "Puppetfile", "mod 'a', git: '"+module.url()+"', branch: :control_branch\n")
	in := control.Request{Cache: cache, Repository: site.url(), Ref: "production"}
	build(t, in)

	// A new branch of a commit that is known, so nothing is fetched.
	site.git("branch", "feature")
	in.Ref = "feature"
	code, _ := build(t, in)
	if code.Manifest.Environment != "feature" || code.Modules[0].Ref != "feature" {
		t.Errorf("environment %s, modules %+v", code.Manifest.Environment, code.Modules)
	}

	// A tag that has the name of a branch that was there before is no branch.
	site.git("branch", "-D", "feature")
	site.git("tag", "feature")
	if _, err := control.Build(t.Context(), in); err == nil || !strings.Contains(err.Error(), "a commit without a branch") {
		t.Errorf("the tag: %v", err)
	}

	// A working copy has a branch if only its origin has it.
	site.git("tag", "-d", "feature")
	site.git("branch", "feature")
	copied := repo{t, filepath.Join(t.TempDir(), "copy")}
	site.git("clone", "--quiet", site.dir, copied.dir)
	in.Repository, in.Dir = "", copied.dir
	if code, _ = build(t, in); code.Manifest.Environment != "feature" || code.Modules[0].Ref != "feature" {
		t.Errorf("of origin: environment %s, modules %+v", code.Manifest.Environment, code.Modules)
	}
	for _, ref := range []string{"HEAD", "@", strings.ToUpper(first), strings.ToUpper(first[:10])} {
		in.Ref = ref
		if _, err := control.Build(t.Context(), in); tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), "--environment NAME") {
			t.Errorf("%q is a commit and gives no environment: %v", ref, err)
		}
	}
}

// TestTheAddressOfARepository checks that another address of a repository that is known gives the same words about the
// commit, and that a relative path begins at the present directory.
func TestTheAddressOfARepository(t *testing.T) {
	site, cache := newRepo(t), control.Cache{Dir: t.TempDir()}
	site.commit("one", "manifests/site.pp", "#\n")
	t.Chdir(filepath.Dir(site.dir))
	for _, address := range []string{site.url(), site.dir, filepath.Base(site.dir), "./" + filepath.Base(site.dir)} {
		code, _ := build(t, control.Request{Cache: cache, Repository: address, Ref: "production"})
		if code.Source.Author != "Ada <ada@example.net>" || code.Source.Subject != "one" || code.Source.Ref != "production" {
			t.Errorf("%s: %+v", address, code.Source)
		}
	}
}

// TestMistakesHaveAHint checks errors that say what to do.
func TestMistakesHaveAHint(t *testing.T) {
	empty, site, cache := newRepo(t), newRepo(t), control.Cache{Dir: t.TempDir()}
	site.commit("one", "manifests/site.pp", "#\n")
	check := func(repository, ref, says string) {
		t.Helper()
		_, err := control.Build(t.Context(), control.Request{Cache: cache, Repository: repository, Ref: ref})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s %q: %v, want %q", repository, ref, err, says)
		}
	}
	check(empty.url(), "", "has no commit that is its HEAD: name a branch")
	long := "feature/" + strings.Repeat("x", 60)
	site.git("branch", long)
	check(site.url(), long, "68 characters, at most 63: give it a shorter name with --environment NAME")

	clones, err := filepath.Glob(filepath.Join(cache.Dir, "git", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, clone := range clones { // as a killed git leaves them
		if err := os.RemoveAll(filepath.Join(clone, "objects")); err != nil {
			t.Fatal(err)
		}
	}
	site.commit("two", "manifests/site.pp", "# two\n")
	check(site.url(), "production", "the clone is damaged; remove it and deploy again: "+cache.Dir)

	cache.Dir = t.TempDir()
	site.commit("three", "a\xff", "")
	check(site.url(), "production", "is no UTF-8")
	t.Setenv("PATH", "")
	check(site.url(), "production", "the program git is not installed")
}
