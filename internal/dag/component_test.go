package dag_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti/internal/dag"
)

func TestComponents(t *testing.T) {
	cases := map[string]struct {
		reason string
		edges  [][2]string
		want   [][]string
	}{
		"chain":  {"each node alone, in order", [][2]string{{"b", "c"}, {"a", "b"}}, [][]string{{"a"}, {"b"}, {"c"}}},
		"cycle":  {"all of it together, what follows behind", [][2]string{{"a", "b"}, {"b", "a"}, {"b", "c"}}, [][]string{{"a", "b"}, {"c"}}},
		"eight":  {"cycles that share a node are one", [][2]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "b"}}, [][]string{{"a", "b", "c"}}},
		"itself": {"a node with an edge to itself is alone", [][2]string{{"a", "a"}}, [][]string{{"a"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := dag.New[string]()
			for _, e := range tc.edges {
				g.Connect(e[0], e[1])
			}
			if diff := cmp.Diff(tc.want, g.Components()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// Two nodes are in one component if and only if each is a descendant of the other.
func TestComponentsAreMutual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := dag.New[string]()
		for range rapid.IntRange(1, 14).Draw(t, "edges") {
			from, to := rapid.IntRange(0, 6).Draw(t, "from"), rapid.IntRange(0, 6).Draw(t, "to")
			g.Connect(fmt.Sprint(from), fmt.Sprint(to))
		}
		place := map[string]int{}
		for i, c := range g.Components() {
			for _, n := range c {
				if _, twice := place[n]; twice {
					t.Fatalf("%s is in two components", n)
				}
				place[n] = i
			}
		}
		for _, a := range g.Nodes() {
			for _, b := range g.Nodes() {
				mutual := a == b || slices.Contains(g.Descendants(a), b) && slices.Contains(g.Descendants(b), a)
				if mutual != (place[a] == place[b]) {
					t.Fatalf("%s and %s: mutual %t, components %d and %d", a, b, mutual, place[a], place[b])
				}
				if slices.Contains(g.Successors(a), b) && place[a] > place[b] {
					t.Fatalf("%s leads to %s and comes after it", a, b)
				}
			}
		}
	})
}
