package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
)

// The order of the fleet file is in the graph, also where nobody reads anything,
// and what nodes share with many is one edge with all of them.
func TestTheGraph(t *testing.T) {
	f := servertest.Start(t)
	names := []tutti.NodeName{"a", "b", "c"}
	groups := []tutti.Group{{Name: "ab", Nodes: names[:2]}, {Name: "c", Nodes: names[2:]}}
	var nodes []*servertest.Node
	for _, n := range names {
		nodes = append(nodes, f.Join(n))
	}
	f.Push("fleet: f\nenvironment: {name: production, path: ./code}\ngroups: {all: {nodes: [a, b, c]}}\ngrants: [{to: all, exports: [Host]}]\nplans: {deploy: {steps: [{run: all}]}}\n")
	f.Start("deploy", tutti.ModeApply)
	hosts := tutti.Query{Kind: tutti.QueryCollect, Type: "Host"}
	for _, n := range nodes {
		o := n.MustClaim()
		n.Gate(tutti.Gate{Run: o.Run, Reads: []tutti.Read{n.Read(o.Run, hosts)}, Exports: []tutti.Export{{Type: "Host", Title: string(n.Name)}}})
		n.Finish(o.Run)
	}
	order := []tutti.GroupOrder{{First: "ab", Then: "c"}}
	if err := f.Emit(&tutti.FleetSet{Fleet: tutti.Fleet{Name: "f", Groups: groups, Order: order}}); err != nil {
		t.Fatal(err)
	}
	edge := func(from, to []tutti.NodeName) tutti.GraphEdge {
		return tutti.GraphEdge{From: from, To: to, Questions: []tutti.Query{hosts}}
	}
	for _, tc := range []struct {
		reason, target string
		want           []tutti.GraphEdge
	}{
		{"everybody reads and feeds one question", "", []tutti.GraphEdge{
			{From: names[:2], To: names[2:], Explicit: true}, edge(names, names),
		}},
		{"from a node, and to it", "a", []tutti.GraphEdge{
			edge(names[:1], names), {From: names[:1], To: names[2:], Explicit: true}, edge(names[1:], names[:1]),
		}},
		{"of a group", "c", []tutti.GraphEdge{
			{From: names[:2], To: names[2:], Explicit: true}, edge(names[:2], names[2:]), edge(names[2:], names),
		}},
	} {
		got, err := f.Graph(servertest.Operator(), tc.target)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got.Edges); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

// What the log let go is told as far as it is kept: operators' changes from the
// audit trail, a node's last one from the snapshot.
func TestAValueAfterASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		for _, v := range []string{"1", "2", "3"} {
			if err := p.SetValue(servertest.Operator(), "shared/x", json.RawMessage(v)); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			p.jobs(t, 5)
			synctest.Wait()
		}
		if first := p.first(t); first < 50 {
			t.Fatalf("the log still begins with event %d", first)
		}
		got, err := p.ExplainValue(servertest.Operator(), "shared/x")
		if err != nil {
			t.Fatal(err)
		}
		var values []string
		for _, v := range got.Versions {
			values = append(values, string(v.Value)+" by "+v.By)
		}
		if diff := cmp.Diff([]string{"3 by operator:ada", "2 by operator:ada", "1 by operator:ada"}, values); diff != "" {
			t.Errorf("versions: -want +got\n%s", diff)
		}
		got, err = p.ExplainValue(servertest.Operator(), "db/x")
		if err != nil || len(got.Versions) == 0 || got.Run == nil || got.Run.Job != "deploy-20" || got.Versions[0].Run != got.Run.Run {
			t.Errorf("db/x: %+v, %v: want the version of deploy-20 first", got, err)
		}
	})
}

// A node may lie in its report and its record: nothing that it says reaches a
// terminal as anything but text.
func TestExplanationsArePlainText(t *testing.T) {
	f, _, o := started(t, tutti.ModeApply)
	const escape = "\x1b]0;owned\a"
	f.db.Gate(tutti.Gate{Run: o.Run})
	record, err := json.Marshal(tutti.Record{
		Run: o.Run, Node: "db-01", Exports: []string{escape}, Published: map[string]tutti.Digest{escape: tutti.Digest(escape)},
		Reads: []tutti.Read{{Query: tutti.Query{Kind: tutti.QueryValue, Key: escape}, At: tutti.Place{Resource: escape, File: escape}}},
		Keys:  []tutti.KeyRead{{Key: escape, At: tutti.Place{Resource: "Class[main]", File: escape}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(escape)
	if err != nil {
		t.Fatal(err)
	}
	report := strings.ReplaceAll(`{"resource_statuses": {"Exec[1]": {"file": X, "containment_path": ["Stage[main]", "Main", X, "Exec[1]"],
		"events": [{"property": X, "status": X, "message": X, "previous_value": X, "desired_value": [X]}]}}}`, "X", string(text))
	result := servertest.Result(o.Run, tutti.Changed)
	for _, blob := range []string{string(record), report} {
		if _, err := f.Handle(context.Background(), f.db.Key, tutti.OpBlobPut, []byte(blob)); err != nil {
			t.Fatal(err)
		}
	}
	result.Record, result.Report = tutti.DigestOf(record), tutti.DigestOf([]byte(report))
	if err := f.db.Call(tutti.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
	node, err := f.ShowNode(servertest.Operator(), "db-01")
	if err != nil {
		t.Fatal(err)
	}
	resource, err := f.ExplainResource(servertest.Operator(), tutti.ExplainResource{Node: "db-01", Resource: "Exec[1]"})
	if err != nil {
		t.Fatal(err)
	}
	if len(node.Reads) != 1 || len(resource.Events) != 1 || len(resource.Keys) != 1 {
		t.Fatalf("node %+v, resource %+v", node, resource)
	}
	for _, out := range []any{node, resource} {
		raw, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		plain := strings.ReplaceAll(string(raw), `\\u`, "") // text in text
		if strings.Contains(plain, `\u001b`) || strings.Contains(plain, `\u0007`) {
			t.Errorf("%s", raw)
		}
	}
}
