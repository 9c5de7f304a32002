package release

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "add what is new to testdata/frozen.sha256; nothing is ever taken out of it")

// frozenFile lists the contents that must stay in testdata for ever, in the format of sha256sum. The list
// contains all forms of an event's fixture (KIND.json, KIND.1.json and so on) under the name KIND.json.
// When the form changes, the content of KIND.json moves to the next number.
const frozenFile = "frozen.sha256"

var numberRE = regexp.MustCompile(`\.\d+\.json$`)

// contents returns the contents of a testdata directory that must be frozen, as lines of the list. The frozen
// contents are all fixtures of events, and all logs except the log of the next release.
func contents(testdata fs.FS, releases []Release) ([]string, error) {
	var lines []string
	err := fs.WalkDir(testdata, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		parts := strings.Split(name, "/")
		switch {
		case parts[0] == "events":
			name = numberRE.ReplaceAllString(name, ".json")
		case parts[0] == "logs" && len(parts) == 3 && isKept(parts[1], releases):
		default:
			return nil
		}
		content, err := fs.ReadFile(testdata, path.Join(parts...))
		lines = append(lines, fmt.Sprintf("%x  %s", sha256.Sum256(content), name))
		return err
	})
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:]+a, b[64:]+b) })
	return slices.Compact(lines), err
}

func isKept(log string, releases []Release) bool {
	return strings.HasPrefix(log, "before-") || slices.ContainsFunc(releases, func(r Release) bool { return r.Version == log })
}

// compare returns the lines of the list whose content no longer exists, and the lines that the list lacks.
func compare(list, found []string) (lost, added []string) {
	for _, line := range list {
		if !slices.Contains(found, line) {
			lost = append(lost, line)
		}
	}
	for _, line := range found {
		if !slices.Contains(list, line) {
			added = append(added, line)
		}
	}
	return lost, added
}

// TestFrozen checks that data from earlier servers stays in testdata without a change.
func TestFrozen(t *testing.T) {
	releases, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	testdata := filepath.Join(root, "testdata")
	found, err := contents(os.DirFS(testdata), releases)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(testdata, frozenFile))
	if err != nil && !*update {
		t.Fatal(err)
	}
	list := slices.Collect(strings.Lines(string(raw)))
	for i := range list {
		list[i] = strings.TrimSuffix(list[i], "\n")
	}
	lost, added := compare(list, found)
	for _, line := range lost {
		t.Errorf("testdata has lost the content %s: restore the file, an event's fixture as the next KIND.NUMBER.json (CONTRIBUTING.md, Events); if no commit ever had it, delete its line in testdata/%s", line, frozenFile)
	}
	if len(added) == 0 {
		return
	}
	if !*update {
		t.Fatalf("testdata/%s lacks\n%s\nadd it: go test ./internal/release -update", frozenFile, strings.Join(added, "\n"))
	}
	all := strings.Join(append(lost, found...), "\n") + "\n"
	if err := os.WriteFile(filepath.Join(testdata, frozenFile), []byte(all), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFrozenSees checks that the list shows content that was changed, removed, renamed or added.
func TestFrozenSees(t *testing.T) {
	releases := []Release{{Version: "0.2.0"}}
	first := map[string]string{
		"events/a.b.json": "one", "logs/0.2.0/log.jsonl": "log", "logs/before-0.2.0-1/log.jsonl": "older",
		"logs/0.3.0/log.jsonl": "in the making", "logs/README.md": "text", "fuzz/x": "input",
	}
	cases := []struct {
		reason      string
		change      map[string]string // with an empty content, the file is removed
		lost, added []string          // names
	}{
		{reason: "nothing", change: nil},
		{reason: "a fixture is rewritten", change: map[string]string{"events/a.b.json": "two"}, lost: []string{"events/a.b.json"}, added: []string{"events/a.b.json"}},
		{reason: "its old shape is kept", change: map[string]string{"events/a.b.json": "two", "events/a.b.1.json": "one"}, added: []string{"events/a.b.json"}},
		{reason: "a released log is rewritten", change: map[string]string{"logs/0.2.0/log.jsonl": "x"}, lost: []string{"logs/0.2.0/log.jsonl"}, added: []string{"logs/0.2.0/log.jsonl"}},
		{reason: "a released log is gone", change: map[string]string{"logs/0.2.0/log.jsonl": ""}, lost: []string{"logs/0.2.0/log.jsonl"}},
		{reason: "an older log is gone", change: map[string]string{"logs/before-0.2.0-1/log.jsonl": ""}, lost: []string{"logs/before-0.2.0-1/log.jsonl"}},
		{reason: "the log in the making is rewritten", change: map[string]string{"logs/0.3.0/log.jsonl": "x", "logs/README.md": "x", "fuzz/x": ""}},
	}
	list, err := contents(tree(first, nil), releases)
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v: this test sees nothing", list, err)
	}
	for _, tc := range cases {
		found, err := contents(tree(first, tc.change), releases)
		if err != nil {
			t.Fatal(err)
		}
		lost, added := compare(list, found)
		if diff := cmp.Diff([][]string{tc.lost, tc.added}, [][]string{names(lost), names(added)}); diff != "" {
			t.Errorf("%s: lost and new: -want +got\n%s", tc.reason, diff)
		}
	}
}

func tree(files, change map[string]string) fs.FS {
	out := fstest.MapFS{}
	for _, m := range []map[string]string{files, change} {
		for name, content := range m {
			out[name] = &fstest.MapFile{Data: []byte(content)}
			if content == "" {
				delete(out, name)
			}
		}
	}
	return out
}

func names(lines []string) []string {
	var out []string
	for _, line := range lines {
		out = append(out, line[66:])
	}
	return out
}
