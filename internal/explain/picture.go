package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/layout"
)

// The type `pictures` has the method of a Reader about pictures.
type pictures struct{ rd *Reader }

// Picture implements tutti.Explains.
func (p pictures) Picture(ctx context.Context, target string) (api.Picture, error) {
	nodes := map[tutti.NodeName]*quotientNode{}
	groups := map[tutti.GroupName]int{}
	var flows []flow
	err := p.rd.look(ctx, func(v View) error {
		members, err := v.target(target)
		if err != nil {
			return err
		}
		flows = v.flows(members)
		for n := range members {
			nodes[n] = &quotientNode{member: true}
		}
		for _, l := range flows {
			for _, n := range slices.Concat(l.from, l.to) {
				if nodes[n] == nil {
					nodes[n] = &quotientNode{}
				}
			}
		}
		standings := v.Converge.Standings(converge.View{Has: v.has})
		for name, n := range nodes {
			joined := v.Registry.Nodes[name]
			if joined == nil { // the node was removed, and its data were kept
				n.state = api.NodeUnknown
				continue
			}
			view := v.node(joined)
			v.stands(joined, standings(name), &view)
			n.state, n.groups, n.known = view.Stands, view.Groups, v.Converge.Basis(name) != nil
		}
		for _, n := range v.Registry.Nodes {
			for _, g := range v.Registry.Groups(n) {
				groups[g]++
			}
		}
		return nil
	})
	if err != nil {
		return api.Picture{}, err
	}
	q, err := newQuotient(nodes, flows)
	if err != nil {
		return api.Picture{}, err
	}
	return drawn(q, groups)
}

// The method `target` returns the nodes that a target names.
func (v View) target(target string) (map[tutti.NodeName]bool, error) {
	names := v.Members(target)
	if target != "" && len(names) == 0 {
		return nil, tutti.Errorf(tutti.CodeNotFound, "no group %q with nodes that have joined, and no such node; see: tutti node list", target)
	}
	members := make(map[tutti.NodeName]bool, len(names))
	for _, n := range names {
		members[n] = true
	}
	return members, nil
}

// The method `flows` returns the flows from and to members, but no flow from a node to itself.
func (v View) flows(members map[tutti.NodeName]bool) []flow {
	var out []flow
	add := func(f flow, from, to []tutti.NodeName) {
		toItself := len(from) == 1 && slices.Equal(from, to)
		if f.from, f.to = from, to; len(from) > 0 && len(to) > 0 && !toItself {
			out = append(out, f)
		}
	}
	both := func(f flow) {
		fromIn, fromOut := split(f.from, members)
		toIn, _ := split(f.to, members)
		add(f, fromIn, f.to)
		add(f, fromOut, toIn)
	}
	for _, l := range v.Data.Links() {
		f := flow{from: l.From, to: l.To, kind: api.PictureSoft, query: l.Query}
		if l.Hard {
			f.kind = api.PictureHard
		}
		both(f)
	}
	for _, o := range v.Fleet().Order {
		both(flow{from: v.Members(string(o.First)), to: v.Members(string(o.Then)), kind: api.PictureOrder, order: fmt.Sprintf("%s before %s", o.First, o.Then)})
	}
	return out
}

// These are the sizes of the texts of a picture, in pixels.
const (
	titleSize, textSize   = 13, 11 // the height of letters
	lineHeight            = 16
	boxPadding            = 12
	barHeight             = 8 // the bar of states, with the space above it
	maxTitle, maxQuestion = 30, 34
)

// drawn finds the places of a picture.
func drawn(q *quotient, groups map[tutti.GroupName]int) (api.Picture, error) {
	out := api.Picture{Boxes: []api.PictureBox{}, Edges: []api.PictureEdge{}, Nodes: len(q.nodes), Coarse: q.coarse}
	var g layout.Graph
	for _, b := range q.boxes {
		box := q.view(b, groups)
		out.Boxes = append(out.Boxes, box)
		g.Boxes = append(g.Boxes, layout.Box{Key: string(box.Nodes[0]), Size: sizeOf(box)})
	}
	keys := q.sortedEdges()
	for _, k := range keys {
		questions := q.edges[k].texts()
		e := api.PictureEdge{From: q.boxes[k.from].id, To: q.boxes[k.to].id, Kind: k.kind, Questions: questions[:min(len(questions), api.MaxPictureAsked)]}
		e.More = len(questions) - len(e.Questions)
		line := layout.Edge{From: k.from, To: k.to, Key: string(k.kind)}
		if k.from != k.to {
			e.Label = label(k.kind, questions)
			line.Label = textsSize(e.Label)
		}
		out.Edges, g.Edges = append(out.Edges, e), append(g.Edges, line)
	}
	caption := func(boxes []int) []string { return q.caption(out, keys, boxes) }
	g.Caption = func(boxes []int) layout.Size { return textsSize(caption(boxes)) }
	d, err := layout.Draw(g)
	if err != nil {
		return api.Picture{}, tooLarge(err)
	}
	out.W, out.H = d.W, d.H
	for i, r := range d.Boxes {
		b := &out.Boxes[i]
		b.X, b.Y, b.W, b.H = r.X, r.Y, r.W, r.H
	}
	for i, r := range d.Edges {
		e := &out.Edges[i]
		e.X, e.Y, e.W, e.H = r.Label.X, r.Label.Y, r.Label.W, r.Label.H
		for _, p := range r.Points {
			e.Points = append(e.Points, [2]int{p.X, p.Y})
		}
	}
	for _, f := range d.Frames {
		frame := api.PictureFrame{Caption: caption(f.Boxes), X: f.X, Y: f.Y, W: f.W, H: f.H}
		for _, b := range f.Boxes {
			frame.Boxes = append(frame.Boxes, out.Boxes[b].ID)
		}
		out.Frames = append(out.Frames, frame)
	}
	return out, nil
}

