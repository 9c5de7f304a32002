package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The nodes of agentFleet run through a Puppet Server. The nodes of applyFleet run with the fleet's own code.
const (
	agentFleet = `
fleet: agents
mode: agent
groups:
  db: {nodes: [db-01]}
  web: {nodes: [web-01, web-02]}
grants: [{to: db, write: [db/**], exports: [Host]}]
plans:
  deploy: {steps: [{run: db}, {run: web, mode: agent, environment: staging, noop: true, tags: [base], debug: true}]}
  apply: {steps: [{run: db, mode: apply}]}
`
	applyFleet = `
fleet: agents
environment: {name: production}
groups:
  db: {nodes: [db-01]}
grants: [{to: db, write: [db/**], exports: [Host]}]
plans:
  deploy: {steps: [{run: db}]}
  tagged: {steps: [{run: db, tags: [base]}]}
`
)

func setFleet(t testing.TB, f *servertest.Fleet, text string) {
	t.Helper()
	if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(text)}); err != nil {
		t.Fatal(err)
	}
}

// withoutRun returns an order without the fields that differ from test to test.
func withoutRun(o tutti.Order) tutti.Order {
	o.Run = ""
	return o
}

// If a Puppet Server has the code of a fleet, the jobs of the fleet start although Tutti
// has no code. Each order names the program and its options.
func TestRunsThroughTheAgentNeedNoCode(t *testing.T) {
	f := servertest.Start(t)
	db, web := f.Join("db-01"), f.Join("web-01")
	f.Join("web-02")
	setFleet(t, f, agentFleet)
	f.Start("deploy", tutti.ModeApply)
	first := db.MustClaim()
	want := tutti.Order{Node: "db-01", Job: "deploy-1", Step: "run-db", Mode: tutti.ModeApply, Program: tutti.ProgramAgent, Timeout: first.Timeout, Attempt: 1, FreshFacts: true}
	if diff := cmp.Diff(want, withoutRun(first)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	db.Gate(wire.Gate{Run: first.Run})
	db.Finish(first.Run)
	want = tutti.Order{
		Node: "web-01", Job: "deploy-1", Step: "run-web", Mode: tutti.ModeNoop, Program: tutti.ProgramAgent, Environment: "staging",
		Tags: []string{"base"}, Debug: true, Timeout: first.Timeout, Attempt: 1, FreshFacts: true,
	}
	if diff := cmp.Diff(want, withoutRun(web.MustClaim())); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	_, err := f.StartJob(servertest.Operator(), api.StartJob{Mode: tutti.ModeApply, Runs: &api.NodeRuns{
		Nodes: []tutti.NodeName{"db-01"}, RunOptions: tutti.RunOptions{Environment: "staging", SkipTags: []string{"slow"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want = tutti.Order{
		Node: "db-01", Job: "puppet-2", Step: "run", Mode: tutti.ModeApply, Program: tutti.ProgramAgent, Environment: "staging",
		SkipTags: []string{"slow"}, Timeout: first.Timeout, Attempt: 1, FreshFacts: true,
	}
	if diff := cmp.Diff(want, withoutRun(db.MustClaim())); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	_, err = f.StartJob(servertest.Operator(), api.StartJob{Plan: "apply", Mode: tutti.ModeApply})
	wantCode(t, err, tutti.CodeInvalid, "db-01 runs by `puppet apply`, and the fleet file has no environment")
}

// If a node runs through the agent, its publications stay, because such a run reports no publications. The
// publications also stay after a run with tags, because such a run may have applied only a part of the catalog.
func TestWhatARunSaysNothingAboutStays(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	f.Push(applyFleet)
	// The function `withdrawn` runs a plan and returns the publications that its run has withdrawn or replaced.
	withdrawn := func(plan tutti.PlanName, exports []tutti.Export) (out []string) {
		t.Helper()
		before := len(f.Events())
		f.Start(plan, tutti.ModeApply)
		o := db.MustClaim()
		handed := wire.Gate{Run: o.Run, Exports: exports}
		if exports != nil {
			handed.Values = []string{"db/port"}
		}
		db.Gate(handed)
		if exports != nil {
			if err := db.Publish(o.Run, "db/port", "5432"); err != nil {
				t.Fatal(err)
			}
		}
		db.Finish(o.Run)
		for _, e := range f.Events()[before:] {
			switch b := e.Body.(type) {
			case *tutti.ExportsSet:
				if !b.Overlay {
					out = append(out, fmt.Sprintf("%d exports", b.Count))
				}
			case *tutti.ValueUnset:
				out = append(out, "without "+b.Key)
			}
		}
		return out
	}
	check := func(when string, got []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s -want +got\n%s", when, diff)
		}
	}
	host := []tutti.Export{{Type: "Host", Title: "db-01", Parameters: map[string]json.RawMessage{"ip": []byte(`"10.0.0.1"`)}}}
	check("the first run", withdrawn("deploy", host), "1 exports")
	check("with tags", withdrawn("tagged", nil))
	setFleet(t, f, "mode: agent"+applyFleet)
	check("by the agent", withdrawn("deploy", nil))
	setFleet(t, f, applyFleet)
	check("a full run by apply", withdrawn("deploy", nil), "0 exports", "without db/port")
}

// If a node runs through the agent, a converge job does not compile the node only to find out the
// node's needs. After a good run the node stays good when the fleet's code changes. A node needs a
// run when it switches to apply. A run with tags makes no node good.
func TestConvergingThroughTheAgent(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	setFleet(t, f, "mode: agent"+applyFleet)
	converge := func(runs int) {
		t.Helper()
		job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
		if err != nil {
			t.Fatal(err)
		}
		for range runs {
			o := db.MustClaim()
			if gated := db.Gate(wire.Gate{Run: o.Run}); gated.Verdict == tutti.GateHold {
				gated = db.Gate(wire.Gate{Run: o.Run})
				if gated.Verdict != tutti.GateGo {
					t.Fatalf("gated %+v", gated)
				}
			}
			db.Finish(o.Run)
		}
		if got := f.Job(job); got.Verdict != tutti.VerdictConverged || got.Runs != runs || got.Compiles != 0 {
			t.Fatalf("%s: %s with %d runs and %d stopped, want converged with %d", job, got.Verdict, got.Runs, got.Compiles, runs)
		}
	}
	f.Start("tagged", tutti.ModeApply)
	o := db.MustClaim()
	db.Gate(wire.Gate{Run: o.Run})
	db.Finish(o.Run)
	converge(1)
	converge(0)
	f.Push("mode: agent" + applyFleet)
	converge(0)
	// Code and environment have changed as well, but people see only the change of the program as the reason.
	another := func(program string) {
		t.Helper()
		n, err := f.ShowNode(servertest.Operator(), "db-01")
		if want := "its last run was by another program: it runs `puppet " + program + "` now"; err != nil || n.Standing.Why != want {
			t.Errorf("%+v, %v: want %q", n.Standing, err, want)
		}
	}
	f.Push(applyFleet)
	another("apply")
	converge(1)
	f.PushSite("notify { 'other': }")
	f.Push("mode: agent" + applyFleet)
	another("agent")
	converge(1)
}

// If the fleet file names another environment, the nodes need a run with the code of that environment (finding T2).
func TestAnotherEnvironmentIsAnotherRun(t *testing.T) {
	f := newFixture(t)
	f.Start("deploy", tutti.ModeApply)
	for _, n := range []*servertest.Node{f.db, f.web1, f.web2} {
		n.Pass()
	}
	standing := func() api.NodeStanding {
		n, err := f.ShowNode(servertest.Operator(), "db-01")
		if err != nil {
			t.Fatal(err)
		}
		return n.Standing
	}
	if got := standing(); got.State != api.NodeGood {
		t.Fatalf("before: %+v", got)
	}
	f.PushSiteTo("staging", "notify { 'staged': }")
	if got := standing(); got.State != api.NodeGood {
		t.Errorf("with code of an environment that the fleet does not have: %+v", got)
	}
	if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(strings.Replace(twoSteps, "production", "staging", 1))}); err != nil {
		t.Fatal(err)
	}
	if got := standing(); got.State != api.NodeSuspect || got.Why != "its last run was of environment production, it has staging now" {
		t.Errorf("under another environment: %+v", got)
	}
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	if o := f.db.MustClaim(); o.Environment != "staging" || o.Job != job {
		t.Errorf("it is ordered to run %+v", o)
	}
}

// TestOtherGroupsAreAReason checks a node that a fleet file puts into another group. The node is suspect until a compile
// has shown that the groups change nothing.
func TestOtherGroupsAreAReason(t *testing.T) {
	f := newFixture(t)
	f.Start("deploy", tutti.ModeApply)
	for _, n := range []*servertest.Node{f.db, f.web1, f.web2} {
		n.Pass()
	}
	standing := func(want api.NodeState, why string) {
		t.Helper()
		n, err := f.ShowNode(servertest.Operator(), "db-01")
		if err != nil || n.Standing.State != want || n.Standing.Why != why {
			t.Errorf("%s %q, %v; want %s %q", n.Standing.State, n.Standing.Why, err, want, why)
		}
	}
	standing(api.NodeGood, "")
	setFleet(t, f.Fleet, strings.Replace(twoSteps, "groups:\n", "groups:\n  new: {nodes: [db-01]}\n", 1))
	standing(api.NodeSuspect, "at its last run it was in group db, now it is in groups db, new")
	if _, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply}); err != nil {
		t.Fatal(err)
	}
	if o := f.db.Pass(); !o.Proof {
		t.Errorf("it is ordered to run %+v, want a proof", o)
	}
	standing(api.NodeGood, "")
	setFleet(t, f.Fleet, twoSteps)
	standing(api.NodeSuspect, "at its last run it was in groups db, new, now it is in group db")
}

// A step can name the environment of a run through the agent. Such a run does not count for the node's own
// environment.
func TestAnEnvironmentThatAStepNamesIsNotTheNodes(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	setFleet(t, f, "fleet: x\nmode: agent\ngroups: {db: {nodes: [db-01]}}\nplans:\n  own: {steps: [{run: db}]}\n  next: {steps: [{run: db, mode: agent, environment: next}]}\n")
	for _, tc := range []struct {
		plan  tutti.PlanName
		state api.NodeState
		why   string
	}{
		{"own", api.NodeGood, ""},
		{"next", api.NodeSuspect, "its last run was of environment next, which a step or a group had set: now the node may use another environment"},
		{"own", api.NodeGood, ""},
	} {
		f.Start(tc.plan, tutti.ModeApply)
		db.Pass()
		n, err := f.ShowNode(servertest.Operator(), "db-01")
		if err != nil || n.Standing.State != tc.state || n.Standing.Why != tc.why {
			t.Errorf("after %s: %+v, %v", tc.plan, n.Standing, err)
		}
	}
}

// A node that runs through the agent compiles only when its turn has come. An earlier compile would
// not help the server, but the Puppet Server would store the catalog.
func TestNobodyCompilesThroughTheAgentBeforeItsTurn(t *testing.T) {
	f := servertest.Start(t)
	db, web := f.Join("db-01"), f.Join("web-01")
	setFleet(t, f, "fleet: x\nmode: agent\ngroups: {db: {nodes: [db-01]}, web: {nodes: [web-01]}}\norder: [{first: db, then: web}]\n")
	plan, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeCompile})
	if err != nil {
		t.Fatal(err)
	}
	if o := db.Claim(); o != nil {
		t.Errorf("a plan compiles through the agent: %+v", o)
	}
	wantVerdict(t, f, plan, tutti.VerdictConverged)
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	if early := web.Claim(); early != nil {
		t.Errorf("web-01 is to run before db-01 is good: %+v", early)
	}
	for _, n := range []*servertest.Node{db, web} {
		o := n.MustClaim()
		n.Gate(wire.Gate{Run: o.Run})
		n.Finish(o.Run)
	}
	wantVerdict(t, f, job, tutti.VerdictConverged)
}

// A running job keeps its environment. The next job uses the present environment of the fleet.
func TestAJobKeepsItsEnvironment(t *testing.T) {
	f := newFixture(t)
	f.Start("deploy", tutti.ModeApply)
	for _, n := range []*servertest.Node{f.db, f.web1, f.web2} {
		n.Pass()
	}
	late := f.Join("late-01")
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	o := late.MustClaim()
	f.PushSiteTo("staging", "notify { 'staged': }")
	if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(strings.Replace(twoSteps, "production", "staging", 1))}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*servertest.Node{f.db, f.web1, f.web2} {
		if o := n.Claim(); o != nil {
			t.Errorf("%s is good in the job's environment, and is ordered %+v", n.Name, o)
		}
	}
	late.Gate(wire.Gate{Run: o.Run})
	late.Finish(o.Run)
	wantVerdict(t, f.Fleet, job, tutti.VerdictConverged)
}
