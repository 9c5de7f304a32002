package dag_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti/internal/dag"
)

// graph parses nodes and edges, for example `c a>b b>c`.
func graph(text string) *dag.Graph[string] {
	g := dag.New[string]()
	for _, word := range strings.Fields(text) {
		if from, to, edge := strings.Cut(word, ">"); edge {
			g.Connect(from, to)
		} else {
			g.Add(word)
		}
	}
	return g
}

func TestSortAndCycle(t *testing.T) {
	for _, tc := range []struct {
		reason, graph string
		sorted, cycle string
	}{
		{"nothing", "", "", ""},
		{"without edges the order of addition", "c a b", "c a b", ""},
		{"an edge changes it", "c a b b>c", "a b c", ""},
		{"and nothing more than it must", "a b c d d>b", "a c d b", ""},
		{"a diamond", "a>b a>c b>d c>d", "a b c d", ""},
		{"the same edge twice", "a>b a>b", "a b", ""},
		{"the same node twice", "a b a", "a b", ""},
		{"a node that waits for itself", "a b>b", "", "b"},
		{"two that wait for each other", "a>b b>a", "", "a b"},
		{"the cycle only, not what hangs on it", "x>a a>b b>c c>a c>y", "", "a b c"},
		{"not what lies between two cycles", "a>b b>a b>m m>c c>d d>c", "", "a b"},
		{"the first added node that is on one", "m>c a>b b>a b>m c>d d>c", "", "c d"},
		{"the shortest through it", "a>b b>c c>a b>a", "", "a b"},
		{"a node between cycles that is added first", "m c>d d>c a>m m>c a>b b>a", "", "c d"},
	} {
		g := graph(tc.graph)
		order, ok := g.Sort()
		if diff := cmp.Diff(tc.sorted, strings.Join(order, " ")); diff != "" || ok != (tc.cycle == "") {
			t.Errorf("%s: Sort says %v, -want +got\n%s", tc.reason, ok, diff)
		}
		if diff := cmp.Diff(tc.cycle, strings.Join(g.Cycle(), " ")); diff != "" {
			t.Errorf("%s: Cycle: -want +got\n%s", tc.reason, diff)
		}
	}
}

func TestNeighbours(t *testing.T) {
	g := graph("z a>c a>b a>c c>d b>d d>e e>d")
	for _, tc := range []struct {
		reason string
		got    []string
		want   string
	}{
		{"direct successors, once each", g.Successors("a"), "c b"},
		{"direct predecessors", g.Predecessors("d"), "c b e"},
		{"all that follows", g.Descendants("c"), "d e"},
		{"all that comes before", g.Ancestors("b"), "a"},
		{"a node on a cycle is its own descendant", g.Descendants("d"), "d e"},
		{"a node without edges", g.Descendants("z"), ""},
		{"an unknown node has none", g.Successors("?"), ""},
		{"before it there is none either", g.Ancestors("?"), ""},
		{"all in order of addition", g.Nodes(), "z a c b d e"},
	} {
		if diff := cmp.Diff(tc.want, strings.Join(tc.got, " ")); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
	if g.Has("?") || !g.Has("z") {
		t.Error("Has: a node that was never added is there, or one that was is not")
	}
}

// anyGraph draws up to 12 nodes, added in a random order, and edges between them.
func anyGraph(t *rapid.T) (*dag.Graph[int], [][2]int) {
	g := dag.New[int]()
	n := rapid.IntRange(1, 12).Draw(t, "nodes")
	g.Add(rapid.Permutation(seq(n)).Draw(t, "order")...)
	edges := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]int {
		return [2]int{rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")}
	}), 0, 20).Draw(t, "edges")
	for _, e := range edges {
		g.Connect(e[0], e[1])
	}
	return g, edges
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func TestEitherSortedOrCycle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, edges := anyGraph(t)
		order, ok := g.Sort()
		cycle := g.Cycle()
		if ok == (cycle != nil) {
			t.Fatalf("sorted %v, cycle %v", order, cycle)
		}
		for i, n := range cycle {
			if next := cycle[(i+1)%len(cycle)]; !slices.Contains(g.Successors(n), next) {
				t.Fatalf("cycle %v: no edge from %d to %d", cycle, n, next)
			}
			if slices.Index(cycle, n) != i {
				t.Fatalf("cycle %v passes %d twice", cycle, n)
			}
		}
		if !ok {
			return
		}
		if len(order) != len(g.Nodes()) {
			t.Fatalf("%d of %d nodes in the order", len(order), len(g.Nodes()))
		}
		at := map[int]int{}
		for i, n := range order {
			at[n] = i
		}
		for _, e := range edges {
			if at[e[0]] >= at[e[1]] {
				t.Fatalf("order %v against edge %v", order, e)
			}
		}
		// The order is stable: a node comes before a node that was added later, if no
		// edge prevents this.
		for i := 1; i < len(order); i++ {
			earlier, later := slices.Index(g.Nodes(), order[i]), slices.Index(g.Nodes(), order[i-1])
			if earlier < later && !slices.Contains(g.Predecessors(order[i]), order[i-1]) {
				t.Fatalf("order %v: %d could have come before %d", order, order[i], order[i-1])
			}
		}
	})
}

func TestReachIsBothWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, _ := anyGraph(t)
		for _, a := range g.Nodes() {
			for _, b := range g.Nodes() {
				if slices.Contains(g.Descendants(a), b) != slices.Contains(g.Ancestors(b), a) {
					t.Fatalf("%d reaches %d one way only", a, b)
				}
			}
			// The descendants of node a are its successors and the descendants of its
			// successors.
			want := map[int]bool{}
			for _, s := range g.Successors(a) {
				want[s] = true
				for _, d := range g.Descendants(s) {
					want[d] = true
				}
			}
			for _, n := range g.Nodes() {
				if want[n] != slices.Contains(g.Descendants(a), n) {
					t.Fatalf("descendants of %d: %v", a, g.Descendants(a))
				}
			}
		}
	})
}

func TestLongChain(t *testing.T) {
	const length = 50_000 // too deep for a recursion
	g := dag.New[int]()
	for i := range length {
		g.Connect(i, i+1)
	}
	if order, ok := g.Sort(); !ok || len(order) != length+1 {
		t.Errorf("a chain: sorted %v, %d nodes", ok, len(order))
	}
	g.Connect(length, 0)
	if cycle := g.Cycle(); len(cycle) != length+1 {
		t.Errorf("a ring: a cycle of %d nodes, want %d", len(cycle), length+1)
	}
}
