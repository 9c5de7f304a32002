package data

import (
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
)

// Affected is a question whose answer a change of a value changes, and the
// nodes, sorted, that would get another answer than their records have.
type Affected struct {
	Query tutti.Query
	Nodes []tutti.NodeName
}

// Affects returns which nodes it would affect to set a value, or (empty) to unset it: its
// readers, and those of its hiera key. An equal value affects no node.
// A node that would get back the answer that it had is not affected. Nothing is
// changed.
func (s *State) Affects(path string, set json.RawMessage) []Affected {
	var now value
	if len(set) > 0 {
		now.digest = tutti.DigestOf(canonicalOrRaw(set))
	}
	return s.affects(path, now)
}

// AffectsSealed is Affects for a new secret, sealed to these nodes.
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
		out[i].Nodes = slices.Compact(out[i].Nodes) // a node may have a key among those absent and among those read
	}
	return out
}

// would reports whether an answer (empty: no answer) differs from that of a record.
func (r *record) would(q *Question, answer tutti.Digest) bool {
	if _, absent := q.absent[r.absent]; absent && r.absent != nil && answer != "" {
		return true
	}
	return slices.ContainsFunc(r.reads, func(read read) bool {
		return read.Question == q && (read.found != (answer != "") || read.given() != answer)
	})
}
