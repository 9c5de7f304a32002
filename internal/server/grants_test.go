package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `exporting` returns twoSteps with other grants for db.
func exporting(grants string) string {
	return strings.Replace(twoSteps, "write: [db/**], exports: [{type: Database, defined: true, most: 50000}]", grants, 1)
}

// The gate refuses a catalog that exports a resource for which the node has no grant, so no node collects this
// resource (finding F6).
func TestRootNeedsTheWord(t *testing.T) {
	const call = `{"__ptype":"Deferred","name":"generate","arguments":["/bin/sh","-c","id > /root/owned"]}`
	sshkey := func(name, value string) tutti.Export {
		return tutti.Export{Type: "Sshkey", Title: "db-01", Parameters: map[string]json.RawMessage{name: json.RawMessage(value)}}
	}
	many := make([]tutti.Export, tutti.MostExports+1)
	for i := range many {
		many[i] = database(strings.Repeat("x", i+1))
	}
	for name, exports := range map[string][]tutti.Export{
		"a type":        {{Type: "Service", Title: "x", Parameters: map[string]json.RawMessage{"start": json.RawMessage(`"/bin/sh"`)}}},
		"a parameter":   {sshkey("target", `"/root/.ssh/authorized_keys"`)},
		"a call":        {sshkey("key", call)},
		"an alias":      {sshkey("alias", `"other"`)},
		"how it runs":   {sshkey("noop", `true`)},
		"the last one":  {database("main"), sshkey("key", `"x"`), sshkey("key", `"x"`), {Type: "Sshkey", Title: "y", Parameters: map[string]json.RawMessage{"provider": json.RawMessage("1")}}},
		"more than few": many,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Push(exporting("exports: [Sshkey, {type: Database, defined: true}]"))
			f.Start("deploy", tutti.ModeApply)
			order := f.db.MustClaim()
			if len(exports) == 4 {
				exports[2].Title = "x"
			}
			err := f.db.Call(wire.OpGate, wire.Gate{Run: order.Run, Exports: exports}, nil)
			wantCode(t, err, tutti.CodeRefused, "add to the grants of the fleet file: - {to: ")
			if got := f.State().Exports("db-01"); len(got) != 0 {
				t.Errorf("others read %v", got)
			}
			if len(f.Denials()) != 1 {
				t.Errorf("the audit has %v", f.Denials())
			}
		})
	}
}

// grantsFor adds the suggested grants to a fleet file.
func grantsFor(t *testing.T, got api.SuggestedGrants) string {
	t.Helper()
	text, rest, _ := strings.Cut(twoSteps, "grants:")
	_, plans, _ := strings.Cut(rest, "plans:")
	if len(got.Grants) > 0 {
		text += "grants:\n"
	}
	for _, g := range got.Grants {
		text += "  - " + g.String() + "\n"
	}
	return text + "plans:" + plans
}

