package converge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// collecting is one node that exports, and one node that collects these exports from a
// PuppetDB.
func collecting() map[tutti.NodeName]*manifest {
	return map[tutti.NodeName]*manifest{
		"a": {compile: func(answers) catalog { return catalog{exports: map[string][]string{"T": {"x"}}} }},
		"b": {types: []string{"T"}, compile: func(got answers) catalog { return catalog{extra: strings.Join(got.exports["T"], " ")} }},
	}
}

// A run that ends because PuppetDB is too late does not count as a try, however often this
// happens. The node compiles again, and runs once when PuppetDB has stored the exports.
func TestConvergingWaitsForPuppetDB(t *testing.T) {
	s := newSim(t, collecting())
	until := s.now.Add(4 * time.Minute)
	s.behind = func(n tutti.NodeName) bool { return n == "b" && s.now.Before(until) }
	j := s.all(first)
	lagged, passed := 0, 0
	for _, n := range j.Steps[0].Nodes {
		for _, r := range n.Runs {
			if r.Lagged() && r.GateWhy == "PuppetDB has not stored run of-a of node a yet" {
				lagged++
			}
			if r.Passed() && n.Node == "b" {
				passed++
			}
		}
	}
	if j.Verdict != tutti.VerdictConverged || lagged < 7 || passed != 1 {
		t.Errorf("%s (%s) after %d stops for PuppetDB and %d runs, want converged after some and one:\n%s", j.Verdict, j.Message, lagged, passed, s.tail())
	}
	if took := s.now.Sub(epoch); took > 6*time.Minute {
		t.Errorf("it took %s", took)
	}
}

// If PuppetDB never stores the exports, the job ends and reports what it waited for. A
// reactive fleet leaves the node alone for a while.
func TestConvergingDoesNotWaitForPuppetDBForEver(t *testing.T) {
	s := newSim(t, collecting())
	s.behind = func(n tutti.NodeName) bool { return n == "b" }
	j := s.all(first)
	if diff := cmp.Diff("b failed: PuppetDB has not stored run of-a of node a yet", j.Message); diff != "" || j.Verdict != tutti.VerdictFailed {
		t.Errorf("%s: -want +got\n%s", j.Verdict, diff)
	}
	if took := s.now.Sub(epoch); took < 5*time.Minute || took > 8*time.Minute {
		t.Errorf("it took %s, want a bit more than five minutes", took)
	}
	s.reaction = &tutti.Reaction{Window: 2 * time.Second, Wide: time.Minute}
	before := len(s.engine.Jobs)
	s.live(20 * time.Minute)
	if n := len(s.engine.Jobs) - before; n != 0 {
		t.Errorf("%d jobs began within 20 minutes", n)
	}
	s.behind = nil
	s.live(20 * time.Minute)
	if got := s.standing("b"); got.Why() != "" {
		t.Errorf("after 40 minutes: %s", got.Why())
	}
}
