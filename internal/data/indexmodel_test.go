package data_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

// The type `known` is what the model remembers about a node.
type known struct {
	asked *tutti.Questions
	job   tutti.JobID
}

// indexModel has two folds of the same log. One fold remembers what nodes read.
// The other fold remembers nothing, so it computes each answer from all data.
type indexModel struct {
	indexed, plain *data.State
	known          map[tutti.NodeName]known
	declared       map[tutti.NodeName][]string
	seq            uint64
}

func newIndexModel() *indexModel {
	return &indexModel{data.NewState(), data.NewState(), map[tutti.NodeName]known{}, map[tutti.NodeName][]string{}, 0}
}

var (
	indexKeys  = []string{"k", "l", "with space"}
	indexPaths = append([]string{"node/db/hiera/l", "node/db/hiera/k"}, someKeys...)
	indexReads = []tutti.Query{
		{Kind: tutti.QueryCollect, Type: "Db"},
		{Kind: tutti.QueryCollect, Type: "Web"},
		{Kind: tutti.QueryCollect, Type: "Web", Filter: json.RawMessage(`["=","p",1]`)},
		{Kind: tutti.QueryCollect, Type: "Web", Filter: json.RawMessage(`["=","title","2"]`)},
		{Kind: tutti.QueryCollect, Type: "web"}, // no question
		{Kind: tutti.QueryHiera, Key: "k"},
		{Kind: tutti.QueryHiera, Key: "l"},
		{Kind: tutti.QueryValue, Key: "shared/hiera/k"},
		{Kind: tutti.QueryValue, Key: "shared/x"},
		{Kind: tutti.QueryValue, Key: "../x"}, // no question
	}
)

func asks(node tutti.NodeName, job tutti.JobID) data.Asker {
	return data.Asker{Node: node, Job: job, Overlay: job != ""}
}

func (m *indexModel) apply(body tutti.Body) {
	m.seq++
	for _, s := range []*data.State{m.indexed, m.plain} {
		s.Apply(tutti.Event{Seq: m.seq, Body: body})
	}
	if gone, ok := body.(*tutti.NodeRemoved); ok {
		delete(m.known, gone.Node)
		delete(m.declared, gone.Node)
	}
}

// The method `remember` lets a node ask some questions. Most of the stored answers are the present answers.
func (m *indexModel) remember(t *rapid.T) {
	node := rapid.SampledFrom(someNodes).Draw(t, "reader")
	job := rapid.SampledFrom(append([]tutti.JobID{""}, someJobs...)).Draw(t, "view")
	asked := &tutti.Questions{Reads: []tutti.Read{}}
	for _, q := range indexReads {
		now := m.plain.Answer(q, asks(node, job))
		switch rapid.IntRange(0, 6).Draw(t, "read") {
		case 0, 1, 2:
			asked.Reads = append(asked.Reads, tutti.Read{Query: q, Found: now.Found, Digest: now.Digest})
		case 3:
			asked.Reads = append(asked.Reads, tutti.Read{Query: q, Found: true, Digest: tutti.DigestOf(nil), Degraded: true})
		}
	}
	for _, key := range indexKeys {
		if rapid.Bool().Draw(t, "absent") {
			asked.Keys = append(asked.Keys, key)
		}
	}
	if len(asked.Keys) > 0 {
		asked.Absent = tutti.DigestOf(fmt.Append(nil, asked.Keys))
	}
	m.indexed.Remember(node, asked, job)
	m.known[node] = known{asked, job}
}

// The method `outdated` compares all answers, without an index.
func (m *indexModel) outdated(node tutti.NodeName, job tutti.JobID) []tutti.Query {
	k, ok := m.known[node]
	if !ok {
		return nil
	}
	var found []tutti.Query
	for _, r := range m.plain.Outdated(k.asked.Reads, asks(node, job)) {
		found = append(found, r.Query)
	}
	for _, key := range k.asked.Keys {
		if _, has := m.plain.Hiera(node)[key]; has {
			found = append(found, tutti.Query{Kind: tutti.QueryHiera, Key: key})
		}
	}
	return found
}

