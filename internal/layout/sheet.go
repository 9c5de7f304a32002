package layout

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// The type `sheet` is a drawing of a graph without cycles. Each edge becomes a path with one vertex in every column that
// the edge passes, so that the edge has a place between the boxes. Between two columns of boxes there is a column of
// labels.
type sheet struct {
	vertices []vertex
	arcs     []arc
	columns  [][]int
	segments []segment
	left     [][]int // for each vertex the segments that end in it
	right    [][]int // the segments that begin in it
}

type vertex struct {
	Rect
	rank     int
	head     int // the room above a box, inside the rectangle; no edge begins or ends there
	line     int // 0 for a box. Otherwise the height in the vertex at which a line passes, plus 1
	terminal int // -1: in a column before all boxes; 1: in a column after all boxes
}

// free is the port of an arc that may begin or end at any height of its box.
const free = -1

// The type `arc` is an edge in a sheet.
type arc struct {
	from, to         int
	fromPort, toPort int
	label            Size
	path             []int // segments
	route            Route
}

// The type `segment` connects two vertices in neighbouring columns at these heights in the vertices.
type segment struct{ from, to, fromPort, toPort int }

// These are the distances of a sheet.
const (
	boxGap   = 22 // between boxes in a column
	lineGap  = 12 // between a line or label and what is below it
	underGap = 6  // between a label and its line
	fanOut   = 24 // between boxes and the labels to their right
	fanIn    = 44 // between labels and the boxes to their right, if there are few edges
	maxFan   = 120
)

func (s *sheet) add(size Size) int {
	s.vertices = append(s.vertices, vertex{Rect: Rect{W: size.W, H: size.H}})
	return len(s.vertices) - 1
}

func (c *cycle) terminal(side int) int {
	v := c.add(Size{})
	c.vertices[v].terminal, c.vertices[v].line = side, 1
	return v
}

func (s *sheet) connect(a arc) int {
	s.arcs = append(s.arcs, a)
	return len(s.arcs) - 1
}

// The method `draw` finds the places of all vertices and the routes of all arcs. It subtracts its vertices from the
// number of places that are left.
func (s *sheet) draw(places *int) (Size, error) {
	s.rank()
	for _, a := range s.arcs {
		*places += s.vertices[a.to].rank - s.vertices[a.from].rank
	}
	if *places > maxPlaces {
		return Size{}, tutti.Errorf(tutti.CodeInvalid, "the picture would have too many long edges: they pass %d columns, at most %d", *places, maxPlaces)
	}
	s.bend()
	s.ports()
	height := s.settle()
	return Size{s.route(), height}, nil
}

// The method `rank` finds the column of each vertex. All arcs lead to a later column, and arcs are short.
func (s *sheet) rank() {
	n := len(s.vertices)
	in, out := make([][]int, n), make([][]int, n)
	waits := make([]int, n)
	for _, a := range s.arcs {
		if s.vertices[a.from].terminal == 0 && s.vertices[a.to].terminal == 0 {
			in[a.to], out[a.from] = append(in[a.to], a.from), append(out[a.from], a.to)
			waits[a.to]++
		}
	}
	var order []int
	for v := range n {
		if waits[v] == 0 {
			order = append(order, v)
		}
	}
	for i := 0; i < len(order); i++ {
		for _, w := range out[order[i]] {
			s.vertices[w].rank = max(s.vertices[w].rank, s.vertices[order[i]].rank+1)
			if waits[w]--; waits[w] == 0 {
				order = append(order, w)
			}
		}
	}
	s.shorten(order, in, out)
	last := 0
	for _, v := range s.vertices {
		last = max(last, v.rank)
	}
	ends := slices.ContainsFunc(s.vertices, func(v vertex) bool { return v.terminal < 0 })
	for i := range s.vertices {
		v := &s.vertices[i]
		if ends {
			v.rank++
		}
		if v.terminal != 0 {
			v.rank = max(0, v.terminal*(last+2))
		}
	}
}

