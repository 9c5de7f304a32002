package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The function `promises` returns the promises of the rows. A promise identifies its row.
func promises(rows []defence) []string {
	var all []string
	for _, d := range rows {
		all = append(all, d.Promise)
	}
	return all
}

func TestChoice(t *testing.T) {
	all := []defence{
		{Promise: "a", File: "x/a.go", Test: "TestA"}, {Promise: "b", File: "x/b.go", Test: "TestB"}, {Promise: "c", File: "y/c.go", Test: "TestC"},
		{Promise: "d", File: "y/d.go", Test: "TestD"}, {Promise: "e", File: "y/e.go", Test: "TestA"},
	}
	for _, tc := range []struct {
		reason string
		choice choice
		want   string // the expected promises, or the expected error text
	}{
		{"all", choice{part: "1/1"}, "a b c d e"},
		{"of one package", choice{run: "^y/", part: "1/1"}, "c d e"},
		{"of one test", choice{run: "TestA", part: "1/1"}, "a e"},
		{"the first part", choice{part: "1/3"}, "a d"},
		{"the second", choice{part: "2/3"}, "b e"},
		{"the last", choice{part: "3/3"}, "c"},
		{"a part of some", choice{run: "^y/", part: "2/2"}, "d"},
		{"at most two", choice{part: "1/1", most: 2}, "a c"},
		{"at most as many as there are", choice{part: "1/1", most: 5}, "a b c d e"},
		{"more parts than rows", choice{part: "6/6"}, ""},
		{"a word that fits nothing is a mistake", choice{run: "TestZ", part: "1/1"}, `-run "TestZ" fits no promise, file or test`},
		{"a part that is not there", choice{part: "4/3"}, `-part "4/3": it is written like 2/3`},
		{"part zero", choice{part: "0/3"}, `-part "0/3": it is written like 2/3`},
		{"more than a part", choice{part: "1/3x"}, `-part "1/3x": it is written like 2/3`},
	} {
		rows, err := tc.choice.of(t.Context(), all)
		got := strings.Join(promises(rows), " ")
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}

const row = `- promise: %
  out: nothing is kept
  file: %/%.go
  edits:
    - old: "a"
      new: "b"
  package: ./%
  test: Test%
`

// TestChanged checks that a row runs if it is new, or if its file or the file of its test has
// changed. Uncommitted changes count, too.
func TestChanged(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"file", "test", "row", "helper", "nothing"} {
		write(t, name+"/"+name+".go", "package x\n")
		write(t, name+"/"+name+"_test.go", "package x\n\nfunc Test"+name+"(t *testing.T) {}\n")
		write(t, name+"/helper_test.go", "package x\n")
		write(t, name+"/defences.yaml", strings.ReplaceAll(row, "%", name))
	}
	write(t, "script/cli/audit.txtar", "exec true\n")
	write(t, "script/defences.yaml", strings.ReplaceAll(strings.Replace(row, "Test%", "TestScripts/audit", 1), "%", "script"))
	mustGit(t, "init", "-q", "-b", "main")
	mustGit(t, "add", ".")
	mustGit(t, "commit", "-qm", "first")
	mustGit(t, "branch", "other")
	mustGit(t, "checkout", "-q", "other")
	write(t, "nothing/nothing.go", "package x // on the other branch\n")
	mustGit(t, "commit", "-qam", "second")
	mustGit(t, "checkout", "-q", "main")
	write(t, "file/file.go", "package x // changed\n")
	mustGit(t, "commit", "-qam", "third")
	write(t, "test/test_test.go", "package x // changed\n\nfunc Testtest(t *testing.T) {}\n")
	write(t, "helper/helper_test.go", "package x // changed\n")
	write(t, "script/cli/audit.txtar", "exec false\n")
	write(t, "row/defences.yaml", strings.ReplaceAll(row, "%", "row")+strings.ReplaceAll(strings.Replace(row, "promise: %", "promise: new", 1), "%", "row"))

	all, err := read(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := choice{changed: "other", part: "1/1"}.of(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"file", "new", "script", "test"}, promises(rows)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, err := (choice{changed: "nowhere", part: "1/1"}).of(t.Context(), all); err == nil {
		t.Error("a revision that is not there has changes")
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustGit(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.net"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}
