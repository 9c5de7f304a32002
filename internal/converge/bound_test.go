package converge_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// The function `publishes` returns a node that reads keys and publishes one key.
func publishes(key string, makes func(answers) string, read ...string) *manifest {
	return &manifest{values: read, compile: func(a answers) catalog {
		return catalog{values: map[string]string{key: makes(a)}}
	}}
}

// The function `needs` returns a node that waits for keys.
func needs(keys ...string) *manifest {
	return &manifest{values: keys, compile: func(a answers) catalog {
		for _, key := range keys {
			if _, there := a.values[key]; !there {
				return catalog{waits: key}
			}
		}
		return catalog{}
	}}
}

func breaks(why tutti.Reason, read ...string) *manifest {
	return &manifest{values: read, compile: func(answers) catalog { return catalog{fails: why} }}
}

func constant(v string) func(answers) string { return func(answers) string { return v } }

// TestVerdicts: a job that cannot converge ends soon. Its message tells a person what to do.
func TestVerdicts(t *testing.T) {
	not := func(key string) func(answers) string {
		return func(a answers) string { return strconv.FormatBool(a.values[key] != "true") }
	}
	count := func(key string) func(answers) string {
		return func(a answers) string { n, _ := strconv.Atoi(a.values[key]); return strconv.Itoa(n + 1) }
	}
	cases := map[string]struct {
		reason  string
		nodes   map[tutti.NodeName]*manifest
		gone    tutti.NodeName
		paused  tutti.NodeName
		spec    tutti.ConvergeStep
		verdict tutti.Verdict
		says    []string
		most    int // the most runs and failures that one node may have
		within  time.Duration
	}{
		"negate": {
			reason:  "one follows the other, who does the opposite",
			nodes:   map[tutti.NodeName]*manifest{"a": publishes("v/a", func(a answers) string { return a.values["v/b"] }, "v/b"), "b": publishes("v/b", not("v/a"), "v/a")},
			verdict: tutti.VerdictDiverging, says: []string{"keeps changing: after 6 runs", `value "v/b" (by b)`, `change each other's answers: b → a (value "v/b") → b (value "v/a")`}, most: 6, within: 5 * time.Minute,
		},
		"count": {
			reason:  "each counts on from the other",
			nodes:   map[tutti.NodeName]*manifest{"a": publishes("v/a", count("v/b"), "v/b"), "b": publishes("v/b", count("v/a"), "v/a")},
			verdict: tutti.VerdictDiverging, says: []string{`(by `, "have changed again"}, most: 6, within: 5 * time.Minute,
		},
		"alone": {
			reason:  "it counts on from itself",
			nodes:   map[tutti.NodeName]*manifest{"a": publishes("v/a", count("v/a"), "v/a")},
			verdict: tutti.VerdictDiverging, says: []string{`value "v/a"`}, most: 6, within: 5 * time.Minute,
		},
		"three": {
			reason: "a chain has all that are in the cycle, and none that only reads of it",
			nodes: map[tutti.NodeName]*manifest{
				"a": publishes("v/a", count("v/c"), "v/c"), "b": publishes("v/b", count("v/a"), "v/a"),
				"c": publishes("v/c", count("v/b"), "v/b"), "d": reads("v/a"),
			},
			verdict: tutti.VerdictDiverging, says: []string{` → a (value "v/c")`, ` → b (value "v/a")`, ` → c (value "v/b")`}, most: 6, within: 8 * time.Minute,
		},
		"breaks": {
			reason:  "tried again twice, after 30 seconds and a minute",
			nodes:   map[tutti.NodeName]*manifest{"a": breaks(tutti.BecauseResources)},
			verdict: tutti.VerdictFailed, says: []string{"a failed:resources: it broke"}, most: 3, within: 3 * time.Minute,
		},
		"both break": {
			reason:  "the same failure is one line",
			nodes:   map[tutti.NodeName]*manifest{"a": breaks(tutti.BecauseResources), "b": breaks(tutti.BecauseResources)},
			verdict: tutti.VerdictFailed, says: []string{"failed:resources on 2 nodes: a, b: it broke"}, most: 3, within: 3 * time.Minute,
		},
		"breaks with other inputs": {
			reason:  "other inputs are tried, six times in all",
			nodes:   map[tutti.NodeName]*manifest{"a": breaks(tutti.BecauseResources, "v/b"), "b": publishes("v/b", count("v/b"), "v/b")},
			verdict: tutti.VerdictDiverging, says: []string{"b keeps changing", "a failed"}, most: 6, within: 10 * time.Minute,
		},
		"refused": {
			reason:  "what is refused is not tried again",
			nodes:   map[tutti.NodeName]*manifest{"a": breaks(tutti.BecauseRefused)},
			verdict: tutti.VerdictFailed, says: []string{"a failed:refused"}, most: 1, within: 30 * time.Second,
		},
		"waits": {
			reason:  "nobody can answer: said at once",
			nodes:   map[tutti.NodeName]*manifest{"a": needs("op/x"), "b": publishes("v/b", constant("1"))},
			verdict: tutti.VerdictStuck, says: []string{"a waits: no value op/x"}, most: 1, within: 30 * time.Second,
		},
		"gone": {
			reason:  "who is not connected is named, the others are good",
			nodes:   map[tutti.NodeName]*manifest{"a": publishes("v/a", constant("1")), "b": needs("v/a")},
			gone:    "a",
			verdict: tutti.VerdictStuck, says: []string{"b waits: no value v/a", "a is not connected: it never ran"}, most: 1, within: 30 * time.Second,
		},
		"partial": {
			reason:  "nobody waits for who is not connected",
			nodes:   map[tutti.NodeName]*manifest{"a": publishes("v/a", constant("1")), "b": publishes("v/b", constant("1"), "v/a")},
			gone:    "a",
			verdict: tutti.VerdictPartial, says: []string{"a is not connected"}, most: 1, within: 30 * time.Second,
		},
		"paused": {
			reason:  "who is paused is named",
			nodes:   map[tutti.NodeName]*manifest{"a": publishes("v/a", constant("1")), "b": publishes("v/b", constant("1"), "v/a")},
			paused:  "a",
			verdict: tutti.VerdictPartial, says: []string{"a is paused: somebody works on it"}, most: 1, within: 30 * time.Second,
		},
		"budget": {
			reason: "after one failure nothing more begins",
			nodes: map[tutti.NodeName]*manifest{
				"a": breaks(tutti.BecauseRefused), "b": publishes("v/b", constant("1")), "c": publishes("v/c", constant("1")),
			},
			spec:    tutti.ConvergeStep{MaxFailed: 1, Limit: 1},
			verdict: tutti.VerdictFailed, says: []string{"1 nodes have failed: nothing more began", "b was not run", "c was not run"}, most: 1, within: time.Minute,
		},
		"budget of tries": {
			reason: "a node that would be tried again has failed, too, and is not tried again",
			nodes: map[tutti.NodeName]*manifest{
				"a": breaks(tutti.BecauseResources), "b": publishes("v/b", constant("1")), "c": publishes("v/c", constant("1")),
			},
			spec:    tutti.ConvergeStep{MaxFailed: 1, Limit: 1},
			verdict: tutti.VerdictFailed, says: []string{"a failed:resources", "1 nodes have failed: nothing more began", "b was not run", "c was not run"}, most: 1, within: 20 * time.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				s := newSim(rt, tc.nodes)
				s.gone[tc.gone], s.paused = tc.gone != "", tc.paused
				next := pick(rapidDice{rt})
				if tc.spec.Limit > 0 {
					next = first
				}
				j := s.run(s.begin(tutti.ModeApply, tc.spec), next)
				if j.Verdict != tc.verdict {
					rt.Fatalf("%s: verdict %s, want %s: %s\n%s", tc.reason, j.Verdict, tc.verdict, j.Message, s.tail())
				}
				for _, says := range tc.says {
					if !strings.Contains(j.Message, says) {
						rt.Errorf("%s: %q does not say %q", tc.reason, j.Message, says)
					}
				}
				for n, did := range done(j) {
					if tries := len(strings.Fields(did)) - strings.Count(did, "stopped"); tries > tc.most {
						rt.Errorf("%s: %s was tried %d times: %s", tc.reason, n, tries, did)
					}
				}
				if took := s.now.Sub(epoch); took > tc.within {
					rt.Errorf("%s: it took %s, want at most %s\n%s", tc.reason, took, tc.within, s.tail())
				}
			})
		})
	}
}