// The method `answers` returns, for each node, the answers that the node would get now.
func (m *indexModel) answers() map[tutti.NodeName]string {
	all := map[tutti.NodeName]string{}
	for node, k := range m.known {
		for _, r := range k.asked.Reads {
			all[node] += fmt.Sprintf("%q ", m.plain.Answer(r.Query, asks(node, k.job)).Digest)
		}
		for _, key := range k.asked.Keys {
			all[node] += fmt.Sprintf("%q ", m.plain.Answer(tutti.Query{Kind: tutti.QueryHiera, Key: key}, asks(node, "")).Digest)
		}
	}
	return all
}

// producers returns the nodes that publish or declare one of these paths.
func (m *indexModel) producers(paths ...string) []tutti.NodeName {
	var nodes []tutti.NodeName
	for _, path := range paths {
		if v, ok := m.plain.Value(path); ok && v.Owner != "" {
			nodes = append(nodes, v.Owner)
		}
		for node, keys := range m.declared {
			if slices.Contains(keys, path) {
				nodes = append(nodes, node)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// The method `asking` returns the questions of a node with their producers.
func (m *indexModel) asking(node tutti.NodeName, job tutti.JobID) []string {
	k, ok := m.known[node]
	if !ok {
		return nil
	}
	var all []string
	add := func(q tutti.Query, found bool, producers []tutti.NodeName) {
		all = append(all, fmt.Sprintf("%s %s%s %s answered=%v %v", q.Kind, q.Key, q.Type, q.Filter, found, producers))
	}
	hiera := func(key string) ([]tutti.NodeName, bool) {
		has := false
		for _, path := range data.HieraPaths(node, key) {
			_, there := m.plain.Value(path) // there may be a secret that is sealed only to other nodes
			has = has || there
		}
		own := m.producers("node/" + string(node) + "/hiera/" + key)
		shared := m.producers("shared/hiera/" + key)
		both := slices.Concat(own, shared)
		slices.Sort(both)
		return slices.Compact(both), has || len(both) > 0
	}
	for _, r := range k.asked.Reads {
		now := m.plain.Answer(r.Query, asks(node, job))
		producers := m.producers(r.Query.Key)
		switch r.Query.Kind {
		case tutti.QueryHiera:
			producers, _ = hiera(r.Query.Key)
		case tutti.QueryCollect:
			producers = nil
			for _, e := range m.plain.Answer(r.Query, asks("nobody", job)).Exports {
				producers = append(producers, e.Node)
			}
			slices.Sort(producers)
			producers = slices.Compact(producers)
		default: // a value question: `producers` already has the right nodes
		}
		add(r.Query, now.Found, producers)
	}
	for _, key := range k.asked.Keys {
		q := tutti.Query{Kind: tutti.QueryHiera, Key: key}
		producers, wanted := hiera(key)
		if wanted && !slices.ContainsFunc(k.asked.Reads, func(r tutti.Read) bool { return r.Query.Kind == q.Kind && r.Query.Key == key }) {
			_, has := m.plain.Hiera(node)[key]
			add(q, has, producers)
		}
	}
	return all
}

func asking(s *data.State, node tutti.NodeName, job tutti.JobID) []string {
	var all []string
	for q := range s.Questions(node) {
		all = append(all, fmt.Sprintf("%s %s%s %s answered=%v %v", q.Query.Kind, q.Query.Key, q.Query.Type, q.Query.Filter,
			q.Answered(node, job), slices.Collect(q.Producers(job))))
	}
	return all
}

// The method `edges` returns which node reads which data from which node. It computes the result node by node.
func (m *indexModel) edges() []string {
	var all []string
	for node := range m.known {
		for q := range m.indexed.Questions(node) {
			for producer := range q.Producers("") {
				all = append(all, fmt.Sprintf("%s > %s: %v", producer, node, identity(q)))
			}
		}
	}
	slices.Sort(all)
	return all
}

func edges(s *data.State) []string {
	var all []string
	for _, l := range s.Links() {
		for _, node := range l.To {
			for _, producer := range l.From {
				all = append(all, fmt.Sprintf("%s > %s: %v", producer, node, identity(l.Question)))
			}
		}
	}
	slices.Sort(all)
	return all
}

func identity(q *data.Question) string {
	return fmt.Sprintf("%s %s%s %s of %q, hard %t", q.Query.Kind, q.Query.Key, q.Query.Type, q.Query.Filter, q.Node, q.Hard)
}

func (m *indexModel) check(t *rapid.T) {
	for _, node := range someNodes {
		k := m.known[node]
		if diff := cmp.Diff(k.asked, m.indexed.Asked(node)); diff != "" {
			t.Fatalf("remembered of %s: -want +got\n%s", node, diff)
		}
		for _, job := range append([]tutti.JobID{""}, someJobs...) {
			want := m.outdated(node, job)
			if diff := cmp.Diff(want, m.indexed.OutdatedOf(node, job, 0)); diff != "" {
				t.Fatalf("outdated of %s in job %q: -want +got\n%s", node, job, diff)
			}
			if diff := cmp.Diff(want[:min(1, len(want))], m.indexed.OutdatedOf(node, job, 1)); len(want) > 0 && diff != "" {
				t.Fatalf("the first outdated of %s in job %q: -want +got\n%s", node, job, diff)
			}
			if diff := cmp.Diff(m.asking(node, job), asking(m.indexed, node, job)); diff != "" {
				t.Fatalf("questions of %s in job %q: -want +got\n%s", node, job, diff)
			}
			if k.asked != nil {
				if diff := cmp.Diff(m.plain.Outdated(k.asked.Reads, asks(node, job)), data.NewComparison(k.asked.Reads).Outdated(m.indexed, asks(node, job))); diff != "" {
					t.Fatalf("compared for %s: -want +got\n%s", node, diff)
				}
				if diff := cmp.Diff(m.plain.Outdated(k.asked.Reads, asks(node, job)), m.indexed.Outdated(k.asked.Reads, asks(node, job))); diff != "" {
					t.Fatalf("reads of %s in job %q that are outdated: -want +got\n%s", node, job, diff)
				}
			}
		}
	}
	if diff := cmp.Diff(m.edges(), edges(m.indexed)); diff != "" {
		t.Fatalf("links: -want +got\n%s", diff)
	}
	for _, q := range append(indexReads, tutti.Query{Kind: tutti.QueryHiera, Key: "with space"}) {
		var want []tutti.NodeName
		for node, k := range m.known {
			is := func(r tutti.Read) bool { return cmp.Equal(r.Query, q) }
			if slices.ContainsFunc(k.asked.Reads, is) || q.Kind == tutti.QueryHiera && slices.Contains(k.asked.Keys, q.Key) {
				want = append(want, node)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, m.indexed.Readers(q)); diff != "" {
			t.Fatalf("readers of %v: -want +got\n%s", q, diff)
		}
	}
}

// TestTheIndexIsTheModel applies random logs, and lets nodes ask questions.
// TestTheIndexIsTheModel compares the index with a fold that has no index and
// searches all data. Touched must return exactly the nodes that have a changed
// answer.
func TestTheIndexIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newIndexModel()
		for range rapid.IntRange(1, 30).Draw(t, "length") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2:
				m.remember(t)
			case 3:
				node := rapid.SampledFrom(someNodes).Draw(t, "forgotten")
				m.indexed.Forget(node)
				delete(m.known, node)
			case 4:
				node := rapid.SampledFrom(someNodes).Draw(t, "declares")
				keys := rapid.SliceOfN(rapid.SampledFrom(indexPaths), 0, 3).Draw(t, "keys")
				m.indexed.Declare(node, keys)
				m.declared[node] = keys
			}
			m.indexed.Touched() // forget the changes up to now
			before := m.answers()
			body := anyBody(t)
			m.apply(body)
			var want []tutti.NodeName
			after := m.answers()
			for _, node := range slices.Sorted(maps.Keys(after)) {
				if before[node] != after[node] {
					want = append(want, node)
				}
			}
			if diff := cmp.Diff(want, m.indexed.Touched()); diff != "" {
				t.Fatalf("touched by %T %+v: -want +got\n%s", body, body, diff)
			}
			m.check(t)
		}
	})
}
