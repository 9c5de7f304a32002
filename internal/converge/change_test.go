package converge_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// The function `ran` returns the nodes that ran in a job, sorted.
func ran(did map[tutti.NodeName]string) []tutti.NodeName {
	var out []tutti.NodeName
	for _, n := range sortedKeys(did) {
		if strings.Contains(did[n], "run ") {
			out = append(out, n)
		}
	}
	return out
}

// In a converged fleet, a change causes runs of exactly those nodes whose inputs have changed in the
// end. If a node runs and publishes the same value as before, this causes no other run. The test uses
// two kinds of fleets. In fleets of up to nine nodes, a node always publishes the same keys and
// exports, and only their values depend on its answers. In fleets of up to four nodes, the answers of
// a node may also decide which keys and exports it publishes. There are no larger fleets of the second
// kind: in a larger one, a node may run because of an answer that is withdrawn later.
func TestAChangeRunsThoseWhoseInputsItChanges(t *testing.T) {
	changes := map[string]func(d dice, s *sim, operator map[string]string) (forced []tutti.NodeName){
		"an operator's value": func(d dice, s *sim, operator map[string]string) []tutti.NodeName {
			key, value := fmt.Sprintf("op/%d", d.roll(3, "key")), string("ab"[d.roll(2, "value")])
			operator[key] = value
			s.write(key, value)
			return nil
		},
		"a node removed": func(d dice, s *sim, _ map[string]string) []tutti.NodeName {
			name := s.names()[d.roll(len(s.nodes), "who")]
			delete(s.nodes, name)
			s.append(&tutti.NodeRemoved{Node: name})
			return nil
		},
		"a node added": func(d dice, s *sim, _ map[string]string) []tutti.NodeName {
			name := nodeNamed(len(s.nodes))
			s.nodes[name] = random(d, len(s.nodes), kinds{calm: true, shapely: len(s.nodes) > 4})
			s.append(&tutti.NodeEnrolled{Node: name})
			return []tutti.NodeName{name}
		},
		"other code for some": func(d dice, s *sim, _ map[string]string) (forced []tutti.NodeName) {
			nodes := maps.Clone(s.nodes)
			for _, name := range s.names() {
				if d.roll(3, "changes") > 0 {
					continue
				}
				old, forward := nodes[name], d.roll(2, "forward")
				changed := *old
				changed.compile = func(got answers) catalog {
					c := old.compile(got)
					c.extra = "new"
					if forward == 1 {
						c.values = maps.Clone(c.values)
						for key := range c.values {
							c.values[key] += "new"
						}
					}
					return c
				}
				nodes[name], forced = &changed, append(forced, name)
			}
			s.push("two", nodes)
			return forced
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				d := rapidDice{rt}
				operator := operators(d)
				of := []kinds{{nodes: 4, calm: true}, {nodes: 9, calm: true, shapely: true}}[d.roll(2, "kind")]
				s := newSim(rt, acyclic(d, of))
				s.writeAll(operator)
				s.converged(s.all(first), operator)
				before, _ := fixpoint(s.nodes, operator)

				forced := change(d, s, operator)
				after, _ := fixpoint(s.nodes, operator)
				var want []tutti.NodeName
				for _, n := range s.names() {
					if before.Inputs[n] != after.Inputs[n] || slices.Contains(forced, n) {
						want = append(want, n)
					}
				}
				j := s.all(pick(d))
				did := done(j)
				if diff := cmp.Diff(want, ran(did)); diff != "" {
					rt.Fatalf("who ran: -want +got\n%s%s", diff, s.tail())
				}
				for _, n := range s.names() {
					if old := len(s.manifests) > 1; old && !slices.Contains(want, n) && did[n] != "proved " {
						rt.Fatalf("%s: %q, want that it proves its node good once\n%s", n, did[n], s.tail())
					}
				}
				s.converged(j, operator)
			})
		})
	}
}

// In all fleets, the server wants a run only if there is a reason at that time. Each node whose inputs
// are different in the end has run.
func TestAChangeInALargerFleet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		operator := operators(d)
		s := newSim(rt, acyclic(d, kinds{nodes: 9}))
		s.writeAll(operator)
		s.all(first)
		s.onWanted = func(w *tutti.RunWanted) { s.mustNeed(w.Order) }
		for range 2 {
			key := fmt.Sprintf("op/%d", d.roll(3, "key"))
			operator[key] += "x"
			s.write(key, operator[key])
		}
		s.converged(s.all(pick(d)), operator)
	})
}