func TestStuckNamesWhoCanProvideAndGoesOnWhenAnswered(t *testing.T) {
	nodes := map[tutti.NodeName]*manifest{"a": needs("v/b"), "b": publishes("v/b", constant("1"))}
	s := newSim(t, nodes)
	s.all(first)
	s.append(&tutti.ValueUnset{Key: "v/b"})
	j := s.all(first)
	if want := `is to come from b`; j.Verdict != tutti.VerdictStuck || !strings.Contains(j.Message, want) {
		t.Fatalf("%s: %q, want stuck and %q\n%s", j.Verdict, j.Message, want, s.tail())
	}
	s.write("v/b", "1")
	if j := s.all(first); j.Verdict != tutti.VerdictConverged {
		t.Errorf("answered: %s: %s", j.Verdict, j.Message)
	}
}

// A node waits for an answer. When another node provides the answer in the same job, the waiting node runs
// again.
func TestWhoWaitsGoesOnWhenItIsAnswered(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": needs("v/b"), "b": publishes("v/b", constant("1"))})
	j := s.all(first)
	if diff := cmp.Diff(map[tutti.NodeName]string{"a": "waiting run ", "b": "run "}, done(j)); diff != "" || j.Verdict != tutti.VerdictConverged {
		t.Errorf("%s, -want +got\n%s%s", j.Verdict, diff, s.tail())
	}
}