// The method `view` returns a box without its place.
func (q *quotient) view(b *quotientBox, groups map[tutti.GroupName]int) api.PictureBox {
	out := api.PictureBox{ID: b.id, Count: len(b.nodes), Nodes: b.nodes[:min(len(b.nodes), api.MaxPictureNodes)]}
	counts := map[api.NodeState]int{}
	common := slices.Clone(q.nodes[b.nodes[0]].groups)
	for _, name := range b.nodes {
		n := q.nodes[name]
		counts[n.state]++
		common = slices.DeleteFunc(common, func(g tutti.GroupName) bool { return !slices.Contains(n.groups, g) })
	}
	switch {
	case out.Count == 1:
		out.Name, out.Title = string(b.nodes[0]), cut(string(b.nodes[0]), maxTitle)
	case len(common) > 0:
		g := slices.MinFunc(common, func(a, b tutti.GroupName) int { return cmp.Or(groups[a]-groups[b], cmp.Compare(a, b)) })
		out.Name, out.Of = string(g), groups[g]
		out.Title = fmt.Sprintf("%s (%s)", cut(out.Name, maxTitle), number(out.Count))
		if out.Of != out.Count {
			out.Title = fmt.Sprintf("%s (%s of %s)", cut(out.Name, maxTitle), number(out.Count), number(out.Of))
		}
	default:
		out.Name = string(b.nodes[0]) + " and others"
		out.Title = fmt.Sprintf("%s … (%s)", cut(string(b.nodes[0]), maxTitle), number(out.Count))
	}
	for _, s := range slices.Collect(maps.Keys(counts)) {
		out.States = append(out.States, api.PictureState{State: s, Count: counts[s]})
	}
	slices.SortFunc(out.States, func(a, b api.PictureState) int {
		return cmp.Or(slices.Index(stateOrder, a.State)-slices.Index(stateOrder, b.State), cmp.Compare(a.State, b.State))
	})
	switch {
	case !q.nodes[b.nodes[0]].known:
		out.Note = "its questions are not known yet"
		if out.Count > 1 {
			out.Note = "their questions are not known yet"
		}
	case b.alone:
		out.Note = "without an edge"
	}
	return out
}

// stateOrder is the order of states in a box.
var stateOrder = []api.NodeState{
	api.NodeGood, api.NodeSuspect, api.NodeStale, api.NodeWaiting, api.NodeFailed, api.NodeNew,
	api.NodeDrifting, api.NodeDisabled, api.NodeSilent, api.NodeUnknown,
}

// The function `number` writes a number with commas: 8,400.
func number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// label returns the lines of an edge's label: keys of values, or types of exports.
func label(kind api.PictureKind, questions []string) []string {
	if kind == api.PictureOrder {
		return []string{"order"}
	}
	var short []string
	for _, text := range questions {
		name, _, _ := strings.Cut(text, " <<|") // the type of exports, without the filter
		short = append(short, name)
	}
	short = slices.Compact(short)
	var out []string
	for _, text := range short[:min(len(short), api.MaxPictureLabels)] {
		out = append(out, cut(text, maxQuestion))
	}
	if more := len(short) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("+ %s more", number(more)))
	}
	return out
}

// caption returns the lines of a frame's caption: what it is, and the questions of edges that have no label.
func (q *quotient) caption(p api.Picture, keys []edgeKey, boxes []int) []string {
	out := []string{"cycle: these nodes read from each other"}
	for _, k := range keys {
		if k.from == k.to && slices.Contains(boxes, k.from) {
			out = append(out, cut(p.Boxes[k.from].Title, maxTitle)+": "+strings.Join(label(k.kind, q.edges[k].texts()), ", "))
		}
	}
	return out
}

func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// The function `width` estimates the width of a text, so that it has room in each usual font.
func width(text string, size int) int {
	tenths := 0
	for _, r := range text {
		switch {
		case r >= 0x1100:
			tenths += 11
		case r >= 'A' && r <= 'Z' || r == 'm' || r == 'w' || r == '@' || r == '%':
			tenths += 8
		case strings.ContainsRune("ijlt.,:;'|![]() ", r):
			tenths += 4
		default:
			tenths += 6
		}
	}
	return (tenths*size + 9) / 10
}

func textsSize(lines []string) layout.Size {
	out := layout.Size{H: lineHeight * len(lines)}
	for _, l := range lines {
		out.W = max(out.W, width(l, textSize)+2)
	}
	return out
}

func sizeOf(b api.PictureBox) layout.Size {
	w, lines := width(b.Title, titleSize)*11/10, 1 // bold letters are wider
	for row := range slices.Chunk(b.States, api.PictureRow) {
		var words []string
		for _, s := range row {
			words = append(words, fmt.Sprintf("%s %s", number(s.Count), s.State))
		}
		w, lines = max(w, width(strings.Join(words, "   "), textSize)), lines+1
	}
	if b.Note != "" {
		w, lines = max(w, width(b.Note, textSize)), lines+1
	}
	return layout.Size{W: max(72, w) + 2*boxPadding, H: lines*lineHeight + barHeight + boxPadding}
}
