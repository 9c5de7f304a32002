package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

func TestRead(t *testing.T) {
	const (
		head = "# Releases\n\nText.\n\n| version | date | commit |\n|---|---|---|\n"
		one  = "| 0.9.0 | 2026-11-23 | 7a084b3a1c860734c45da7718188dcc5a806828f |\n"
		two  = "| 0.10.0 | 2026-12-01 | 0123456789012345678901234567890123456789 |\n"
	)
	cases := []struct {
		reason, text, refused string
		want                  []Release
	}{
		{"newest first, 10 after 9", head + two + one, "", []Release{
			{"0.10.0", "2026-12-01", "0123456789012345678901234567890123456789"},
			{"0.9.0", "2026-11-23", "7a084b3a1c860734c45da7718188dcc5a806828f"},
		}},
		{"oldest first", head + one + two, "docs/releases.md:8: 0.10.0 stands below 0.9.0", nil},
		{"a release twice", head + one + one, "docs/releases.md:8:", nil},
		{"a short commit", head + "| 0.9.0 | 2026-11-23 | 7a084b3 |\n", "docs/releases.md:7:", nil},
		{"no release", head, "lists no release", nil},
	}
	for _, tc := range cases {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "docs"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "docs", "releases.md"), []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := Read(dir)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
		if (err != nil) != (tc.refused != "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.refused)
		}
	}
}

// TestAReleaseHasItsParts checks that each release is in the changelog with its date, and
// that testdata has the log of its server.
func TestAReleaseHasItsParts(t *testing.T) {
	all, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if section := "\n## [" + r.Version + "] - " + r.Date + "\n"; !strings.Contains(string(changes), section) {
			t.Errorf("CHANGELOG.md has no section %q", strings.TrimSpace(section))
		}
		if _, err := os.Stat(filepath.Join(root, "testdata", "logs", r.Version, "log.jsonl")); err != nil {
			t.Errorf("the log of release %s is not kept: %v", r.Version, err)
		}
	}
}