// The method `watch` brings a job to its end; all nodes are fast. At each moment it counts the active runs
// for which the condition `is` is true, and returns the largest count.
func (s *sim) watch(id tutti.JobID, is func(*engine.Run) bool) int {
	most := 0
	for !s.engine.Jobs[id].Ended() {
		now := 0
		for _, run := range s.engine.Active {
			if is(s.engine.Runs[run]) {
				now++
			}
		}
		most = max(most, now)
		if actions := s.actions(); len(actions) > 0 {
			s.now = s.now.Add(100 * time.Millisecond)
			actions[0]()
		} else {
			s.now = s.now.Add(10 * time.Second)
		}
		s.settle()
	}
	return most
}

func TestLimits(t *testing.T) {
	any := func(*engine.Run) bool { return true }
	compiling := func(r *engine.Run) bool { return r.CompiledAt.IsZero() }
	held := (*engine.Run).Held
	passed := (*engine.Run).Passed
	alike := func(count int) map[tutti.NodeName]*manifest {
		nodes := map[tutti.NodeName]*manifest{}
		for i := range count {
			n := fmt.Sprintf("n%02d", i)
			nodes[tutti.NodeName(n)] = publishes("v/"+n, constant("1"))
		}
		return nodes
	}
	behind := alike(60)
	for n, m := range behind {
		behind[n] = publishes("v/"+string(n), constant("1"), append(m.values, "v/slow")...)
	}
	behind["slow"] = publishes("v/slow", constant("1"))
	cases := map[string]struct {
		reason string
		nodes  map[tutti.NodeName]*manifest
		spec   tutti.ConvergeStep
		set    func(*sim)
		is     func(*engine.Run) bool
		want   int
	}{
		"limit":     {"runs that apply at once", alike(9), tutti.ConvergeStep{Limit: 2}, func(*sim) {}, passed, 2},
		"no limit":  {"all at once", alike(9), tutti.ConvergeStep{}, func(*sim) {}, passed, 9},
		"in flight": {"runs at once in the fleet", alike(9), tutti.ConvergeStep{}, func(s *sim) { s.inFlight = 3 }, any, 3},
		"compiles":  {"compiles at once", alike(9), tutti.ConvergeStep{}, func(s *sim) { s.compiles = 4 }, compiling, 4},
		"held":      {"at their gates", behind, tutti.ConvergeStep{}, func(*sim) {}, held, 50},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, maps.Clone(tc.nodes))
			tc.set(s)
			id := s.begin(tutti.ModeApply, tc.spec)
			if got := s.watch(id, tc.is); got != tc.want {
				t.Errorf("%s: %d, want %d", tc.reason, got, tc.want)
			}
			s.converged(s.engine.Jobs[id], nil)
		})
	}
}

// Node a belongs to an exclusive job, so it cannot run. It does not count against the limit of runs, so
// node b runs. But the step does not end before node a can run.
func TestAnExclusiveJobTakesNoPlace(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": publishes("v/a", constant("1")), "b": publishes("v/b", constant("1"))})
	s.append(&tutti.JobStarted{
		Job: "exclusive-1", Mode: tutti.ModeApply, Targets: map[tutti.StepName][]tutti.NodeName{"x": {"a"}},
		Plan: tutti.Plan{Name: "exclusive", Exclusive: tutti.DefaultExclusive("new kernel"), Steps: []tutti.Step{{Name: "x", Timeout: time.Hour, Run: &tutti.RunStep{}}}},
	})
	id := s.begin(tutti.ModeApply, tutti.ConvergeStep{Limit: 1})
	for range 10 {
		s.step(first)
		s.settle()
	}
	if runs := s.runs(); runs["a"] != 0 || runs["b"] != 1 || s.engine.Jobs[id].Ended() {
		t.Errorf("runs %v, ended %t: want one of b, and a to be waited for\n%s", runs, s.engine.Jobs[id].Ended(), s.tail())
	}
}