// The method `shorten` moves vertices, and pairs of them, to columns in which their arcs are shorter.
func (s *sheet) shorten(order []int, in, out [][]int) {
	for range len(order) {
		moved := false
		for _, backward := range []bool{true, false} {
			for i := range order {
				v := order[i]
				if backward {
					v = order[len(order)-1-i]
				}
				low, high := 0, 1<<30
				for _, w := range in[v] {
					low = max(low, s.vertices[w].rank+1)
				}
				for _, w := range out[v] {
					high = min(high, s.vertices[w].rank-1)
				}
				was := s.vertices[v].rank
				switch {
				case len(out[v]) > len(in[v]):
					s.vertices[v].rank = high
				case len(out[v]) < len(in[v]):
					s.vertices[v].rank = low
				}
				moved = moved || was != s.vertices[v].rank
			}
		}
		if !moved {
			return
		}
	}
}

// The method `bend` gives each arc a path, and puts the vertices of each column into an order with few crossings.
func (s *sheet) bend() {
	boxes := len(s.vertices)
	var columns [][]int
	put := func(v int) {
		for len(columns) <= s.vertices[v].rank {
			columns = append(columns, nil)
		}
		columns[s.vertices[v].rank] = append(columns[s.vertices[v].rank], v)
	}
	for v := range boxes {
		put(v)
	}
	next := make([][]int, boxes)
	steps := make([][]int, len(s.arcs)) // the vertices of an arc in the columns of boxes
	for i, a := range s.arcs {
		at := a.from
		steps[i] = []int{at}
		for r := s.vertices[a.from].rank + 1; r < s.vertices[a.to].rank; r++ {
			v := s.add(Size{H: 1})
			s.vertices[v].rank, s.vertices[v].line = r, 1
			put(v)
			next, next[at], at = append(next, nil), append(next[at], v), v
			steps[i] = append(steps[i], v)
		}
		next[at] = append(next[at], a.to)
		steps[i] = append(steps[i], a.to)
	}
	columns = arrange(columns, next)
	s.columns = make([][]int, max(0, 2*len(columns)-1))
	pos := make([]int, len(s.vertices))
	for r, column := range columns {
		s.columns[2*r] = column
		for i, v := range column {
			pos[v] = i
		}
	}
	type passing struct{ mid, from, port, to int }
	between := make([][]passing, len(columns))
	for i := range s.arcs {
		a := &s.arcs[i]
		for k := range len(steps[i]) - 1 {
			from, to := steps[i][k], steps[i][k+1]
			mid := s.add(Size{H: 1})
			line := 0
			if k == 0 && a.label.H > 0 {
				s.vertices[mid].W, s.vertices[mid].H = a.label.W, a.label.H+underGap
				line = a.label.H + underGap - 1
			}
			s.vertices[mid].line = line + 1
			a.path = append(a.path, len(s.segments), len(s.segments)+1)
			s.segments = append(s.segments, segment{from, mid, s.middle(from), line}, segment{mid, to, line, s.middle(to)})
			between[s.vertices[from].rank] = append(between[s.vertices[from].rank], passing{mid, pos[from], a.fromPort, pos[to]})
		}
	}
	for r, all := range between {
		slices.SortStableFunc(all, func(a, b passing) int { return cmp.Or(a.from-b.from, a.port-b.port, a.to-b.to) })
		for _, p := range all {
			s.columns[2*r+1] = append(s.columns[2*r+1], p.mid)
		}
	}
}

func (s *sheet) middle(v int) int { return s.vertices[v].H / 2 }

