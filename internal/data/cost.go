package data

import (
	"math/bits"

	"github.com/tutti-project/tutti"
)

// weight measures how much work it is to compare some exports with a filter.
type weight struct {
	exports int
	tags    int // steps of the search for a tag, summed over the exports
}

func weightOf(members []member) weight {
	w := weight{exports: len(members)}
	for i := range members {
		w.tags += bits.Len(uint(len(members[i].Tags)))
	}
	return w
}

func (w weight) plus(o weight) weight { return weight{w.exports + o.exports, w.tags + o.tags} }

// The method `cost` returns the number of comparisons that a filter makes for this weight. The argument `more` is an
// additional cost for each export.
func (w weight) cost(f *Filter, more int) int {
	each, tags := f.steps()
	return w.exports*(more+each) + w.tags*tags
}

// weights are the weights of the exports in several sets, by type. A type without exports has no entry.
type weights map[string]weight

// The method `replace` subtracts the weight of one set and adds the weight of another.
func (w weights) replace(before, after exportSet) {
	for name, members := range before {
		was := weightOf(members)
		w.add(name, weight{-was.exports, -was.tags})
	}
	for name, members := range after {
		w.add(name, weightOf(members))
	}
}

func (w weights) add(name string, more weight) {
	if now := w[name].plus(more); now != (weight{}) {
		w[name] = now
	} else {
		delete(w, name)
	}
}

// These constants are the cost of one export in addition to the comparisons of the filter. costOfSum is the cost of
// adding the export to a sum, and costOfList is the cost of listing it in order.
const (
	costOfSum  = 1
	costOfList = 8
)

// Cost returns the largest number of comparisons for the answer to a question. The unit is the comparison of one
// export with one value. The cost of a look-up is 0. Listing an export costs more than one comparison.
func (s *State) Cost(q tutti.Query) int {
	if q.Kind != tutti.QueryCollect {
		return 0
	}
	filter, err := ParseFilter(q.Filter)
	if err != nil {
		return 0 // an invalid question gets no answer
	}
	return s.cost(q.Type, filter, costOfList)
}

func (s *State) cost(name string, filter *Filter, more int) int {
	all, sets := s.weights[name], 0
	for _, o := range s.jobs {
		all, sets = all.plus(o.weights[name]), sets+len(o.sets)
	}
	return sets + all.cost(filter, more)
}
