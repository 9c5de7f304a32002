package internal_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

const (
	styleGuide = "docs/style.md"
	oldPlaces  = "testdata/style.txt" // the number of places per file that are older than the guide
	maxColumns = 160
)

var update = flag.Bool("update", false, "rewrite "+oldPlaces+"; refused if a rule would have more places than before")

// notPlain lists the words that the guide's second and fourth habit forbid, each with a
// better wording. The last expression does not match "is no longer" and "is no more".
var notPlain = []struct{ words, instead string }{
	{`anew`, "again, or new"},
	{`as ever`, "as before, or unchanged"},
	{`ever after`, "from then on"},
	{`in vain`, "without success; better: say what happened"},
	{`befall(s|en)?`, "happen to, hit"},
	{`let off`, "released, spared"},
	{`waited for for`, "the wait for …"},
	{`what whom`, "two statements"},
	{`(which|that|what|who) is (none|no [^lm ]\w*)`, "unknown, invalid, is not a …"},
}

// notPlainRE finds all of these words in one pass. Each group has a name: the letter w and the
// word's index in notPlain.
var notPlainRE = func() *regexp.Regexp {
	var groups []string
	for i, w := range notPlain {
		groups = append(groups, fmt.Sprintf(`(?P<w%d>%s)`, i, w.words))
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(groups, "|") + `)\b`)
}()

// wordsIn returns the words that a line should not contain, each with a better wording.
func wordsIn(line string) []string {
	var found []string
	for _, m := range notPlainRE.FindAllStringSubmatch(line, -1) {
		for i, w := range notPlain {
			if m[notPlainRE.SubexpIndex(fmt.Sprintf("w%d", i))] != "" {
				found = append(found, fmt.Sprintf("%q: write %s", m[0], w.instead))
			}
		}
	}
	return found
}

// place is a place where a text breaks a rule of the guide.
type place struct {
	rule string // word or line
	file string
	says string
}

// The function `places` finds the places where the texts of a tree break the rules that a
// program can check.
func places(tree fs.FS) ([]place, error) {
	var found []place
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (d.Name() == "testdata" || d.Name() == "bin" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !isText(name):
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		found = append(found, placesIn(name, string(text))...)
		return err
	})
	return found, err
}

func isText(name string) bool {
	exts := []string{".go", ".md", ".rb", ".pp", ".sh", ".yaml", ".yml", ".txtar"}
	return slices.Contains(exts, path.Ext(name)) || path.Ext(name) == "" && path.Dir(name) == "script" || path.Base(name) == "Makefile"
}

func placesIn(name, text string) []place {
	var found []place
	fenced := false
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		at := fmt.Sprintf("%s:%d: ", name, number)
		if name != styleGuide && name != "internal/style_test.go" { // these two files quote the words
			for _, says := range wordsIn(line) {
				found = append(found, place{"word", name, at + says})
			}
		}
		if path.Ext(name) != ".md" {
			continue
		}
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		code := fenced || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "|")
		if n := utf8.RuneCountInString(line); n > maxColumns && !code {
			found = append(found, place{"line", name, fmt.Sprintf("%s%d characters, at most %d: break the line", at, n, maxColumns)})
		}
	}
	return found
}

// TestStyle checks texts against the rules of docs/style.md that a program can check.
// Places that are older than the guide are counted for each file. The counts may only
// fall.
func TestStyle(t *testing.T) {
	found, err := places(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(oldPlaces)
	if err != nil {
		t.Fatal(err)
	}
	old, err := readCounts(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := lower(old, count(found)); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, complaint := range compare(old, found) {
		t.Error(complaint)
	}
}

// The function `count` counts places by "rule file".
func count(found []place) map[string]int {
	counts := map[string]int{}
	for _, p := range found {
		counts[p.rule+" "+p.file]++
	}
	return counts
}

// The function `compare` names the files that have more places than before, and the files
// that have fewer places.
func compare(old map[string]int, found []place) []string {
	var complaints []string
	counts := count(found)
	for key, n := range counts {
		if n <= old[key] {
			continue
		}
		text := fmt.Sprintf("%s: %d places, %d are old; see %s (if text only moved here: go test ./internal -run TestStyle -update)", key, n, old[key], styleGuide)
		for _, p := range found {
			if p.rule+" "+p.file == key {
				text += "\n\t" + p.says
			}
		}
		complaints = append(complaints, text)
	}
	for key, n := range old {
		if counts[key] < n {
			complaints = append(complaints, fmt.Sprintf("%s: %d places, internal/%s says %d: go test ./internal -run TestStyle -update", key, counts[key], oldPlaces, n))
		}
	}
	slices.Sort(complaints)
	return complaints
}

// The function `lower` writes the counts. The function returns an error if a rule has more
// places in total than before.
func lower(old, counts map[string]int) error {
	was, is := sums(old), sums(counts)
	var text strings.Builder
	for rule, n := range is {
		if n > was[rule] {
			return fmt.Errorf("rule %q: %d places, before %d: the sum only goes down", rule, n, was[rule])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&text, "%s %d\n", key, counts[key])
	}
	return os.WriteFile(oldPlaces, []byte(text.String()), 0o600)
}

func sums(counts map[string]int) map[string]int {
	sum := map[string]int{}
	for key, n := range counts {
		rule, _, _ := strings.Cut(key, " ")
		sum[rule] += n
	}
	return sum
}

func readCounts(text string) (map[string]int, error) {
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: %q is not RULE FILE COUNT", oldPlaces, line)
		}
		n, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", oldPlaces, err)
		}
		counts[fields[0]+" "+fields[1]] = n
	}
	return counts, nil
}

func TestStyleCanFail(t *testing.T) {
	long := strings.Repeat("x", maxColumns+1)
	found, err := places(fstest.MapFS{
		"a.go":            {Data: []byte("// It begins anew.\n// It is no longer here.\n")},
		"b.md":            {Data: []byte("In vain: a key that is none.\n" + long + "\n| " + long + "\n    " + long + "\n```\n" + long + "\n```\n")},
		"script/c":        {Data: []byte("# as ever\n")},
		"testdata/d.md":   {Data: []byte("as ever\n")},
		styleGuide:        {Data: []byte("as ever\n")},
		"e.bin":           {Data: []byte("as ever\n")},
		"internal/f.pp":   {Data: []byte("# what whom: a node that is no node\n")},
		"bin/g.md":        {Data: []byte("as ever\n")},
		".ci/h.md":        {Data: []byte("as ever\n")},
		"docs/adr/1-i.md": {Data: []byte("as ever\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"line b.md: 1 places, 0 are old",
		"word a.go: 1 places, 0 are old",
		"word b.md: 2 places, 1 are old",
		"word docs/adr/1-i.md: 1 places, internal/testdata/style.txt says 2: go test ./internal -run TestStyle -update",
		"word internal/f.pp: 2 places, 0 are old",
		"word script/c: 1 places, 0 are old",
	}
	var got []string
	for _, complaint := range compare(map[string]int{"word b.md": 1, "word docs/adr/1-i.md": 2}, found) {
		head, _, _ := strings.Cut(complaint, "; see")
		got = append(got, head)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if err := lower(map[string]int{"word a": 1}, map[string]int{"word b": 2}); err == nil {
		t.Error("a sum went up")
	}
}
