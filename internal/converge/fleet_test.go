package converge_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

// The type `world` contains what the nodes of a fleet have published, and which answers each node had
// got before.
type world struct {
	Values  map[string]string
	Exports map[tutti.NodeName]map[string][]string
	Inputs  map[tutti.NodeName]string
}

func newWorld(operator map[string]string) *world {
	values := map[string]string{}
	maps.Copy(values, operator)
	return &world{values, map[tutti.NodeName]map[string][]string{}, map[tutti.NodeName]string{}}
}

// The method `answers` returns the answers that a node gets.
func (w *world) answers(node tutti.NodeName, m *manifest) answers {
	got := answers{values: map[string]string{}, exports: map[string][]string{}}
	for _, key := range m.values {
		if v, ok := w.Values[key]; ok {
			got.values[key] = v
		}
	}
	for _, key := range m.hiera {
		if v, ok := w.Values["shared/hiera/"+key]; ok {
			got.values["hiera:"+key] = v
		}
	}
	for _, typ := range m.types {
		var titles []string
		for n, exports := range w.Exports {
			if n != node {
				titles = append(titles, exports[typ]...)
			}
		}
		slices.Sort(titles)
		got.exports[typ] = titles
	}
	return got
}

// The function `fixpoint` runs all nodes again and again until nothing changes. A node that waits for
// a value publishes nothing.
func fixpoint(nodes map[tutti.NodeName]*manifest, operator map[string]string) (*world, bool) {
	w := newWorld(operator)
	owned := map[tutti.NodeName][]string{}
	for range 200 {
		before := fmt.Sprint(w.Values, w.Exports, w.Inputs)
		for _, name := range sortedKeys(nodes) {
			got := w.answers(name, nodes[name])
			c := nodes[name].compile(got)
			if c.waits != "" {
				continue
			}
			for _, key := range owned[name] {
				delete(w.Values, key)
			}
			maps.Copy(w.Values, c.values)
			owned[name] = sortedKeys(c.values)
			w.Exports[name] = withoutEmpty(c.exports)
			w.Inputs[name] = fmt.Sprint(got)
		}
		if fmt.Sprint(w.Values, w.Exports, w.Inputs) == before {
			return w, true
		}
	}
	return w, false
}

func withoutEmpty(exports map[string][]string) map[string][]string {
	out := map[string][]string{}
	for typ, titles := range exports {
		if len(titles) > 0 {
			out[typ] = slices.Sorted(slices.Values(titles))
		}
	}
	return out
}

// The method `world` returns the state of the simulated fleet.
func (s *sim) world() *world {
	w := newWorld(map[string]string{})
	for _, v := range s.data.Values("") {
		w.Values[v.Key] = strings.Trim(string(v.Value), `"`)
	}
	for _, n := range s.names() {
		exports := map[string][]string{}
		for _, e := range s.data.Exports(n) {
			exports[e.Type] = append(exports[e.Type], e.Title)
		}
		w.Exports[n] = exports
		if r := s.engine.Last(n).Passed; r != nil && s.memory[r.Run] != nil {
			w.Inputs[n] = fmt.Sprint(s.memory[r.Run].got)
		}
	}
	return w
}

// Random fleets are made from the numbers that a `dice` returns. The numbers come from the package
// rapid, or from a fixed sequence.
type dice interface {
	roll(n int, what string) int // from 0 to n-1
}

type rapidDice struct{ t *rapid.T }

func (d rapidDice) roll(n int, what string) int {
	if n <= 1 {
		return 0
	}
	return rapid.IntRange(0, n-1).Draw(d.t, what)
}

// The function `pick` returns a function that chooses the next action at random.
func pick(d dice) func(int) int {
	return func(n int) int { return d.roll(n, "next") }
}

func nodeNamed(i int) tutti.NodeName { return tutti.NodeName(fmt.Sprintf("n%d", i)) }

// subset returns a random subset of the first n names of a kind.
func subset(d dice, n int, format string) []string {
	var out []string
	for i := range n {
		if d.roll(2, "reads") == 1 {
			out = append(out, fmt.Sprintf(format, i))
		}
	}
	return out
}

// The function `mix` computes a number that depends on the seed and on those answers that the node
// uses.
func mix(seed int, used []string, got answers) int {
	h := fnv.New32a()
	fmt.Fprint(h, seed)
	for _, key := range used {
		fmt.Fprint(h, key, got.values[key], got.exports[key])
	}
	return int(h.Sum32() >> 4 & 0xffff)
}

// The function `operators` returns the values that operators have set. Random fleets read them.
func operators(d dice) map[string]string {
	out := map[string]string{}
	for i := range 3 {
		if d.roll(3, "operator") > 0 {
			out[fmt.Sprintf("op/%d", i)] = "a"
		}
	}
	return out
}

// The type `kinds` says which random fleets are allowed.
type kinds struct {
	nodes   int  // the largest number of nodes
	shapely bool // a node always publishes the same keys and exports; only the values depend on its answers
	calm    bool // no node waits
}

