package layout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/layout"
)

// anyGraph draws a graph with up to 14 boxes, in which cycles, loops and several edges between the same boxes occur.
func anyGraph(t *rapid.T) layout.Graph {
	g := layout.Graph{Caption: func(boxes []int) layout.Size { return layout.Size{W: 60 * len(boxes), H: 20} }}
	n := rapid.IntRange(1, 14).Draw(t, "boxes")
	size := func(most int) layout.Size {
		return layout.Size{W: rapid.IntRange(20, most).Draw(t, "width"), H: rapid.IntRange(10, 80).Draw(t, "height")}
	}
	for i := range n {
		g.Boxes = append(g.Boxes, layout.Box{Key: fmt.Sprintf("box-%02d", i), Size: size(240)})
	}
	back := rapid.IntRange(0, 4).Draw(t, "how many edges may lead back")
	for i := range rapid.IntRange(0, 24).Draw(t, "edges") {
		from, to := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")
		if from >= to && i >= back {
			from, to = min(from, to), max(from, to)
		}
		if from == to && i >= back {
			continue
		}
		e := layout.Edge{From: from, To: to, Key: fmt.Sprint(i)}
		if rapid.Bool().Draw(t, "labelled") {
			e.Label = size(160)
		}
		g.Edges = append(g.Edges, e)
	}
	return g
}

func draw(t interface{ Fatal(...any) }, g layout.Graph) layout.Drawing {
	d, err := layout.Draw(g)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func overlap(a, b layout.Rect) bool {
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

func inside(a, b layout.Rect) bool {
	return a.X >= b.X && a.Y >= b.Y && a.X+a.W <= b.X+b.W && a.Y+a.H <= b.Y+b.H
}

// No two boxes overlap, and no label overlaps a box or another label. Everything is inside the drawing.
func TestNothingOverlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		d := draw(t, g)
		all := slices.Clone(d.Boxes)
		for _, e := range d.Edges {
			if e.Label.H > 0 {
				all = append(all, e.Label)
			}
		}
		for i, a := range all {
			if !inside(a, layout.Rect{W: d.W, H: d.H}) {
				t.Fatalf("%v is outside the drawing of %v", a, d.Size)
			}
			for _, b := range all[:i] {
				if overlap(a, b) {
					t.Fatalf("%v and %v overlap", a, b)
				}
			}
		}
		for i, r := range d.Boxes {
			if (layout.Size{W: r.W, H: r.H}) != g.Boxes[i].Size {
				t.Fatalf("box %d has another size: %v", i, r)
			}
		}
	})
}

// Each frame has exactly the boxes of a cycle inside, and room for its caption above them. Frames do not overlap.
func TestFramesAreCycles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		d := draw(t, g)
		framed := map[int]int{}
		for f, frame := range d.Frames {
			caption := layout.Rect{X: frame.X, Y: frame.Y, W: 60 * len(frame.Boxes), H: 20}
			if !inside(caption, frame.Rect) {
				t.Fatalf("frame %v has no room for the caption %v", frame, caption)
			}
			for i, r := range d.Boxes {
				in := slices.Contains(frame.Boxes, i)
				if in != inside(r, frame.Rect) || in != overlap(r, frame.Rect) || overlap(r, caption) {
					t.Fatalf("frame %v and box %d at %v", frame, i, r)
				}
				if in {
					framed[i] = f + 1
				}
			}
			for _, other := range d.Frames[:f] {
				if overlap(frame.Rect, other.Rect) {
					t.Fatalf("frames %v and %v overlap", frame, other)
				}
			}
		}
		reach := reached(g)
		for i := range g.Boxes {
			for j := range g.Boxes {
				if together := framed[i] > 0 && framed[i] == framed[j]; together != (reach[i][j] && reach[j][i]) {
					t.Fatalf("boxes %d and %d: in the same frame %t", i, j, together)
				}
			}
		}
	})
}

func reached(g layout.Graph) [][]bool {
	reach := make([][]bool, len(g.Boxes))
	for i := range reach {
		reach[i] = make([]bool, len(g.Boxes))
	}
	for range g.Boxes {
		for _, e := range g.Edges {
			reach[e.From][e.To] = true
			for i := range reach {
				for j := range reach {
					if i == e.From && reach[e.To][j] {
						reach[i][j] = true
					}
				}
			}
		}
	}
	return reach
}

