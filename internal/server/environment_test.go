package server_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The fleet of branchFleet has two environments. The node web-02 is in the environment canary.
const branchFleet = `
fleet: shop
environment: {name: production}
groups:
  web: {nodes: [web-01, web-02]}
  testers: {nodes: [web-02], environment: canary}
plans:
  deploy: {steps: [{run: web}]}
  look: {steps: [{run: web-01, environment: canary, noop: true}]}
  try: {steps: [{run: web-01, environment: canary}]}
`

type branches struct {
	*servertest.Fleet
	web1, web2         *servertest.Node
	production, canary tutti.Digest
}

// The function `branched` returns a fleet with code of two environments, whose nodes are good.
func branched(t *testing.T, text string) branches {
	t.Helper()
	f := servertest.Start(t)
	out := branches{Fleet: f, web1: f.Join("web-01"), web2: f.Join("web-02")}
	out.production = f.PushSite("notify { 'production': }").Code
	out.canary = f.PushSiteTo("canary", "notify { 'canary': }").Code
	setFleet(t, f, text)
	return out
}

// The method `standing` checks a node's state and its reason.
func (b branches) standing(t *testing.T, node tutti.NodeName, want api.NodeState, why string) {
	t.Helper()
	n, err := b.ShowNode(servertest.Operator(), node)
	if err != nil || n.Standing.State != want || n.Standing.Why != why {
		t.Errorf("%s is %s %q, %v; want %s %q", node, n.Standing.State, n.Standing.Why, err, want, why)
	}
}

// ran is what an order says about code.
type ran struct {
	Environment string
	Code        tutti.Digest
}

func ofOrder(o tutti.Order) ran { return ran{o.Environment, o.Code} }

// TestAGroupHasItsEnvironment checks that each node runs with the code of its group's environment, in a plan and in a
// converge, and that a push to one environment concerns only its nodes.
func TestAGroupHasItsEnvironment(t *testing.T) {
	f := branched(t, branchFleet)
	f.Start("deploy", tutti.ModeApply)
	got := map[string]ran{"web-01": ofOrder(f.web1.Pass()), "web-02": ofOrder(f.web2.Pass())}
	want := map[string]ran{"web-01": {"production", f.production}, "web-02": {"canary", f.canary}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the plan: -want +got\n%s", diff)
	}
	f.standing(t, "web-01", api.NodeGood, "")
	f.standing(t, "web-02", api.NodeGood, "")

	next := f.PushSiteTo("canary", "notify { 'next': }").Code
	f.standing(t, "web-01", api.NodeGood, "")
	f.standing(t, "web-02", api.NodeSuspect, "its last run had other code")
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	if o := f.web2.Pass(); ofOrder(o) != (ran{"canary", next}) {
		t.Errorf("converge orders %+v, want the code of canary", o)
	}
	if o := f.web1.Claim(); o != nil {
		t.Errorf("converge orders %+v, although nothing has changed for the node", o)
	}
	wantVerdict(t, f.Fleet, job, tutti.VerdictConverged)
	f.standing(t, "web-02", api.NodeGood, "")
}

// TestAChangeOfEnvironmentIsAReason checks that a node which gets another environment needs a run, and that a restart of
// the server does not change this.
func TestAChangeOfEnvironmentIsAReason(t *testing.T) {
	f := branched(t, branchFleet)
	f.Start("deploy", tutti.ModeApply)
	f.web1.Pass()
	f.web2.Pass()
	setFleet(t, f.Fleet, strings.Replace(branchFleet, "[web-02], env", "[web-01], env", 1))
	f.standing(t, "web-01", api.NodeSuspect, "its last run was of environment production, it has canary now")
	f.standing(t, "web-02", api.NodeSuspect, "its last run was of environment canary, it has production now")
	f.Fleet = f.Restart()
	f.standing(t, "web-01", api.NodeSuspect, "its last run was of environment production, it has canary now")
}

// TestAStepHasItsEnvironment checks that a noop run of another environment changes nothing, and that a run which applies
// another environment leaves the node suspect.
func TestAStepHasItsEnvironment(t *testing.T) {
	f := branched(t, branchFleet)
	f.Start("deploy", tutti.ModeApply)
	f.web1.Pass()
	f.web2.Pass()
	f.Start("look", tutti.ModeApply)
	o := f.web1.MustClaim()
	if ofOrder(o) != (ran{"canary", f.canary}) || o.Mode != tutti.ModeNoop {
		t.Fatalf("the step orders %+v, want a noop run with the code of canary", o)
	}
	found := servertest.Result(o.Run, tutti.Unchanged)
	found.NoopPending, found.Counts = true, tutti.Counts{Total: 3, OutOfSync: 2}
	f.web1.Gate(wire.Gate{Run: o.Run})
	if err := f.web1.Call(wire.OpResult, wire.Ended{Result: found}, nil); err != nil {
		t.Fatal(err)
	}
	f.standing(t, "web-01", api.NodeGood, "")

	f.Start("try", tutti.ModeApply)
	if o := f.web1.Pass(); ofOrder(o) != (ran{"canary", f.canary}) {
		t.Fatalf("the step orders %+v, want the code of canary", o)
	}
	f.standing(t, "web-01", api.NodeSuspect, "its last run was of environment canary, it has production now")
}

