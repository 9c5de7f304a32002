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
	s := fold.New()
	for i, body := range []tutti.Body{
		&tutti.FleetSet{Fleet: tutti.Fleet{Groups: []tutti.Group{
			{Name: "db", Nodes: []tutti.NodeName{"c", "d", "a"}, Serial: true}, {Name: "web", Serial: true}, {Name: "other", Nodes: []tutti.NodeName{"a"}},
		}}},
		&tutti.NodeEnrolled{Node: "a", Key: "a"},
		&tutti.NodeEnrolled{Node: "b", Key: "b", Groups: []tutti.GroupName{"web"}},
		&tutti.NodeEnrolled{Node: "c", Key: "c", Groups: []tutti.GroupName{"web"}},
	} {
		s.Apply(tutti.Event{Seq: uint64(i + 1), Body: body})
	}
	r := s.Registry
	want := []converge.Serial{{Group: "db", Nodes: []tutti.NodeName{"c", "a"}}, {Group: "web", Nodes: []tutti.NodeName{"b", "c"}}}
	if diff := cmp.Diff(want, r.Serial()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
