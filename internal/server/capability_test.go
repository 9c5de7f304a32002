package server_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const debugPlans = `
fleet: test
environment: {name: production, path: ./code}
groups:
  db: {nodes: [db-01]}
  web: {nodes: [web-01]}
plans:
  debug:
    steps:
      - {run: db, debug: true, accept: ["failed:resources", lost]}
      - run: web
  plain:
    steps: [{run: db}]
  alone:
    steps: [{run: db, debug: true}]
`

const tooOldForDebug = "its agent (0.1.0) does not know debug: upgrade tutti on db-01"

// TestAnOrderThatTheAgentDoesNotKnowIsNotGiven checks that a run ends at once, with advice for the
// operator, if the agent does not know its order. The node still gets the orders that its agent
// knows.
func TestAnOrderThatTheAgentDoesNotKnowIsNotGiven(t *testing.T) {
	f := servertest.Start(t)
	db, web := f.Join("db-01"), f.Join("web-01")
	f.Push(debugPlans)
	db.Forget("0.1.0", "debug")
	job := f.Start("debug", tutti.ModeApply)
	n := len(f.Events())
	if o := db.Claim(); o != nil {
		t.Fatalf("it was given %+v", *o)
	}
	if diff := cmp.Diff([]string{"run.claimed", "run.finished", "job.finished"}, f.Since(n)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	ended := f.Events()[n+1].Body.(*tutti.RunFinished).Result
	if ended.Outcome != tutti.Failed || ended.Reason != tutti.BecauseRefused || ended.Message != tooOldForDebug {
		t.Errorf("result %+v", ended)
	}
	wantVerdict(t, f, job, tutti.VerdictFailed)
	if o := web.Claim(); o != nil {
		t.Errorf("the step after it began: %+v", *o)
	}
	nodes, err := f.ListNodes(servertest.Operator())
	if err != nil || nodes[0].Outcome != tutti.Failed || nodes[0].Message != tooOldForDebug || nodes[0].Version != "0.1.0" {
		t.Errorf("nodes %+v, %v", nodes, err)
	}

	job = f.Start("plain", tutti.ModeApply)
	db.Pass()
	wantVerdict(t, f, job, tutti.VerdictSucceeded)
	db.Agent = f.Node("db-01").Agent
	job = f.Start("debug", tutti.ModeApply)
	if o := db.Pass(); !o.Debug {
		t.Errorf("after an upgrade it was given %+v", o)
	}
	web.Pass()
	wantVerdict(t, f, job, tutti.VerdictSucceeded)
}

// TestAClaimWithoutAListIsOneOfTheFirstRelease checks that a node whose claim has no list
// gets all kinds of orders that release 0.2.0 knew.
func TestAClaimWithoutAListIsOneOfTheFirstRelease(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	f.Push(debugPlans)
	db.Agent = wire.Claim{}
	f.Start("alone", tutti.ModeNoop)
	if o := db.MustClaim(); !o.Debug || o.Mode != tutti.ModeNoop {
		t.Errorf("it was given %+v", o)
	}
	if nodes, err := f.ListNodes(servertest.Operator()); err != nil || !slices.Equal(nodes[0].TooOldFor, []tutti.Capability{"diff", "enc", tutti.CapabilityInventory, tutti.RemoteCheck.Needs(), tutti.RemoteCompare.Needs(), tutti.RemoteDiff.Needs(), tutti.CapabilityRotateCA, tutti.CapabilityStatements, tutti.CapabilityFacts}) {
		t.Errorf("nodes %+v, %v: 0.2.0 is too old only for what came later", nodes, err)
	}
}

// TestADowngradeWhileARunIsClaimed checks an agent that was downgraded after it had claimed
// a run and before it began the run. The agent must not get the same order again.
func TestADowngradeWhileARunIsClaimed(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	f.Push(debugPlans)
	job := f.Start("alone", tutti.ModeApply)
	db.MustClaim()
	db.Forget("0.1.0", "debug")
	if o := db.Claim(); o != nil {
		t.Errorf("it was given %+v", *o)
	}
	wantVerdict(t, f, job, tutti.VerdictFailed)
}

const dbByAgent = `
fleet: test
environment: {name: production, path: ./code}
mode: agent
groups:
  db: {nodes: [db-01]}
`

// TestConvergingDoesNotTryAgainWhatTheAgentDoesNotKnow checks a run that ended because the agent did not know its
// order. The server does not order the run again until something changes. The test checks a job of an operator and a
// fleet with reactions.
func TestConvergingDoesNotTryAgainWhatTheAgentDoesNotKnow(t *testing.T) {
	for _, reacts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := servertest.Start(t)
			db := f.Join("db-01")
			fleet := dbByAgent
			if reacts {
				fleet += "reactive: true\n"
			}
			db.Forget("0.1.0", "puppet_agent")
			f.Push(fleet)
			if !reacts {
				startConverge(t, f, "db")
			}
			for range 3600 {
				if o := db.Claim(); o != nil {
					t.Fatalf("it was given %+v", *o)
				}
				time.Sleep(time.Second)
			}
			jobs, err := f.ListJobs(servertest.Operator())
			if err != nil || len(jobs) != 1 || jobs[0].Verdict != tutti.VerdictFailed {
				t.Fatalf("reacts %t: jobs %+v, %v: want one that failed", reacts, jobs, err)
			}
			wantContains(t, jobs[0].Message, "db-01 failed:refused: its agent (0.1.0) does not know puppet_agent: upgrade tutti on db-01")
			if runs := count(f.Events(), "run.wanted"); runs != 1 {
				t.Errorf("reacts %t: %d runs were wanted, want 1", reacts, runs)
			}
		})
	}
}

