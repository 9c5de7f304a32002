package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// The type `report` collects and prints the results of all stages.
type report struct {
	mu       sync.Mutex
	out      io.Writer
	budget   budget
	start    time.Time
	load     string // the load when the check began
	stages   []stageResult
	slow     []testResult
	skipped  []string
	passed   int
	bad      int
	broken   []string // the end of the output of each failed test, and of each stage that failed without a failed test
	overGoal int      // figures of a benchmark that miss their goal
}

type stageResult struct {
	name string
	took time.Duration
	err  error
}

// testResult is one test that has ended.
type testResult struct {
	stage, name string
	seconds     float64
}

// A test that takes slowTest seconds or longer is printed with its time.
const slowTest = 5

func newReport(out io.Writer, rows budget) *report {
	r := &report{out: out, budget: rows, start: time.Now(), load: loadAverage()}
	r.say("load %s", r.load)
	return r
}

// The method `say` prints a line that begins with the time since the start.
func (r *report) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sayLocked(format, args...)
}

func (r *report) sayLocked(format string, args ...any) {
	since := time.Since(r.start).Round(time.Second)
	fmt.Fprintf(r.out, "[%02d:%02d] %s\n", int(since.Minutes()), int(since.Seconds())%60, fmt.Sprintf(format, args...))
}

// The method `tests` counts tests that a stage does not list one by one.
func (r *report) tests(passed, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed += passed
	r.bad += failed
}

// The method `missed` notes a figure that misses its goal. The figure is printed but does
// not count as a failure.
func (r *report) missed(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed++ // the benchmark could measure the figure
	r.overGoal++
	r.sayLocked("misses its goal: %s", line)
}

// The method `pass` counts a test that passed, and notes it if it was slow.
func (r *report) pass(t testResult, top bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed++
	if top && t.seconds >= slowTest {
		r.slow = append(r.slow, t)
	}
}

// The method `fail` counts a test that failed, and prints its output.
func (r *report) fail(t testResult, said string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad++
	r.sayLocked("FAIL %s %s (%.1f s)\n%s", t.stage, t.name, t.seconds, said)
	r.brokenLocked(t.stage+" "+t.name, said)
}

// When the check ends, it prints the failures again, because people often keep only the
// end of a long output.
const (
	mostBroken  = 10
	brokenLines = 80
)

func (r *report) brokenLocked(name, said string) {
	lines := strings.Split(strings.TrimRight(said, "\n"), "\n")
	lines = lines[max(0, len(lines)-brokenLines):]
	r.broken = append(r.broken, name+"\n  "+strings.Join(lines, "\n  "))
}

// The method `skip` notes a test that was skipped, with its output.
func (r *report) skip(t testResult, said string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped = append(r.skipped, t.stage+" "+t.name+": "+strings.Join(strings.Fields(said), " "))
}

func (r *report) stageEnded(name string, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stages = append(r.stages, stageResult{name, took, err})
	if err != nil {
		own := func(of string) bool { return strings.HasPrefix(of, name+" ") }
		if said, readErr := os.ReadFile(filepath.Join(logDir, name+".log")); readErr == nil && !slices.ContainsFunc(r.broken, own) {
			r.brokenLocked(name, string(said))
		}
		r.sayLocked("FAILED %s after %s: %v; its log: %s/%s.log", name, took.Round(time.Second), err, logDir, name)
		return
	}
	r.sayLocked("done %s in %s, load %s", name, took.Round(time.Second), loadAverage())
}

func (r *report) failed(stage string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.stages, func(s stageResult) bool { return s.name == stage && s.err != nil })
}

// The method `end` prints the slow tests with their rows of the budget, the skipped tests
// with the reasons, and the sums. The returned error names the stages that failed.
func (r *report) end() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.slow, func(a, b testResult) int {
		if a.seconds != b.seconds {
			return int(b.seconds*1000) - int(a.seconds*1000)
		}
		return strings.Compare(a.name, b.name)
	})
	fmt.Fprintf(r.out, "\nTests of %d s and more; the budget is only shown, and no test fails because of it:\n", slowTest)
	for _, t := range r.slow {
		fmt.Fprintf(r.out, "%8.1f s  %-10s %-12s %s\n", t.seconds, r.budget.of(t), t.stage, t.name)
	}
	for _, s := range r.skipped {
		fmt.Fprintf(r.out, "skipped: %s\n", s)
	}
	fmt.Fprintln(r.out)
	var errs []error
	for _, s := range r.stages {
		verdict := "ok"
		if s.err != nil {
			verdict = "FAILED"
			errs = append(errs, fmt.Errorf("stage %s: %w", s.name, s.err))
		}
		fmt.Fprintf(r.out, "%-14s %6.1f min  %s\n", s.name, s.took.Minutes(), verdict)
	}
	fmt.Fprintf(r.out, "%-14s %6.1f min, load %s when it began, %s at its end\n", "all", time.Since(r.start).Minutes(), r.load, loadAverage())
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n", r.passed, r.bad, len(r.skipped))
	for _, b := range r.broken[:min(len(r.broken), mostBroken)] {
		fmt.Fprintf(r.out, "\nfailed: %s\n", b)
	}
	switch {
	case len(errs) > 0:
	case r.bad > 0:
		errs = append(errs, fmt.Errorf("%d tests failed", r.bad))
	case r.passed == 0:
		errs = append(errs, errors.New("no test ran"))
	}
	return errors.Join(errs...)
}

// loadAverage returns the machine's load of the last minute and of the last five minutes.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return "unknown"
	}
	return fields[0] + " " + fields[1]
}