// A compile can show that its node is good, without a run. For this, six conditions must all be true
// (DESIGN 4.6). In each case of the test, one of them is false.
func TestWhatProvesANodeGood(t *testing.T) {
	other := tutti.DigestOf([]byte("other"))
	cases := map[string]struct {
		reason        string
		before, after func(*tutti.CatalogReport)
		first         tutti.Mode
		change        bool
		exports       bool // the node exports something else with the new code
		fails         bool
		want          string
	}{
		"nothing":         {reason: "new code that makes the same catalog", want: "proved "},
		"other catalog":   {reason: "the catalog is another one", after: func(c *tutti.CatalogReport) { c.Catalog = other }, want: "run "},
		"no catalog":      {reason: "a digest that nobody made says nothing", before: func(c *tutti.CatalogReport) { c.Catalog = "" }, after: func(c *tutti.CatalogReport) { c.Catalog = "" }, want: "run "},
		"other sources":   {reason: "a file that the catalog names is another one", after: func(c *tutti.CatalogReport) { c.Sources = other }, want: "run "},
		"no sources":      {reason: "what the files are is not known", before: func(c *tutti.CatalogReport) { c.Sources = "" }, after: func(c *tutti.CatalogReport) { c.Sources = "" }, want: "run "},
		"other lib":       {reason: "a provider is another one", after: func(c *tutti.CatalogReport) { c.Lib = other }, want: "run "},
		"deferred now":    {reason: "a value is made while applying", after: func(c *tutti.CatalogReport) { c.Deferred = true }, want: "run "},
		"deferred before": {reason: "a value was made while applying", before: func(c *tutti.CatalogReport) { c.Deferred = true }, want: "run "},
		"other exports":   {reason: "what others collect from it is another thing", exports: true, want: "run "},
		"only noop":       {reason: "a noop run changed nothing", first: tutti.ModeNoop, want: "run "},
		"failed":          {reason: "the last run was not good", fails: true, want: "run "},
		"read":            {reason: "what it read has changed, though its catalog has not", change: true, want: "run "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			broken, exports := tc.fails, map[string][]string{"Host": {"one"}}
			s := newSim(t, map[tutti.NodeName]*manifest{"a": {values: []string{"x"}, compile: func(answers) catalog {
				if broken {
					return catalog{fails: tutti.BecauseRefused}
				}
				return catalog{exports: exports}
			}}})
			s.compiled = tc.before
			mode := tc.first
			if mode == "" {
				mode = tutti.ModeApply
			}
			s.run(s.begin(mode, tutti.ConvergeStep{}), first)
			broken = false
			s.compiled = tc.after
			if tc.exports {
				exports = map[string][]string{"Host": {"two"}}
			}
			s.push("two", s.nodes)
			if tc.change {
				s.write("x", "1")
			}
			if got := done(s.all(first))["a"]; got != tc.want {
				t.Errorf("%s: %q, want %q\n%s", tc.reason, got, tc.want, s.tail())
			}
		})
	}
}

// A node needs a run and compiles. The job is cancelled, so the compile is stopped at its gate. After
// that, the node still needs the run.
func TestAStoppedCompileLeavesTheNeed(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": {values: []string{"x"}, compile: func(answers) catalog { return catalog{} }}})
	s.all(first)
	s.write("x", "1")
	id := s.begin(tutti.ModeApply, tutti.ConvergeStep{})
	s.step(first) // claims
	s.step(first) // asks
	s.append(&tutti.JobCancelled{Job: id})
	s.settle()
	s.run(id, first)
	if why := s.converge.Standing("a", converge.Has{}).Why(); !strings.Contains(why, "stopped") && !strings.Contains(why, "has changed") {
		t.Errorf("after a stopped compile the node is good: %q\n%s", why, s.tail())
	}
	if got := done(s.all(first))["a"]; got != "run " {
		t.Errorf("%q, want the run that was stopped\n%s", got, s.tail())
	}
}

// TestAProofWaitsForWhoFeedsIt: node b collects what node a exports, node c reads what b publishes, and
// node a reads what c publishes. New code changes the exports of a and the value of b. When node c
// compiles for the first time, nothing has changed for it yet. If node c counted as good then, node a
// would run before node c, and again after node c.
func TestAProofWaitsForWhoFeedsIt(t *testing.T) {
	round := func(word string) map[tutti.NodeName]*manifest {
		return map[tutti.NodeName]*manifest{
			"a": {values: []string{"v/c"}, compile: func(got answers) catalog {
				return catalog{exports: map[string][]string{"Host": {word}}, extra: got.values["v/c"]}
			}},
			"b": {types: []string{"Host"}, compile: func(answers) catalog { return catalog{values: map[string]string{"v/b": word}} }},
			"c": {values: []string{"v/b"}, compile: func(got answers) catalog { return catalog{values: map[string]string{"v/c": got.values["v/b"]}} }},
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := newSim(rt, round("one"))
		s.atLast(first)
		s.all(first)
		s.push("two", round("two"))
		j := s.all(pick(rapidDice{rt}))
		if runs := j.Summary(s.now).Runs; runs != 3 || j.Verdict != tutti.VerdictConverged {
			rt.Fatalf("%s with %d runs, want 3: %v\n%s", j.Verdict, runs, done(j), s.tail())
		}
	})
}
