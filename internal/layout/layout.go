// Package layout finds places for the boxes and edges of a directed graph (ADR 0044). Boxes are in columns, and edges
// lead to the right. Only inside a cycle some edges lead back. A frame surrounds each cycle.
//
// The drawing does not depend on the order in which the caller gives boxes and edges. All numbers are integers, so the
// drawing is the same on every machine.
package layout

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// These are the limits of a graph. Nobody can read a larger drawing.
const (
	MaxBoxes  = 200
	maxPlaces = 10_000 // boxes, and columns that edges pass
)

// Size is a size in pixels.
type Size struct{ W, H int }

// Point is a place in the drawing. X grows to the right, and Y grows downward.
type Point struct{ X, Y int }

// Rect is a rectangle. X and Y are its upper left corner.
type Rect struct{ X, Y, W, H int }

// Box is a box of the graph. The key orders the boxes and must be unique.
type Box struct {
	Key string
	Size
}

// Edge leads from one box to another. From and To are indexes of boxes. Edges between the same boxes need different
// keys.
type Edge struct {
	From, To int
	Key      string
	Label    Size
}

// Graph is a graph without places.
type Graph struct {
	Boxes []Box
	Edges []Edge
	// Caption returns the size of the caption of a cycle. It gets the indexes of the cycle's boxes.
	Caption func(boxes []int) Size
}

// Route has the corners of an edge and the place of its label. If an edge leads from a box to itself, its route is a
// loop above the box, and the edge has no label.
type Route struct {
	Points []Point
	Label  Rect
}

// Frame surrounds the boxes of one cycle and no other boxes. The caption is at the top of the frame.
type Frame struct {
	Rect
	Boxes []int
}

// Drawing has the places of all boxes and edges, in the order of the graph.
type Drawing struct {
	Size
	Boxes  []Rect
	Edges  []Route
	Frames []Frame
}

// Margin is the distance between the drawing and its border, and between a frame and its boxes.
const Margin = 16

const (
	loopRoom = 18 // above a box with an edge to itself
	loopStep = 30
)

// Check returns CodeInvalid if a graph has too many boxes.
func Check(boxes int) error {
	if boxes > MaxBoxes {
		return tutti.Errorf(tutti.CodeInvalid, "the picture would have %d boxes, at most %d", boxes, MaxBoxes)
	}
	return nil
}

// Draw finds the places. CodeInvalid: the graph is too large for a drawing that a person can read.
func Draw(g Graph) (Drawing, error) {
	if err := Check(len(g.Boxes)); err != nil {
		return Drawing{}, err
	}
	boxes, edges := canonical(g)
	d := &drawing{Graph: Graph{Caption: func(in []int) Size {
		if g.Caption == nil {
			return Size{}
		}
		return g.Caption(named(in, boxes))
	}}}
	place := make([]int, len(boxes))
	for at, i := range boxes {
		place[i] = at
		d.Boxes = append(d.Boxes, g.Boxes[i])
	}
	for _, i := range edges {
		e := g.Edges[i]
		e.From, e.To = place[e.From], place[e.To]
		d.Edges = append(d.Edges, e)
	}
	found, err := d.draw()
	if err != nil {
		return Drawing{}, err
	}
	out := Drawing{Size: found.Size, Boxes: make([]Rect, len(boxes)), Edges: make([]Route, len(edges)), Frames: found.Frames}
	for at, i := range boxes {
		out.Boxes[i] = found.Boxes[at]
	}
	for at, i := range edges {
		out.Edges[i] = found.Edges[at]
	}
	for i, f := range out.Frames {
		out.Frames[i].Boxes = named(f.Boxes, boxes)
	}
	return out, nil
}

func named(in, names []int) []int {
	out := make([]int, len(in))
	for i, at := range in {
		out[i] = names[at]
	}
	return out
}

// The function `canonical` returns the indexes of boxes and edges in an order that does not depend on the order of the
// graph. Boxes without an edge come last.
func canonical(g Graph) (boxes, edges []int) {
	alone := make([]int, len(g.Boxes))
	for i := range alone {
		boxes, alone[i] = append(boxes, i), 1
	}
	for i, e := range g.Edges {
		edges, alone[e.From], alone[e.To] = append(edges, i), 0, 0
	}
	slices.SortFunc(boxes, func(a, b int) int {
		return cmp.Or(cmp.Compare(alone[a], alone[b]), cmp.Compare(g.Boxes[a].Key, g.Boxes[b].Key))
	})
	key := func(i int) string { return g.Boxes[i].Key }
	slices.SortFunc(edges, func(a, b int) int {
		x, y := g.Edges[a], g.Edges[b]
		return cmp.Or(cmp.Compare(key(x.From), key(y.From)), cmp.Compare(key(x.To), key(y.To)), cmp.Compare(x.Key, y.Key))
	})
	return boxes, edges
}