// The server suggests the grants that a noop converge lacks. With these grants the server refuses nothing.
func TestSuggestGrants(t *testing.T) {
	f := newFixture(t)
	f.Push(grantsFor(t, api.SuggestedGrants{}))
	gates := map[tutti.NodeName]wire.Gate{
		"db-01":  {Exports: []tutti.Export{{Type: "Service", Title: "x", Parameters: map[string]json.RawMessage{"ensure": json.RawMessage(`"running"`)}}, {Type: "Sshkey", Title: "a"}}},
		"web-01": {Exports: []tutti.Export{{Type: "Sshkey", Title: "b"}, {Type: "A::B", Title: "b"}}, CatalogReport: tutti.CatalogReport{Values: []string{"web/x", "node/web-01/y"}}},
		"web-02": {Exports: []tutti.Export{{Type: "A::B", Title: "c"}}},
	}
	nodes := map[tutti.NodeName]*servertest.Node{"db-01": f.db, "web-01": f.web1, "web-02": f.web2}
	converge := func(want tutti.Code) tutti.JobID {
		t.Helper()
		job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeNoop})
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range nodes {
			order := n.MustClaim()
			gate := gates[name]
			gate.Run = order.Run
			if name == "web-02" && want != "" {
				wantCode(t, n.Call(wire.OpAsk, wire.Question{Run: order.Run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "db/y"}}, nil), tutti.CodeRefused, "read")
			}
			if err := n.Call(wire.OpGate, gate, nil); tutti.CodeOf(err) != want {
				t.Errorf("%s at its gate: %v, want code %q", name, err, want)
			}
			if want != "" {
				if err := n.Call(wire.OpResult, tutti.Result{Run: order.Run, Outcome: tutti.Failed, Reason: tutti.BecauseRefused}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		return job
	}
	job := converge(tutti.CodeRefused)
	got, err := f.SuggestGrants(servertest.Operator(), "")
	if err != nil {
		t.Fatal(err)
	}
	if got.Job != job || got.Old || len(got.Failed) != 0 || got.At.IsZero() {
		t.Errorf("suggested by %+v, want job %s", got, job)
	}
	var lines []string
	for _, g := range got.Grants {
		lines = append(lines, g.String())
	}
	want := []string{
		`{to: db, exports: [Sshkey]}`,
		`{to: db, exports: [{type: Service, parameters: [ensure]}], dangerous: true}`,
		`{to: web, exports: [A::B, Sshkey], write: ["web/x"], read: ["db/y"]}`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	f.Push(grantsFor(t, got))
	converge("")
	f.Fleet = f.Restart()
	if left, err := f.SuggestGrants(servertest.Operator(), job); err != nil || len(left.Grants) > 0 {
		t.Errorf("of what is granted by now: %+v, %v", left, err)
	}
	_, err = f.SuggestGrants(servertest.Operator(), "none-7")
	wantCode(t, err, tutti.CodeNotFound, "none-7")
}

// The grants in a log from before 0.3.0 keep their old meaning until an operator pushes a fleet file, even an
// unchanged one. The server shows operators that the grants are old.
func TestGrantsOfAnOldLog(t *testing.T) {
	f := newFixture(t)
	source := exporting("exports: [Host, Service]")
	old := tutti.Fleet{
		Name: "test", Environment: tutti.Environment{Name: "production", Path: "./code"},
		Groups: []tutti.Group{{Name: "db", Nodes: []tutti.NodeName{"db-01"}}, {Name: "web", Nodes: []tutti.NodeName{"web-01", "web-02"}}},
		Grants: []tutti.Grant{{To: "db", Exports: []string{"Host", "Service"}}}, Plans: []tutti.Plan{{Name: "one", Steps: []tutti.Step{{Name: "db", Run: &tutti.RunStep{Target: "db"}}}}},
	}
	if err := f.Emit(&tutti.FleetSet{Fleet: old, Digest: tutti.DigestOf([]byte(source)), Source: source}); err != nil {
		t.Fatal(err)
	}
	f.Start("one", tutti.ModeApply)
	order := f.db.MustClaim()
	service := tutti.Export{Type: "Service", Title: "x", Parameters: map[string]json.RawMessage{"ensure": json.RawMessage(`"running"`)}}
	host := tutti.Export{Type: "Host", Title: "db-01", Parameters: map[string]json.RawMessage{"target": json.RawMessage(`"/etc/hosts"`)}}
	f.db.Gate(wire.Gate{Run: order.Run, Exports: []tutti.Export{host, service}})
	f.db.Finish(order.Run)
	if got := f.State().Exports("db-01"); len(got) != 2 {
		t.Fatalf("by the old grants %v is published", got)
	}
	nodes, err := f.ListNodes(servertest.Operator())
	if err != nil || !strings.Contains(api.OldGrants(nodes), "node db-01 may export Service by grants") {
		t.Errorf("told %q, %v", api.OldGrants(nodes), err)
	}
	got, err := f.SuggestGrants(servertest.Operator(), "")
	if err != nil || !got.Old || len(got.Grants) != 1 {
		t.Fatalf("suggested %+v, %v", got, err)
	}
	if want := `{to: db, exports: [{type: Host, parameters: [target]}, {type: Service, parameters: [ensure]}], dangerous: true}`; got.Grants[0].String() != want {
		t.Errorf("suggested %s, want %s", got.Grants[0], want)
	}

	_, err = f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(source)})
	wantCode(t, err, tutti.CodeInvalid, "anyone who can export Service becomes root")
	without := exporting("exports: [Host]")
	if err := f.Emit(&tutti.FleetSet{Fleet: old, Digest: tutti.DigestOf([]byte(without)), Source: without}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(without)}); err != nil {
		t.Fatal(err)
	}
	if got := f.State().Exports("db-01"); len(got) != 0 {
		t.Errorf("after the same file was pushed again %v is published, though it has the parameter target", got)
	}
	if nodes, err := f.ListNodes(servertest.Operator()); err != nil || api.OldGrants(nodes) != "" {
		t.Errorf("told %q, %v", api.OldGrants(nodes), err)
	}
}

// If a grant says `defined: true` for a native type of the code, the server refuses the fleet file with an
// explanation.
func TestDefinedIsCompared(t *testing.T) {
	f := newFixture(t)
	push := func(file string) error {
		t.Helper()
		f.PushFiles(map[string]string{"manifests/site.pp": "", file: "# ruby"})
		_, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(twoSteps + "# " + file + "\n")})
		return err
	}
	for _, file := range []string{"modules/db/lib/puppet/type/database_user.rb", "modules/db/manifests/database.pp", "modules/db/lib/puppet/functions/database.rb"} {
		if err := push(file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	wantCode(t, push("modules/db/lib/puppet/type/database.rb"), tutti.CodeInvalid, "tutti.yaml: grant: exports: Database is a native type, modules/db/lib/puppet/type/database.rb defines it")
}
