package data

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// Link connects the nodes that ask a question with its producers. A producer publishes data for the answer, or
// declares that it will.
type Link struct {
	*Question
	From, To []tutti.NodeName // sorted. A node may be in both lists
}

// Links returns the questions that have both askers and producers, sorted by kind, name
// and filter. The cost of Links depends on the number of questions and links. The cost
// does not depend on the number of reads.
func (s *State) Links() []Link {
	var links []Link
	own := map[*Question]map[*record]bool{} // askers that have their own hiera data
	for node := range s.declaredFor {
		s.ownAskers(node, own)
	}
	for node := range s.hiera {
		s.ownAskers(node, own)
	}
	add := func(q *Question, from, to []tutti.NodeName) {
		if len(from) > 0 && len(to) > 0 {
			links = append(links, Link{q, from, to})
		}
	}
	for _, q := range s.questions {
		for r := range own[q] {
			mine := s.ownQuestion(r, q)
			add(mine, mine.producers(""), []tutti.NodeName{r.node})
		}
		from := q.producers("")
		if len(from) == 0 {
			continue
		}
		var to []tutti.NodeName
		for r := range q.askers() {
			if !own[q][r] {
				to = append(to, r.node)
			}
		}
		slices.Sort(to)
		add(q, from, slices.Compact(to))
	}
	slices.SortFunc(links, func(a, b Link) int {
		x, y := a.Query, b.Query
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Type, y.Type), cmp.Compare(x.Key, y.Key),
			cmp.Compare(string(x.Filter), string(y.Filter)), cmp.Compare(a.Node, b.Node))
	})
	return links
}

// ownAskers records which hiera questions of a node are answered from the node's own data.
func (s *State) ownAskers(node tutti.NodeName, own map[*Question]map[*record]bool) {
	r := s.records[node]
	if r == nil {
		return
	}
	note := func(key string) {
		q := s.questions[identity{kind: tutti.QueryHiera, key: key}]
		if q == nil || !r.asks(q) {
			return
		}
		if own[q] == nil {
			own[q] = map[*record]bool{}
		}
		own[q][r] = true
	}
	for key := range s.hiera[node] {
		note(key)
	}
	for key := range s.declaredFor[node] {
		note(key)
	}
}

// Declarers returns the nodes whose latest catalogs will publish a path, sorted.
func (s *State) Declarers(path string) []tutti.NodeName { return slices.Clone(s.declared[path]) }

// HieraKey splits the path of a hiera value into node and key. The result `ok` is false
// if the path is not for hiera. The node is empty for keys that all nodes share.
func HieraKey(path string) (node tutti.NodeName, key string, ok bool) { return hieraKey(path) }

// HieraPaths returns the paths of the values where hiera on a node looks for a key. Hiera
// uses the first path that has a value.
func HieraPaths(node tutti.NodeName, key string) []string {
	return []string{nodeHiera(node, key), sharedHiera(key)}
}
