package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTestRE  = regexp.MustCompile("`[^`]*\\b(Test[A-Z]\\w*)[^`]*`")
	testFuncRE   = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	namedFileRE  = regexp.MustCompile("`(script/cli/[a-z]+\\.txtar)`")
	parityTables = "docs/parity.md"
)

// TestTheParityListNamesTestsThatAreThere checks that every test in the list exists.
func TestTheParityListNamesTestsThatAreThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", parityTables))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range testFuncRE.FindAllSubmatch(source, -1) {
			there[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := namedTestRE.FindAllSubmatch(text, -1)
	if len(named) < 20 {
		t.Fatalf("%s names %d tests: the search sees nothing", parityTables, len(named))
	}
	for _, m := range named {
		if !there[string(m[1])] {
			t.Errorf("%s names %s, which is nowhere", parityTables, m[1])
		}
	}
	for _, m := range namedFileRE.FindAllSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join("..", string(m[1]))); err != nil {
			t.Errorf("%s: %v", parityTables, err)
		}
	}
}
