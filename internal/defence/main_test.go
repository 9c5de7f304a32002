package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each row takes out something that is there, leaves Go, and names tests that
// there are: whoever changes a defence hears of its row at once.
func TestTheRowsFitTheTree(t *testing.T) {
	t.Chdir("../..")
	all, err := read("internal/defence/defences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, d := range all {
		if seen[d.Promise+d.Test] {
			t.Errorf("%s: two rows", d.Promise)
		}
		seen[d.Promise+d.Test] = true
		if d.isSpec() {
			fitsSpec(t, d)
			continue
		}
		dir := t.TempDir()
		if _, err := d.overlay(dir); err != nil {
			t.Errorf("%s: %v", d.Promise, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "mutant.go"), nil, 0); err != nil {
			t.Errorf("%s: %s without the defence is no Go: %v", d.Promise, d.File, err)
		}
		tests := testsOf(t, d.Package)
		for name := range strings.SplitSeq(d.Test, "|") {
			name, _, _ = strings.Cut(strings.TrimSuffix(name, "$"), "/")
			if !strings.Contains(tests, "func "+name) {
				t.Errorf("%s: %s has no %s", d.Promise, d.Package, name)
			}
		}
	}
}

// fitsSpec is the same of a row whose test is an example; whether it is Ruby shows
// when it runs.
func fitsSpec(t *testing.T, d defence) {
	t.Helper()
	if _, err := d.mutant(); err != nil {
		t.Errorf("%s: %v", d.Promise, err)
	}
	raw, err := os.ReadFile(filepath.Clean(d.Package))
	if words, ok := strings.CutPrefix(d.Test, "is as cold: "); ok { // a row of the table that the spec goes through
		d.Test = words
		raw, err = os.ReadFile(filepath.Join(module, "spec/support/warm_rows.rb"))
	}
	if err != nil || !strings.Contains(string(raw), d.Test) {
		t.Errorf("%s: %s has no example %q (%v)", d.Promise, d.Package, d.Test, err)
	}
}

// testsOf is the source of a package's tests.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(raw)
	}
	return out.String()
}

func TestWhatATestSaid(t *testing.T) {
	for _, tc := range []struct{ reason, out, want string }{
		{"its first line", "--- FAIL: TestX (0.00s)\n    x_test.go:3: first\n    x_test.go:4: second\nFAIL\n", "`first`"},
		{"of a difference, what differs", "    x_test.go:3: log -want +got\n          []string{\n        - \t\"a\",\n          }\n", "`log -want +got -\"a\",`"},
		{"a panic", "panic: nobody catches it\n", "`panic: nobody catches it`"},
		{"a build that failed is no proof", "    x_test.go:3: first\nFAIL x [build failed]\n", ""},
		{"nor is silence", "FAIL\n", ""},
	} {
		if got := complaint(tc.out); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}

func TestWhatAnExampleSaid(t *testing.T) {
	for _, tc := range []struct{ reason, out, want string }{
		{"what was expected", "Failures:\n\n  1) X y\n     Failure/Error: expect(1).to eq(2)\n\n       expected: 2\n            got: 1\n", "`expected: 2`"},
		{"below an expectation of several lines", "     Failure/Error:\n       expect(1)\n         .to eq(2)\n\n       expected: 2\n", "`expected: 2`"},
		{"with what the run said, the expectation", "     Failure/Error: expect(a).to eq(2), run.said\n\n       == phase.jsonl\n       {}\n", "`expect(a).to eq(2), run.said`"},
		{"an error", "  1) X y\n     Failure/Error: @socket.write(line)\n\n     Timeout::Error:\n       execution expired\n", "`Timeout::Error:`"},
		{"a file that does not load is no proof", "An error occurred while loading ./spec/x_spec.rb.\n0 examples, 0 failures, 1 error\n", ""},
		{"nor is silence", "1 example, 0 failures\n", ""},
	} {
		if got := objection(tc.out); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
		}
	}
}
