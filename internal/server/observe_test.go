package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// observedFleet has one node on which Tutti starts nothing, and one other node.
const observedFleet = `
fleet: mixed
groups:
  old: {nodes: [db-01], mode: observe}
  new: {nodes: [web-01]}
plans:
  all: {steps: [{run: old}, {run: new}]}
  new: {steps: [{run: new}]}
  mend: {steps: [{converge: old}]}
reactive: true
`

func viewOf(t *testing.T, f *servertest.Fleet, name tutti.NodeName) api.NodeView {
	t.Helper()
	nodes, err := f.ListNodes(servertest.Operator())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Node == name {
			return n
		}
	}
	t.Fatalf("no node %s", name)
	return api.NodeView{}
}

// TestNothingStartsOnAnObservedNode: whatever an operator orders, and however the fleet reacts, no run begins on the node.
func TestNothingStartsOnAnObservedNode(t *testing.T) {
	f := servertest.Start(t)
	db, web := f.Join("db-01"), f.Join("web-01")
	db.Obeys()
	f.Push(observedFleet)
	const why = "db-01 is observed, so Tutti starts nothing there: the fleet file says `mode: observe` for group old"
	refused := func(what string, err error) {
		t.Helper()
		if tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %s", what, err, why)
		}
	}
	start := func(in api.StartJob) error {
		if in.Mode == "" {
			in.Mode = tutti.ModeNoop
		}
		_, err := f.StartJob(servertest.Operator(), in)
		return err
	}
	refused("a plan", start(api.StartJob{Plan: "all"}))
	refused("a plan with a converge step", start(api.StartJob{Plan: "mend"}))
	refused("converge", start(api.StartJob{Converge: &tutti.ConvergeStep{Target: "old"}, Mode: tutti.ModeCompile}))
	refused("listed nodes", start(api.StartJob{Runs: &api.NodeRuns{Nodes: []tutti.NodeName{"web-01", "db-01"}}}))
	for _, action := range []tutti.RemoteAction{tutti.RemoteDisable, tutti.RemoteEnable} {
		refused(string(action), f.AskNodes(servertest.Operator(), api.NodesQuestion{Action: action, On: `node == "db-01"`}, func([]api.NodeAnswer) error { return nil }))
	}
	if err := f.AskNodes(servertest.Operator(), api.NodesQuestion{Action: tutti.RemoteStatus, On: `node == "db-01"`}, func([]api.NodeAnswer) error { return nil }); err != nil {
		t.Errorf("status: %v", err)
	}

	if err := start(api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply}); err != nil {
		t.Fatal(err)
	}
	run := web.MustClaim().Run
	web.Gate(wire.Gate{Run: run})
	web.Finish(run)
	if o := db.Claim(); o != nil {
		t.Errorf("the observed node got the order %+v", o)
	}
	jobs, err := f.ListJobs(servertest.Operator())
	if err != nil || len(jobs) == 0 || jobs[len(jobs)-1].Verdict != tutti.VerdictConverged {
		t.Errorf("converge of the fleet: %+v, %v; want converged without the observed node", jobs, err)
	}
	var claimed wire.Claimed
	if err := db.Call(wire.OpClaim, wire.Claim{Knows: tutti.Capabilities()}, &claimed); err != nil {
		t.Fatal(err)
	}
	if claimed.Expect != wire.ExpectNothing || claimed.Alone == nil || claimed.Alone.Safety != 0 || !strings.Contains(claimed.Alone.Why, "observe") {
		t.Errorf("the observed node expects %q, and alone it does %+v", claimed.Expect, claimed.Alone)
	}
}

// TestAnOrderOfANodeThatIsObservedNow: an operator makes a node observed while it has an order. The node never gets the
// order.
func TestAnOrderOfANodeThatIsObservedNow(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	f.Join("web-01")
	f.Push(strings.Replace(observedFleet, ", mode: observe", "", 1))
	f.Start("all", tutti.ModeApply)
	setFleet(t, f, observedFleet)
	if o := db.Claim(); o != nil {
		t.Fatalf("the observed node got the order %+v", o)
	}
	ended := ""
	for _, e := range f.Events() {
		if b, is := e.Body.(*tutti.RunFinished); is {
			ended += string(b.Result.Outcome) + " " + b.Result.Message
		}
	}
	if !strings.Contains(ended, "skipped before the node began: the fleet file says `mode: observe`") {
		t.Errorf("the run ended %q", ended)
	}
}

// TestAnObservedNodeIsJudgedByWhatPuppetLeft: the state of the node comes from its reports and from Puppet's files.
func TestAnObservedNodeIsJudgedByWhatPuppetLeft(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	f.Join("web-01")
	f.Push(observedFleet)
	beat := func(files *tutti.PuppetFiles) {
		t.Helper()
		if err := db.Call(wire.OpBeat, wire.Beat{Version: "1", At: time.Now(), Files: files}, nil); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want api.NodeState, why string) {
		t.Helper()
		if n := viewOf(t, f, "db-01"); n.Stands != want || !strings.Contains(n.Why, why) || !n.Observed {
			t.Errorf("the node is %s (%s), observed %t; want %s (%s)", n.Stands, n.Why, n.Observed, want, why)
		}
		detail, err := f.ShowNode(servertest.Operator(), "db-01")
		if err != nil || detail.Standing.State != want || detail.Standing.Needs != "nothing" || !strings.Contains(detail.Standing.Why, why) {
			t.Errorf("explained: %+v, %v", detail.Standing, err)
		}
	}
	beat(nil)
	check(api.NodeUnknown, "no report")
	today := func(f *tutti.Foreign) { f.Result.StartedAt, f.Result.EndedAt = time.Now().UTC(), time.Now().UTC() }
	failed, report := foreign(1, tutti.Failed, today, func(f *tutti.Foreign) { f.Result.Message = "1 resource failed" })
	mustTell(t, db, failed, report)
	check(api.NodeFailed, "1 resource failed")
	beat(&tutti.PuppetFiles{Disabled: &tutti.PuppetDisabled{By: "root\x1b[31m", Message: "kernel\nupdate", Since: time.Now()}})
	check(api.NodeDisabled, "kernel")
	if why := viewOf(t, f, "db-01").Why; strings.Contains(why, "\x1b") {
		t.Errorf("a node's words reach a terminal: %q", why)
	}
	setFleet(t, f, strings.Replace(observedFleet, ", mode: observe", "", 1))
	if n := viewOf(t, f, "db-01"); n.Stands != api.NodeNew || n.Observed {
		t.Errorf("the node is not observed any more, and is %s, observed %t", n.Stands, n.Observed)
	}
}
