package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The graph has the explicit order of the fleet file, even if no node reads anything. A
// value that many nodes read is one edge to all of them.
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
		n.Gate(wire.Gate{Run: o.Run, Reads: []tutti.Read{n.Read(o.Run, hosts)}, Exports: []tutti.Export{{Type: "Host", Title: string(n.Name)}}})
		n.Finish(o.Run)
	}
	order := []tutti.GroupOrder{{First: "ab", Then: "c"}}
	if err := f.Emit(&tutti.FleetSet{Fleet: tutti.Fleet{Name: "f", Groups: groups, Order: order}}); err != nil {
		t.Fatal(err)
	}
	edge := func(from, to []tutti.NodeName) api.GraphEdge {
		return api.GraphEdge{From: from, To: to, Questions: []tutti.Query{hosts}}
	}
	for _, tc := range []struct {
		reason, target string
		want           []api.GraphEdge
	}{
		{"everybody reads and feeds one question", "", []api.GraphEdge{
			{From: names[:2], To: names[2:], Explicit: true}, edge(names, names),
		}},
		{"from a node, and to it", "a", []api.GraphEdge{
			edge(names[:1], names), {From: names[:1], To: names[2:], Explicit: true}, edge(names[1:], names[:1]),
		}},
		{"of a group", "c", []api.GraphEdge{
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
	for target, want := range map[string]string{
		// The nodes a and b are one box if both are in the target, because both read and publish the same.
		"": "ab (2) order c, ab (2) soft ab (2), ab (2) soft c, c soft ab (2)", "a": "a order c, a soft b, a soft c, b soft a, c soft a",
	} {
		p, err := f.Picture(servertest.Operator(), target)
		if err != nil {
			t.Fatal(err)
		}
		title := map[string]string{}
		for _, b := range p.Boxes {
			title[b.ID] = b.Title
		}
		var edges []string
		for _, e := range p.Edges {
			edges = append(edges, fmt.Sprintf("%s %s %s", title[e.From], e.Kind, title[e.To]))
		}
		slices.Sort(edges)
		if got := strings.Join(edges, ", "); got != want {
			t.Errorf("picture of %q: got %s", target, got)
		}
	}
}

// The explanation also covers events that the log has dropped. The audit trail keeps the changes by
// operators, and the snapshot keeps the last change by a node.
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

// A node may lie in its report and its record. The texts of a node must reach a terminal only as plain text.
func TestExplanationsArePlainText(t *testing.T) {
	f, _, o := started(t, tutti.ModeApply)
	const escape = "\x1b]0;owned\a"
	f.db.Gate(wire.Gate{Run: o.Run})
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
		if _, err := f.Handle(context.Background(), f.db.Key, wire.OpBlobPut, []byte(blob)); err != nil {
			t.Fatal(err)
		}
	}
	result.Record, result.Report = tutti.DigestOf(record), tutti.DigestOf([]byte(report))
	if err := f.db.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
	node, err := f.ShowNode(servertest.Operator(), "db-01")
	if err != nil {
		t.Fatal(err)
	}
	resource, err := f.ExplainResource(servertest.Operator(), api.ExplainResource{Node: "db-01", Resource: "Exec[1]"})
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
		plain := strings.ReplaceAll(string(raw), `\\u`, "") // remove the escapes in a text that is itself inside a text
		if strings.Contains(plain, `\u001b`) || strings.Contains(plain, `\u0007`) {
			t.Errorf("%s", raw)
		}
	}
}

