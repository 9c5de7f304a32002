package server_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestAnOpenQuestionObeysTheNewAccess changes the fleet file while an operator's question to a node is open, so that
// the operator loses the access to this node. The node must not get the question, and must not act on it.
func TestAnOpenQuestionObeysTheNewAccess(t *testing.T) {
	for _, tc := range []struct {
		reason string
		action tutti.RemoteAction
		on     string
		when   tutti.RemoteAction // the fleet file changes before the node answers or does this action
	}{
		{"while the node answers for its facts", tutti.RemoteDisable, `"web" in groups && facts.role == "we"`, tutti.RemoteFacts},
		{"the same, and the question only reads", tutti.RemoteSummary, `"web" in groups && facts.role == "we"`, tutti.RemoteFacts},
		{"before the node acts", tutti.RemoteDisable, `"web" in groups`, tutti.RemoteDisable},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShop(t)
				var acted error
				asked := map[tutti.RemoteAction]bool{}
				f.Node("web-01").Puppet(func(q tutti.RemoteRequest) tutti.RemoteReply {
					asked[q.Action] = true
					if q.Action == tc.when {
						f.Push(strings.Replace(accessFleet, "puppet], groups: [web]", "puppet], groups: [db]", 1))
					}
					if q.Action == tutti.RemoteFacts {
						return tutti.RemoteReply{Verdict: tutti.RemoteOK, RemoteAnswer: tutti.RemoteAnswer{Facts: []byte(`{"role":"we"}`)}}
					}
					if q.Action.Effect() {
						acted = f.Node("web-01").Call(wire.OpAct, tutti.RemoteAct{Request: q.Request}, nil)
					}
					return tutti.RemoteReply{Verdict: tutti.RemoteOK, RemoteAnswer: tutti.RemoteAnswer{Status: servertest.Idle()}}
				})
				err := f.AskNodes(f.as("webber", tutti.VerbPuppet), api.NodesQuestion{Action: tc.action, On: tc.on}, func([]api.NodeAnswer) error { return nil })
				if tc.when == tc.action {
					err = acted
				}
				wantCode(t, err, tutti.CodeRefused, "webber may not ask web-01 for "+string(tc.action))
				if asked[tc.action] != (tc.when == tc.action) {
					t.Errorf("asked: %v", asked)
				}
				want := []string{"operator:webber: ask web-01 for " + string(tc.action)}
				if diff := cmp.Diff(want, f.Denials()); diff != "" {
					t.Errorf("denials: -want +got\n%s", diff)
				}
			})
		})
	}
}