// If a run is held for a minute, the run is stopped, and its node compiles again when its turn comes. If a
// node does not come to its gate, other nodes wait for it at most five minutes.
func TestHoldsEnd(t *testing.T) {
	slow := map[tutti.NodeName]*manifest{"a": publishes("v/a", constant("1")), "b": publishes("v/b", constant("1"), "v/a"), "c": publishes("v/c", constant("1"))}
	cases := map[string]struct {
		reason  string
		until   func(*sim) bool // node a goes away as soon as this function returns true
		stopped string
		after   time.Duration
		goes    bool // other nodes may pass their gates while node a is away
	}{
		"applies":  {"a run that applies is waited for, not at a gate", func(s *sim) bool { r := s.of("a"); return r != nil && r.Passed() }, "it waited for a for 1m0s", time.Minute, true},
		"compiles": {"a compile is waited for five minutes", func(s *sim) bool { r := s.of("a"); return r != nil && !r.ClaimedAt.IsZero() }, "", 5 * time.Minute, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, slow)
			id := s.begin(tutti.ModeApply, tutti.ConvergeStep{})
			began := s.now
			for s.now.Sub(began) < tc.after-20*time.Second {
				s.gone["a"] = tc.until(s)
				s.stepSeen("a")
				if r := s.of("c"); !tc.goes && r != nil && r.Passed() {
					t.Fatalf("%s: c goes after %s\n%s", tc.reason, s.now.Sub(began), s.tail())
				}
			}
			for s.now.Sub(began) < tc.after+2*time.Minute {
				s.gone["a"] = true
				s.stepSeen("a")
			}
			if r := s.lastOf(id, "c"); !r.Passed() {
				t.Errorf("%s: c does not go\n%s", tc.reason, s.tail())
			}
			if did := done(s.engine.Jobs[id]); tc.stopped != "" && !strings.HasPrefix(did["b"], "stopped ") {
				t.Errorf("%s: b: %q, want that it is stopped\n%s", tc.reason, did["b"], s.tail())
			}
			if tail := s.tail(); !strings.Contains(tail, tc.stopped) {
				t.Errorf("%s: %q is not said:\n%s", tc.reason, tc.stopped, tail)
			}
			s.gone["a"] = false
			s.converged(s.run(id, first), nil)
		})
	}
}

// The method `of` returns the present run of a node, or nil.
func (s *sim) of(n tutti.NodeName) *engine.Run { return s.engine.Runs[s.engine.Active[n]] }

func (s *sim) lastOf(id tutti.JobID, n tutti.NodeName) *engine.Run {
	for _, node := range s.engine.Jobs[id].Steps[0].Nodes {
		if node.Node == n {
			return node.Last()
		}
	}
	return nil
}

// stepSeen does one step, in which the node `n` does not act. After the step, the server sees `n` as
// connected.
func (s *sim) stepSeen(n tutti.NodeName) {
	s.step(first)
	s.gone[n] = false
	s.settle()
}

// TestASlowCompileIsWaitedForOnce: node a compiles for four minutes without an end. Then its compile
// fails, and node a compiles again. Other nodes wait for both compiles together at most five minutes.
func TestASlowCompileIsWaitedForOnce(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": publishes("v/a", constant("1")), "c": publishes("v/c", constant("1"))})
	id := s.begin(tutti.ModeApply, tutti.ConvergeStep{})
	began, failed := s.now, false
	for s.now.Sub(began) < 6*time.Minute {
		r := s.of("a")
		s.gone["a"] = r != nil && !r.ClaimedAt.IsZero()
		if !failed && s.now.Sub(began) > 4*time.Minute {
			failed = true
			s.finish(tutti.Result{Run: r.Run, Stopped: true, Message: "the Puppet Server says nothing"})
		}
		s.stepSeen("a")
	}
	if r := s.lastOf(id, "c"); !failed || !r.Passed() {
		t.Errorf("c still waits\n%s", s.tail())
	}
}

// After a push, node a compiles slowly. Node a has a record of the earlier code. According to this record,
// node b reads what node a publishes, so node b waits long for node a. All other nodes wait only a short
// time.
func TestOnlyWhoCouldFollowWaitsForASlowCompile(t *testing.T) {
	nodes := func(by string) map[tutti.NodeName]*manifest {
		return map[tutti.NodeName]*manifest{
			"a": publishes("v/a", constant(by)), "b": publishes("v/b", constant(by), "v/a"), "c": publishes("v/c", constant(by)),
		}
	}
	s := newSim(t, nodes("one"))
	s.all(first)
	s.push("two", nodes("two"))
	id := s.begin(tutti.ModeApply, tutti.ConvergeStep{})
	began := s.now
	for s.now.Sub(began) < 4*time.Minute {
		r := s.of("a")
		s.gone["a"] = r != nil && !r.ClaimedAt.IsZero()
		s.stepSeen("a")
	}
	if c := s.lastOf(id, "c"); c == nil || !c.Passed() {
		t.Errorf("c waits for a, whose answers it has never read\n%s", s.tail())
	} else if took := c.GatedAt.Sub(began); took > 90*time.Second {
		t.Errorf("c waited for %s", took)
	}
	if b := s.lastOf(id, "b"); b != nil && b.Passed() {
		t.Errorf("b reads what a publishes, and did not wait for it\n%s", s.tail())
	}
}
