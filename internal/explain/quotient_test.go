package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// value is a flow of a value.
func valueFlow(key string, from, to []tutti.NodeName) flow {
	return flow{from: from, to: to, kind: api.PictureHard, query: tutti.Query{Kind: tutti.QueryValue, Key: key}}
}

func exportFlow(name, filter string, from, to []tutti.NodeName) flow {
	return flow{from: from, to: to, kind: api.PictureSoft, query: tutti.Query{Kind: tutti.QueryCollect, Type: name, Filter: []byte(filter)}}
}

// The function `numbered` returns the names prefix-00001, prefix-00002 and so on.
func numbered(prefix string, n int) []tutti.NodeName {
	var out []tutti.NodeName
	for i := range n {
		out = append(out, tutti.NodeName(fmt.Sprintf("%s-%05d", prefix, i+1)))
	}
	return out
}

// The function `nodesOf` returns good nodes of the groups that their names begin with.
func nodesOf(names ...[]tutti.NodeName) (map[tutti.NodeName]*quotientNode, map[tutti.GroupName]int) {
	nodes, groups := map[tutti.NodeName]*quotientNode{}, map[tutti.GroupName]int{}
	for _, n := range slices.Concat(names...) {
		group, _, _ := strings.Cut(string(n), "-")
		nodes[n] = &quotientNode{state: api.NodeGood, groups: []tutti.GroupName{"all", tutti.GroupName(group)}, known: true, member: true}
		groups[tutti.GroupName(group)]++
		groups["all"]++
	}
	return nodes, groups
}

// The function `sketch` returns one line for each box and each edge of a picture.
func sketch(p api.Picture) []string {
	var out []string
	titles := map[string]string{}
	for _, b := range p.Boxes {
		titles[b.ID] = b.Title
		line := "[" + b.Title + "]"
		for _, s := range b.States {
			line += fmt.Sprintf(" %d %s", s.Count, s.State)
		}
		if b.Note != "" {
			line += "; " + b.Note
		}
		out = append(out, line)
	}
	for _, e := range p.Edges {
		out = append(out, fmt.Sprintf("%s -%s-> %s: %s", titles[e.From], e.Kind, titles[e.To], strings.Join(append(e.Questions, e.Label...), " | ")))
	}
	for _, f := range p.Frames {
		out = append(out, "frame: "+strings.Join(f.Caption, " | "))
	}
	return out
}

