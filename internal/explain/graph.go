package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
)

// Graph implements tutti.Explains.
func (rd *Reader) Graph(ctx context.Context, target string) (api.Graph, error) {
	var links []data.Link
	var explicit []api.GraphEdge
	var members map[tutti.NodeName]bool
	needs := map[tutti.NodeName]bool{}
	err := rd.look(ctx, func(v View) error {
		var err error
		if members, err = v.target(target); err != nil {
			return err
		}
		for _, n := range v.Converge.Needy(converge.View{Has: v.has}) {
			needs[n] = true
		}
		for _, l := range v.Data.Links() {
			// Copy the question, because the fold may change its own question after this call.
			l.Question = &data.Question{Query: l.Query, Node: l.Node, Hard: l.Hard}
			links = append(links, l)
		}
		for _, o := range v.Fleet().Order {
			explicit = append(explicit, api.GraphEdge{From: v.Members(string(o.First)), To: v.Members(string(o.Then)), Explicit: true})
		}
		return nil
	})
	if err != nil {
		return api.Graph{}, err
	}
	out := api.Graph{Edges: edges(links, explicit, members)}
	for _, e := range out.Edges {
		for _, n := range slices.Concat(e.From, e.To) {
			members[n] = true
		}
	}
	for _, n := range slices.Sorted(maps.Keys(members)) {
		out.Nodes = append(out.Nodes, api.GraphNode{Node: n, Good: !needs[n]})
	}
	return out, nil
}

// The function `edges` joins all questions between the same nodes into one edge. The function leaves out edges
// without a member.
func edges(links []data.Link, explicit []api.GraphEdge, members map[tutti.NodeName]bool) []api.GraphEdge {
	var out []api.GraphEdge
	at := map[string]int{}
	add := func(e api.GraphEdge, from, to []tutti.NodeName) {
		if len(from) == 0 || len(to) == 0 || len(from) == 1 && slices.Equal(from, to) {
			return
		}
		key := fmt.Sprint(from, to, e.Hard, e.Explicit)
		i, known := at[key]
		if !known {
			i, at[key] = len(out), len(out)
			out = append(out, api.GraphEdge{From: from, To: to, Hard: e.Hard, Explicit: e.Explicit})
		}
		out[i].Questions = append(out[i].Questions, e.Questions...)
	}
	for _, l := range links {
		explicit = append(explicit, api.GraphEdge{From: l.From, To: l.To, Hard: l.Hard, Questions: []tutti.Query{l.Query}})
	}
	for _, e := range explicit {
		fromIn, fromOut := split(e.From, members)
		toIn, _ := split(e.To, members)
		add(e, fromIn, e.To)
		add(e, fromOut, toIn)
	}
	slices.SortStableFunc(out, func(a, b api.GraphEdge) int {
		return cmp.Or(slices.Compare(a.From, b.From), slices.Compare(a.To, b.To))
	})
	return out
}

func split(names []tutti.NodeName, members map[tutti.NodeName]bool) (in, out []tutti.NodeName) {
	for _, n := range names {
		if members[n] {
			in = append(in, n)
		} else {
			out = append(out, n)
		}
	}
	return in, out
}
