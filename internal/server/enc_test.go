package server_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const encFleet = `
fleet: shop
environment: {name: production, enc: true}
groups:
  web: {nodes: [web-01]}
  old: {nodes: [old-01], mode: agent}
  testers: {nodes: [test-01], environment: canary}
plans:
  web: {steps: [{run: web}]}
  old: {steps: [{run: old}]}
`

var asksENC = tutti.Query{Kind: tutti.QueryENC}

// encFixture is a fleet whose server asks an ENC.
type encFixture struct {
	branches
	old *servertest.Node
}

func classifying(t *testing.T) encFixture {
	t.Helper()
	f := servertest.Start(t, func(o *server.Options) { o.ENC = true })
	out := encFixture{branches: branches{Fleet: f, web1: f.Join("web-01")}, old: f.Join("old-01")}
	f.Join("test-01")
	out.production = f.PushSite("notify { 'production': }").Code
	out.canary = f.PushSiteTo("canary", "notify { 'canary': }").Code
	setFleet(t, f, encFleet)
	return out
}

func (f encFixture) classify(t *testing.T, node tutti.NodeName, answer tutti.Classification) {
	t.Helper()
	if err := f.ENC().Classify(t.Context(), node, &answer); err != nil {
		t.Fatal(err)
	}
}

func withClass(name, parameters string) tutti.Classification {
	return tutti.Classification{Classes: map[string]json.RawMessage{name: json.RawMessage(parameters)}}
}

// The method `end` returns how the last run ended.
func (f encFixture) end(t *testing.T) tutti.Result {
	t.Helper()
	for _, e := range slices.Backward(f.Events()) {
		if b, is := e.Body.(*tutti.RunFinished); is {
			return b.Result
		}
	}
	t.Fatal("no run has ended")
	return tutti.Result{}
}

// A node about which the ENC has not answered gets no order. The run ends and says why. With an answer the node gets
// its order, and the order says that the run must ask for the answer.
func TestANodeWithoutAnAnswerOfTheENCGetsNoOrder(t *testing.T) {
	f := classifying(t)
	f.ENC().Unclassified("web-01", errors.New("enc: exit status 3"))
	f.Start("web", tutti.ModeApply)
	if o := f.web1.Claim(); o != nil {
		t.Fatalf("it was given %+v", *o)
	}
	want := "the ENC has not answered about it yet: enc: exit status 3"
	if got := f.end(t); got.Outcome != tutti.Waiting || got.Message != want || !cmp.Equal(got.Waits, []tutti.Wait{{Query: asksENC}}) {
		t.Errorf("result %+v, want waiting: %s", got, want)
	}
	f.classify(t, "web-01", withClass("role::web", `{"port":80}`))
	f.Start("web", tutti.ModeApply)
	order := f.web1.MustClaim()
	if !order.ENC || order.Environment != "production" {
		t.Errorf("order %+v", order)
	}
	if a := f.web1.Ask(order.Run, asksENC); string(a.Value) != `{"classes":{"role::web":{"port":80}}}` {
		t.Errorf("answer %+v", a)
	}
}

