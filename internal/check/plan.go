package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// hostPackages are the packages with tests on lab hosts, and with tests that need the
// program of another release.
var hostPackages = []string{"e2e", "internal/lab", "cmd/tutti"}

var golangci = []string{"go", "run", "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0", "run", "--allow-parallel-runners"}

// The function `stages` returns the tests that CI runs. The lane "hosts" boots hosts, the lane "code" does
// not. If `c` is set, only the stages that the change affects are returned.
func stages(rows budget, c *change) []stage {
	all := []stage{
		{name: "build", lane: "hosts", run: commands([]string{"make", "build"})},
		{name: "e2e8", lane: "hosts", after: []string{"build"}, run: e2e(rows, "", func(r row) bool { return slices.Contains(r.puppet8, "check") && c.touchesArea(r.area) })},
		{name: "e2e7", lane: "hosts", after: []string{"build"}, run: e2e(rows, "bookworm", func(r row) bool { return slices.Contains(r.puppet7, "check") && c.touchesArea(r.area) })},

		// The module's specs need no hosts, so specs7 could run in either lane. It runs in the lane "hosts",
		// because this lane would end first.
		{name: "specs7", lane: "hosts", run: specs("most", "bookworm")},

		{name: "lint", lane: "code", run: lint},
		{name: "go", lane: "code", run: unitTests(c)},
		{name: "specs8", lane: "code", run: specs("warm", "trixie")},
		{name: "defence", lane: "code", after: []string{"go"}, run: defences(c)},
	}
	return c.keep(all)
}

// part is a group of deep tests that takes at most an hour.
type part struct {
	name, what string
	stages     []stage
}

// The function `parts` returns all tests that check leaves out. They include the long forms of tests of
// which check runs a short form.
func parts(rows budget) []part {
	// The function `on` returns the stages of a part that run tests on lab hosts. In these tests the server
	// and the agents have their default deadlines.
	on := func(name string) []stage {
		return []stage{
			{name: "build", run: commands([]string{"make", "build"})},
			{name: name + "-puppet8", after: []string{"build"}, run: e2e(rows, "", func(r row) bool { return slices.Contains(r.puppet8, name) }, "E2E_DEEP=1")},
			{name: name + "-puppet7", after: []string{"build"}, run: e2e(rows, "bookworm", func(r row) bool { return slices.Contains(r.puppet7, name) }, "E2E_DEEP=1")},
		}
	}
	all := []part{
		{"go", "all Go tests with -race, more random cases, with kill points, and a larger crowd of strangers", []stage{{name: "go-race", run: goTests(
			goTest{args: []string{"-race", "-count", "1", "-timeout", "50m", "./..."}},
			goTest{args: []string{"-race", "-count", "1", "-timeout", "30m", "-tags", "killpoints", "./cmd/tutti"}},
		)}, {name: "go-random", run: moreRandom}, {name: "go-strangers", run: goTests(
			goTest{env: []string{"ATTACK_STRANGERS=14000"}, args: []string{"-count", "1", "-timeout", "20m", "-run", "^TestStrangersWhoFinishTLS$", "./attack"}},
		)}}},
		{"fuzz", "every decoder, a minute each", []stage{{name: "fuzz", run: counted(fuzzRE, []string{"script/fuzz"}, "FUZZTIME=1m", "GOMAXPROCS=2")}}},
		{"ui", "the page in a real browser", []stage{{name: "ui", run: browser}}},
		{"specs", "the module's specs, cold and warm, on Puppet 7 and 8", []stage{{name: "specs-all", run: specs("all")}}},
		{"lab", "the lab itself", on("lab")},
		{"fleet", "the small fleet: tests that check leaves out, with waits of real length", on("fleet")},
		{"truth", "whether nodes that count as good are good, after random changes and faults; docs/truth.md has the sum", on("truth")},
		{"services", "Swift, the web site and the compute cloud on Puppet 8", on("services")},
		{"puppetserver", "a Puppet Server with PuppetDB, with and without the module", on("puppetserver")},
		{"puppet7", "the fleet's tests on Puppet 7", on("puppet7")},
		{"release", "this release and the last one together; the packages", append(on("release"), stage{name: "packages", run: goTests(
			goTest{args: []string{"-tags", "packages", "-count", "1", "-timeout", "50m", "-run", "^(TestPackages|TestOrderOfVersions)$", "./internal/packages"}},
		)})},
		{"bench", "every figure of the benchmarks", []stage{
			{name: "build", run: commands([]string{"make", "build"})},
			{name: "bench", after: []string{"build"}, run: counted(benchRE, []string{"go", "run", "./internal/bench"})},
		}},
	}
	for i := range simulatedParts {
		what := fmt.Sprintf("the same test for %d simulated fleets, share %d/%d", simulatedFleets, i+1, simulatedParts)
		all = append(all, part{fmt.Sprintf("simulated-%d", i+1), what, simulated(1 + i*simulatedFleets)})
	}
	for i := 1; i <= defenceParts; i++ {
		share := fmt.Sprintf("%d/%d", i, defenceParts)
		all = append(all, part{fmt.Sprintf("defence-%d", i), "each defence taken out, share " + share, []stage{
			{name: fmt.Sprintf("defence-%d", i), run: counted(defenceRE, []string{"go", "run", "./internal/defence", "-part", share})},
		}})
	}
	return all
}