// If an operator removes a node, its publications are removed as well. The explanation
// names the operator who removed it.
func TestWhatARemovedNodeTookAlong(t *testing.T) {
	f := newFixture(t)
	f.Start("deploy", tutti.ModeApply)
	port, databases := tutti.Query{Kind: tutti.QueryValue, Key: "db/port"}, tutti.Query{Kind: tutti.QueryCollect, Type: "Database"}
	o := f.db.MustClaim()
	f.db.Gate(wire.Gate{Run: o.Run, Exports: []tutti.Export{database("main")}, CatalogReport: tutti.CatalogReport{Values: []string{"db/port"}}})
	if err := f.db.Publish(o.Run, "db/port", "1"); err != nil {
		t.Fatal(err)
	}
	f.db.Finish(o.Run)
	o = f.web1.MustClaim()
	f.web1.Gate(wire.Gate{Run: o.Run, Reads: []tutti.Read{f.web1.Read(o.Run, port), f.web1.Read(o.Run, databases)}})
	f.web1.Finish(o.Run)
	if err := f.RemoveNode(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	why, err := f.ExplainNode(servertest.Operator(), "web-01")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range why.Changed {
		for _, e := range c.Causes {
			got = append(got, fmt.Sprintf("%s: by %s, unset %t, gone %v", c.Query, e.By, e.Unset, e.Removed))
		}
	}
	want := []string{
		"Database <<| |>>: by operator:ada, unset false, gone [Database[main]]",
		`value "db/port": by operator:ada, unset true, gone []`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// If the log has dropped the previous set of exports, the explanation must not call the present set new.
func TestExportsAfterASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		web := p.Join("web-01")
		p.jobs(t, 1)
		run := servertest.NewRunID()
		code := p.PushSite(servertest.CodeContent).Code
		if err := p.Emit(&tutti.RunWanted{Order: tutti.Order{Run: run, Node: "web-01", Mode: tutti.ModeApply, Environment: "production", Code: code}}); err != nil {
			t.Fatal(err)
		}
		web.MustClaim()
		reads := []tutti.Read{web.Read(run, tutti.Query{Kind: tutti.QueryCollect, Type: "Database"})}
		web.Gate(wire.Gate{Run: run, Reads: reads})
		raw, err := json.Marshal(tutti.Record{Run: run, Node: "web-01", Reads: reads})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Handle(t.Context(), web.Key, wire.OpBlobPut, raw); err != nil {
			t.Fatal(err)
		}
		result := servertest.Result(run, tutti.Changed)
		result.Record = tutti.DigestOf(raw)
		if err := web.Call(wire.OpResult, result, nil); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			p.jobs(t, 5)
			synctest.Wait()
		}
		p.first(t)
		why, err := p.ExplainNode(servertest.Operator(), "web-01")
		if err != nil || len(why.Changed) != 1 || len(why.Changed[0].Causes) == 0 {
			t.Fatalf("web-01: %+v, %v: want who changed the databases", why, err)
		}
		causes := why.Changed[0].Causes
		if !causes[0].Unknown || len(causes) >= 20 {
			t.Errorf("the first of %d causes is %+v: want that it is not known what was before", len(causes), causes[0])
		}
		if last := causes[len(causes)-1]; last.Unknown && len(causes) > 1 || last.Run == nil || last.Run.Job != "deploy-21" {
			t.Errorf("the last cause is %+v: want deploy-21", last)
		}
	})
}

// slowBlobs is a blob store. Its method `Get` waits until the test lets the method go on.
type slowBlobs struct {
	tutti.Blobs
	asked, may chan struct{}
}

func (b slowBlobs) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	select {
	case b.asked <- struct{}{}:
	default:
	}
	<-b.may
	return b.Blobs.Get(ctx, digest)
}