// TestAnEnvironmentNeedsCode checks that nothing names an environment without code.
func TestAnEnvironmentNeedsCode(t *testing.T) {
	f := branched(t, branchFleet)
	n := len(f.Events())
	for _, tc := range []struct{ text, says string }{
		{strings.Replace(branchFleet, "environment: canary}", "environment: canry}", 1), `tutti.yaml: group testers: environment "canry" has no code`},
		{strings.Replace(branchFleet, "{run: web-01, environment: canary}", "{run: web-01, environment: nxt}", 1), `tutti.yaml: plan try: step run-web-01: environment "nxt" has no code`},
	} {
		_, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(tc.text)})
		wantCode(t, err, tutti.CodeInvalid, tc.says)
	}
	_, err := f.StartJob(servertest.Operator(), api.StartJob{
		Runs: &api.NodeRuns{Nodes: []tutti.NodeName{"web-01"}, RunOptions: tutti.RunOptions{Environment: "nxt"}}, Mode: tutti.ModeApply,
	})
	wantCode(t, err, tutti.CodeNotFound, `environment "nxt", which web-01 uses`)
	if got := f.Since(n); len(got) > 0 {
		t.Errorf("appended %v, want nothing", got)
	}
}

// TestAnEnvironmentOfAPuppetServer checks that a group's environment goes to `puppet agent`, and needs no code.
func TestAnEnvironmentOfAPuppetServer(t *testing.T) {
	const text = "fleet: x\nmode: agent\ngroups:\n  web: {nodes: [web-01, web-02]}\n  testers: {nodes: [web-02], environment: canary}\nplans: {deploy: {steps: [{run: web}]}}\n"
	f := branched(t, text)
	f.Start("deploy", tutti.ModeApply)
	if o := f.web1.Pass(); ofOrder(o) != (ran{"", ""}) {
		t.Errorf("web-01 is ordered %+v, want no environment", o)
	}
	if o := f.web2.Pass(); ofOrder(o) != (ran{"canary", ""}) {
		t.Errorf("web-02 is ordered %+v, want the environment canary", o)
	}
	f.standing(t, "web-02", api.NodeGood, "")
	setFleet(t, f.Fleet, strings.Replace(text, "environment: canary", "environment: next", 1))
	f.standing(t, "web-02", api.NodeSuspect, "its last run was of environment canary, it has next now")
	f.standing(t, "web-01", api.NodeGood, "")
}

// TestEachEnvironmentHoldsItsCode checks that a push holds only the code of its environment.
func TestEachEnvironmentHoldsItsCode(t *testing.T) {
	f := branched(t, branchFleet+heldReaction)
	held := f.PushSiteTo("canary", "notify { 'held': }")
	if !held.Held || held.Released != f.canary {
		t.Errorf("%+v, want held, and that the nodes of canary go on with %s", held, f.canary)
	}
	for environment, want := range map[string]bool{"canary": true, "production": false} {
		shown, err := f.ShowCode(servertest.Operator(), api.CodeQuery{Environment: environment})
		if err != nil || shown.Held != want || shown.OtherNodes != 1 {
			t.Errorf("%s: %+v, %v; want held %t, for one node", environment, shown, err, want)
		}
	}
	if _, err := f.ReleaseCode(servertest.Operator(), "production"); tutti.CodeOf(err) != tutti.CodeConflict {
		t.Errorf("released the code of production, which is not held: %v", err)
	}
	if released, err := f.ReleaseCode(servertest.Operator(), "canary"); err != nil || released.Code != held.Code {
		t.Errorf("released %+v, %v, want %s", released, err, held.Code)
	}
}

// TestPushEffectOfEnvironments checks which nodes a push would make run: those of the environment, those that move, and, if
// the fleet becomes reactive, those that need a run already.
func TestPushEffectOfEnvironments(t *testing.T) {
	f := branched(t, branchFleet)
	f.Start("deploy", tutti.ModeApply)
	f.web1.Pass()
	f.web2.Pass()
	effect := func(in api.PushQuery) []tutti.NodeName {
		t.Helper()
		out, err := f.PushEffect(servertest.Operator(), in)
		if err != nil || out.Runs != len(out.Nodes) {
			t.Errorf("%+v, %v", out, err)
		}
		return out.Nodes
	}
	file := func(text string) api.FleetSource { return api.FleetSource{File: "tutti.yaml", Source: []byte(text)} }
	other := tutti.DigestOf([]byte("other"))
	moved := strings.Replace(branchFleet, "[web-02], env", "[web-01], env", 1)
	for what, tc := range map[string]struct {
		in   api.PushQuery
		want []tutti.NodeName
	}{
		"code of one environment":          {api.PushQuery{Codes: map[string]tutti.Digest{"canary": other}}, []tutti.NodeName{"web-02"}},
		"the code that is there":           {api.PushQuery{Codes: map[string]tutti.Digest{"canary": f.canary, "production": f.production}}, nil},
		"an earlier command line":          {api.PushQuery{Code: other, Fleet: file(branchFleet)}, []tutti.NodeName{"web-01"}},
		"nodes that move":                  {api.PushQuery{Fleet: file(moved)}, []tutti.NodeName{"web-01", "web-02"}},
		"reactive, and all nodes are good": {api.PushQuery{Fleet: file(branchFleet + "reactive: true\n")}, nil},
	} {
		if diff := cmp.Diff(tc.want, effect(tc.in)); diff != "" {
			t.Errorf("%s: -want +got\n%s", what, diff)
		}
	}
	f.PushSiteTo("canary", "notify { 'next': }")
	if got := effect(api.PushQuery{Fleet: file(branchFleet + "reactive: true\n")}); len(got) != 1 || got[0] != "web-02" {
		t.Errorf("the fleet becomes reactive, and %v begin, want web-02, which is stale", got)
	}
}

