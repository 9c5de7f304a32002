package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `says` returns a function that answers every question with this reply.
func says(r tutti.RemoteReply) func(tutti.RemoteRequest) tutti.RemoteReply {
	return func(tutti.RemoteRequest) tutti.RemoteReply { return r }
}

// TestEveryNodeIsAnsweredFor checks that the operator gets a verdict for each node. A node
// without an answer, or with an invalid answer, does not count as a success.
func TestEveryNodeIsAnsweredFor(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	good := servertest.Idle()
	for _, tc := range []struct {
		reason  string
		action  tutti.RemoteAction
		reply   tutti.RemoteReply
		verdict tutti.RemoteVerdict
		says    string
	}{
		{"an answer", tutti.RemoteStatus, tutti.RemoteReply{Verdict: tutti.RemoteOK, RemoteAnswer: tutti.RemoteAnswer{Status: good}}, tutti.RemoteOK, ""},
		{"none", tutti.RemoteStatus, tutti.RemoteReply{}, tutti.RemoteSilent, "no answer within 10s"},
		{"empty", tutti.RemoteStatus, tutti.RemoteReply{Verdict: tutti.RemoteOK}, tutti.RemoteFailed, "has no status"},
		{"another's", tutti.RemoteStatus, tutti.RemoteReply{Verdict: tutti.RemoteOK, RemoteAnswer: tutti.RemoteAnswer{Summary: &tutti.RunSummary{}}}, tutti.RemoteFailed, "has no status"},
		{"a state that is none", tutti.RemoteStatus, tutti.RemoteReply{Verdict: tutti.RemoteOK, RemoteAnswer: tutti.RemoteAnswer{Status: &tutti.PuppetStatus{Status: "fine"}}}, tutti.RemoteFailed, "has no status"},
		{"a verdict that is the server's", tutti.RemoteStatus, tutti.RemoteReply{Verdict: tutti.RemoteAway, Message: "x"}, tutti.RemoteFailed, "the node's answer has no known verdict"},
		{"no reason", tutti.RemoteStatus, tutti.RemoteReply{Verdict: tutti.RemoteRefused}, tutti.RemoteFailed, "does not say why"},
		{"disabled, and enabled", tutti.RemoteDisable, tutti.RemoteReply{Verdict: tutti.RemoteOK, RemoteAnswer: tutti.RemoteAnswer{Status: good}}, tutti.RemoteFailed, "its status is stopped"},
		{"no summary", tutti.RemoteSummary, tutti.RemoteReply{Verdict: tutti.RemoteOK, RemoteAnswer: tutti.RemoteAnswer{Status: good}}, tutti.RemoteFailed, "has no summary"},
		{"no facts", tutti.RemoteFacts, tutti.RemoteReply{Verdict: tutti.RemoteOK}, tutti.RemoteFailed, "has no facts"},
		{"control characters", tutti.RemoteStatus, tutti.RemoteReply{Verdict: tutti.RemoteFailed, Message: "\x1b[2Jgone\x00"}, tutti.RemoteFailed, "\uFFFD[2Jgone\uFFFD"},
		{"long texts are cut", tutti.RemoteStatus, tutti.RemoteReply{Verdict: tutti.RemoteFailed, Message: long}, tutti.RemoteFailed, "…"},
		{"what is too large is not read", tutti.RemoteStatus, tutti.RemoteReply{Verdict: tutti.RemoteFailed, Message: long + long}, tutti.RemoteSilent, "no answer"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := servertest.Start(t)
				f.Join("db-01").Puppet(says(tc.reply))
				f.Join("gone-01")
				all := servertest.Asked(t, f, api.NodesQuestion{Action: tc.action})
				a := all["db-01"]
				if a.Verdict != tc.verdict || !strings.Contains(a.Message, tc.says) || len(a.Message) > 5<<10 {
					t.Errorf("%s %.200q; want %s %q", a.Verdict, a.Message, tc.verdict, tc.says)
				}
				if got := all["gone-01"].Verdict; got != tutti.RemoteAway || len(all) != 2 {
					t.Errorf("gone-01 is %s of %d answers", got, len(all))
				}
			})
		})
	}
}