// With mode agent the Puppet Server has its own ENC. The server asks about these nodes nevertheless, because a step may run
// them with `puppet apply`.
func TestAPuppetServerHasItsOwnENC(t *testing.T) {
	f := classifying(t)
	f.Start("old", tutti.ModeApply)
	if o := f.old.MustClaim(); o.ENC {
		t.Errorf("order %+v", o)
	}
	nodes, err := f.ENC().Classified(t.Context())
	if diff := cmp.Diff(map[tutti.NodeName]bool{"web-01": false, "test-01": false, "old-01": false}, nodes); diff != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// An agent that does not know the ENC would apply a catalog without the classes.
func TestAnAgentThatKnowsNoENCGetsNoOrder(t *testing.T) {
	f := classifying(t)
	f.classify(t, "web-01", tutti.Classification{})
	f.web1.Forget("0.1.0", "enc")
	f.Start("web", tutti.ModeApply)
	if o := f.web1.Claim(); o != nil {
		t.Fatalf("it was given %+v", *o)
	}
	if got := f.end(t); got.Reason != tutti.BecauseRefused || got.Message != "its agent (0.1.0) does not know enc: upgrade tutti on web-01" {
		t.Errorf("result %+v", got)
	}
}

// The ENC names the environment of a node, unless a group names it. An order that is older than the first answer is not
// given, because it has another environment.
func TestTheENCNamesTheEnvironment(t *testing.T) {
	f := classifying(t)
	canary := tutti.Classification{Environment: "canary"}
	f.Start("web", tutti.ModeApply)
	f.classify(t, "web-01", canary)
	if o := f.web1.Claim(); o != nil {
		t.Fatalf("it was given %+v", *o)
	}
	wantContains(t, f.end(t).Message, "the ENC has answered about it only after this order")
	f.Start("web", tutti.ModeApply)
	if got := ofOrder(f.web1.MustClaim()); got != (ran{"canary", f.canary}) {
		t.Errorf("order %+v, want canary", got)
	}
	f.classify(t, "test-01", tutti.Classification{Environment: "production"})
	for node, want := range map[tutti.NodeName]string{"web-01": "canary", "test-01": "canary", "old-01": ""} {
		if n, err := f.ShowNode(servertest.Operator(), node); err != nil || n.Environment != want {
			t.Errorf("%s has environment %q, %v, want %q", node, n.Environment, err, want)
		}
	}
	setFleet(t, f.Fleet, strings.Replace(encFleet, ", enc: true", "", 1))
	if n, err := f.ShowNode(servertest.Operator(), "web-01"); err != nil || n.Environment != "" {
		t.Errorf("without `enc: true` web-01 has environment %q, %v", n.Environment, err)
	}
}

// Another answer stops a run at its gate, and makes a good node stale. A node whose last run did not ask has to prove that
// it is good. The same answer again is no event.
func TestAnotherAnswerOfTheENCIsAnotherInput(t *testing.T) {
	f := classifying(t)
	f.Start("web", tutti.ModeApply)
	f.classify(t, "web-01", withClass("a", "null"))
	f.web1.Claim()
	f.Start("web", tutti.ModeApply)
	order := f.web1.MustClaim()
	read := f.web1.Read(order.Run, asksENC)
	n := len(f.Events())
	f.classify(t, "web-01", withClass("a", "null"))
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("the same answer again: %v", got)
	}
	f.classify(t, "web-01", withClass("b", "null"))
	if got := f.web1.Gate(wire.Gate{Run: order.Run, Reads: []tutti.Read{read}}); got.Verdict != tutti.GateStop || !strings.Contains(got.Reason, "the answer of the ENC has changed") {
		t.Errorf("gate: %+v, want stop", got)
	}
	stopped := servertest.Result(order.Run, "")
	stopped.Stopped = true
	if err := f.web1.Call(wire.OpResult, stopped, nil); err != nil {
		t.Fatal(err)
	}
	again := f.web1.MustClaim()
	f.web1.Gate(wire.Gate{Run: again.Run, Reads: []tutti.Read{f.web1.Read(again.Run, asksENC)}})
	f.web1.Finish(again.Run)
	f.standing(t, "web-01", api.NodeGood, "")
	f.classify(t, "web-01", withClass("c", "null"))
	f.standing(t, "web-01", api.NodeStale, "the answer of the ENC has changed since it was read")
	f.Start("web", tutti.ModeApply)
	f.web1.Pass() // asks nothing
	f.standing(t, "web-01", api.NodeSuspect, "its last run did not get what the ENC says about it")
}

// A reactive fleet tries a node without an answer once, and runs the node as soon as the ENC has answered.
func TestAnAnswerOfTheENCWakesTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := classifying(t)
		setFleet(t, f.Fleet, encFleet+"reactive: true\n")
		for range 600 {
			if o := f.web1.Claim(); o != nil {
				t.Fatalf("it was given %+v", *o)
			}
			time.Sleep(time.Second)
		}
		ours := func() (out int) {
			for _, e := range f.Events() {
				if b, is := e.Body.(*tutti.RunWanted); is && b.Order.Node == "web-01" {
					out++
				}
			}
			return out
		}
		if runs := ours(); runs != 1 {
			t.Errorf("%d runs were wanted without an answer, want 1", runs)
		}
		f.classify(t, "web-01", tutti.Classification{})
		for range 60 {
			if o := f.web1.Claim(); o != nil {
				return
			}
			time.Sleep(time.Second)
		}
		t.Errorf("the node got no order after the answer; %d runs were wanted", ours())
	})
}

// TestAnEnvironmentWithoutCodeStopsOnlyItsNode: the ENC gives one node an environment that nobody has pushed. The converge of
// the other nodes goes on, and names the node.
func TestAnEnvironmentWithoutCodeStopsOnlyItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t, func(o *server.Options) { o.ENC = true })
		bad, good := f.Join("bad-01"), f.Join("good-01")
		f.PushSite("notify { 'production': }")
		setFleet(t, f, "fleet: shop\nenvironment: {name: production, enc: true}\n")
		out := encFixture{branches: branches{Fleet: f}}
		out.classify(t, "bad-01", tutti.Classification{Environment: "nosuch"})
		out.classify(t, "good-01", tutti.Classification{})
		id, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
		if err != nil {
			t.Fatal(err)
		}
		ran := false
		for range 600 {
			if o := bad.Claim(); o != nil {
				t.Fatalf("the node without code was given %+v", *o)
			}
			if o := good.Claim(); o != nil {
				ran = true
				good.Gate(wire.Gate{Run: o.Run})
				good.Finish(o.Run)
			}
			time.Sleep(time.Second)
		}
		if !ran {
			t.Error("the other node did not run")
		}
		jobs, err := f.ListJobs(servertest.Operator())
		if err != nil || len(jobs) != 1 || jobs[0].Job != id || jobs[0].EndedAt.IsZero() || jobs[0].Verdict == tutti.VerdictConverged || !strings.Contains(jobs[0].Message, "bad-01") {
			t.Errorf("%+v, %v", jobs, err)
		}
	})
}
