package control_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/control"
)

// TestAHookOfGit checks that a repository that git's variables name is neither read nor changed. A hook of git runs its
// commands with such variables.
func TestAHookOfGit(t *testing.T) {
	of, hooked := newRepo(t), newRepo(t)
	of.commit("one", "manifests/site.pp", "site")
	hooked.commit("ours", "manifests/site.pp", "other")
	hooked.git("branch", "mine")
	hooked.git("checkout", "--quiet", "--detach")
	was := hooked.git("for-each-ref") + hooked.git("config", "--list", "--local")
	t.Setenv("GIT_DIR", filepath.Join(hooked.dir, ".git"))
	t.Setenv("GIT_INDEX_FILE", filepath.Join(hooked.dir, ".git/index"))
	_, got := build(t, control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: of.url(), Ref: "production"})
	if got["manifests/site.pp"] != "site" {
		t.Errorf("the code: %v", got)
	}
	if err := os.Unsetenv("GIT_DIR"); err != nil {
		t.Fatal(err)
	}
	if now := hooked.git("for-each-ref") + hooked.git("config", "--list", "--local"); now != was {
		t.Errorf("the repository of the hook was\n%s\nand is now\n%s", was, now)
	}
}

// TestADamagedCloneInARepository checks that a repository around the cache, for example of a home directory, is not changed.
func TestADamagedCloneInARepository(t *testing.T) {
	of, home := newRepo(t), newRepo(t)
	of.commit("one", "manifests/site.pp", "site")
	home.commit("ours", "dotfile", "")
	home.git("branch", "mine")
	home.git("checkout", "--quiet", "--detach")
	in := control.Request{Cache: control.Cache{Dir: filepath.Join(home.dir, ".cache")}, Repository: of.url(), Ref: "production"}
	build(t, in)
	clones, err := filepath.Glob(filepath.Join(in.Cache.Dir, "git", "*.git", "objects"))
	if err != nil || len(clones) != 1 {
		t.Fatalf("clones %v, %v", clones, err)
	}
	if err := os.RemoveAll(clones[0]); err != nil {
		t.Fatal(err)
	}
	of.commit("two", "manifests/site.pp", "next")
	was := home.git("for-each-ref")
	_, err = control.Build(t.Context(), in)
	if now := home.git("for-each-ref"); now != was || tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("%v; the repository around the cache was\n%s\nand is now\n%s", err, was, now)
	}
}

// TestNoTokenIsShown checks that no text has the user or password of an address: a user may be a token.
func TestNoTokenIsShown(t *testing.T) {
	for _, url := range []string{
		"https://s3cret@127.0.0.1:1/control.git",
		"https://ada:s3cret@127.0.0.1:1/control.git",
		"https://ada:s3cret%zz@127.0.0.1:1/control.git",
		"https://ada:s3cret#1@127.0.0.1:1/control.git",
	} {
		_, err := control.Build(t.Context(), control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: url, Ref: "production"})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	// git itself shows the user if it would ask for a password
	t.Setenv("GIT_SSL_NO_VERIFY", "1")
	of := newRepo(t)
	of.commit("one", "manifests/site.pp", "site")
	of.git("remote", "add", "origin", "https://ada:s3cret%zz@git.example.net/control.git")
	code, _ := build(t, control.Request{Cache: control.Cache{Dir: t.TempDir()}, Dir: of.dir})
	if want := "https://git.example.net/control.git"; code.Source.Repository != want {
		t.Errorf("the repository is %q, want %q", code.Source.Repository, want)
	}
	_, err := control.Build(t.Context(), control.Request{Cache: control.Cache{Dir: t.TempDir()}, Repository: asks(t, "s3cret"), Ref: "production"})
	if tutti.CodeOf(err) != tutti.CodeInvalid || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a repository that asks for a password: %v", err)
	}
}

// asks returns the address of a repository that asks for a password, with a user in it.
func asks(t testing.TB, user string) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "https://", "https://"+user+"@", 1) + "/control.git"
}
