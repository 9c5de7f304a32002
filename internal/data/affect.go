package data

import (
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
)

// Affected is a question whose answer changes when a value changes. Nodes lists, sorted, the nodes for which the
// new answer would differ from the answer in their records.
type Affected struct {
	Query tutti.Query
	Nodes []tutti.NodeName
}

// Affects returns the questions and nodes that would be affected if a value were set. If
// `set` is empty, Affects assumes that the value is unset. Affects covers the readers of
// the value and the readers of its hiera key. If the value stays equal, no node is
// affected. If a node would get the answer that is in its record, the node is not
// affected. Nothing is changed.
func (s *State) Affects(path string, set json.RawMessage) []Affected {
	var now value
	if len(set) > 0 {
		now.digest = tutti.DigestOf(canonicalOrRaw(set))
	}
	return s.affects(path, now)
}

// AffectsSealed does the same as Affects for a new secret that is sealed to these nodes.
func (s *State) AffectsSealed(path string, nodes []tutti.NodeName) []Affected {
	now := value{digest: tutti.Secret{}.Digest(), sealed: &sealed{pieces: map[tutti.NodeName]tutti.Piece{}}}
	for _, node := range nodes {
		now.sealed.pieces[node] = tutti.Piece{Node: node, Box: s.boxes[node]}
	}
	return s.affects(path, now)
}

func (s *State) affects(path string, now value) []Affected {
	var out []Affected
	s.askersOf(path, s.values[path], now, func(q *Question, r *record, answer tutti.Digest) {
		if !r.would(q, answer) {
			return
		}
		if len(out) == 0 || out[len(out)-1].Query.Kind != q.Query.Kind {
			out = append(out, Affected{Query: q.Query})
		}
		last := &out[len(out)-1]
		last.Nodes = append(last.Nodes, r.node)
	})
	for i := range out {
		slices.Sort(out[i].Nodes)
		// a node may have a key both as an absent key and as a read key
		out[i].Nodes = slices.Compact(out[i].Nodes)
	}
	return out
}

// The method `would` reports whether a new answer differs from the answer in the record. An empty digest means that
// there is no answer.
func (r *record) would(q *Question, answer tutti.Digest) bool {
	if _, absent := q.absent[r.absent]; absent && r.absent != nil && answer != "" {
		return true
	}
	return slices.ContainsFunc(r.reads, func(read read) bool {
		return read.Question == q && (read.found != (answer != "") || read.given() != answer)
	})
}
