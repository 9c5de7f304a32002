package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// The method `late` stops the active run of a node as if PuppetDB had lagged.
func (f *fleet) late(node tutti.NodeName) {
	run := f.active(node)
	f.append(&tutti.RunAsked{Run: run, Served: &tutti.Served{Lags: []tutti.Lag{{Node: "n2"}}}})
	f.finish(run, stopped)
}

// A node collects exports that PuppetDB has not stored yet. The node compiles again after
// growing pauses, but not for ever. These compiles do not count as tries.
func TestANodeWaitsForPuppetDB(t *testing.T) {
	f := newFleet()
	f.start([]tutti.Step{run("a")}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1")})
	f.settle(t)
	for range 3 { // other stops do not count as lags
		f.finish(f.active("n1"), stopped)
		f.settle(t)
	}
	var rests []time.Duration
	for range 30 {
		f.late("n1")
		began := f.now
		f.settle(t)
		if f.state.Jobs["j1"].Verdict != "" {
			break
		}
		for f.active("n1") == "" && f.now.Sub(began) < time.Hour {
			f.now = f.now.Add(time.Second)
			f.settle(t)
		}
		rests = append(rests, f.now.Sub(began))
		f.restart()
	}
	second := time.Second
	want := []time.Duration{2 * second, 4 * second, 8 * second, 16 * second}
	for range 9 {
		want = append(want, 30*second)
	}
	if diff := cmp.Diff(want, rests); diff != "" {
		t.Errorf("it rested: -want +got\n%s", diff)
	}
	if j := f.state.Jobs["j1"]; j.Verdict != tutti.VerdictFailed {
		t.Errorf("after %s: verdict %q, want failed", f.now.Sub(epoch), j.Verdict)
	}
}

// If a node has waited for something else between two lags, its wait for PuppetDB counts
// from the second lag.
func TestOtherWaitsAreNotForPuppetDB(t *testing.T) {
	f := newFleet()
	f.start([]tutti.Step{run("a")}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1")})
	f.settle(t)
	for range 5 {
		f.late("n1")
		f.now = f.now.Add(20 * time.Minute)
		f.settle(t)
	}
	f.finish(f.active("n1"), good)
	f.settle(t)
	if got := f.state.Jobs["j1"].Verdict; got != tutti.VerdictSucceeded {
		t.Errorf("verdict %q, want succeeded", got)
	}
}

// A run that was stopped because PuppetDB lagged does not use up an attempt.
func TestALagIsNoAttempt(t *testing.T) {
	f := newFleet()
	f.start([]tutti.Step{run("a")}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1")})
	f.settle(t)
	for range 5 {
		f.late("n1")
		f.now = f.now.Add(time.Minute)
		f.settle(t)
		f.finish(f.active("n1"), stopped)
		f.settle(t)
	}
	f.late("n1")
	f.now = f.now.Add(time.Minute)
	f.settle(t)
	f.finish(f.active("n1"), good)
	f.settle(t)
	if got := f.state.Jobs["j1"].Summary(f.now); got.Outcome != tutti.VerdictSucceeded || got.Runs != 1 || got.Compiles != 11 {
		t.Errorf("%+v, want one run after eleven compiles", got)
	}
}
