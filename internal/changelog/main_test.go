package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTheUnreleasedChangesAreWellFormed checks the files of this tree, so that an invalid
// file never stops a release.
func TestTheUnreleasedChangesAreWellFormed(t *testing.T) {
	fragments, err := read(filepath.Join("../..", unreleased))
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d unreleased changes", len(fragments))
	raw, err := os.ReadFile(filepath.Join("../..", changelog))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := insert(string(raw), "999.0.0", ""); err != nil {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		reason, name, raw string
		want              fragment
		says              string
	}{
		{"without a kind", "x.md", "The server is faster.\n", fragment{kind: "Changed", text: "The server is faster."}, ""},
		{"with a kind", "a-b2.md", "Fixed: A wait\nends.\n", fragment{kind: "Fixed", text: "A wait\nends."}, ""},
		{"a word that is not a kind", "x.md", "Warm: A run is.\n", fragment{kind: "Changed", text: "Warm: A run is."}, ""},
		{"another name", "A_b.md", "It is.\n", fragment{}, "the name"},
		{"nothing", "x.md", "\n", fragment{}, "one paragraph"},
		{"only a kind", "x.md", "Fixed: \n", fragment{}, "one paragraph"},
		{"two paragraphs", "x.md", "It is.\n\nIt was.\n", fragment{}, "one paragraph"},
		{"a list", "x.md", "- It is.\n", fragment{}, "list mark"},
		{"no full stop", "x.md", "It is\n", fragment{}, "full stop"},
		{"a line that is too long", "x.md", strings.Repeat("x", maxColumns) + ".\n", fragment{}, "characters"},
		{"an essay", "x.md", strings.Repeat("x\n", maxLines) + "y.\n", fragment{}, "lines"},
	} {
		got, err := parse(tc.name, tc.raw)
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: error %v, want %q in it", tc.reason, err, tc.says)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(fragment{})); diff != "" || err != nil {
			t.Errorf("%s: error %v, -want +got\n%s", tc.reason, err, diff)
		}
	}
}

const before = "# Changelog\n\n## [Unreleased]\n\nSee there.\n"

func TestRelease(t *testing.T) {
	root := t.TempDir()
	write(t, root, changelog, before+"\n## [0.1.0] - 2026-01-02\n\n### Added\n- All.\n")
	write(t, root, unreleased+"/b.md", "Added: B is\nhere.\n")
	write(t, root, unreleased+"/a.md", "A is.\n")
	write(t, root, unreleased+"/c.md", "Added: C is.\n")
	if err := release(root, "0.2.0", "2026-11-23"); err != nil {
		t.Fatal(err)
	}
	want := before + "\n## [0.2.0] - 2026-11-23\n\n### Added\n- B is\n  here.\n- C is.\n\n### Changed\n- A is.\n" +
		"\n## [0.1.0] - 2026-01-02\n\n### Added\n- All.\n"
	if diff := cmp.Diff(want, content(t, root, changelog)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if left, err := os.ReadDir(filepath.Join(root, unreleased)); len(left) > 0 || err != nil {
		t.Errorf("%d files are left, error %v", len(left), err)
	}
}

func TestAReleaseThatIsRefusedChangesNothing(t *testing.T) {
	for _, tc := range []struct{ reason, version, date, changelog, fragment, says string }{
		{"no version", "", "2026-11-23", before, "It is.\n", "three numbers"},
		{"a date of another country", "0.2.0", "23.11.2026", before, "It is.\n", "2026-11-23"},
		{"released already", "0.2.0", "2026-11-23", before + "\n## [0.2.0] - 2026-01-02\n", "It is.\n", "already"},
		{"a changelog without its heading", "0.2.0", "2026-11-23", "# Changelog\n", "It is.\n", "Unreleased"},
		{"a fragment that is not well-formed", "0.2.0", "2026-11-23", before, "It is\n", "full stop"},
	} {
		root := t.TempDir()
		write(t, root, changelog, tc.changelog)
		write(t, root, unreleased+"/a.md", tc.fragment)
		err := release(root, tc.version, tc.date)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v, want %q in it", tc.reason, err, tc.says)
		}
		if content(t, root, changelog) != tc.changelog || content(t, root, unreleased+"/a.md") != tc.fragment {
			t.Errorf("%s: a file was changed", tc.reason)
		}
	}
	root := t.TempDir()
	write(t, root, changelog, before)
	if err := release(root, "0.2.0", "2026-11-23"); err == nil || !strings.Contains(err.Error(), "no files") {
		t.Errorf("without a change: %v", err)
	}
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, root, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