// The type `drawing` draws a graph in canonical order.
type drawing struct {
	Graph
	cycle  []int // for each box the index of its cycle, or -1
	cycles []*cycle
}

// The type `cycle` is a cycle with the drawing of its inside.
type cycle struct {
	sheet
	boxes  []int
	at     map[int]int // the place of each box in the sheet
	arcs   map[int]int // the arc of each edge that begins or ends in the cycle
	size   Size        // with frame and caption
	shift  Point       // from the frame to the sheet
	vertex int         // the frame in the outer sheet
}

func (d *drawing) draw() (Drawing, error) {
	out := Drawing{Boxes: make([]Rect, len(d.Boxes)), Edges: make([]Route, len(d.Edges))}
	d.findCycles()
	places := len(d.Boxes)
	for _, c := range d.cycles {
		if err := d.drawCycle(c, &places); err != nil {
			return out, err
		}
	}
	var outer sheet
	at := make([]int, len(d.Boxes))
	for i, b := range d.Boxes {
		c := d.of(i)
		switch {
		case c == nil:
			at[i] = outer.add(b.Size)
		case c.boxes[0] == i:
			c.vertex = outer.add(c.size)
			at[i] = c.vertex
		default:
			at[i] = c.vertex
		}
	}
	arcs := map[int]int{}
	for i, e := range d.Edges {
		if c := d.cycle[e.From]; c >= 0 && c == d.cycle[e.To] {
			continue
		}
		arcs[i] = outer.connect(arc{from: at[e.From], to: at[e.To], label: e.Label, fromPort: d.port(e.From, i, false), toPort: d.port(e.To, i, true)})
	}
	size, err := outer.draw(&places)
	if err != nil {
		return out, err
	}
	out.Size = Size{size.W + 2*Margin, size.H + 2*Margin}
	all := Point{Margin, Margin}
	for i := range d.Boxes {
		if d.cycle[i] < 0 {
			out.Boxes[i] = outer.vertices[at[i]].moved(all)
		}
	}
	for _, c := range d.cycles {
		frame := outer.vertices[c.vertex].moved(all)
		out.Frames = append(out.Frames, Frame{frame, c.boxes})
		c.shift = Point{frame.X + c.shift.X, frame.Y + c.shift.Y}
		for _, b := range c.boxes {
			r := c.vertices[c.at[b]].moved(c.shift)
			out.Boxes[b] = Rect{r.X, r.Y + r.H - d.Boxes[b].H, d.Boxes[b].W, d.Boxes[b].H}
		}
	}
	loops := map[int]int{}
	for i, e := range d.Edges {
		from, to := d.of(e.From), d.of(e.To)
		switch {
		case e.From == e.To:
			out.Edges[i].Points = loop(out.Boxes[e.From], loops[e.From])
			loops[e.From]++
		case from != nil && from == to:
			out.Edges[i] = from.arcs2(i).moved(from.shift)
			if from.at[e.From] != from.sheet.arcs[from.arcs[i]].from {
				slices.Reverse(out.Edges[i].Points)
			}
		default:
			out.Edges[i] = outer.arcs[arcs[i]].route.moved(all)
			if from != nil {
				out.Edges[i].Points = slices.Concat(from.arcs2(i).moved(from.shift).Points, out.Edges[i].Points)
			}
			if to != nil {
				out.Edges[i].Points = append(out.Edges[i].Points, to.arcs2(i).moved(to.shift).Points...)
			}
			out.Edges[i].Points = smooth(out.Edges[i].Points)
		}
	}
	return out, nil
}

func (d *drawing) of(box int) *cycle {
	if d.cycle[box] < 0 {
		return nil
	}
	return d.cycles[d.cycle[box]]
}

func (c *cycle) arcs2(edge int) Route { return c.sheet.arcs[c.arcs[edge]].route }