// The function `acyclic` returns a random fleet without cycles. The node with the number N publishes
// the value v/N, and sometimes the value w/N and the hiera key hN. It exports resources of a type
// that depends on N. A node reads what nodes with lower numbers publish, and what operators set. What
// it publishes depends on its answers in a random way.
func acyclic(d dice, k kinds) map[tutti.NodeName]*manifest {
	nodes := map[tutti.NodeName]*manifest{}
	for i := range 1 + d.roll(k.nodes, "nodes") {
		nodes[nodeNamed(i)] = random(d, i, k)
	}
	return nodes
}

func random(d dice, i int, k kinds) *manifest {
	m := &manifest{values: subset(d, 3, "op/%d"), types: subset(d, (i+1)/2, "Type%d")}
	m.values = append(m.values, subset(d, i, "v/%d")...)
	m.values = append(m.values, subset(d, i, "w/%d")...)
	m.hiera = subset(d, i, "h%d")
	var used []string // only these answers change what the node publishes
	for _, key := range slices.Concat(m.values, m.types) {
		if d.roll(3, "uses") > 0 {
			used = append(used, key)
		}
	}
	for _, key := range m.hiera {
		used = append(used, "hiera:"+key)
	}
	needs := ""
	if i > 0 && !k.calm && d.roll(3, "needs") == 0 {
		needs = fmt.Sprintf("v/%d", d.roll(i, "what"))
		if !slices.Contains(m.values, needs) {
			m.values = append(m.values, needs)
		}
	}
	seed, many, exports := d.roll(100, "seed"), 1+d.roll(3, "many"), d.roll(3, "exports")
	m.compile = func(got answers) catalog {
		if _, there := got.values[needs]; needs != "" && !there {
			return catalog{waits: needs}
		}
		h := mix(seed, used, got)
		c := catalog{values: map[string]string{fmt.Sprintf("v/%d", i): fmt.Sprint(h % many)}, exports: map[string][]string{}}
		if h/4%2 == 0 || k.shapely {
			c.values[fmt.Sprintf("w/%d", i)] = fmt.Sprint(h / 8 % 2)
			c.values[fmt.Sprintf("shared/hiera/h%d", i)] = fmt.Sprint(h / 16 % many)
		}
		typ := fmt.Sprintf("Type%d", (i+1)/2) // exports of this type are read by about half of the nodes
		switch {
		case exports == 1, exports == 2 && (h/32%2 == 0 || k.shapely):
			c.exports[typ] = []string{fmt.Sprintf("n%d-%d", i, h/64%many)}
		}
		return c
	}
	return m
}

// The function `monotone` returns a random fleet that may have cycles. Each node publishes a set. If
// the sets that the node reads get larger, its own set gets larger or stays the same.
func monotone(d dice, k kinds) map[tutti.NodeName]*manifest {
	nodes := map[tutti.NodeName]*manifest{}
	count := 1 + d.roll(k.nodes, "nodes")
	for i := range count {
		m := &manifest{values: subset(d, count, "v/%d"), hiera: subset(d, count, "h%d"), types: subset(d, 2, "Type%d")}
		own, mask := d.roll(4, "own"), d.roll(4, "mask")
		how := d.roll(4, "how")
		m.compile = func(got answers) catalog {
			all := 0
			for _, v := range got.values {
				all |= bits(v)
			}
			for _, titles := range got.exports {
				for _, title := range titles {
					all |= bits(title[len(title)-1:])
				}
			}
			all = own | all&mask
			c := catalog{values: map[string]string{}, exports: map[string][]string{}}
			if how != 1 {
				c.values[fmt.Sprintf("v/%d", i)] = fmt.Sprint(all)
			}
			if how > 1 {
				c.values[fmt.Sprintf("shared/hiera/h%d", i)] = fmt.Sprint(all)
			}
			if how != 2 {
				c.exports[fmt.Sprintf("Type%d", i%2)] = []string{fmt.Sprintf("n%d-%d", i, all)}
			}
			return c
		}
		nodes[nodeNamed(i)] = m
	}
	return nodes
}

func bits(s string) int {
	n := 0
	for _, c := range s {
		if c >= '0' && c <= '9' {
			n |= int(c - '0')
		}
	}
	return n
}

// mustNeed fails if the server wants a run without a reason. There is no reason if three things are
// true: the node's last run was good, it had the same code, and all its answers are unchanged.
func (s *sim) mustNeed(o tutti.Order) {
	last := s.engine.Last(o.Node)
	r := last.Passed
	if r == nil || r != last.Applied || r.Code != o.Code || r.Asked == nil || r.Result == nil || !r.Result.Outcome.Good() {
		return
	}
	for _, job := range []tutti.JobID{"", o.Job} {
		asker := data.Asker{Node: o.Node, Job: job, Overlay: job != ""}
		if len(s.data.Outdated(r.Asked.Reads, asker)) > 0 {
			return
		}
		for _, key := range r.Asked.Keys {
			if s.data.Answer(tutti.Query{Kind: tutti.QueryHiera, Key: key}, asker).Found {
				return
			}
		}
	}
	s.t.Fatalf("a run of %s is wanted that needs nothing:\n%s", o.Node, s.tail())
}
