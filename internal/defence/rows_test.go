package main

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// The constant `fewest` is the smallest allowed number of rows. If the test does not find one of the rows files,
// it finds too few rows and fails. Lower this number if you remove a row.
const fewest = 308

// Each row must remove existing code, leave valid Go, and name existing tests. So a developer who
// changes a defence immediately learns that its row does not fit.
func TestTheRowsFitTheTree(t *testing.T) {
	t.Chdir("../..")
	all, err := read(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < fewest {
		t.Errorf("%d rows, there were %d", len(all), fewest)
	}
	seen := map[string]bool{}
	for _, d := range all {
		if seen[d.Promise+d.Test] {
			t.Errorf("%s: %s: two rows", d.from, d.Promise)
		}
		seen[d.Promise+d.Test] = true
		if home := d.home(); d.from != home {
			t.Errorf("%s: %s: the row is about %s and belongs to %s", d.from, d.Promise, d.File, home)
		}
		if d.isSpec() {
			fitsSpec(t, d)
		} else {
			fitsGo(t, d)
		}
	}
}

// The method `home` returns the rows file that a row belongs to.
func (d defence) home() string {
	if strings.HasPrefix(d.File, module+"/") {
		return module + "/spec/" + rowsFile
	}
	return path.Join(path.Dir(d.File), rowsFile)
}

// fitsGo checks that the edits of a row apply and leave valid Go, and that its tests exist.
func fitsGo(t *testing.T, d defence) {
	t.Helper()
	source, err := d.mutant()
	if err != nil {
		t.Errorf("%s: %s: %v", d.from, d.Promise, err)
		return
	}
	if _, err := parser.ParseFile(token.NewFileSet(), d.File, source, 0); err != nil {
		t.Errorf("%s: %s: %s without the defence is no Go: %v", d.from, d.Promise, d.File, err)
	}
	for _, name := range d.testNames() {
		if functionFile(d.Package, name) == "" {
			t.Errorf("%s: %s: %s has no %s", d.from, d.Promise, d.Package, name)
		}
	}
}

// fitsSpec checks that the edits of a row apply and that its example exists. It does not check that
// the result is valid Ruby. Only a run of the row shows that.
func fitsSpec(t *testing.T, d defence) {
	t.Helper()
	if _, err := d.mutant(); err != nil {
		t.Errorf("%s: %s: %v", d.from, d.Promise, err)
	}
	files := d.testFiles()
	raw, err := os.ReadFile(filepath.Clean(files[len(files)-1]))
	if err != nil || !strings.Contains(string(raw), strings.TrimPrefix(d.Test, warmPrefix)) {
		t.Errorf("%s: %s: %s has no example %q (%v)", d.from, d.Promise, d.Package, d.Test, err)
	}
}
