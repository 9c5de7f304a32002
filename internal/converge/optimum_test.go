package converge_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/dag"
	"github.com/tutti-project/tutti/internal/engine"
)

// The type `numbers` is dice that return the same numbers each time.
type numbers struct{ *rand.Rand }

func (n numbers) roll(sides int, _ string) int { return n.IntN(max(1, sides)) }

// optimum returns the smallest number of runs after which all nodes of a new fleet are
// good. The function assumes full knowledge and free compiles, and tries all orders. The
// function returns 0 if it finds no result within its bound of positions.
func optimum(nodes map[tutti.NodeName]*manifest, operator map[string]string) int {
	names := sortedKeys(nodes)
	start := newWorld(operator)
	seen := map[string]bool{}
	level := []*world{start}
	for runs := 0; len(level) > 0; runs++ {
		var next []*world
		for len(level) > 0 {
			w := level[len(level)-1]
			level = level[:len(level)-1]
			key := fmt.Sprint(w.Values, w.Exports, w.Inputs)
			if seen[key] {
				continue
			}
			if seen[key] = true; len(seen) > 3000 {
				return 0
			}
			all := true
			for _, name := range names {
				got := w.answers(name, nodes[name])
				c := nodes[name].compile(got)
				all = all && w.Inputs[name] == fmt.Sprint(got)
				compiled := &world{w.Values, maps.Clone(w.Exports), w.Inputs}
				compiled.Exports[name] = withoutEmpty(c.exports)
				level = append(level, compiled)
				applied := &world{maps.Clone(w.Values), compiled.Exports, maps.Clone(w.Inputs)}
				maps.Copy(applied.Values, c.values)
				applied.Inputs[name] = fmt.Sprint(got)
				next = append(next, applied)
			}
			if all {
				return runs
			}
		}
		level = next
	}
	return 0
}

// cyclesOf returns the cycles of nodes in the final state. If a node reads its own
// values, this is also a cycle.
func cyclesOf(nodes map[tutti.NodeName]*manifest, operator map[string]string) [][]tutti.NodeName {
	w, _ := fixpoint(nodes, operator)
	g := dag.New[string]()
	for name, m := range nodes {
		g.Add(string(name))
		for _, key := range m.values {
			g.Connect("value "+key, string(name))
		}
		for _, key := range m.hiera {
			g.Connect("value shared/hiera/"+key, string(name))
		}
		for _, typ := range m.types {
			g.Connect("type "+typ, string(name))
		}
		c := m.compile(w.answers(name, m))
		for key := range c.values {
			g.Connect(string(name), "value "+key)
		}
		for typ := range c.exports {
			g.Connect(string(name), "type "+typ)
		}
	}
	var out [][]tutti.NodeName
	for _, component := range g.Components() {
		var names []tutti.NodeName
		for _, v := range component {
			if name := tutti.NodeName(v); len(component) > 1 && nodes[name] != nil {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			out = append(out, names)
		}
	}
	return out
}

// inCycles returns the number of nodes that are in cycles.
func inCycles(nodes map[tutti.NodeName]*manifest, operator map[string]string) int {
	return len(slices.Concat(cyclesOf(nodes, operator)...))
}

func runsOf(j *engine.Job) int {
	count := 0
	for _, n := range j.Steps[0].Nodes {
		for _, r := range n.Runs {
			if r.Passed() {
				count++
			}
		}
	}
	return count
}

// In a new fleet without cycles, each node runs once. In the fleets of this test, the questions into which a node
// publishes do not depend on what the node reads. If these questions did depend on answers, no rule could know the
// questions beforehand.
func TestFromNothingEachRunsOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		nodes := acyclic(d, kinds{nodes: 8, shapely: true, calm: true})
		s := newSim(rt, nodes)
		s.writeAll(operators(d))
		if got := runsOf(s.all(pick(d))); got != len(nodes) {
			rt.Fatalf("%d runs, want %d:\n%s", got, len(nodes), s.tail())
		}
	})
}

// The test compares the mean number of runs that a new fleet needs to converge with the
// smallest possible number.
func TestFromNothingInTheMean(t *testing.T) {
	fewest := func(nodes map[tutti.NodeName]*manifest, _ map[string]string) int { return len(nodes) }
	cases := map[string]struct {
		fleet  func(dice, kinds) map[tutti.NodeName]*manifest
		kinds  kinds
		fewest func(map[tutti.NodeName]*manifest, map[string]string) int
		most   float64
	}{
		"what is read decides what is published": {acyclic, kinds{nodes: 8, calm: true}, fewest, 1.1},
		"some wait before they compile":          {acyclic, kinds{nodes: 8, shapely: true}, fewest, 1.1},
		"with cycles":                            {monotone, kinds{nodes: 3}, optimum, 1.2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			runs, fewest, sample, over, within := 0, 0, 0, 0, 0
			for seed := range uint64(100) {
				d := numbers{rand.New(rand.NewPCG(seed, 1))}
				nodes, operator := tc.fleet(d, tc.kinds), operators(d)
				best := tc.fewest(nodes, operator)
				if best == 0 {
					continue // the search did not finish within its bound of positions
				}
				s := newSim(t, nodes)
				s.writeAll(operator)
				got := runsOf(s.all(pick(d)))
				sample, runs, fewest, over = sample+1, runs+got, fewest+best, max(over, got-best)
				if got <= best+inCycles(nodes, operator) {
					within++
				}
			}
			ratio := float64(runs) / float64(fewest)
			t.Logf("%d fleets: %d runs, the fewest are %d: %.3f; %d within the fewest and the nodes in cycles, the worst has %d more than the fewest",
				sample, runs, fewest, ratio, within, over)
			if sample < 80 || ratio > tc.most {
				t.Errorf("of 100 fleets the fewest were found for %d, the ratio is %.3f, want at most %.2f", sample, ratio, tc.most)
			}
		})
	}
}