// The method `port` returns the height at which an edge passes the frame of a box's cycle.
func (d *drawing) port(box, edge int, enters bool) int {
	c := d.of(box)
	if c == nil {
		return free
	}
	a := c.sheet.arcs[c.arcs[edge]]
	outside := a.to
	if enters {
		outside = a.from
	}
	return c.vertices[outside].Y + c.shift.Y
}

// The function `loop` returns the route of an edge from a box to itself. The number n counts the loops of the box.
func loop(b Rect, n int) []Point {
	right := b.X + b.W - 12 - n*loopStep
	return []Point{{right, b.Y}, {right, b.Y - loopRoom + 6}, {right - loopStep + 10, b.Y - loopRoom + 6}, {right - loopStep + 10, b.Y}}
}

// The method `findCycles` finds the largest sets of boxes that can be reached from each other.
func (d *drawing) findCycles() {
	n := len(d.Boxes)
	reach := make([][]bool, n)
	for i := range reach {
		reach[i] = make([]bool, n)
	}
	for _, e := range d.Edges {
		reach[e.From][e.To] = true
	}
	for k := range n {
		for i := range n {
			if reach[i][k] {
				for j, also := range reach[k] {
					reach[i][j] = reach[i][j] || also
				}
			}
		}
	}
	d.cycle = slices.Repeat([]int{-1}, n)
	for i := range n {
		if !reach[i][i] || d.cycle[i] >= 0 {
			continue
		}
		c := &cycle{at: map[int]int{}, arcs: map[int]int{}}
		for j := range n {
			if reach[i][j] && reach[j][i] {
				d.cycle[j] = len(d.cycles)
				c.boxes = append(c.boxes, j)
			}
		}
		d.cycles = append(d.cycles, c)
	}
}

// The method `drawCycle` draws the inside of a cycle. Edges that lead back are drawn as if they led to the right.
func (d *drawing) drawCycle(c *cycle, places *int) error {
	turn := d.turns(c)
	for _, b := range c.boxes {
		size, head := d.Boxes[b].Size, 0
		if slices.ContainsFunc(d.Edges, func(e Edge) bool { return e.From == b && e.To == b }) {
			head = loopRoom
		}
		c.at[b] = c.add(Size{size.W, size.H + head})
		c.vertices[c.at[b]].head = head
	}
	for i, e := range d.Edges {
		from, starts := c.at[e.From]
		to, ends := c.at[e.To]
		switch {
		case e.From == e.To || !starts && !ends:
		case !starts:
			c.arcs[i] = c.connect(arc{from: c.terminal(-1), to: to, fromPort: free, toPort: free})
		case !ends:
			c.arcs[i] = c.connect(arc{from: from, to: c.terminal(1), fromPort: free, toPort: free})
		case turn[e.From] < turn[e.To]:
			c.arcs[i] = c.connect(arc{from: from, to: to, label: e.Label, fromPort: free, toPort: free})
		default:
			c.arcs[i] = c.connect(arc{from: to, to: from, label: e.Label, fromPort: free, toPort: free})
		}
	}
	inside, err := c.draw(places)
	if err != nil {
		return err
	}
	caption := d.Caption(c.boxes)
	c.shift = Point{Margin, caption.H + Margin}
	c.size = Size{max(inside.W, caption.W) + 2*Margin, inside.H + caption.H + 2*Margin}
	for i := range c.vertices { // the terminals on the right are at the frame, even if the caption is wider than the boxes
		if c.vertices[i].terminal == 1 {
			c.vertices[i].X = c.size.W - Margin
		}
	}
	return nil
}

// The method `turns` puts the boxes of a cycle into an order in which few edges lead back: boxes that mostly feed others
// come first.
func (d *drawing) turns(c *cycle) map[int]int {
	turn, left := map[int]int{}, slices.Clone(c.boxes)
	for len(left) > 0 {
		surplus := map[int]int{}
		for _, e := range d.Edges {
			if slices.Contains(left, e.From) && slices.Contains(left, e.To) {
				surplus[e.From]++
				surplus[e.To]--
			}
		}
		first := slices.MaxFunc(left, func(a, b int) int { return cmp.Or(cmp.Compare(surplus[a], surplus[b]), cmp.Compare(b, a)) })
		turn[first] = len(turn)
		left = slices.DeleteFunc(left, func(b int) bool { return b == first })
	}
	return turn
}
