package excerpt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
)

func write(t interface {
	Fatal(...any)
	Helper()
}, dir, content string) string {
	t.Helper()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRead(t *testing.T) {
	path := write(t, t.TempDir(), "12345")
	if raw, err := excerpt.Read(path, 5); string(raw) != "12345" || err != nil {
		t.Errorf("%q, %v", raw, err)
	}
	if raw, err := excerpt.Read(path, 4); raw != nil || tutti.CodeOf(err) != tutti.CodeDamaged {
		t.Errorf("%q, %v, want damaged: it has more", raw, err)
	}
	for _, other := range []string{filepath.Dir(path), "/dev/zero"} {
		if raw, err := excerpt.Read(other, 5); raw != nil || tutti.CodeOf(err) != tutti.CodeDamaged {
			t.Errorf("%s: %q, %v, want damaged", other, raw, err)
		}
	}
	if got, err := excerpt.Digest(path); got != tutti.DigestOf([]byte("12345")) || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := excerpt.Last(path, 2); string(got) != "45" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestEnds(t *testing.T) {
	cut := func(n int64) []byte { return fmt.Appendf(nil, "cut %d", n) }
	for content, want := range map[string]string{
		"":                           "",
		"12345\n7\n9\n":              "12345\n7\n9\n",
		"12\n45\n7890123\n56\n8\n01": "12\n45\ncut 8\n56\n8\n01",
		"1234567890123456":           "cut 16\n",
	} {
		got, err := excerpt.Ends(write(t, t.TempDir(), content), 7, cut)
		if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
			t.Errorf("%q: %v: -want +got\n%s", content, err, diff)
		}
	}
}

// Lines returns the same lines as strings.Split, without the lines that are too long.
// The result is the same if the lines come in pieces.
func TestLines(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		content, most := rapid.StringMatching(`[ab\n]{0,40}`).Draw(rt, "content"), rapid.IntRange(1, 6).Draw(rt, "most")
		var want, got, pieces []string
		long := 0
		for i, line := range strings.Split(content, "\n") {
			switch last := i == strings.Count(content, "\n"); {
			case len(line) > most:
				long++
			case !last || line != "":
				want = append(want, line)
			}
		}
		n, err := excerpt.Lines(write(rt, dir, content), most, func(line []byte) { got = append(got, string(line)) })
		if diff := cmp.Diff(want, got); diff != "" || n != long || err != nil {
			rt.Fatalf("%q: %d too long, want %d, %v: -want +got\n%s", content, n, long, err, diff)
		}
		s := excerpt.Splitter{Most: most}
		for rest := content + "\n"; rest != ""; {
			k := rapid.IntRange(1, len(rest)).Draw(rt, "piece")
			s.Split([]byte(rest[:k]), func(line []byte) { pieces = append(pieces, string(line)) })
			rest = rest[k:]
		}
		if strings.HasSuffix(content, "\n") || content == "" {
			want = append(want, "") // the line that ends in the next piece
		}
		if diff := cmp.Diff(want, pieces); diff != "" {
			rt.Fatalf("%q in pieces: -want +got\n%s", content, diff)
		}
	})
}
