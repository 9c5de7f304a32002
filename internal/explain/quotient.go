package explain

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/layout"
)

// fewBoxes is how many boxes a picture may have before questions are compared coarsely.
const fewBoxes = 100

// The type `quotient` joins nodes that ask and publish the same (ADR 0044).
type quotient struct {
	nodes  map[tutti.NodeName]*quotientNode
	flows  []flow
	coarse bool
	names  []tutti.NodeName // of nodes, sorted
	boxes  []*quotientBox
	edges  map[edgeKey]*quotientEdge
}

// The type `flow` says that nodes publish answers to a question of other nodes, or that a group comes before another.
type flow struct {
	from, to []tutti.NodeName
	kind     api.PictureKind
	query    tutti.Query
	order    string // the groups; empty if there is a query
}

// The type `quotientNode` is what a picture needs of a node.
type quotientNode struct {
	state  api.NodeState
	groups []tutti.GroupName
	known  bool     // the node has run, so its questions are known
	member bool     // of the target
	roles  []string // what the node publishes and asks, in normal form
	box    int
}

type quotientBox struct {
	id    string
	nodes []tutti.NodeName
	alone bool
}

type edgeKey struct {
	from, to int
	kind     api.PictureKind
}

// The type `quotientEdge` has the questions of an edge by their normal form. If there are several questions of one form,
// the question is empty.
type quotientEdge struct{ questions map[string]string }

func newQuotient(nodes map[tutti.NodeName]*quotientNode, flows []flow) (*quotient, error) {
	q := &quotient{nodes: nodes, flows: flows, names: slices.Sorted(maps.Keys(nodes))}
	if q.partition(); len(q.boxes) > fewBoxes {
		q.coarse = true
		q.partition()
	}
	if err := layout.Check(len(q.boxes)); err != nil {
		return nil, tooLarge(err)
	}
	q.connect()
	return q, nil
}

func tooLarge(err error) error {
	return tutti.Errorf(tutti.CodeOf(err), "%s: name a group or a node (tutti graph --svg TARGET), or list the edges (tutti graph)", err)
}

// The method `partition` puts nodes with the same roles into one box.
func (q *quotient) partition() {
	for _, n := range q.nodes {
		n.roles = n.roles[:0]
	}
	q.boxes = nil
	for _, l := range q.flows {
		form := q.formOf(l)
		for side, names := range [][]tutti.NodeName{l.from, l.to} {
			role := fmt.Sprintf("%d %s %s%s", side, l.kind, form.text, l.order)
			for _, name := range names {
				if n := q.nodes[name]; form.names[name] {
					n.roles = append(n.roles, role+" "+form.own(name))
				} else {
					n.roles = append(n.roles, role)
				}
			}
		}
	}
	at := map[string]int{}
	for _, name := range q.names {
		n := q.nodes[name]
		slices.Sort(n.roles)
		n.roles = slices.Compact(n.roles)
		sum := sha256.Sum256([]byte(fmt.Sprintf("%t %t %q", n.known, n.member, n.roles)))
		id := hex.EncodeToString(sum[:6])
		i, found := at[id]
		if !found {
			i, at[id] = len(q.boxes), len(q.boxes)
			q.boxes = append(q.boxes, &quotientBox{id: id, alone: len(n.roles) == 0})
		}
		n.box = i
		q.boxes[i].nodes = append(q.boxes[i].nodes, name)
	}
}

// The type `form` is a question in which the names of the flow's nodes are replaced by `*`.
type form struct {
	text  string
	parts []string // the question, cut at names
	names map[tutti.NodeName]bool
}

// The method `formOf` returns the normal form of a flow's question. Only whole words count as a name: the word `web` does
// not occur in `web-01`.
func (q *quotient) formOf(l flow) form {
	if l.order != "" {
		return form{}
	}
	f := form{names: map[tutti.NodeName]bool{}}
	if q.coarse {
		f.text = coarseText(l.query)
		return f
	}
	var b strings.Builder
	text := questionText(l.query)
	for len(text) > 0 {
		end := strings.IndexFunc(text, func(r rune) bool { return !inName(r) })
		switch {
		case end < 0:
			end = len(text)
		case end == 0:
			end = len(text) - len(strings.TrimLeftFunc(text, func(r rune) bool { return !inName(r) }))
		}
		word := text[:end]
		if name := tutti.NodeName(word); has(l.from, name) || has(l.to, name) {
			f.names[name] = true
			b.WriteString("*")
		} else {
			b.WriteString(word)
		}
		f.parts = append(f.parts, word)
		text = text[end:]
	}
	f.text = b.String()
	return f
}

// The method `own` says which of the names in a question is the node's own name.
func (f form) own(name tutti.NodeName) string {
	var at []int
	for i, p := range f.parts {
		if p == string(name) {
			at = append(at, i)
		}
	}
	return fmt.Sprint(at)
}

func inName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_'
}

func has(names []tutti.NodeName, name tutti.NodeName) bool {
	_, found := slices.BinarySearch(names, name)
	return found
}

// The function `questionText` returns the key of a value, or the collector of exports. A collector without a filter is
// only a type.
func questionText(query tutti.Query) string {
	text := query.Key
	if query.Kind == tutti.QueryCollect {
		text = strings.TrimSuffix(query.String(), " <<| |>>")
	}
	return tutti.InLine(tutti.Visible(text))
}

// The function `coarseText` returns the type of exports, or the first part of a key.
func coarseText(query tutti.Query) string {
	if query.Kind == tutti.QueryCollect {
		return tutti.InLine(tutti.Visible(query.Type))
	}
	text := questionText(query)
	for _, sep := range []string{"/", "::"} {
		if first, _, more := strings.Cut(text, sep); more {
			return first + sep + "**"
		}
	}
	return text
}

// The method `connect` adds an edge between two boxes if a node of the second asks what a node of the first publishes.
// Nodes that read only their own publications add no edge.
func (q *quotient) connect() {
	q.edges = map[edgeKey]*quotientEdge{}
	for _, l := range q.flows {
		f := q.formOf(l)
		from, to := q.parted(l.from), q.parted(l.to)
		for a, some := range from {
			for b, others := range to {
				if a == b && len(some) == 1 && slices.Equal(some, others) {
					continue
				}
				key := edgeKey{a, b, l.kind}
				e := q.edges[key]
				if e == nil {
					e = &quotientEdge{map[string]string{}}
					q.edges[key] = e
				}
				if l.order != "" {
					continue
				}
				text := questionText(l.query)
				if was, known := e.questions[f.text]; known && was != text {
					text = ""
				}
				e.questions[f.text] = text
			}
		}
	}
}

func (q *quotient) parted(names []tutti.NodeName) map[int][]tutti.NodeName {
	out := map[int][]tutti.NodeName{}
	for _, n := range names {
		out[q.nodes[n].box] = append(out[q.nodes[n].box], n)
	}
	return out
}

// The method `texts` returns the questions of an edge, sorted.
func (e *quotientEdge) texts() []string {
	var out []string
	for form, text := range e.questions {
		out = append(out, cmp.Or(text, form))
	}
	slices.Sort(out)
	return out
}

// The method `sortedEdges` returns the keys of all edges in order.
func (q *quotient) sortedEdges() []edgeKey {
	return slices.SortedFunc(maps.Keys(q.edges), func(a, b edgeKey) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.kind, b.kind))
	})
}
