package fold_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/fold"
)

// The nodes of a serial group have the order of the group's list. If nodes get into the group by join tokens, the group
// has no list, and its nodes have the order of their names. A node that has not joined is not in the group yet.
func TestSerial(t *testing.T) {
	node := func(name tutti.NodeName, groups ...tutti.GroupName) *fold.Node {
		return &fold.Node{NodeEnrolled: tutti.NodeEnrolled{Node: name, Groups: groups}}
	}
	r := &fold.Registry{
		Fleet: &tutti.Fleet{Groups: []tutti.Group{
			{Name: "db", Nodes: []tutti.NodeName{"c", "d", "a"}, Serial: true}, {Name: "web", Serial: true}, {Name: "other", Nodes: []tutti.NodeName{"a"}},
		}},
		Nodes: map[tutti.NodeName]*fold.Node{"a": node("a"), "b": node("b", "web"), "c": node("c", "web")},
	}
	want := []converge.Serial{{Group: "db", Nodes: []tutti.NodeName{"c", "a"}}, {Group: "web", Nodes: []tutti.NodeName{"b", "c"}}}
	if diff := cmp.Diff(want, r.Serial()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