// An explanation reads blobs and the log without the writer. Other callers need not wait for the explanation.
func TestTheWriterDoesNotWaitForAnExplanation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := slowBlobs{asked: make(chan struct{}, 1), may: make(chan struct{})}
		f := servertest.Start(t, func(o *server.Options) {
			slow.Blobs = o.Blobs
			o.Blobs = slow
		})
		db := f.Join("db-01")
		// A push reads no blob if the fleet file has this grant instead of the grant for databases.
		f.Push(strings.Replace(onePlan, "{type: Database, defined: true, most: 50000}", "Host", 1))
		f.Start("deploy", tutti.ModeApply)
		o := db.MustClaim()
		db.Gate(wire.Gate{Run: o.Run})
		result := servertest.Result(o.Run, tutti.Changed)
		report := []byte(`{"resource_statuses": {}}`)
		if _, err := f.Handle(context.Background(), db.Key, wire.OpBlobPut, report); err != nil {
			t.Fatal(err)
		}
		result.Report, result.Record = tutti.DigestOf(report), tutti.DigestOf(report)
		if err := db.Call(wire.OpResult, result, nil); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() {
			_, err := f.ShowNode(servertest.Operator(), "db-01")
			ended <- err
		}()
		go func() {
			_, err := f.ExplainResource(servertest.Operator(), api.ExplainResource{Node: "db-01", Resource: "File[x]"})
			ended <- err
		}()
		<-slow.asked
		synctest.Wait()
		ctx, cancel := context.WithTimeout(servertest.Operator(), time.Minute) // a minute by the clock of the test's bubble
		defer cancel()
		if _, err := f.ListNodes(ctx); err != nil {
			t.Error(err)
		}
		close(slow.may)
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestAResourceBehindAProof checks which run an explanation of a resource uses. Proofs, stopped compiles and compile
// errors have no resources, so the explanation uses the report of the run before them. The explanation is the same
// after the job was retired, after a restart and after a snapshot.
func TestAResourceBehindAProof(t *testing.T) {
	f := newFenced(t)
	f.converge()
	applied := f.claim()
	f.db.Gate(full(applied.Run))
	if err := handOver(t, f.db, enclosing(applied.Run, `{"resource_statuses": {"File[/x]": {"changed": true}}}`, "log"), 0); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		got, err := f.ExplainResource(servertest.Operator(), api.ExplainResource{Node: "db-01", Resource: "File[/x]"})
		if err != nil || got.Run.Run != applied.Run || got.Status != "changed" {
			t.Errorf("%s: %+v, %v; want what run %s did", when, got, err, applied.Run)
		}
	}
	check("at once")
	f.PushSite("# two")
	f.prove()
	check("after a proof")
	for _, keep := range []int{2, 1} {
		f.restart(func(o *server.Options) { o.Keep = engine.Keep{Jobs: keep, Runs: keep} })
		f.PushSite(fmt.Sprintf("# keep %d", keep))
		f.prove()
		check("after its job was retired")
	}
	events := f.Events()
	if err := server.Hydrate(f.Blobs, events); err != nil {
		t.Fatal(err)
	}
	if diff := server.Fold(events).Diff(server.Fold(needed(events)), events[len(events)-1].At); diff != "" {
		t.Errorf("-whole +from a snapshot\n%s", diff)
	}
	f.PushSite("# broken")
	f.converge()
	order := f.claim()
	failed := servertest.Result(order.Run, tutti.Failed)
	failed.Reason, failed.Phase = tutti.BecauseCompile, "compile"
	ended := enclosing(order.Run, `{"resource_statuses": {}}`, "another log")
	failed.Report, failed.Log = ended.Report, ended.Log
	ended.Result = failed
	if err := handOver(t, f.db, ended, 0); err != nil {
		t.Fatal(err)
	}
	check("after a compile error")
	local := tutti.Foreign{Result: servertest.Result("f0000000-0000-4000-8000-000000000001", tutti.Failed), Local: &tutti.Local{}}
	local.Result.Reason = tutti.BecauseCompile
	local.Result.StartedAt, local.Result.EndedAt = local.Result.StartedAt.Add(time.Hour), local.Result.EndedAt.Add(time.Hour)
	message, err := wire.EncodeForeign(local, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Handle(t.Context(), f.db.Key, wire.OpForeign, message); err != nil {
		t.Fatal(err)
	}
	check("after a local run that did not compile and has no report")
}

// TestALateReport checks an explanation of a resource after two runs. The explanation uses the later run, even if
// the result of this run arrives first.
func TestALateReport(t *testing.T) {
	f := newFenced(t)
	f.converge()
	lost := f.claim()
	f.db.Gate(full(lost.Run))
	if err := f.Emit(&tutti.RunLost{Run: lost.Run, Reason: "silent"}); err != nil {
		t.Fatal(err)
	}
	f.converge()
	order := f.claim()
	f.db.Gate(full(order.Run))
	for _, run := range []tutti.RunID{order.Run, lost.Run} {
		if err := handOver(t, f.db, enclosing(run, `{"resource_statuses": {}}`, "log"), 0); err != nil {
			t.Fatal(err)
		}
		got, err := f.ExplainResource(servertest.Operator(), api.ExplainResource{Node: "db-01", Resource: "File[/x]"})
		if err != nil || got.Run.Run != order.Run {
			t.Errorf("after the result of run %s: %+v, %v; want run %s", run, got.Run, err, order.Run)
		}
	}
}

// TestTheListSaysHowNodesStand checks that the node list shows the same needs as node show, and marks proofs.
func TestTheListSaysHowNodesStand(t *testing.T) {
	f := newFenced(t)
	check := func(when string, want api.NodeState, proved bool) {
		t.Helper()
		nodes, err := f.ListNodes(servertest.Operator())
		if err != nil {
			t.Fatal(err)
		}
		shown, err := f.ShowNode(servertest.Operator(), "db-01")
		if err != nil {
			t.Fatal(err)
		}
		if n := nodes[0]; n.Stands != want || shown.Stands != want || shown.Standing.State != want || n.Proved != proved || shown.Proved != proved {
			t.Errorf("%s: listed %s (proved %t), shown %s, %s (proved %t); want %s (%t)", when, n.Stands, n.Proved, shown.Stands, shown.Standing.State, shown.Proved, want, proved)
		}
	}
	check("at first", api.NodeNew, false)
	f.pass()
	check("after a run", api.NodeGood, false)
	f.PushSite("# two")
	check("with other code", api.NodeSuspect, false)
	f.prove()
	check("after a proof", api.NodeGood, true)
	f.restart()
	check("after a start", api.NodeGood, true)
	f.inPart("same", servertest.Result("", tutti.Failed))
	check("after a run with tags that failed", api.NodeStale, false)
}