// TestAChangeIsMadeOnceAndOnlyWhileSomebodyWaits checks doorbells that come twice, come late, or come from
// an earlier server, and nodes that got no question. None of these cases may lead to a change.
func TestAChangeIsMadeOnceAndOnlyWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		db, other := f.Join("db-01"), f.Join("web-01")
		var request string
		var first, again error
		db.Puppet(func(q tutti.RemoteRequest) tutti.RemoteReply {
			request = q.Request
			first = db.Call(wire.OpAct, tutti.RemoteAct{Request: q.Request}, nil)
			again = db.Call(wire.OpAct, tutti.RemoteAct{Request: q.Request}, nil)
			wantCode(t, other.Call(wire.OpAct, tutti.RemoteAct{Request: q.Request}, nil), tutti.CodeRefused, "was not asked")
			wantCode(t, other.Call(wire.OpAnswer, tutti.RemoteReply{Request: q.Request, Verdict: tutti.RemoteOK}, nil), tutti.CodeRefused, "was not asked")
			return tutti.RemoteReply{} // the node sends nothing after this reply
		})
		a := servertest.Asked(t, f, api.NodesQuestion{Action: tutti.RemoteEnable, On: `node == "db-01"`})["db-01"]
		if first != nil {
			t.Errorf("the first time: %v", first)
		}
		wantCode(t, again, tutti.CodeConflict, "do nothing")
		if a.Verdict != tutti.RemoteSilent || !strings.Contains(a.Message, "may have done this") {
			t.Errorf("%+v; want silent, and that it may have done it", a)
		}
		wantCode(t, db.Call(wire.OpAct, tutti.RemoteAct{Request: request}, nil), tutti.CodeConflict, "nobody waits")
		next := f.Restart()
		wantCode(t, next.Node("db-01").Call(wire.OpAct, tutti.RemoteAct{Request: request}, nil), tutti.CodeConflict, "nobody waits")
		want := []string{"node:web-01: act on a question that it did not get", "node:web-01: answer a question that it did not get"}
		if diff := cmp.Diff(want, next.Denials()); diff != "" {
			t.Errorf("denials: -want +got\n%s", diff)
		}
	})
}

// TestNobodyActsOnAReading checks that a node cannot act on a question that only reads.
func TestNobodyActsOnAReading(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	var err error
	db.Puppet(func(q tutti.RemoteRequest) tutti.RemoteReply {
		err = db.Call(wire.OpAct, tutti.RemoteAct{Request: q.Request}, nil)
		return tutti.RemoteReply{Verdict: tutti.RemoteOK, RemoteAnswer: tutti.RemoteAnswer{Status: servertest.Idle()}}
	})
	servertest.Asked(t, f, api.NodesQuestion{Action: tutti.RemoteStatus})
	wantCode(t, err, tutti.CodeConflict, "do nothing")
}

// TestTheFirstAnswerCounts checks that a second answer and a late answer have no effect.
func TestTheFirstAnswerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		db := f.Join("db-01")
		var request string
		db.Puppet(func(q tutti.RemoteRequest) tutti.RemoteReply {
			request = q.Request
			if err := db.Call(wire.OpAnswer, tutti.RemoteReply{Request: q.Request, Verdict: tutti.RemoteFailed, Message: "first"}, nil); err != nil {
				t.Error(err)
			}
			return tutti.RemoteReply{Verdict: tutti.RemoteFailed, Message: "second"}
		})
		f.Join("silent-01").Puppet(says(tutti.RemoteReply{}))
		all := servertest.Asked(t, f, api.NodesQuestion{Action: tutti.RemoteStatus, Wait: time.Second})
		if got := all["db-01"].Message; got != "first" {
			t.Errorf("%q counts", got)
		}
		if err := db.Call(wire.OpAnswer, tutti.RemoteReply{Request: request, Verdict: tutti.RemoteFailed, Message: "late"}, nil); err != nil {
			t.Errorf("a late answer: %v", err)
		}
	})
}

// TestAChangeIsInTheLogBeforeAnybodyIsTold checks that the log contains the operator, the change
// and the nodes before any node gets the question. After the change the log also contains the
// result.
func TestAChangeIsInTheLogBeforeAnybodyIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		db := f.Join("db-01")
		var before []string
		begun := len(f.Events())
		db.Puppet(func(tutti.RemoteRequest) tutti.RemoteReply {
			before = f.Since(begun)
			return tutti.RemoteReply{Verdict: tutti.RemoteRefused, Message: "no", Rule: "policy:3: deny"}
		})
		servertest.Asked(t, f, api.NodesQuestion{Action: tutti.RemoteDisable})
		if diff := cmp.Diff([]string{"remote.asked"}, before); diff != "" {
			t.Fatalf("in the log when the doorbell rang: -want +got\n%s", diff)
		}
		events := f.Events()[begun:]
		asked, answered := events[0].Body.(*tutti.RemoteAsked), events[1].Body.(*tutti.RemoteAnswered)
		wantContains(t, asked.Message, "Disabled via Tutti by operator:ada at 20")
		want := []tutti.RemoteDecision{{Verdict: tutti.RemoteRefused, Rule: "policy:3: deny", Count: 1, Nodes: []tutti.NodeName{"db-01"}}}
		if diff := cmp.Diff(want, answered.Decisions); diff != "" || events[1].By != "operator:ada" || answered.Request != asked.Request {
			t.Errorf("by %s: -want +got\n%s", events[1].By, diff)
		}
	})
}

