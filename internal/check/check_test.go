package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEveryHostTestHasARow: each test on lab hosts has a row, and runs in check or in a
// part of deep. If a test does not run in check, its row must name the test that replaces
// it there.
func TestEveryHostTestHasARow(t *testing.T) {
	t.Chdir("../..")
	rows, err := readBudget(budgetFile)
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"check"}
	for _, p := range parts(rows) {
		known = append(known, p.name)
	}
	var have []string
	for _, r := range rows {
		where := slices.Concat(r.puppet8, r.puppet7)
		if r.area == "go" {
			wantGoTest(t, r.name, where)
			continue
		}
		have = append(have, r.name)
		if len(where) == 0 {
			t.Errorf("%s runs nowhere", r.name)
		}
		for _, w := range where {
			if !slices.Contains(known, w) {
				t.Errorf("%s runs in %q: known are %s", r.name, w, strings.Join(known, ", "))
			}
		}
		if areas[r.area] == nil {
			t.Errorf("%s is of area %q, which affected.go does not know", r.name, r.area)
		}
		if inCheck := slices.Contains(where, "check"); !inCheck && strings.HasPrefix(r.twin, "itself") {
			t.Errorf("%s is not in check: name what stands for it there", r.name)
		}
	}
	if diff := cmp.Diff(hostTests(t), slices.Sorted(slices.Values(have))); diff != "" {
		t.Errorf("%s: a row for each test that needs lab hosts: -tests +rows\n%s", budgetFile, diff)
	}
}

// wantGoTest checks the row of a test without hosts, and fails if the row is wrong.
// The row's test must exist. The row must name no places, because check runs this test
// together with all other Go tests.
func wantGoTest(t *testing.T, name string, where []string) {
	t.Helper()
	pkg, test, _ := strings.Cut(name, " ")
	files, err := filepath.Glob(pkg + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found := slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && !bytes.HasPrefix(text, []byte("//go:build e2e\n")) && bytes.Contains(text, []byte("\nfunc "+test+"(t *testing.T)"))
	})
	if !found || len(where) > 0 {
		t.Errorf("%s, found %t, runs in %v: want a Go test that needs no hosts, and - in both columns", name, found, where)
	}
}

// hostTests returns the tests in files with the build tag e2e.
func hostTests(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pkg := range hostPackages {
		files, err := filepath.Glob(pkg + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(text, []byte("//go:build e2e\n")) {
				continue
			}
			for _, m := range testRE.FindAllSubmatch(text, -1) {
				found = append(found, pkg+" "+string(m[1]))
			}
		}
	}
	slices.Sort(found)
	return found
}

func TestReadBudgetRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for _, tc := range []struct{ reason, text, says string }{
		{"spaces for tabs", "e2e TestA check - fleet 3 itself\n", ":1: want PACKAGE TEST"},
		{"no twin", "# head\ne2e TestA\tcheck\t-\tfleet\t3\n", ":2: want PACKAGE TEST"},
		{"twice", "e2e TestA\tcheck\t-\tfleet\t3\titself\ne2e TestA\tcheck\t-\tfleet\t3\titself\n", ":2: e2e TestA has a row already"},
	} {
		path := filepath.Join(t.TempDir(), "budget.tsv")
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readBudget(path); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.says)
		}
	}
}

// runStages runs stages and returns the output.
func runStages(t *testing.T, all ...stage) (*report, string, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(logDir, 0o750); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := newReport(&out, budget{{name: "a TestSlow", seconds: 7}})
	r.runAll(t.Context(), all)
	err := r.end()
	return r, out.String(), err
}

