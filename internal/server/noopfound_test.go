package server_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
)

// preview lets db-01 make a noop run that finds that these resources are not as the code says.
func (f *fenced) preview(found ...string) tutti.RunID {
	f.t.Helper()
	if _, err := f.StartJob(servertest.Operator(), tutti.StartJob{Mode: tutti.ModeNoop, Runs: &tutti.NodeRuns{Nodes: []tutti.NodeName{"db-01"}}}); err != nil {
		f.t.Fatal(err)
	}
	order := f.claim()
	f.db.Gate(full(order.Run))
	f.report(order.Run, servertest.Result(order.Run, tutti.Unchanged), found...)
	return order.Run
}

// report ends a run with a report, and with resources that were out of sync and were not changed.
func (f *fenced) report(run tutti.RunID, result tutti.Result, found ...string) {
	f.t.Helper()
	ended := enclosing(run, `{"resource_statuses": {}}`, "log")
	result.Report, result.Log = ended.Report, ended.Log
	for _, resource := range found {
		result.Changes = append(result.Changes, tutti.Change{Resource: resource, Message: "content changed"})
	}
	result.Counts.OutOfSync = len(found)
	ended.Result = result
	if err := handOver(f.t, f.db, ended, 0); err != nil {
		f.t.Fatal(err)
	}
}

// TestANoopRunThatFoundSomething: with the code and the answers of now it shows that its node is not good, and no proof
// undoes that. What the last full run has left so by itself (noop => true) says nothing.
func TestANoopRunThatFoundSomething(t *testing.T) {
	const file, kept = "File[/x]", "File[/kept]"
	for _, tc := range []struct {
		reason string
		after  func(f *fenced)
		want   string // of why
	}{
		{"it found nothing", func(f *fenced) { f.preview() }, "good: "},
		{"it found a change", func(f *fenced) { f.preview(kept, file) }, "has found that File[/x] is not as the code says"},
		{"it found what is noop by itself", func(f *fenced) { f.preview(kept) }, "good: "},
		{"it found a message", func(f *fenced) { f.preview("Notify[hello]") }, "good: "},
		{"a later one found nothing", func(f *fenced) { f.preview(file); f.preview() }, "good: "},
		{"it had other code, which was taken back", func(f *fenced) {
			f.PushSite("# other")
			f.preview(file)
			f.Push(oneNode)
		}, "good: "},
	} {
		f := newFenced(t)
		f.converge()
		order := f.claim()
		f.db.Gate(full(order.Run))
		f.report(order.Run, servertest.Result(order.Run, tutti.Changed), kept)
		tc.after(f)
		check := func(when string) {
			t.Helper()
			why := f.why()
			if good := strings.HasPrefix(why, "good: "); good != (tc.want == "good: ") || !good && !strings.Contains(why, tc.want) {
				t.Errorf("%s, %s: %s; want %q", tc.reason, when, why, tc.want)
			}
		}
		check("at once")
		f.restart()
		check("after a start")
		if tc.want == "good: " {
			continue
		}
		f.converge()
		order = f.claim()
		if order == nil || order.Proof {
			t.Fatalf("%s: the order is %+v: want a full run that no proof ends", tc.reason, order)
		}
		check("before its gate")
		f.db.Gate(full(order.Run))
		f.db.Finish(order.Run)
		if why := f.why(); !strings.HasPrefix(why, "good: ") {
			t.Errorf("%s, after a full run: %s", tc.reason, why)
		}
	}
}

// TestACompileDoesNotUndoWhatANoopRunFound: of two pushes of which the second takes the first back the catalog is that of
// the last full run, and the node is not good.
func TestACompileDoesNotUndoWhatANoopRunFound(t *testing.T) {
	f := newFenced(t)
	f.pass()
	f.PushSite("# other")
	f.preview("File[/x]")
	f.converge()
	order := f.claim()
	f.db.Gate(full(order.Run))
	if gated := f.db.Gate(full(order.Run)); gated.Verdict != tutti.GateGo {
		t.Errorf("the gate says %+v: want it to go", gated)
	}
}
