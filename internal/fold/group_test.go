package fold_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/fold"
)

// What code is told about the groups of its node is what grants and targets use, after every event that can change it.
func TestCodeIsToldTheGroupsOfItsNode(t *testing.T) {
	s := fold.New()
	set := func(groups ...tutti.Group) tutti.Body { return &tutti.FleetSet{Fleet: tutti.Fleet{Groups: groups}} }
	certificate := &tutti.NodeCertificate{Extensions: map[string]string{"pp_role": "web"}}
	byRole := tutti.Group{Name: "by-role", Trusted: `trusted.pp_role == "web"`}
	for i, step := range []struct {
		reason string
		body   tutti.Body
		want   map[tutti.NodeName]string // "" for no answer
	}{
		{"a node joins before there is a fleet file", &tutti.NodeEnrolled{Node: "a", Key: "a", Groups: []tutti.GroupName{"joined"}}, map[tutti.NodeName]string{"a": `[]`}},
		{"a fleet file lists it", set(tutti.Group{Name: "db", Nodes: []tutti.NodeName{"a", "b"}}), map[tutti.NodeName]string{"a": `["db"]`, "b": ""}},
		{"and declares the group of its token", set(tutti.Group{Name: "db", Nodes: []tutti.NodeName{"a"}}, tutti.Group{Name: "joined"}), map[tutti.NodeName]string{"a": `["db","joined"]`}},
		{"a group by trusted facts", set(byRole), map[tutti.NodeName]string{"a": `[]`}},
		{"a node joins with a certificate", &tutti.NodeEnrolled{Node: "b", Key: "b", Certificate: certificate}, map[tutti.NodeName]string{"a": `[]`, "b": `["by-role"]`}},
		{"another machine gets the name", &tutti.NodeEnrolled{Node: "b", Key: "c"}, map[tutti.NodeName]string{"b": `[]`}},
		{"a node is removed", &tutti.NodeRemoved{Node: "b"}, map[tutti.NodeName]string{"a": `[]`, "b": ""}},
	} {
		s.Apply(tutti.Event{Seq: uint64(i + 1), Body: step.body})
		got := map[tutti.NodeName]string{}
		for node := range step.want {
			got[node] = string(s.Data.Answer(tutti.Query{Kind: tutti.QueryGroups}, data.Asker{Node: node}).Value)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", step.reason, diff)
		}
	}
}