func TestAFailedStageFailsAll(t *testing.T) {
	ran := false
	_, out, err := runStages(t,
		stage{name: "one", lane: "a", run: func(context.Context, *sink) error { return errors.New("broken") }},
		stage{name: "two", lane: "b", after: []string{"one"}, run: func(context.Context, *sink) error { ran = true; return nil }},
		stage{name: "three", lane: "b", run: func(_ context.Context, s *sink) error { s.report.tests(3, 0); return nil }},
	)
	if err == nil || !strings.Contains(err.Error(), "stage one: broken") || !strings.Contains(err.Error(), "stage two: not run") {
		t.Errorf("error %v", err)
	}
	if ran {
		t.Error("a stage ran after the one that it needs had failed")
	}
	if !strings.Contains(out, "\n3 passed, 0 failed, 0 skipped\n") {
		t.Errorf("no sum of what ran:\n%s", out)
	}
}

// TestACommandThatFailsIsTold: if a command fails, its exit code becomes the error of its
// stage, and its output is in the log.
func TestACommandThatFailsIsTold(t *testing.T) {
	var lines []string
	_, out, err := runStages(t, stage{name: "one", run: func(ctx context.Context, s *sink) error {
		return s.command(ctx, []string{"WORD=said"}, func(l string) { lines = append(lines, l) }, "sh", "-c", "echo $WORD; printf last; exit 3")
	}})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"said", "last"}, lines); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if sums, last, found := strings.Cut(out, " skipped\n"); !found || !strings.HasSuffix(last, "\n  said\n  last\n") {
		t.Errorf("the end does not say what failed: %q after\n%s", last, sums)
	}
	log, err := os.ReadFile(logDir + "/one.log")
	if err != nil || !strings.HasSuffix(string(log), "\nsaid\nlast\n") {
		t.Errorf("log %q, %v", log, err)
	}
}

