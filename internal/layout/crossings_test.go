package layout_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/layout"
)

// The type `recorded` is a graph with the number of crossings in dagre's drawing of it (testdata/dagre.mjs). The edges
// have the form `0>1 0>2`.
type recorded struct {
	Name  string `json:"name"`
	Boxes int    `json:"boxes"`
	Edges string `json:"edges"`
	Dagre int    `json:"dagre"`
}

func (r recorded) graph(t testing.TB) layout.Graph {
	var g layout.Graph
	for i := range r.Boxes {
		g.Boxes = append(g.Boxes, layout.Box{Key: fmt.Sprintf("%03d", i), Size: layout.Size{W: 140, H: 48}})
	}
	for i, text := range strings.Fields(r.Edges) {
		e := layout.Edge{Key: fmt.Sprintf("%04d", i), Label: layout.Size{W: 100, H: 16}}
		if _, err := fmt.Sscanf(text, "%d>%d", &e.From, &e.To); err != nil {
			t.Fatal(err)
		}
		g.Edges = append(g.Edges, e)
	}
	return g
}

func recordings(t testing.TB) []recorded {
	raw, err := os.ReadFile("testdata/crossings.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []recorded
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The function `crossings` counts the points at which the lines of two edges cross, as testdata/dagre.mjs does.
func crossings(d layout.Drawing) int {
	n := 0
	for i := range d.Edges {
		for j := range i {
			a, b := d.Edges[i].Points, d.Edges[j].Points
			for k := 1; k < len(a); k++ {
				for l := 1; l < len(b); l++ {
					if side(a[k-1], a[k], b[l-1])*side(a[k-1], a[k], b[l]) < 0 && side(b[l-1], b[l], a[k-1])*side(b[l-1], b[l], a[k]) < 0 {
						n++
					}
				}
			}
		}
	}
	return n
}

func side(a, b, c layout.Point) int {
	n := (b.X-a.X)*(c.Y-a.Y) - (b.Y-a.Y)*(c.X-a.X)
	return min(1, max(-1, n))
}

func TestCrossings(t *testing.T) {
	ours, dagres := 0, 0
	for _, r := range recordings(t) {
		d, err := layout.Draw(r.graph(t))
		if err != nil {
			t.Fatal(err)
		}
		n := crossings(d)
		ours, dagres = ours+n, dagres+r.Dagre
		if 10*n > 11*r.Dagre {
			t.Errorf("%s: %d crossings, more than 1.1 times the %d of dagre", r.Name, n, r.Dagre)
		}
		t.Logf("%s: %d boxes, %d crossings, dagre %d", r.Name, r.Boxes, n, r.Dagre)
	}
	t.Logf("together %d crossings, dagre %d", ours, dagres)
}

func BenchmarkDraw(b *testing.B) {
	for _, r := range recordings(b) {
		g := r.graph(b)
		b.Run(fmt.Sprintf("%s-%d", r.Name, r.Boxes), func(b *testing.B) {
			for b.Loop() {
				if _, err := layout.Draw(g); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