// The test of all defences is divided into defenceParts parts. With this number, each part takes less than
// an hour.
const defenceParts = 3

// The test of simulated fleets has simulatedParts parts. Each part simulates `simulatedFleets` fleets in
// less than an hour. All parts together simulate more than a million fleets.
const (
	simulatedParts  = 3
	simulatedFleets = 340_000
)

// The function `simulated` returns a stage that tests `simulatedFleets` random fleets. Their seeds begin
// with `seed`. GOGC is high because there are many small fleets.
func simulated(seed int) []stage {
	return []stage{{name: "simulated", run: goTests(goTest{
		env:  []string{fmt.Sprintf("TRUTH_FLEETS=%d", simulatedFleets), fmt.Sprintf("TRUTH_SEED=%d", seed), "GOGC=800"},
		args: []string{"-count", "1", "-timeout", "100m", "-run", "^TestTruth$", "./internal/converge"},
	})}}
}

// The function `commands` executes the commands one after another. The stage ends at the first command that
// fails.
func commands(all ...[]string) func(context.Context, *sink) error {
	return func(ctx context.Context, s *sink) error {
		for _, args := range all {
			if err := s.command(ctx, nil, nil, args...); err != nil {
				return err
			}
		}
		return nil
	}
}

// The function `browser` drives the page with a real browser. If npm can fetch axe-core, the tests also look for barriers.
func browser(ctx context.Context, s *sink) error {
	if err := s.command(ctx, nil, nil, "script/install-deps", "chromium"); err != nil {
		return err
	}
	var axe string
	if err := s.command(ctx, nil, func(line string) {
		if strings.HasSuffix(line, "axe.min.js") { // npm may print warnings, too
			axe = line
		}
	}, "script/axe"); err != nil {
		return err
	}
	if axe == "" {
		s.report.say("%s: axe-core is not there (package npm), so nobody looks for barriers", s.stage)
	}
	return goTests(goTest{env: []string{"AXE=" + axe}, args: []string{"-tags", "ui", "-count", "1", "-timeout", "20m", "./internal/uitest"}})(ctx, s)
}

// The function `lint` prints the output of the linters.
func lint(ctx context.Context, s *sink) error {
	say := func(line string) { s.report.say("lint: %s", line) }
	for _, args := range [][]string{
		append(golangci[:len(golangci):len(golangci)], "./..."),
		append(golangci[:len(golangci):len(golangci)], "--build-tags", "e2e,killpoints,packages,ui", "./..."),
		{"go", "mod", "tidy", "-diff"},
		{"script/ui-types"},
	} {
		if err := s.command(ctx, nil, say, args...); err != nil {
			return err
		}
		s.report.tests(1, 0)
	}
	if err := s.command(ctx, []string{"GOOS=darwin"}, say, "go", "vet", "./cmd/tutti"); err != nil {
		return err
	}
	s.report.tests(1, 0)
	return nil
}

// e2e runs the tests of hostPackages for which the function `want` returns true. The hosts have the given
// Debian release, or the default release if `release` is empty.
func e2e(rows budget, release string, want func(row) bool, env ...string) func(context.Context, *sink) error {
	var calls []goTest
	if release != "" {
		env = append(env, "E2E_RELEASE="+release)
	}
	for _, pkg := range hostPackages {
		if pattern := rows.tests(pkg, want); pattern != "" {
			calls = append(calls, goTest{env: env, args: []string{"-tags", "e2e", "-count", "1", "-timeout", "80m", "-run", pattern, "./" + pkg}})
		}
	}
	return goTests(calls...)
}

// unitTests runs the Go tests that need no hosts. The function uses the race detector for
// packages that use goroutines.
func unitTests(c *change) func(context.Context, *sink) error {
	return func(ctx context.Context, s *sink) error {
		packages, err := listPackages(ctx)
		if err != nil {
			return err
		}
		concurrent, err := packages.concurrent()
		if err != nil {
			return err
		}
		var race, plain []string
		for _, p := range packages {
			switch {
			case !c.touchesPackage(packages, p.ImportPath):
			case concurrent[p.ImportPath]:
				race = append(race, p.ImportPath)
			default:
				plain = append(plain, p.ImportPath)
			}
		}
		var calls []goTest
		if len(plain) > 0 {
			calls = append(calls, goTest{args: append([]string{"-timeout", "40m"}, plain...)})
		}
		if len(race) > 0 {
			calls = append(calls, goTest{args: append([]string{"-race", "-timeout", "40m"}, race...)})
		}
		if c.touchesPackage(packages, modulePath+"/cmd/tutti") {
			pattern, err := testsWithTag("cmd/tutti", "killpoints")
			if err != nil {
				return err
			}
			calls = append(calls, goTest{args: []string{"-tags", "killpoints", "-timeout", "40m", "-run", pattern, "./cmd/tutti"}})
		}
		return goTests(calls...)(ctx, s)
	}
}

