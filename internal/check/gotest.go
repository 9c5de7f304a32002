package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// goTest is one call of go test.
type goTest struct {
	env  []string
	args []string // the arguments after `go test -json`
}

// The type `event` is a line of the output of go test -json.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// goTests runs all calls one after another, even if one fails.
func goTests(calls ...goTest) func(context.Context, *sink) error {
	return func(ctx context.Context, s *sink) error {
		var first error
		for _, c := range calls {
			watch := newTestWatch(s)
			args := append([]string{"go", "test", "-json"}, c.args...)
			if err := s.command(ctx, c.env, watch.line, args...); err != nil && first == nil {
				first = err
			}
		}
		return first
	}
}

// testWatch reads the output of go test -json.
type testWatch struct {
	sink   *sink
	said   map[string][]string // the output so far of each running test
	failed map[string]bool     // packages in which a test has failed
}

func newTestWatch(s *sink) *testWatch {
	return &testWatch{sink: s, said: map[string][]string{}, failed: map[string]bool{}}
}

// keptLines is how many lines of a failing test's output are printed. The log has the
// whole output.
const keptLines = 200

func (w *testWatch) line(text string) {
	var e event
	if json.Unmarshal([]byte(text), &e) != nil || e.Action == "" {
		w.sink.report.say("%s: %s", w.sink.stage, text) // the line is from go itself, or from a child process of a test
		return
	}
	key := e.Package + e.ImportPath + " " + e.Test
	result := testResult{stage: w.sink.stage, name: strings.TrimPrefix(e.Package, modulePath+"/"), seconds: e.Elapsed}
	if e.Test != "" {
		result.name += " " + e.Test
	}
	switch e.Action {
	case "output", "build-output":
		w.said[key] = append(w.said[key], e.Output)
		if over := len(w.said[key]) - keptLines; over > 0 {
			w.said[key] = w.said[key][over:]
		}
		return
	case "pass":
		w.passed(e, result)
	case "build-fail":
		return // a later event says that the package has failed
	case "fail":
		if e.Test != "" || !w.failed[e.Package] { // report the package only if none of its tests has failed
			w.sink.report.fail(result, w.all(e, key))
		}
		w.failed[e.Package] = true
	case "skip":
		if e.Test != "" { // without a name, the event is about a package that has no tests
			w.sink.report.skip(result, strings.Join(w.said[key], ""))
		}
	default:
		return
	}
	delete(w.said, key)
}

func (w *testWatch) passed(e event, result testResult) {
	if e.Test == "" {
		w.sink.report.say("ok %s %.1f s", result.name, e.Elapsed)
		return
	}
	top := !strings.Contains(e.Test, "/")
	w.sink.report.pass(result, top)
	if top && e.Elapsed >= slowTest {
		w.sink.report.say("   %s %.1f s, budget %s", result.name, e.Elapsed, w.sink.report.budget.of(result))
	}
}

// The method `all` returns the output of a failed test. For a package that did not
// build, the method returns the output of the compiler.
func (w *testWatch) all(e event, key string) string {
	said := strings.Join(w.said[key], "")
	if e.FailedBuild != "" {
		said += strings.Join(w.said[e.FailedBuild+" "], "")
	}
	if said == "" {
		return fmt.Sprintf("(it said nothing: %s)", e.Action)
	}
	return said
}