// The method `ports` spreads the arcs of a box over its sides, in the order in which they leave and arrive.
func (s *sheet) ports() {
	s.left, s.right = make([][]int, len(s.vertices)), make([][]int, len(s.vertices))
	pos := make([]int, len(s.vertices))
	for _, column := range s.columns {
		for i, v := range column {
			pos[v] = i
		}
	}
	for i, g := range s.segments {
		s.right[g.from], s.left[g.to] = append(s.right[g.from], i), append(s.left[g.to], i)
	}
	for v := range s.vertices {
		slices.SortStableFunc(s.right[v], func(a, b int) int { return pos[s.segments[a].to] - pos[s.segments[b].to] })
		slices.SortStableFunc(s.left[v], func(a, b int) int { return pos[s.segments[a].from] - pos[s.segments[b].from] })
		if s.vertices[v].line > 0 {
			continue
		}
		head, height := s.vertices[v].head, s.vertices[v].H-s.vertices[v].head
		for i, g := range s.right[v] {
			s.segments[g].fromPort = head + height*(i+1)/(len(s.right[v])+1)
		}
		for i, g := range s.left[v] {
			s.segments[g].toPort = head + height*(i+1)/(len(s.left[v])+1)
		}
	}
	for _, a := range s.arcs {
		if a.fromPort != free {
			s.segments[a.path[0]].fromPort = a.fromPort
		}
		if a.toPort != free {
			s.segments[a.path[len(a.path)-1]].toPort = a.toPort
		}
	}
}

// settle finds the heights of all vertices: as near to their neighbours as their order allows. It returns the height of
// the sheet.
func (s *sheet) settle() int {
	for _, column := range s.columns {
		s.spread(column, false, false)
	}
	const rounds = 6
	for i := range rounds {
		for c := range s.columns {
			s.spread(s.columns[c], true, i >= rounds/2)
		}
		for c := range s.columns {
			s.spread(s.columns[len(s.columns)-1-c], i >= rounds/2, true)
		}
	}
	s.straighten()
	top, bottom := 0, 0
	for i, v := range s.vertices {
		if i == 0 || v.Y < top {
			top = v.Y
		}
	}
	for i := range s.vertices {
		s.vertices[i].Y -= top
		bottom = max(bottom, s.vertices[i].Y+s.vertices[i].H)
	}
	return bottom
}

// The method `spread` moves the vertices of a column to the mean height of their neighbours on these sides. If they would
// overlap, it moves groups of them to the mean height that the group wants.
func (s *sheet) spread(column []int, byLeft, byRight bool) {
	type group struct{ sum, weight, size int }
	var groups []group
	offset, offsets := 0, make([]int, len(column))
	for i, v := range column {
		if i > 0 {
			above := s.vertices[column[i-1]]
			gap := lineGap
			if above.line == 0 && s.vertices[v].line == 0 {
				gap = boxGap
			}
			offset += above.H + gap
		}
		offsets[i] = offset
		sum, weight := 0, 0
		want := func(y, w int) { sum, weight = sum+w*y, weight+w }
		if byLeft {
			for _, g := range s.left[v] {
				seg := s.segments[g]
				want(s.vertices[seg.from].Y+seg.fromPort-seg.toPort, s.weight(seg))
			}
		}
		if byRight {
			for _, g := range s.right[v] {
				seg := s.segments[g]
				want(s.vertices[seg.to].Y+seg.toPort-seg.fromPort, s.weight(seg))
			}
		}
		if weight == 0 && i > 0 { // stay below the vertex above
			groups[len(groups)-1].size++
			continue
		} else if weight == 0 {
			want(s.vertices[v].Y, 1)
		}
		groups = append(groups, group{sum - weight*offset, weight, 1})
		for k := len(groups) - 1; k > 0 && groups[k-1].sum*groups[k].weight > groups[k].sum*groups[k-1].weight; k-- {
			a, b := groups[k-1], groups[k]
			groups = append(groups[:k-1], group{a.sum + b.sum, a.weight + b.weight, a.size + b.size})
		}
	}
	i := 0
	for _, g := range groups {
		y := floor(g.sum, g.weight)
		for range g.size {
			s.vertices[column[i]].Y = y + offsets[i]
			i++
		}
	}
}