// TestManyNodesAreSeveralEvents checks that one event names a limited number of nodes, and
// that all events together name all of them.
func TestManyNodesAreSeveralEvents(t *testing.T) {
	f := servertest.Start(t)
	const count = 1201
	for i := range count {
		f.Join(tutti.NodeName(fmt.Sprintf("n-%04d", i)))
	}
	begun := len(f.Events())
	servertest.Asked(t, f, api.NodesQuestion{Action: tutti.RemoteDisable})
	named := map[string]map[tutti.NodeName]bool{"remote.asked": {}, "remote.answered": {}}
	for _, e := range f.Events()[begun:] {
		var nodes []tutti.NodeName
		switch b := e.Body.(type) {
		case *tutti.RemoteAsked:
			nodes = b.Nodes
		case *tutti.RemoteAnswered:
			for _, d := range b.Decisions {
				nodes = append(nodes, d.Nodes...)
			}
		}
		if len(nodes) > 500 {
			t.Errorf("%s names %d nodes", e.Body.Kind(), len(nodes))
		}
		for _, n := range nodes {
			named[e.Body.Kind()][n] = true
		}
	}
	for kind, nodes := range named {
		if len(nodes) != count {
			t.Errorf("%s names %d nodes of %d", kind, len(nodes), count)
		}
	}
}

// TestWhoeverAskedMayGo checks that the result of a question is recorded, and the question
// ends, even if the operator disconnects.
func TestWhoeverAskedMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		db := f.Join("db-01")
		asked := make(chan string, 1)
		db.Puppet(func(q tutti.RemoteRequest) tutti.RemoteReply { asked <- q.Request; return tutti.RemoteReply{} })
		f.Join("gone-01")
		begun := len(f.Events())
		gone := errors.New("gone")
		err := f.AskNodes(servertest.Operator(), api.NodesQuestion{Action: tutti.RemoteEnable, Wait: time.Minute}, func([]api.NodeAnswer) error { return gone })
		if !errors.Is(err, gone) {
			t.Errorf("error %v, want that of yield", err)
		}
		if diff := cmp.Diff([]string{"remote.asked", "remote.answered"}, f.Since(begun)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		wantCode(t, db.Call(wire.OpAct, tutti.RemoteAct{Request: <-asked}, nil), tutti.CodeConflict, "nobody waits")
	})
}

// TestAnOperatorWhoIsOutAsksNobody checks that no node gets a question if the operator was revoked in the meantime.
func TestAnOperatorWhoIsOutAsksNobody(t *testing.T) {
	f := servertest.Start(t)
	rung := atomic.Int32{}
	f.Join("db-01").Puppet(func(tutti.RemoteRequest) tutti.RemoteReply { rung.Add(1); return tutti.RemoteReply{} })
	issued, err := f.IssueOperator(servertest.Operator(), api.IssueOperator{Operator: "eve", Request: []byte("request")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave, err := f.Admit(context.Background(), "eve", issued.Serial)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if _, err := f.RevokeOperator(servertest.Operator(), api.RevokeOperator{Operator: "eve", Last: true}); err != nil {
		t.Fatal(err)
	}
	err = f.AskNodes(ctx, api.NodesQuestion{Action: tutti.RemoteDisable}, func([]api.NodeAnswer) error { return nil })
	if err == nil || rung.Load() > 0 {
		t.Errorf("error %v, %d nodes were asked", err, rung.Load())
	}
	wantContains(t, err.Error(), "operator eve was revoked")
}

// TestFactsThatAreNoneSelectNobody checks that a node with invalid facts is neither
// selected nor rejected, but undecided.
func TestFactsThatAreNoneSelectNobody(t *testing.T) {
	for _, facts := range []string{`null`, `[]`, `"role"`, `{"role":{"a":1}}`} {
		f := servertest.Start(t)
		f.Join("db-01").Puppet(says(tutti.RemoteReply{Verdict: tutti.RemoteOK, RemoteAnswer: tutti.RemoteAnswer{Facts: json.RawMessage(facts)}}))
		a := servertest.Asked(t, f, api.NodesQuestion{Action: tutti.RemoteStatus, On: `facts.role.startsWith("db")`})["db-01"]
		if a.Verdict != tutti.RemoteUndecided {
			t.Errorf("%s: %+v", facts, a)
		}
	}
}

// TestRunsOnListedNodesSlide checks that the next run begins whenever one run ends, even if another run is slow.
func TestRunsOnListedNodesSlide(t *testing.T) {
	f := newFixture(t)
	nodes := []*servertest.Node{f.db, f.web1, f.web2}
	names := []tutti.NodeName{f.web2.Name, f.db.Name, f.web1.Name}
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Runs: &api.NodeRuns{Nodes: names, Limit: 2}, Mode: tutti.ModeNoop})
	if err != nil {
		t.Fatal(err)
	}
	slow := nodes[0].MustClaim() // the slow node uses its place until the end
	if slow.Mode != tutti.ModeNoop {
		t.Errorf("mode %q", slow.Mode)
	}
	for i, n := range nodes[1:] {
		for _, later := range nodes[i+2:] {
			if o := later.Claim(); o != nil {
				t.Errorf("%s begins as the third", o.Node)
			}
		}
		n.Pass()
	}
	nodes[0].Gate(wire.Gate{Run: slow.Run})
	nodes[0].Finish(slow.Run)
	wantVerdict(t, f.Fleet, job, tutti.VerdictSucceeded)
}
