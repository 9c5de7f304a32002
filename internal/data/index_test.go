package data_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

func site(title string, port int) tutti.Export {
	raw, _ := json.Marshal(port)
	return tutti.Export{Type: "Web", Title: title, Parameters: map[string]json.RawMessage{"port": raw}}
}

var (
	askValue = tutti.Query{Kind: tutti.QueryValue, Key: "x"}
	askHiera = tutti.Query{Kind: tutti.QueryHiera, Key: "k"}
	askWeb   = tutti.Query{Kind: tutti.QueryCollect, Type: "Web"}
	askPort  = tutti.Query{Kind: tutti.QueryCollect, Type: "Web", Filter: json.RawMessage(`["=","port",80]`)}
)

// The function `asked` returns the record of a node that asks these questions now.
func asked(s *data.State, node tutti.NodeName, job tutti.JobID, absent []string, queries ...tutti.Query) *tutti.Questions {
	a := &tutti.Questions{Keys: absent}
	for _, q := range queries {
		now := s.Answer(q, asks(node, job))
		a.Reads = append(a.Reads, tutti.Read{Query: q, Found: now.Found, Digest: now.Digest})
	}
	return a
}

// TestIndex lets the nodes a, b and c ask all questions, and then applies
// events.
func TestIndex(t *testing.T) {
	started := &tutti.JobStarted{Job: "j"}
	all := []tutti.Query{askValue, askHiera, askWeb, askPort}
	absent := []string{"gone", "rare"}
	for _, tc := range []struct {
		reason  string
		before  []tutti.Body
		job     tutti.JobID // the job in which node a asks
		then    []tutti.Body
		touched []tutti.NodeName
		want    map[tutti.NodeName][]tutti.Query
	}{
		{reason: "nothing has happened"},
		{reason: "what nobody reads", then: []tutti.Body{set("y", `1`, ""), exports("b", tutti.Export{Type: "Db", Title: "1"}), set("shared/hiera/other", `1`, "")}},
		{reason: "a value", then: []tutti.Body{set("x", `2`, "")},
			touched: []tutti.NodeName{"a", "b", "c"}, want: map[tutti.NodeName][]tutti.Query{"a": {askValue}, "b": {askValue}, "c": {askValue}}},
		{reason: "the same value again, by somebody else, touches nobody", before: []tutti.Body{set("x", `{"a":1}`, "")}, then: []tutti.Body{set("x", ` {"a": 1}`, "b")}},
		{reason: "set back to what it was", before: []tutti.Body{set("x", `1`, "")}, then: []tutti.Body{set("x", `2`, ""), set("x", `1`, "")},
			touched: []tutti.NodeName{"a", "b", "c"}},
		{reason: "a node's own hiera key", then: []tutti.Body{set("node/b/hiera/k", `1`, "")},
			touched: []tutti.NodeName{"b"}, want: map[tutti.NodeName][]tutti.Query{"b": {askHiera}}},
		{reason: "the shared one does not reach it", before: []tutti.Body{set("node/b/hiera/k", `1`, "")}, then: []tutti.Body{set("shared/hiera/k", `2`, "")},
			touched: []tutti.NodeName{"a", "c"}, want: map[tutti.NodeName][]tutti.Query{"a": {askHiera}, "c": {askHiera}}},
		{reason: "its own is what the shared one is", before: []tutti.Body{set("shared/hiera/k", `1`, "")}, then: []tutti.Body{set("node/b/hiera/k", `1`, "")}},

		{reason: "a key that was absent", then: []tutti.Body{set("shared/hiera/rare", `1`, "")},
			touched: []tutti.NodeName{"a", "b", "c"}, want: map[tutti.NodeName][]tutti.Query{"a": hieraOf("rare"), "b": hieraOf("rare"), "c": hieraOf("rare")}},
		{reason: "and is so again", then: []tutti.Body{set("shared/hiera/rare", `1`, ""), &tutti.ValueUnset{Key: "shared/hiera/rare"}},
			touched: []tutti.NodeName{"a", "b", "c"}},
		{reason: "on one node only", then: []tutti.Body{set("node/c/hiera/rare", `1`, ""), set("node/c/hiera/gone", `1`, "")},
			touched: []tutti.NodeName{"c"}, want: map[tutti.NodeName][]tutti.Query{"c": hieraOf("gone", "rare")}},
		{reason: "for no node that asks", then: []tutti.Body{set("node/a.example.net/hiera/rare", `1`, "")}},

		{reason: "one's own exports do not count", then: []tutti.Body{exports("b", site("1", 81))},
			touched: []tutti.NodeName{"a", "c"}, want: map[tutti.NodeName][]tutti.Query{"a": {askWeb}, "c": {askWeb}}},
		{reason: "the filter does", before: []tutti.Body{exports("d", site("1", 80))}, then: []tutti.Body{exports("d", site("1", 81))},
			touched: []tutti.NodeName{"a", "b", "c"}, want: map[tutti.NodeName][]tutti.Query{"a": {askWeb, askPort}, "b": {askWeb, askPort}, "c": {askWeb, askPort}}},
		{reason: "an equal set touches nobody", before: []tutti.Body{exports("d", site("1", 80), site("2", 80))}, then: []tutti.Body{exports("d", site("2", 80), site("1", 80))}},
		{reason: "a set and back", before: []tutti.Body{exports("d", site("1", 80))}, then: []tutti.Body{exports("d"), exports("d", site("1", 80))},
			touched: []tutti.NodeName{"a", "b", "c"}},

		{reason: "a removed node's publications go, and what it read is forgotten", before: []tutti.Body{exports("b", site("1", 81)), set("x", `1`, "b")}, then: []tutti.Body{&tutti.NodeRemoved{Node: "b"}},
			touched: []tutti.NodeName{"a", "c"}, want: map[tutti.NodeName][]tutti.Query{"a": {askValue, askWeb}, "c": {askValue, askWeb}}},

		{reason: "an overlay is read by its job only", before: []tutti.Body{started}, job: "j", then: []tutti.Body{overlay("j", "b", site("1", 81))},
			touched: []tutti.NodeName{"a"}, want: map[tutti.NodeName][]tutti.Query{"a": {askWeb}}},
		{reason: "not by others", before: []tutti.Body{started}, then: []tutti.Body{overlay("j", "b", site("1", 81))}},
		{reason: "what it hides does not touch its readers", before: []tutti.Body{started, overlay("j", "b", site("1", 81))}, job: "j", then: []tutti.Body{exports("b", site("1", 82))},
			touched: []tutti.NodeName{"c"}, want: map[tutti.NodeName][]tutti.Query{"c": {askWeb}}},
		{reason: "it ends with the job", before: []tutti.Body{started, overlay("j", "b", site("1", 81))}, job: "j", then: []tutti.Body{&tutti.JobFinished{Job: "j"}},
			touched: []tutti.NodeName{"a"}, want: map[tutti.NodeName][]tutti.Query{"a": {askWeb}}},
		{reason: "one's own in it does not count", before: []tutti.Body{started, overlay("j", "a", site("1", 81))}, job: "j", then: []tutti.Body{&tutti.JobFinished{Job: "j"}}},
		{reason: "when its node goes as it said, its job sees no change", before: []tutti.Body{started, overlay("j", "b", site("1", 81))}, job: "j", then: []tutti.Body{gone("j", "b", site("1", 81))},
			touched: []tutti.NodeName{"c"}, want: map[tutti.NodeName][]tutti.Query{"c": {askWeb}}},
		{reason: "when it goes otherwise, it does", before: []tutti.Body{started, overlay("j", "b", site("1", 81))}, job: "j", then: []tutti.Body{gone("j", "b")},
			touched: []tutti.NodeName{"a"}, want: map[tutti.NodeName][]tutti.Query{"a": {askWeb}}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := fold(tc.before...)
			for node, job := range map[tutti.NodeName]tutti.JobID{"a": tc.job, "b": "", "c": ""} {
				s.Remember(node, asked(s, node, job, absent, all...), job)
			}
			if diff := cmp.Diff([]tutti.NodeName{"a", "b", "c"}, s.Touched()); diff != "" {
				t.Errorf("touched by being remembered: -want +got\n%s", diff)
			}
			for _, b := range tc.then {
				s.Apply(tutti.Event{Seq: s.Seq() + 1, Body: b})
			}
			if diff := cmp.Diff(tc.touched, s.Touched()); diff != "" {
				t.Errorf("touched: -want +got\n%s", diff)
			}
			if again := s.Touched(); again != nil {
				t.Errorf("touched, once told: %v", again)
			}
			for node, job := range map[tutti.NodeName]tutti.JobID{"a": tc.job, "b": "", "c": ""} {
				if diff := cmp.Diff(tc.want[node], s.OutdatedOf(node, job, 0)); diff != "" {
					t.Errorf("outdated of %s: -want +got\n%s", node, diff)
				}
			}
		})
	}
}