// The method `straighten` moves lines, where there is room, to the height that they have in the column before.
func (s *sheet) straighten() {
	for _, column := range s.columns {
		for i, v := range column {
			at := &s.vertices[v]
			if at.line == 0 {
				continue
			}
			var y int
			if len(s.left[v]) > 0 {
				seg := s.segments[s.left[v][0]]
				y = s.vertices[seg.from].Y + seg.fromPort - seg.toPort
			} else {
				seg := s.segments[s.right[v][0]]
				y = s.vertices[seg.to].Y + seg.toPort - seg.fromPort
			}
			if i > 0 {
				above := s.vertices[column[i-1]]
				y = max(y, min(at.Y, above.Y+above.H+lineGap))
			}
			if i < len(column)-1 {
				y = min(y, max(at.Y, s.vertices[column[i+1]].Y-at.H-lineGap))
			}
			at.Y = y
		}
	}
}

// The method `weight` says how much a segment wants to be straight: long edges most.
func (s *sheet) weight(g segment) int {
	a, b := s.vertices[g.from], s.vertices[g.to]
	switch {
	case a.line > 0 && b.line > 0:
		return 8
	case a.line > 0 || b.line > 0:
		return 2
	}
	return 1
}

func floor(a, b int) int {
	if a < 0 {
		return -((b - 1 - a) / b)
	}
	return a / b
}

// The method `route` finds the columns' places and the arcs' corners. It returns the width of the sheet.
func (s *sheet) route() int {
	starts, ends := make([]int, len(s.columns)), make([]int, len(s.columns))
	column := make([]int, len(s.vertices))
	x := 0
	for c, in := range s.columns {
		width := 0
		for _, v := range in {
			column[v], width = c, max(width, s.vertices[v].W)
		}
		switch {
		case c == 0:
		case c%2 == 1, s.ends(c), s.ends(c - 2):
			x += fanOut
		default:
			x += min(maxFan, fanIn+2*len(s.columns[c-1]))
		}
		starts[c], ends[c] = x, x+width
		for _, v := range in {
			s.vertices[v].X = x
			if c%2 == 0 && s.vertices[v].line == 0 {
				s.vertices[v].X += (width - s.vertices[v].W) / 2
			}
		}
		x += width
	}
	for i := range s.arcs {
		a := &s.arcs[i]
		points := []Point{}
		for k, g := range a.path {
			seg := s.segments[g]
			from, to := s.vertices[seg.from], s.vertices[seg.to]
			if k == 0 {
				points = append(points, Point{from.X + from.W, from.Y + seg.fromPort})
			}
			points = append(points, Point{ends[column[seg.from]], from.Y + seg.fromPort}, Point{starts[column[seg.to]], to.Y + seg.toPort})
			if k == len(a.path)-1 {
				points = append(points, Point{to.X, to.Y + seg.toPort})
			}
			if k == 0 && a.label.H > 0 {
				a.route.Label = Rect{to.X, to.Y, a.label.W, a.label.H}
			}
		}
		a.route.Points = smooth(points)
	}
	return x
}

// The method `ends` reports whether a column has only terminals.
func (s *sheet) ends(column int) bool {
	return !slices.ContainsFunc(s.columns[column], func(v int) bool { return s.vertices[v].terminal == 0 })
}

// The function `smooth` leaves out corners on a straight line.
func smooth(points []Point) []Point {
	var out []Point
	for _, p := range points {
		if n := len(out); n > 0 && out[n-1] == p {
			continue
		} else if n > 1 && (out[n-1].Y-out[n-2].Y)*(p.X-out[n-1].X) == (p.Y-out[n-1].Y)*(out[n-1].X-out[n-2].X) && (p.X-out[n-1].X)*(out[n-1].X-out[n-2].X) >= 0 {
			out = out[:n-1]
		}
		out = append(out, p)
	}
	return out
}

func (r Rect) moved(by Point) Rect { return Rect{r.X + by.X, r.Y + by.Y, r.W, r.H} }

func (r Route) moved(by Point) Route {
	out := Route{Label: r.Label}
	if r.Label.H > 0 {
		out.Label = r.Label.moved(by)
	}
	for _, p := range r.Points {
		out.Points = append(out.Points, Point{p.X + by.X, p.Y + by.Y})
	}
	return out
}