func TestQuotient(t *testing.T) {
	web, db, lb := numbered("web", 3), numbered("db", 2), numbered("lb", 1)
	own := func(key string, names, readers []tutti.NodeName) []flow {
		var out []flow
		for _, n := range names {
			out = append(out, valueFlow(fmt.Sprintf(key, n), []tutti.NodeName{n}, readers))
		}
		return out
	}
	for name, tc := range map[string]struct {
		reason string
		flows  []flow
		change func(nodes map[tutti.NodeName]*quotientNode)
		want   []string
	}{
		"same": {"nodes that ask and publish the same are one box", []flow{
			valueFlow("db/port", db, web), exportFlow("Haproxy::Balancermember", "", web, lb),
		}, nil, []string{
			"[db (2)] 2 good", "[lb-00001] 1 good", "[web (3)] 3 good",
			"db (2) -hard-> web (3): db/port | db/port", "web (3) -soft-> lb-00001: Haproxy::Balancermember | Haproxy::Balancermember",
		}},
		"own name": {"questions that differ only by the node's own name are the same", own("web/%s/addr", web, lb), nil, []string{
			"[db (2)] 2 good; without an edge", "[lb-00001] 1 good", "[web (3)] 3 good", "web (3) -hard-> lb-00001: web/*/addr | web/*/addr",
		}},
		"one name": {"a name stays if there is only one", own("db/%s/port", db[:1], web), nil, []string{
			"[db-00001] 1 good", "[web (3)] 3 good", "[all (2 of 6)] 2 good; without an edge",
			"db-00001 -hard-> web (3): db/db-00001/port | db/db-00001/port",
		}},
		"each other": {"a box whose nodes read from each other has a frame, which names the question", own("galera/%s/addr", web, web), nil, []string{
			"[all (3 of 6)] 3 good; without an edge", "[web (3)] 3 good",
			"web (3) -hard-> web (3): galera/*/addr", "frame: cycle: these nodes read from each other | web (3): galera/*/addr",
		}},
		"cycle": {"boxes of a cycle share a frame", []flow{valueFlow("rings", lb, web), exportFlow("Device", "", web, lb)}, nil, []string{
			"[db (2)] 2 good; without an edge", "[lb-00001] 1 good", "[web (3)] 3 good",
			"lb-00001 -hard-> web (3): rings | rings", "web (3) -soft-> lb-00001: Device | Device", "frame: cycle: these nodes read from each other",
		}},
		"states": {"a node that asks something else has its own box; so has a node that never ran", []flow{valueFlow("db/port", db, web[:2])}, func(nodes map[tutti.NodeName]*quotientNode) {
			nodes[web[1]].state, nodes[db[1]].state, nodes[lb[0]].state = api.NodeFailed, api.NodeStale, api.NodeNew
			nodes[lb[0]].known = false
		}, []string{
			"[db (2)] 1 good 1 stale", "[web (2 of 3)] 1 good 1 failed", "[lb-00001] 1 never ran; its questions are not known yet", "[web-00003] 1 good; without an edge",
			"db (2) -hard-> web (2 of 3): db/port | db/port",
		}},
		"many": {"a label has three questions, and no filters", []flow{
			valueFlow("a", db, web), valueFlow("b", db, web), valueFlow("c", db, web), valueFlow("d", db, web), exportFlow("Host", `["=","title","x"]`, db, web), exportFlow("Host", `["=","title","y"]`, db, web),
			{from: db, to: web, kind: api.PictureOrder, order: "db before web"},
		}, nil, []string{
			"[db (2)] 2 good", "[web (3)] 3 good", "[lb-00001] 1 good; without an edge",
			"db (2) -hard-> web (3): a | b | c | d | a | b | c | + 1 more", "db (2) -order-> web (3): order",
			`db (2) -soft-> web (3): Host <<| title == 'x' |>> | Host <<| title == 'y' |>> | Host`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes, groups := nodesOf(web, db, lb)
			if tc.change != nil {
				tc.change(nodes)
			}
			q, err := newQuotient(nodes, tc.flows)
			if err != nil {
				t.Fatal(err)
			}
			p, err := drawn(q, groups)
			if err != nil {
				t.Fatal(err)
			}
			got := sketch(p)
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// A picture of 10,000 nodes has tens of boxes, even if a node asks so that each node that publishes has its own set of
// readers. If there would still be too many boxes, the error says what to do.
func TestLargeQuotients(t *testing.T) {
	web, lb := numbered("web", 10_000), numbered("lb", 20)
	var bits, pairs, types []flow
	for i, node := range lb {
		var some []tutti.NodeName
		for k, n := range web {
			if k>>(i%14)&1 == 1 {
				some = append(some, n)
			}
		}
		bits = append(bits, exportFlow("Host", fmt.Sprintf(`["=","tag","t%d"]`, i), some, []tutti.NodeName{node}))
		types = append(types, exportFlow(fmt.Sprintf("Host%d", i), "", some, []tutti.NodeName{node}))
	}
	for i := range 4000 {
		pairs = append(pairs, valueFlow(fmt.Sprintf("pairs/%s", web[i]), web[i:i+1], web[9999-i:10_000-i]))
	}
	for _, tc := range []struct {
		reason string
		flows  []flow
		coarse bool
		boxes  int
		fails  string
	}{
		{"pairs are alike", pairs, false, 3, ""},
		{"one type, but every set of its nodes has a reader", bits, true, 3, ""},
		{"many types", types, true, 0, "at most 200: name a group or a node (tutti graph --svg TARGET)"},
	} {
		nodes, groups := nodesOf(web, lb)
		var p api.Picture
		q, err := newQuotient(nodes, tc.flows)
		if err == nil {
			p, err = drawn(q, groups)
		}
		if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if err == nil && (p.Coarse != tc.coarse || len(p.Boxes) != tc.boxes || p.Nodes != 10_020) {
			t.Errorf("%s: coarse %t, %d boxes: %q", tc.reason, p.Coarse, len(p.Boxes), sketch(p))
		}
	}
}