// TestANodeMovesWithoutCode checks a node that moves during a plan to an environment for which the job has no code. The node
// must not run with other code.
func TestANodeMovesWithoutCode(t *testing.T) {
	f := branched(t, branchFleet+"  order: {steps: [{run: web-01}, {run: web-02}]}\n")
	job := f.Start("order", tutti.ModeApply)
	o := f.web1.MustClaim()
	f.PushSiteTo("late", "notify { 'late': }")
	setFleet(t, f.Fleet, strings.Replace(branchFleet, "environment: canary}\nplans", "environment: late}\nplans", 1)+"  order: {steps: [{run: web-01}, {run: web-02}]}\n")
	f.web1.Gate(wire.Gate{Run: o.Run})
	f.web1.Finish(o.Run)
	if o := f.web2.Claim(); o != nil {
		t.Errorf("web-02 is ordered %+v", o)
	}
	got := f.Job(job)
	if got.Verdict != tutti.VerdictFailed {
		t.Errorf("the job is %s: %s", got.Verdict, got.Message)
	}
	for _, e := range f.Events() {
		if b, is := e.Body.(*tutti.RunFinished); is && b.Result.Outcome == tutti.Failed && b.Result.Reason == tutti.BecauseRefused && strings.Contains(b.Result.Message, "environment late had no code when the job began") {
			return
		}
	}
	t.Error("no run says that the job has no code")
}

// TestJobsKeepTheCodeOfAllEnvironments checks that a node gets the code of its environment that the job began with, and
// that the server keeps this code until the job is retired.
func TestJobsKeepTheCodeOfAllEnvironments(t *testing.T) {
	f := branched(t, branchFleet)
	f.Start("deploy", tutti.ModeApply)
	o := f.web2.MustClaim()
	f.PushSiteTo("canary", "notify { 'next': }")
	var code tutti.SignedCode
	if err := f.web2.Call(wire.OpCode, wire.CodeGet{Run: o.Run, Code: o.Code}, &code); err != nil || tutti.DigestOf(code.Manifest) != f.canary {
		t.Errorf("the node gets %.40s, %v; want the code that the job began with", code.Manifest, err)
	}
}

// TestTheFleetsEnvironmentChangesDuringAJob checks that a job keeps the fleet's environment for nodes whose groups name none,
// and that a node whose group names an environment runs with that one.
func TestTheFleetsEnvironmentChangesDuringAJob(t *testing.T) {
	text := strings.Replace(branchFleet, "web: {nodes: [", "web: {nodes: [web-00, ", 1) + "  slow: {steps: [{run: web, limit: 1}]}\n  mend: {steps: [{converge: web}]}\n"
	for _, plan := range []tutti.PlanName{"slow", "mend"} {
		t.Run(string(plan), func(t *testing.T) {
			f := branched(t, text)
			web0 := f.Join("web-00")
			f.Start("deploy", tutti.ModeApply)
			for _, n := range []*servertest.Node{web0, f.web1, f.web2} { // it is known what they read, so they run one after the other
				n.Pass()
			}
			f.production = f.PushSite("notify { 'next': }").Code
			f.canary = f.PushSiteTo("canary", "notify { 'next': }").Code
			var paused []tutti.NodeName
			if plan == "mend" { // a converge step does not wait with a compile that may prove that nothing changes
				paused = []tutti.NodeName{"web-01", "web-02"}
			}
			for _, n := range paused {
				if _, err := f.Pause(servertest.Operator(), api.Pause{Target: string(n), Reason: "later"}); err != nil {
					t.Fatal(err)
				}
			}
			f.Start(plan, tutti.ModeApply)
			o := web0.MustClaim()
			setFleet(t, f.Fleet, strings.Replace(text, "environment: {name: production}", "environment: {name: canary}", 1))
			for _, n := range paused {
				if err := f.Unpause(servertest.Operator(), string(n)); err != nil {
					t.Fatal(err)
				}
			}
			web0.Gate(wire.Gate{Run: o.Run})
			web0.Finish(o.Run)
			got := map[string]ran{"web-01": ofOrder(f.web1.Pass()), "web-02": ofOrder(f.web2.Pass())}
			want := map[string]ran{"web-01": {"production", f.production}, "web-02": {"canary", f.canary}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
