package data

import (
	"math/bits"

	"github.com/tutti-project/tutti"
)

// weight is how much there is to compare in some exports.
type weight struct {
	exports int
	tags    int // steps of a search in the tags of each
}

func weightOf(members []member) weight {
	w := weight{exports: len(members)}
	for i := range members {
		w.tags += bits.Len(uint(len(members[i].Tags)))
	}
	return w
}

func (w weight) plus(o weight) weight { return weight{w.exports + o.exports, w.tags + o.tags} }

// cost is how many comparisons a filter takes with this weight, plus more for each export.
func (w weight) cost(f *Filter, more int) int {
	each, tags := f.steps()
	return w.exports*(more+each) + w.tags*tags
}

// weights are the weights of the exports in some sets, by type. Types without exports have no weight.
type weights map[string]weight

// replace takes out one set and adds another.
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

// The cost of an export besides the comparisons of a filter: to add it to a sum, and to list it in order.
const (
	costOfSum  = 1
	costOfList = 8
)

// Cost is how many comparisons the answer to a question takes at most, in exports that are compared with one value.
// It is 0 for a look-up. A listed export costs more than one.
func (s *State) Cost(q tutti.Query) int {
	if q.Kind != tutti.QueryCollect {
		return 0
	}
	filter, err := ParseFilter(q.Filter)
	if err != nil {
		return 0 // the question is not answered
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