// Each edge begins at its first box and ends at its last box. It leads to the right, unless both are in the same frame,
// and it does not cross a box.
func TestEdgesLeadRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		d := draw(t, g)
		frame := map[int]int{}
		for f, in := range d.Frames {
			for _, b := range in.Boxes {
				frame[b] = f + 1
			}
		}
		for i, r := range d.Edges {
			e := g.Edges[i]
			first, last := r.Points[0], r.Points[len(r.Points)-1]
			if e.From == e.To {
				if first.Y != d.Boxes[e.From].Y || last.Y != d.Boxes[e.From].Y {
					t.Fatalf("loop %v is not at box %v", r, d.Boxes[e.From])
				}
				continue
			}
			from, to, leads := d.Boxes[e.From], d.Boxes[e.To], 1
			if first.X == from.X && frame[e.From] > 0 && frame[e.From] == frame[e.To] {
				leads = -1 // back, inside a cycle
				from.X, to.X = from.X-from.W, to.X+to.W
			}
			if first.X != from.X+from.W || first.Y < from.Y || first.Y > from.Y+from.H || last.X != to.X || last.Y < to.Y || last.Y > to.Y+to.H {
				t.Fatalf("edge %d: %v does not lead from %v to %v", i, r.Points, d.Boxes[e.From], d.Boxes[e.To])
			}
			for k := range len(r.Points) - 1 {
				a, b := r.Points[k], r.Points[k+1]
				if (b.X-a.X)*leads < 0 || a == b {
					t.Fatalf("edge %d: %v does not lead to the right", i, r.Points)
				}
				for j, box := range d.Boxes {
					if crosses(a, b, box) {
						t.Fatalf("edge %d: %v crosses box %d at %v", i, r.Points, j, box)
					}
				}
			}
		}
	})
}

// The function `crosses` reports whether a line has a point inside a box, by its whole x coordinates.
func crosses(a, b layout.Point, r layout.Rect) bool {
	if a.X > b.X {
		a, b = b, a
	}
	for x := max(a.X, r.X+1); x <= min(b.X, r.X+r.W-1); x++ {
		y := a.Y
		if b.X > a.X {
			y += (b.Y - a.Y) * (x - a.X) / (b.X - a.X)
		}
		if y > r.Y && y < r.Y+r.H {
			return true
		}
	}
	return false
}

// The drawing is the same if the caller gives boxes and edges in another order.
func TestTheOrderOfTheInputDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGraph(t)
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		boxes, edges := rnd.Perm(len(g.Boxes)), rnd.Perm(len(g.Edges))
		shuffled := layout.Graph{Caption: g.Caption}
		at := make([]int, len(boxes))
		for to, from := range boxes {
			at[from] = to
			shuffled.Boxes = append(shuffled.Boxes, g.Boxes[from])
		}
		for _, from := range edges {
			e := g.Edges[from]
			e.From, e.To = at[e.From], at[e.To]
			shuffled.Edges = append(shuffled.Edges, e)
		}
		want, got := draw(t, g), draw(t, shuffled)
		back := layout.Drawing{Size: got.Size, Boxes: make([]layout.Rect, len(boxes)), Edges: make([]layout.Route, len(edges)), Frames: got.Frames}
		for to, from := range boxes {
			back.Boxes[from] = got.Boxes[to]
		}
		for to, from := range edges {
			back.Edges[from] = got.Edges[to]
		}
		for _, f := range back.Frames {
			for i, b := range f.Boxes {
				f.Boxes[i] = boxes[b]
			}
		}
		if diff := cmp.Diff(want, back); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
	})
}

// A graph that nobody could read is refused, and so is a graph with too many long edges. The error says how large it is.
func TestTooLarge(t *testing.T) {
	chain := func(boxes int, long bool) layout.Graph {
		g := layout.Graph{Boxes: []layout.Box{{Key: "000"}}}
		for i := 1; i < boxes; i++ {
			g.Boxes = append(g.Boxes, layout.Box{Key: fmt.Sprintf("%03d", i)})
			for from := range i {
				if long || from == i-1 {
					g.Edges = append(g.Edges, layout.Edge{From: from, To: i})
				}
			}
		}
		return g
	}
	for _, tc := range []struct {
		boxes int
		long  bool
		want  string
	}{
		{layout.MaxBoxes, false, ""},
		{layout.MaxBoxes + 1, false, "the picture would have 201 boxes, at most 200"},
		{38, true, ""},
		{60, true, "too many long edges"},
	} {
		_, err := layout.Draw(chain(tc.boxes, tc.long))
		if tc.want == "" && err != nil || tc.want != "" && (tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%d boxes: %v, want %q", tc.boxes, err, tc.want)
		}
	}
}