// The function `specs` executes the module's lint and specs on the given Debian releases. If no release is
// given, the function uses both releases.
func specs(kind string, releases ...string) func(context.Context, *sink) error {
	return counted(rspecRE, append([]string{"script/module-specs"}, releases...), "SPECS="+kind)
}

// If BASE is not set, check tests at most mostDefences defences. One defence takes about ten seconds.
const mostDefences = 8

// The function `defences` returns a stage that tests the defences whose file or test has changed. If `c` is
// nil, the stage compares with the commit at which the deep tests have tested all defences. It then tests
// only some of the changed defences.
func defences(c *change) func(context.Context, *sink) error {
	return func(ctx context.Context, s *sink) error {
		args := []string{"go", "run", "./internal/defence"}
		if c != nil {
			return counted(defenceRE, append(args, "-changed", c.base))(ctx, s)
		}
		since, err := deepCommit(deepFile, "defence-")
		if err != nil {
			return err
		}
		if _, err := output(ctx, "git", "cat-file", "-e", since+"^{commit}"); since != "" && err == nil {
			args = append(args, "-changed", since)
		}
		return counted(defenceRE, append(args, "-most", strconv.Itoa(mostDefences)))(ctx, s)
	}
}

// Each pattern matches lines of one program, from which the tests of this program are counted. In the first
// two patterns, the first group is a number of tests, and the second group is the number of failed tests.
// For rspecRE the first number includes the failed tests.
var (
	rspecRE   = regexp.MustCompile(`^(\d+) examples?, (\d+) failures?`)
	defenceRE = regexp.MustCompile(`^(\d+) passed, (\d+) failed`)
	fuzzRE    = regexp.MustCompile(`^(Fuzz)\w+ `)
	benchRE   = regexp.MustCompile(`\s(met|missed)$`)
)

// The function `counted` executes a command, prints its lines, and counts its tests by a pattern.
func counted(pattern *regexp.Regexp, args []string, env ...string) func(context.Context, *sink) error {
	return func(ctx context.Context, s *sink) error {
		return s.command(ctx, env, func(line string) {
			s.report.say("%s: %s", s.stage, line)
			m := pattern.FindStringSubmatch(line)
			if m == nil {
				return
			}
			all, err := strconv.Atoi(m[1])
			switch {
			case err != nil && m[1] == "missed": // report a figure that misses its goal, but do not count it as failed
				s.report.missed(line)
			case err != nil:
				s.report.tests(1, 0)
			default:
				failed, _ := strconv.Atoi(m[2]) // no error is possible, because the pattern allows only digits
				if pattern == rspecRE {
					all -= failed
				}
				s.report.tests(all, failed)
			}
		}, args...)
	}
}

// moreRandom runs the tests that use random cases, with ten times as many cases.
func moreRandom(ctx context.Context, s *sink) error {
	packages, err := listPackages(ctx)
	if err != nil {
		return err
	}
	args := []string{"-count", "1", "-timeout", "50m"}
	for _, p := range packages {
		if p.testsWith("pgregory.net/rapid") {
			args = append(args, p.ImportPath)
		}
	}
	return goTests(goTest{args: append(args, "-rapid.checks=1000")})(ctx, s)
}

// testsWithTag returns the tests in files with a build tag, as a pattern for go test
// -run.
func testsWithTag(dir, tag string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return "", err
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if !strings.HasPrefix(string(text), "//go:build "+tag+"\n") {
			continue
		}
		for _, m := range testRE.FindAllStringSubmatch(string(text), -1) {
			names = append(names, m[1])
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("no test in %s needs the build tag %s", dir, tag)
	}
	return "^(" + strings.Join(names, "|") + ")$", nil
}

var testRE = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// commitOf returns the commit of the tree. The function adds a + if files differ from the
// commit.
func commitOf(ctx context.Context) (string, error) {
	head, err := output(ctx, "git", "rev-parse", "--short=10", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := output(ctx, "git", "status", "--porcelain", "--", ".", ":!"+deepFile)
	if err != nil {
		return "", err
	}
	if head = strings.TrimSpace(head); strings.TrimSpace(changed) != "" {
		head += "+"
	}
	return head, nil
}