func hieraOf(keys ...string) []tutti.Query {
	var queries []tutti.Query
	for _, key := range keys {
		queries = append(queries, tutti.Query{Kind: tutti.QueryHiera, Key: key})
	}
	return queries
}

// The function `gone` returns the event with the exports that a node publishes at the gate of a job's run.
func gone(job tutti.JobID, node tutti.NodeName, es ...tutti.Export) *tutti.ExportsSet {
	return &tutti.ExportsSet{Node: node, Job: job, Exports: es, Count: len(es)}
}

func TestQuestions(t *testing.T) {
	s := fold(set("x", `1`, "p"), set("node/a/hiera/k", `1`, "q"), exports("p", site("1", 80)), exports("a", site("2", 80)), &tutti.JobStarted{Job: "j"}, overlay("j", "q", site("3", 80)))
	absent := []string{"declared", "gone", "gone.now", "mine"}
	for _, node := range []tutti.NodeName{"a", "b"} {
		s.Remember(node, asked(s, node, "", absent, askValue, askHiera, askWeb), "")
	}
	s.Apply(tutti.Event{Seq: 9, Body: set("shared/hiera/gone.now", `1`, "p")})
	s.Declare("q", []string{"shared/hiera/declared", "node/b/hiera/mine", "x", "shared/hiera/k"})
	s.Declare("p", []string{"shared/hiera/gone"})
	s.Declare("p", nil)
	for _, tc := range []struct {
		reason string
		node   tutti.NodeName
		job    tutti.JobID
		want   []string
	}{
		{"nobody asked for it", "c", "", nil},
		{"own data comes from its own path or the shared one; what was not declared, or no longer, is left out", "a", "", []string{
			"value x  answered=true [p q]", "hiera k  answered=true [q]", "collect Web  answered=true [a p]",
			"hiera declared  answered=false [q]", "hiera gone.now  answered=true [p]"}},
		{"another node sees the shared path only", "b", "", []string{
			"value x  answered=true [p q]", "hiera k  answered=false [q]", "collect Web  answered=true [a p]",
			"hiera declared  answered=false [q]", "hiera gone.now  answered=true [p]", "hiera mine  answered=false [q]"}},
		{"in the view of a job", "b", "j", []string{
			"value x  answered=true [p q]", "hiera k  answered=false [q]", "collect Web  answered=true [a p q]",
			"hiera declared  answered=false [q]", "hiera gone.now  answered=true [p]", "hiera mine  answered=false [q]"}},
	} {
		if diff := cmp.Diff(tc.want, asking(s, tc.node, tc.job)); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
	shared := map[*data.Question]int{}
	for _, node := range []tutti.NodeName{"a", "b"} {
		for q := range s.Questions(node) {
			shared[q]++
			if q.Hard != (q.Query.Kind != tutti.QueryCollect) {
				t.Errorf("%v: hard %v", q.Query, q.Hard)
			}
		}
	}
	if len(shared) != 7 { // the questions x, Web, declared, gone.now and mine, and two questions for k
		t.Errorf("two nodes have %d questions, want 7: one for both, but for hiera data of their own", len(shared))
	}
}

// TestReadersAtOnce needs the flag -race. TestReadersAtOnce checks that the reading
// methods modify nothing, not even a cache.
func TestReadersAtOnce(t *testing.T) {
	s := fold(set("x", `1`, "p"), set("node/a/hiera/k", `1`, "q"), exports("p", site("1", 80)), &tutti.JobStarted{Job: "j"}, overlay("j", "q", site("3", 80)))
	for _, node := range []tutti.NodeName{"a", "b"} {
		s.Remember(node, asked(s, node, "", []string{"gone", "mine"}, askValue, askHiera, askWeb), "")
	}
	s.Declare("q", []string{"node/b/hiera/mine", "x"})
	s.Apply(tutti.Event{Seq: 9, Body: set("x", `2`, "p")})
	s.Apply(tutti.Event{Seq: 10, Body: exports("p", site("1", 81))})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for _, node := range []tutti.NodeName{"a", "b"} {
				if got := len(s.OutdatedOf(node, "", 0)); got != 2 {
					t.Errorf("%s: %d answers have changed, want 2", node, got)
				}
				s.Asked(node)
				asking(s, node, "j")
				s.LastChange(node, askValue)
				s.Answer(askWeb, data.Asker{Node: node})
			}
			s.Links()
			s.Affects("x", []byte(`3`))
			s.Readers(askHiera)
			s.AffectedBy("j")
		})
	}
	readers.Wait()
}
