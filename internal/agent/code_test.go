package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The method `push` pushes code with these files to the server. A value that begins with `->` is a
// link. A value that begins with `#!` is an executable file.
func (l *lab) push(files map[string]string) tutti.CodePushed {
	l.t.Helper()
	return l.pushAs(files, servertest.Sign)
}

// pushAs pushes code that the argument `sign` has signed.
func (l *lab) pushAs(files map[string]string, sign func(tutti.CodeManifest) tutti.SignedCode) tutti.CodePushed {
	l.t.Helper()
	m := tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{}}
	for name, content := range files {
		if link, ok := strings.CutPrefix(content, "->"); ok {
			m.Files[name] = tutti.CodeFile{Link: link}
			continue
		}
		digest, err := l.fleet.PutBlob(servertest.Operator(), []byte(content))
		if err != nil {
			l.t.Fatal(err)
		}
		m.Files[name] = tutti.CodeFile{Digest: digest, Size: int64(len(content)), Exec: strings.HasPrefix(content, "#!")}
	}
	pushed, err := l.fleet.PushCode(servertest.Operator(), tutti.CodePush{SignedCode: sign(m)})
	if err != nil {
		l.t.Fatal(err)
	}
	return pushed
}

// tree returns the files below a directory in the form that the method `push` accepts.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if e.Type()&os.ModeSymlink != 0 {
			link, err := os.Readlink(path)
			out[rel] = "->" + link
			return err
		}
		raw, err := os.ReadFile(path)
		out[rel] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPuppetFindsTheCodeBehindAStablePath(t *testing.T) {
	l := started(t)
	files := map[string]string{
		"environment.conf": "", "manifests/site.pp": "notify { 'a': }", "modules/x/bin/x": "#!/bin/sh\n",
		"modules/y": "->x", "modules/x/files/site": "->../../../manifests/site.pp",
	}
	for i, change := range []string{"", "changed"} {
		files["environment.conf"] = change
		pushed := l.push(files)
		fetched := l.line.count(wire.OpBlobGet)
		l.inRun(func(p *puppet) {
			env := filepath.Join(p.spec.EnvironmentPath, "production")
			dir, err := filepath.EvalSymlinks(env)
			if err != nil || filepath.Base(dir) != pushed.Code.Hex() {
				t.Errorf("the environment leads to %s, %v, want the digest", dir, err)
			}
			if diff := cmp.Diff(files, tree(t, dir)); diff != "" {
				t.Errorf("-pushed +found\n%s", diff)
			}
			if info, err := os.Stat(filepath.Join(dir, "modules/x/bin/x")); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("an executable: %v, %v", info, err)
			}
		})
		if got := l.line.count(wire.OpBlobGet) - fetched; got != 3 && i == 0 || got != 1 && i == 1 {
			t.Errorf("push %d: %d files were fetched, want all of them first, then the changed one", i, got)
		}
	}
}

func TestOldCodeIsCollected(t *testing.T) {
	l := started(t)
	for _, content := range []string{"1", "2", "3", "4", "5"} {
		l.push(map[string]string{"manifests/site.pp": content})
		l.inRun(func(*puppet) {})
	}
	l.line.settle()
	entries, err := os.ReadDir(filepath.Join(l.dir, "code"))
	if err != nil || len(entries) != 6 {
		t.Errorf("%d entries, %v, want the current tree and two older ones, each with its manifest", len(entries), err)
	}
}

func TestAFileThatWasChangedOnDiskIsNotUsedAgain(t *testing.T) {
	l := started(t)
	files := map[string]string{"manifests/site.pp": "good", "environment.conf": "1"}
	first := l.push(files)
	l.inRun(func(*puppet) {})
	if err := os.WriteFile(filepath.Join(l.dir, "code", first.Code.Hex(), "manifests/site.pp"), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	files["environment.conf"] = "2"
	second := l.push(files)
	l.inRun(func(*puppet) {})
	if diff := cmp.Diff(files, tree(t, filepath.Join(l.dir, "code", second.Code.Hex()))); diff != "" {
		t.Errorf("-pushed +found\n%s", diff)
	}
}

// A tree is either complete or absent. A tree is also complete or absent if the agent is
// killed while it fetches the tree.
func TestCodeThatIsHalfFetchedIsNone(t *testing.T) {
	l := newLab(t, applies)
	pushed := l.push(map[string]string{"a": "1", "b": "2", "manifests/site.pp": "3"})
	stop := l.line.stopAt(wire.OpBlobGet, true)
	job := l.job()
	l.start()
	<-stop.reached
	if _, err := os.Stat(filepath.Join(l.dir, "code", pushed.Code.Hex())); err == nil {
		t.Error("the tree is there before all of it was fetched")
	}
	// A killed agent does not clean up after itself.
	left := filepath.Join(l.dir, "code", ".new-left")
	if err := os.MkdirAll(filepath.Join(left, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.start()
	if got := l.end(job); got.Outcome != tutti.Changed {
		t.Errorf("result %+v", got)
	}
	if got := tree(t, filepath.Join(l.dir, "code", pushed.Code.Hex())); len(got) != 3 {
		t.Errorf("the tree has %v", got)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what an earlier agent left half done is there for ever")
	}
}

// Even with an operator's signature, the paths of a manifest must stay inside its
// tree.
func TestAManifestStaysInsideItsTree(t *testing.T) {
	file := tutti.CodeFile{Digest: tutti.DigestOf([]byte("x"))}
	cases := map[string]map[string]tutti.CodeFile{
		"parent":          {"../x": file},
		"absolute":        {"/etc/passwd": file},
		"absolute link":   {"x": {Link: "/etc/passwd"}},
		"link to outside": {"modules/x": {Link: "../../x"}},
		"file below link": {"a": {Link: "b"}, "a/x": file},
	}
	for name, files := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, applies)
			signed := servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "production", Files: files})
			job := l.job()
			order := l.node.MustClaim()
			l.line.alter = func(op string, reply []byte) []byte {
				raw, err := []byte(nil), error(nil)
				switch op {
				case wire.OpClaim:
					order.Code = tutti.DigestOf(signed.Manifest)
					raw, err = json.Marshal(wire.Claimed{Order: &order})
				case wire.OpCode:
					raw, err = json.Marshal(signed)
				default:
					return reply
				}
				if err != nil {
					t.Error(err)
				}
				return raw
			}
			l.line.answer = wire.OpCode // the function `alter` answers this operation even if the server refuses it
			l.start()
			if got := l.end(job); got.Reason != tutti.BecauseRefused || !strings.Contains(got.Message, "manifest") || l.ruby.started() != 0 {
				t.Errorf("result %+v after %d starts", got, l.ruby.started())
			}
		})
	}
}

func TestAnEnvironmentIsAName(t *testing.T) {
	for _, name := range []string{"../x", ".", "", "a/b", ".hidden"} {
		l := newLab(t, applies)
		job := l.job()
		order := l.node.MustClaim()
		l.line.alter = func(op string, reply []byte) []byte {
			if op != wire.OpClaim {
				return reply
			}
			order.Environment = name
			raw, err := json.Marshal(wire.Claimed{Order: &order})
			if err != nil {
				t.Error(err)
			}
			return raw
		}
		l.start()
		if got := l.end(job); got.Reason != tutti.BecauseRefused || !strings.Contains(got.Message, "not a name") {
			t.Errorf("environment %q: result %+v", name, got)
		}
	}
}
