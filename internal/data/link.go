package data

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// Link is a question between the nodes that publish into it, or declare that they will,
// and the nodes that ask it.
type Link struct {
	*Question
	From, To []tutti.NodeName // sorted; a node may be in both
}

// Links returns every question that is asked and has producers, by kind, name and
// filter. Its cost depends on the number of questions and links, not on the number of
// reads.
func (s *State) Links() []Link {
	var links []Link
	own := map[*Question]map[*record]bool{} // askers with hiera data of their own
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

// ownAskers notes which hiera questions a node asks whose answers are the node's own data.
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

// Declarers returns the nodes whose latest catalogs want a path published, sorted.
func (s *State) Declarers(path string) []tutti.NodeName { return slices.Clone(s.declared[path]) }

// HieraKey splits the key of a value that hiera sees. ok is false for other keys. The
// node is empty for the keys that all nodes see.
func HieraKey(path string) (node tutti.NodeName, key string, ok bool) { return hieraKey(path) }

// HieraPaths are the keys of the values at which hiera on a node finds a key. The
// first one that has a value counts.
func HieraPaths(node tutti.NodeName, key string) []string {
	return []string{nodeHiera(node, key), sharedHiera(key)}
}
