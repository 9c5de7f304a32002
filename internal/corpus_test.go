package internal_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	maxSeeds    = 15      // largest number of seeds with generated names, for one fuzz target
	maxSeedSize = 8 << 10 // bytes
)

var (
	seedRE    = regexp.MustCompile(`^[0-9a-f]{16}$`)
	crasherRE = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)+$`)
)

// TestCorporaAreSmall checks the rules of CONTRIBUTING.md about fuzzing. Each target has
// few seeds. Crashers have meaningful names, and a comment in the target's package
// explains them.
func TestCorporaAreSmall(t *testing.T) {
	tree := os.DirFS("..")
	dirs, err := corpora(tree)
	if err != nil || len(dirs) < 20 {
		t.Fatalf("%d corpora: the walk sees nothing (%v)", len(dirs), err)
	}
	for _, dir := range dirs {
		files, err := fs.ReadDir(tree, dir)
		if err != nil {
			t.Fatal(err)
		}
		seeds := 0
		for _, file := range files {
			name := path.Join(dir, file.Name())
			if info, err := file.Info(); err != nil || info.Size() > maxSeedSize {
				t.Errorf("%s: more than %d bytes: minimise it (%v)", name, maxSeedSize, err)
			}
			switch {
			case seedRE.MatchString(file.Name()):
				seeds++
			case !crasherRE.MatchString(file.Name()):
				t.Errorf("%s: a crasher is named by words: what-it-found", name)
			case !mentioned(t, dir, file.Name()):
				t.Errorf("%s: the doc comment of the target does not say what it found", name)
			}
		}
		if seeds > maxSeeds {
			t.Errorf("%s: %d seeds, at most %d; give a crasher a telling name, leave the rest in Go's cache", dir, seeds, maxSeeds)
		}
	}
}

// corpora returns the directories that each contain the inputs of one fuzz target.
func corpora(tree fs.FS) ([]string, error) {
	var dirs []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case strings.HasPrefix(d.Name(), ".") && name != ".":
			return fs.SkipDir
		case strings.HasSuffix(path.Dir(name), "testdata/fuzz"):
			dirs = append(dirs, name)
		}
		return nil
	})
	return dirs, err
}

// The function `mentioned` reports whether a test file of the target's package names the input.
func mentioned(t *testing.T, dir, name string) bool {
	t.Helper()
	home, _, _ := strings.Cut(dir, "testdata/fuzz")
	files, err := filepath.Glob(filepath.Join("..", home, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), name) {
			return true
		}
	}
	return false
}
