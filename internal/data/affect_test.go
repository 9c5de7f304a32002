package data_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

// TestAffectsIsWhatWillBe checks that Affects predicts a change correctly. A node is affected if the change gives it
// another answer, and this answer differs from the answer in its record.
func TestAffectsIsWhatWillBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newIndexModel()
		for range rapid.IntRange(1, 12).Draw(t, "length") {
			if rapid.Bool().Draw(t, "asks") {
				m.remember(t)
			}
			m.apply(anyBody(t))
		}
		path := rapid.SampledFrom(indexPaths).Draw(t, "path")
		var value json.RawMessage
		var body tutti.Body = &tutti.ValueUnset{Key: path}
		if rapid.Bool().Draw(t, "set") {
			value = json.RawMessage(rapid.SampledFrom([]string{"1", "2", `{"b":1,"a":2}`, `{"a":2, "b":1}`}).Draw(t, "value"))
			body = &tutti.ValueSet{Key: path, Value: value}
		}
		if v, found := m.plain.Value(path); found && v.Owner != "" {
			body = &tutti.ValueUnset{Key: path, Owner: v.Owner}
			value = nil
		}
		got := map[tutti.QueryKind][]tutti.NodeName{}
		for _, a := range m.indexed.Affects(path, value) {
			got[a.Query.Kind] = a.Nodes
		}
		was := map[tutti.NodeName]map[string]data.Answer{}
		for _, node := range someNodes {
			was[node] = m.keyed(node)
		}
		m.apply(body)
		want := map[tutti.QueryKind][]tutti.NodeName{}
		for _, node := range slices.Sorted(slices.Values(someNodes)) {
			now := m.keyed(node)
			for _, q := range m.outdated(node, "") {
				if q.Kind == tutti.QueryCollect || now[string(q.Kind)+q.Key].Digest == was[node][string(q.Kind)+q.Key].Digest {
					continue
				}
				if !slices.Contains(want[q.Kind], node) {
					want[q.Kind] = append(want[q.Kind], node)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("affected by %+v: -want +got\n%s", body, diff)
		}
	})
}

// The method `keyed` returns a node's answers to all questions with a key.
func (m *indexModel) keyed(node tutti.NodeName) map[string]data.Answer {
	out := map[string]data.Answer{}
	for _, q := range indexReads {
		out[string(q.Kind)+q.Key] = m.plain.Answer(q, asks(node, ""))
	}
	for _, key := range indexKeys {
		out["hiera"+key] = m.plain.Answer(tutti.Query{Kind: tutti.QueryHiera, Key: key}, asks(node, ""))
	}
	return out
}
