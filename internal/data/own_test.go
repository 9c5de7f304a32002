package data_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

var askGroups = tutti.Query{Kind: tutti.QueryGroups}

func groups(names ...tutti.GroupName) []tutti.GroupName { return names }

// The groups of a node are an answer like any other: a change touches the nodes that have read it, and only the node
// whose groups have changed. A node that nobody knows has no answer, which differs from a node without groups.
func TestTheGroupsOfANodeAreAnAnswer(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		then    func(s *data.State)
		touched []tutti.NodeName
		want    map[tutti.NodeName][]tutti.Query
	}{
		{"nothing happens", func(*data.State) {}, nil, nil},
		{"the same groups in another order", func(s *data.State) { data.SetGroups(s, "a", groups("x", "web")) }, nil, nil},
		{"another group, of one node", func(s *data.State) { data.SetGroups(s, "a", groups("web", "x", "z")) }, []tutti.NodeName{"a"},
			map[tutti.NodeName][]tutti.Query{"a": {askGroups}}},
		{"no group any more", func(s *data.State) { data.SetGroups(s, "b", nil) }, []tutti.NodeName{"b"}, map[tutti.NodeName][]tutti.Query{"b": {askGroups}}},
		{"back to what they were", func(s *data.State) {
			data.SetGroups(s, "a", nil)
			data.SetGroups(s, "a", groups("web", "x"))
		}, []tutti.NodeName{"a"}, nil},
		{"of a node that has not asked", func(s *data.State) { data.SetGroups(s, "c", nil) }, nil, nil},
		{"the node is removed", func(s *data.State) { s.Apply(tutti.Event{Seq: 9, Body: &tutti.NodeRemoved{Node: "a"}}) }, nil, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := fold()
			data.SetGroups(s, "a", groups("x", "web"))
			data.SetGroups(s, "b", groups("x", "web"))
			data.SetGroups(s, "c", groups("web"))
			for _, node := range []tutti.NodeName{"a", "b"} {
				s.Remember(node, asked(s, node, "", nil, askGroups), "")
			}
			s.Remember("c", asked(s, "c", "", nil, askValue), "")
			s.Touched()
			tc.then(s)
			if diff := cmp.Diff(tc.touched, s.Touched()); diff != "" {
				t.Errorf("touched: -want +got\n%s", diff)
			}
			for _, node := range []tutti.NodeName{"a", "b", "c"} {
				if diff := cmp.Diff(tc.want[node], s.OutdatedOf(node, "", 0)); diff != "" {
					t.Errorf("outdated of %s: -want +got\n%s", node, diff)
				}
			}
		})
	}
}

func TestTheAnswerWithTheGroups(t *testing.T) {
	s := fold()
	data.SetGroups(s, "a", groups("x", "web"))
	data.SetGroups(s, "none", nil)
	for node, want := range map[tutti.NodeName]string{"a": `["web","x"]`, "none": `[]`, "stranger": ""} {
		got := s.Answer(askGroups, data.Asker{Node: node})
		if string(got.Value) != want || got.Found != (want != "") || got.Found && got.Digest != tutti.DigestOf([]byte(want)) {
			t.Errorf("%s: %+v, want %s", node, got, want)
		}
	}
	for _, q := range []tutti.Query{{Kind: tutti.QueryGroups, Key: "x"}, {Kind: tutti.QueryGroups, Type: "X"}, {Kind: tutti.QueryGroups, Filter: []byte("[]")}} {
		if _, err := data.NormalQuery(q); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%+v: %v, want invalid", q, err)
		}
	}
}
