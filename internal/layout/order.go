package layout

import (
	"slices"
	"sort"
)

// The type `ordering` puts the vertices of each column into an order with few crossings.
type ordering struct {
	columns    [][]int
	prev, next [][]int // the neighbours of each vertex in the column before and after it
	pos        []int
}

const (
	starts    = 4
	sweeps    = 24 // at most, from each start
	unchanged = 4  // sweeps without fewer crossings
	switches  = 12 // passes that switch neighbours
)

// The function `arrange` orders the columns.
func arrange(columns [][]int, next [][]int) [][]int {
	o := &ordering{columns: columns, next: next, prev: make([][]int, len(next)), pos: make([]int, len(next))}
	for v, after := range next {
		for _, w := range after {
			o.prev[w] = append(o.prev[w], v)
		}
	}
	var best [][]int
	fewest := -1
	for start := range starts {
		o.walk(start)
		idle := 0
		for i := 0; i < sweeps && idle < unchanged; i++ {
			o.sweep(i%2 == 0, i%4 >= 2)
			o.exchange()
			if n := o.crossings(); fewest < 0 || n < fewest {
				best, fewest, idle = o.copied(), n, 0
			} else {
				idle++
			}
		}
	}
	return best
}

// The method `walk` gives each column the order in which a walk along the edges finds its vertices.
func (o *ordering) walk(start int) {
	seen := make([]bool, len(o.next))
	found := make([][]int, len(o.columns))
	var visit func(v, column int)
	visit = func(v, column int) {
		if seen[v] {
			return
		}
		seen[v] = true
		found[column] = append(found[column], v)
		after := slices.Clone(o.next[v])
		if start >= 2 {
			slices.Reverse(after)
		}
		for _, w := range after {
			visit(w, column+1)
		}
	}
	for c, column := range o.columns {
		column = slices.Clone(column)
		slices.Sort(column)
		if start%2 == 1 {
			slices.Reverse(column)
		}
		for _, v := range column {
			visit(v, c)
		}
	}
	o.set(found)
}

func (o *ordering) set(columns [][]int) {
	o.columns = columns
	for _, column := range columns {
		o.number(column)
	}
}

func (o *ordering) number(column []int) {
	for i, v := range column {
		o.pos[v] = i
	}
}

func (o *ordering) copied() [][]int {
	out := make([][]int, len(o.columns))
	for i, column := range o.columns {
		out[i] = slices.Clone(column)
	}
	return out
}

// The method `sweep` goes through the columns and sorts each by the mean place of its vertices' neighbours in the column
// before. Vertices without such neighbours stay where they are.
func (o *ordering) sweep(forward, reversed bool) {
	for i := range o.columns {
		beside := o.prev
		if !forward {
			i, beside = len(o.columns)-1-i, o.next
		}
		column := o.columns[i]
		var at, moving []int
		sum := make(map[int]int, len(column))
		for place, v := range column {
			if len(beside[v]) > 0 {
				at, moving = append(at, place), append(moving, v)
			}
			for _, w := range beside[v] {
				sum[v] += o.pos[w]
			}
		}
		if reversed {
			slices.Reverse(moving)
		}
		slices.SortStableFunc(moving, func(a, b int) int { return sum[a]*len(beside[b]) - sum[b]*len(beside[a]) })
		for k, place := range at {
			column[place] = moving[k]
		}
		o.number(column)
	}
}

// The method `crossings` counts the crossings between all columns.
func (o *ordering) crossings() int {
	total := 0
	for _, column := range o.columns {
		var ends []int
		for _, v := range column {
			from := len(ends)
			for _, w := range o.next[v] {
				ends = append(ends, o.pos[w])
			}
			slices.Sort(ends[from:])
		}
		total += inversions(ends)
	}
	return total
}

// The function `inversions` counts the pairs in the wrong order, and sorts the numbers.
func inversions(in []int) int {
	if len(in) < 2 {
		return 0
	}
	left, right := slices.Clone(in[:len(in)/2]), slices.Clone(in[len(in)/2:])
	n := inversions(left) + inversions(right)
	for i := range in {
		if len(right) == 0 || len(left) > 0 && left[0] <= right[0] {
			in[i], left = left[0], left[1:]
		} else {
			in[i], right = right[0], right[1:]
			n += len(left)
		}
	}
	return n
}

// The method `exchange` switches two neighbours in a column while this makes crossings fewer.
func (o *ordering) exchange() {
	for range switches {
		better := false
		for _, column := range o.columns {
			for i := range len(column) - 1 {
				a, b := column[i], column[i+1]
				if o.between(a, b) > o.between(b, a) {
					column[i], column[i+1] = b, a
					o.pos[a], o.pos[b] = i+1, i
					better = true
				}
			}
		}
		if !better {
			return
		}
	}
}

// The method `between` counts the crossings of the edges of two vertices if the first vertex is above the second.
func (o *ordering) between(above, below int) int {
	return o.inverted(o.prev[above], o.prev[below]) + o.inverted(o.next[above], o.next[below])
}

func (o *ordering) inverted(above, below []int) int {
	if len(above) == 0 || len(below) == 0 {
		return 0
	}
	places := func(in []int) []int {
		out := make([]int, len(in))
		for i, v := range in {
			out[i] = o.pos[v]
		}
		slices.Sort(out)
		return out
	}
	n, low := 0, places(below)
	for _, p := range places(above) {
		n += sort.SearchInts(low, p)
	}
	return n
}