func TestTestsAreCountedAndToldAbout(t *testing.T) {
	const said = `
{"Action":"output","Package":"github.com/tutti-project/tutti/a","Test":"TestBad","Output":"what it said\n"}
{"Action":"fail","Package":"github.com/tutti-project/tutti/a","Test":"TestBad","Elapsed":1}
{"Action":"pass","Package":"github.com/tutti-project/tutti/a","Test":"TestSlow","Elapsed":9}
{"Action":"pass","Package":"github.com/tutti-project/tutti/a","Test":"TestSlow/part","Elapsed":8}
{"Action":"output","Package":"github.com/tutti-project/tutti/a","Test":"TestNot","Output":"no root\n"}
{"Action":"skip","Package":"github.com/tutti-project/tutti/a","Test":"TestNot","Elapsed":0}
{"Action":"fail","Package":"github.com/tutti-project/tutti/a","Elapsed":10}
{"ImportPath":"github.com/tutti-project/tutti/b","Action":"build-output","Output":"b.go:1: syntax error\n"}
{"ImportPath":"github.com/tutti-project/tutti/b","Action":"build-fail"}
{"Action":"fail","Package":"github.com/tutti-project/tutti/b","Elapsed":0,"FailedBuild":"github.com/tutti-project/tutti/b"}
`
	_, out, err := runStages(t, stage{name: "go", run: func(_ context.Context, s *sink) error {
		w := newTestWatch(s)
		for line := range strings.Lines(strings.TrimPrefix(said, "\n")) {
			w.line(strings.TrimSuffix(line, "\n"))
		}
		return nil
	}})
	if err == nil {
		t.Error("tests failed, and the check did not")
	}
	for _, want := range []string{
		"FAIL go a TestBad (1.0 s)\nwhat it said\n",
		"b.go:1: syntax error",
		"     9.0 s  7 s        go           a TestSlow\n",
		"skipped: go a TestNot: no root\n",
		"\n2 passed, 2 failed, 1 skipped\n\nfailed: go a TestBad\n  what it said\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

func TestAChangeRunsWhatItTouches(t *testing.T) {
	all := packages{
		{ImportPath: modulePath, Dir: "."},
		{ImportPath: modulePath + "/puppet"},
		{ImportPath: modulePath + "/internal"},
		{ImportPath: modulePath + "/internal/data", Deps: []string{modulePath}},
		{ImportPath: modulePath + "/internal/server", Deps: []string{modulePath, modulePath + "/internal/data"}, TestImports: []string{modulePath + "/internal/memory"}},
		{ImportPath: modulePath + "/internal/memory"},
	}
	for _, tc := range []struct {
		reason string
		file   string
		want   []string
	}{
		{"importers and importers' tests", "internal/memory/log.go", []string{"/internal/memory", "/internal/server"}},
		{"what imports the data", "internal/data/testdata/x", []string{"/internal/data", "/internal/server"}},
		{"the root package", "event.go", []string{"", "/internal/data", "/internal/server"}},
		{"a plugin is the module's", "puppet/lib/x.rb", []string{"/puppet"}},
		{"documents are read by one package", "docs/howto/lab.md", []string{"/internal"}},
		{"what has no package is everybody's", "go.mod", []string{"", "/puppet", "/internal", "/internal/data", "/internal/memory", "/internal/server"}},
	} {
		c := &change{files: []string{tc.file}}
		var got []string
		for _, p := range all {
			if c.touchesPackage(all, p.ImportPath) {
				got = append(got, strings.TrimPrefix(p.ImportPath, modulePath))
			}
		}
		slices.Sort(got)
		slices.Sort(tc.want)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s: -want +got\n%s", tc.reason, tc.file, diff)
		}
	}
}

func TestAChangeRunsTheAreasThatItTouches(t *testing.T) {
	for _, tc := range []struct {
		reason, file, area string
		want               bool
	}{
		{"the program is everywhere", "internal/engine/decide.go", "fleet", true},
		{"its tests are not", "internal/engine/engine_test.go", "fleet", false},
		{"nor is the check itself", "internal/check/plan.go", "fleet", false},
		{"documents", "docs/howto/lab.md", "services", false},
		{"an example", "examples/swift/tutti.yaml", "services", true},
		{"another area", "examples/web/tutti.yaml", "fleet", false},
		{"the tests on hosts", "e2e/lock_test.go", "fleet", true},
		{"the lab's own", "internal/lab/host_e2e_test.go", "lab", true},
	} {
		if got := (&change{files: []string{tc.file}}).touchesArea(tc.area); got != tc.want {
			t.Errorf("%s: %s touches area %s: %v", tc.reason, tc.file, tc.area, got)
		}
	}
	if !(*change)(nil).touchesArea("fleet") {
		t.Error("without BASE everything runs")
	}
}

func TestDeepRowsReplaceEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep.md")
	for _, row := range []string{
		"| services | a1 | 2026-01-02 | 9 | 1 1 | 4 passed, 0 failed, 0 skipped | green |",
		"| go | a1 | 2026-01-02 | 9 | 1 1 | 4 passed, 0 failed, 0 skipped | green |",
		"| services | b2 | 2026-01-03 | 8 | 1 1 | 3 passed, 1 failed, 0 skipped | red: services |",
	} {
		if err := writeDeep(path, row); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := deepCommit(path, "serv"); got != "b2" || err != nil {
		t.Errorf("the commit of services: %q, %v", got, err)
	}
	_, table, _ := strings.Cut(string(text), "|---|---|---|---|---|---|---|\n")
	want := "| go | a1 | 2026-01-02 | 9 | 1 1 | 4 passed, 0 failed, 0 skipped | green |\n" +
		"| services | b2 | 2026-01-03 | 8 | 1 1 | 3 passed, 1 failed, 0 skipped | red: services |\n"
	if diff := cmp.Diff(want, table); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestOnlyPackagesWithGoroutinesNeedTheRaceDetector: pure packages do not need the race
// detector, but the server does.
func TestOnlyPackagesWithGoroutinesNeedTheRaceDetector(t *testing.T) {
	t.Chdir("../..")
	all, err := listPackages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := all.concurrent()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"internal/dag": false, "internal/fleet": false, "internal/server": true, "internal/agent": true, "internal/natsbus": true} {
		if c, ok := got[modulePath+"/"+name]; !ok || c != want {
			t.Errorf("%s: race detector %v, known %v; want %v", name, c, ok, want)
		}
	}
}