func count(events []tutti.Event, kind string) int {
	return len(slices.DeleteFunc(servertest.Kinds(events), func(k string) bool { return k != kind }))
}

// TestWhatIsKnownOfAgents checks that the server remembers what agents know, until it
// restarts or another machine becomes the node.
func TestWhatIsKnownOfAgents(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	lacks := func() []tutti.Capability {
		t.Helper()
		nodes, err := f.ListNodes(servertest.Operator())
		if err != nil || len(nodes) != 1 {
			t.Fatalf("nodes %+v, %v", nodes, err)
		}
		return nodes[0].TooOldFor
	}
	says := func(what string, want ...tutti.Capability) {
		t.Helper()
		if diff := cmp.Diff(want, lacks()); diff != "" {
			t.Errorf("%s: -want +got\n%s", what, diff)
		}
	}
	db.Forget("0.1.0", "debug", "remote.facts")
	says("before it has claimed")
	db.Claim()
	says("after its claim", "debug", "remote.facts")
	f = f.Restart()
	says("after a restart, before it has claimed")
	db.Fleet = f
	db.Claim()
	says("after its claim", "debug", "remote.facts")
	if err := f.ReplaceNode(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	other := machine(f, "db-01", "another machine")
	if _, err := f.Enrol(t.Context(), other.Request(newToken(t, f, api.CreateToken{Name: "db-01"}))); err != nil {
		t.Fatal(err)
	}
	says("of another machine")
}

// TestAQuestionThatTheAgentDoesNotKnowIsNotAsked checks that the server asks only the nodes whose agents know the
// question.
func TestAQuestionThatTheAgentDoesNotKnowIsNotAsked(t *testing.T) {
	f := servertest.Start(t)
	db, web := f.Join("db-01"), f.Join("web-01")
	db.Forget("0.1.0", "remote.disable")
	db.Claim()
	db.Puppet(func(q tutti.RemoteRequest) tutti.RemoteReply {
		t.Errorf("db-01 was asked for %s", q.Action)
		return tutti.RemoteReply{}
	})
	web.Obeys()
	got := servertest.Asked(t, f, api.NodesQuestion{Action: tutti.RemoteDisable, Message: "disk"})
	if a := got["db-01"]; a.Verdict != tutti.RemoteFailed || a.Message != "its agent (1) does not know remote.disable: upgrade tutti on db-01" {
		t.Errorf("db-01: %+v", a)
	}
	if a := got["web-01"]; a.Verdict != tutti.RemoteOK {
		t.Errorf("web-01: %+v", a)
	}
}
