package servertest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/wire"
)

// Idle returns the status of a Puppet that is enabled and does nothing.
func Idle() *tutti.PuppetStatus {
	return &tutti.PuppetStatus{Enabled: true, Status: "stopped", Message: "Currently stopped; last completed run never"}
}

// Puppet lets a connected node answer each question with the result of f, in a separate goroutine.
// If the reply has no verdict, the node sends no answer.
func (n *Node) Puppet(f func(tutti.RemoteRequest) tutti.RemoteReply) {
	n.Fleet.t.Helper()
	n.must(n.Fleet.t, wire.OpBeat, wire.Beat{Version: "1"}, nil)
	n.Fleet.Bus.Listen(n.Key, func(op string, payload []byte) {
		var q tutti.RemoteRequest
		if op != wire.RingRemote || json.Unmarshal(payload, &q) != nil {
			return
		}
		n.Fleet.answering.Go(func() {
			if r := f(q); r.Verdict != "" {
				r.Request = q.Request
				_ = n.Call(wire.OpAnswer, r, nil) // the asking operator gets the error
			}
		})
	})
}

// Obeys gives the node a Puppet that does every action of a question.
func (n *Node) Obeys() {
	enabled, message := true, ""
	n.Puppet(func(q tutti.RemoteRequest) tutti.RemoteReply {
		out := tutti.RemoteReply{Verdict: tutti.RemoteOK, Rule: "policy:1: allow"}
		switch q.Action {
		case tutti.RemoteStatus, tutti.RemoteRun: // the answer is the status
		case tutti.RemoteEnable, tutti.RemoteDisable:
			if err := n.Call(wire.OpAct, tutti.RemoteAct{Request: q.Request}, nil); err != nil {
				return tutti.RemoteReply{Verdict: tutti.RemoteFailed, Message: err.Error()}
			}
			enabled, message = q.Action == tutti.RemoteEnable, q.Message
		case tutti.RemoteFacts:
			out.Facts = json.RawMessage(`{"role":"` + string(n.Name[:2]) + `"}`)
		case tutti.RemoteDiff:
			out.Diff = &tutti.CatalogDiff{Changes: []tutti.CatalogChange{
				{Kind: tutti.ChangeAdded, Resource: "File[/x]", Text: "\x1b[1mloud"}, {Kind: "a later kind"},
			}}
		case tutti.RemoteCompare:
			if q.Served.A == "old" { // this answer lies about the nodes and the environments
				out.Served = []tutti.ServedDiff{
					{Node: "other", Diff: &tutti.CatalogDiff{}}, {Node: "web-01"}, {Node: "web-02", Failed: map[string]string{"new": "no\nclass", "third": "x"}},
					{Node: "web-03", Diff: &tutti.CatalogDiff{Left: -1}}, {Node: "web-03", Failed: map[string]string{"new": "twice"}},
				}
			}
		case tutti.RemoteCheck:
			out.Check = &tutti.CodeChecked{Problems: []tutti.CodeProblem{
				{Level: tutti.ProblemError, File: "manifests/site.pp", Line: 3, Message: "\x1b[1mloud"}, {Level: "a later level"},
			}}
		case tutti.RemoteSummary:
			out.Summary = &tutti.RunSummary{TotalResources: 7}
		case tutti.RemoteResource:
			out.Resource = json.RawMessage(`{"user":{}}`)
		}
		out.Status = Idle()
		if !enabled {
			out.Status = &tutti.PuppetStatus{Status: "disabled", DisableMessage: message}
		}
		return out
	})
}

// Asked returns all answers to a question, by node.
func Asked(t testing.TB, server api.Remotes, in api.NodesQuestion) map[tutti.NodeName]api.NodeAnswer {
	t.Helper()
	out := map[tutti.NodeName]api.NodeAnswer{}
	err := server.AskNodes(Operator(), in, func(all []api.NodeAnswer) error {
		for _, a := range all {
			if _, twice := out[a.Node]; twice {
				t.Errorf("two answers for %s", a.Node)
			}
			out[a.Node] = a
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%+v: %v", in, err)
	}
	return out
}

// TestRemotes is the contract of api.Remotes.
func TestRemotes(t *testing.T, side Side) {
	f := Start(t)
	server, ctx := side(t, f), Operator()
	f.Join("db-01").Obeys()
	f.Join("we-01").Obeys()
	f.Join("gone-01")
	verdicts := func(in api.NodesQuestion) map[tutti.NodeName]tutti.RemoteVerdict {
		t.Helper()
		out := map[tutti.NodeName]tutti.RemoteVerdict{}
		for n, a := range Asked(t, server, in) {
			out[n] = a.Verdict
		}
		return out
	}
	type is = map[tutti.NodeName]tutti.RemoteVerdict
	const ok, away, undecided = tutti.RemoteOK, tutti.RemoteAway, tutti.RemoteUndecided
	for _, action := range []tutti.RemoteAction{tutti.RemoteStatus, tutti.RemoteRun, tutti.RemoteSummary, tutti.RemoteFacts, tutti.RemoteDiff, tutti.RemoteCheck} {
		want(t, string(action), is{"db-01": ok, "we-01": ok, "gone-01": away}, verdicts(api.NodesQuestion{Action: action}), nil)
	}
	want(t, "a resource", is{"db-01": ok}, verdicts(api.NodesQuestion{Action: tutti.RemoteResource, Type: "user", Title: "root", On: `node == "db-01"`}), nil)
	diff := Asked(t, server, api.NodesQuestion{Action: tutti.RemoteDiff, Jobs: []tutti.JobID{"diff-1", "diff-2"}, On: `node == "db-01"`})["db-01"].Diff
	want(t, "a comparison", &tutti.CatalogDiff{Changes: []tutti.CatalogChange{{Kind: tutti.ChangeAdded, Resource: "File[/x]", Text: "\ufffd[1mloud"}}, Left: 1}, diff, nil)
	check := Asked(t, server, api.NodesQuestion{Action: tutti.RemoteCheck, Jobs: []tutti.JobID{"diff-1"}, On: `node == "db-01"`})["db-01"].Check
	want(t, "a check", &tutti.CodeChecked{Problems: []tutti.CodeProblem{{Level: "error", File: "manifests/site.pp", Line: 3, Message: "\ufffd[1mloud"}}, Left: 1}, check, nil)
	served := func(a string) api.NodesQuestion {
		return api.NodesQuestion{Action: tutti.RemoteCompare, On: `node == "db-01"`, Served: &tutti.ServedQuestion{A: a, B: "new", Nodes: []tutti.NodeName{"web-01", "web-02", "web-03"}}}
	}
	want(t, "what a Puppet Server compiles", []tutti.ServedDiff{
		{Node: "web-01", Failed: map[string]string{"new": "the node's answer has no comparison"}}, {Node: "web-02", Failed: map[string]string{"new": "no\nclass"}},
		{Node: "web-03", Diff: &tutti.CatalogDiff{Changes: []tutti.CatalogChange{}}},
	}, Asked(t, server, served("old"))["db-01"].Served, nil)
	want(t, "an answer without a comparison", tutti.RemoteFailed, Asked(t, server, served("first"))["db-01"].Verdict, nil)
	several, nowhere := served("old"), served("../x")
	several.On = "connected"
	want(t, "by facts", is{"db-01": ok, "gone-01": undecided}, verdicts(api.NodesQuestion{Action: tutti.RemoteStatus, On: `facts.role == "db"`}), nil)
	want(t, "disable", is{"db-01": ok}, verdicts(api.NodesQuestion{Action: tutti.RemoteDisable, Message: "new disk", On: `connected && facts.role == "db"`}), nil)
	all := Asked(t, server, api.NodesQuestion{Action: tutti.RemoteStatus, On: "connected"})
	if s := all["db-01"].Status; s == nil || s.Enabled || s.DisableMessage != "new disk" || !all["we-01"].Status.Enabled {
		t.Errorf("status %+v", all)
	}
	for _, bad := range []struct {
		what string
		in   api.NodesQuestion
		code tutti.Code
	}{
		{"no action", api.NodesQuestion{}, tutti.CodeInvalid},
		{"a selector that is not valid", api.NodesQuestion{Action: tutti.RemoteStatus, On: "web"}, tutti.CodeInvalid},
		{"a diff of one job", api.NodesQuestion{Action: tutti.RemoteDiff, Jobs: []tutti.JobID{"diff-1"}}, tutti.CodeInvalid},
		{"a check of two jobs", api.NodesQuestion{Action: tutti.RemoteCheck, Jobs: []tutti.JobID{"diff-1", "diff-2"}}, tutti.CodeInvalid},
		{"jobs of another action", api.NodesQuestion{Action: tutti.RemoteStatus, Jobs: []tutti.JobID{"diff-1", "diff-2"}}, tutti.CodeInvalid},
		{"two hosts of a Puppet Server", several, tutti.CodeInvalid},
		{"an environment that is a path", nowhere, tutti.CodeInvalid},
		{"no environments", api.NodesQuestion{Action: tutti.RemoteCompare, On: `node == "db-01"`}, tutti.CodeInvalid},
		{"environments for another action", api.NodesQuestion{Action: tutti.RemoteStatus, Served: several.Served}, tutti.CodeInvalid},
		{"nobody", api.NodesQuestion{Action: tutti.RemoteStatus, On: `node == "x"`}, tutti.CodeNotFound},
		{"for ever", api.NodesQuestion{Action: tutti.RemoteStatus, Wait: time.Hour}, tutti.CodeInvalid},
		{"a message that is not one line", api.NodesQuestion{Action: tutti.RemoteDisable, Message: "a\nb"}, tutti.CodeInvalid},
		{"a message for an action without messages", api.NodesQuestion{Action: tutti.RemoteStatus, Message: "a"}, tutti.CodeInvalid},
		{"a resource without a type", api.NodesQuestion{Action: tutti.RemoteResource}, tutti.CodeInvalid},
		{"a type that is an option", api.NodesQuestion{Action: tutti.RemoteResource, Type: "--debug"}, tutti.CodeInvalid},
		{"a title that is an option", api.NodesQuestion{Action: tutti.RemoteResource, Type: "user", Title: "--debug"}, tutti.CodeInvalid},
	} {
		err := server.AskNodes(ctx, bad.in, func(a []api.NodeAnswer) error {
			t.Errorf("%s: %+v", bad.what, a)
			return nil
		})
		wantCode(t, bad.what, err, bad.code)
	}
	f.Push(suiteFleet)
	job, err := server.StartJob(ctx, api.StartJob{Runs: &api.NodeRuns{Nodes: []tutti.NodeName{"we-01", "db-01", "we-01"}, Limit: 1}, Mode: tutti.ModeApply})
	want(t, "runs on listed nodes", tutti.JobID("puppet-1"), job, err)
	for name, code := range map[tutti.NodeName]tutti.Code{"": tutti.CodeConflict, "nobody": tutti.CodeConflict} {
		_, err := server.StartJob(ctx, api.StartJob{Runs: &api.NodeRuns{Nodes: []tutti.NodeName{name}}, Mode: tutti.ModeApply})
		wantCode(t, "runs on nobody", err, code)
	}
	for what, options := range map[string]tutti.RunOptions{
		"an invalid tag": {Tags: []string{"a b"}}, "an invalid tag to skip": {SkipTags: []string{"--x"}}, "an invalid environment": {Environment: "../x"}, "a program": {Program: tutti.ProgramAgent},
	} {
		_, err := server.StartJob(ctx, api.StartJob{Runs: &api.NodeRuns{Nodes: []tutti.NodeName{"we-01"}, RunOptions: options}, Mode: tutti.ModeApply})
		wantCode(t, what, err, tutti.CodeInvalid)
	}
	_, err = server.StartJob(ctx, api.StartJob{
		Runs: &api.NodeRuns{Nodes: []tutti.NodeName{"we-01"}, RunOptions: tutti.RunOptions{Environment: "staging"}}, Mode: tutti.ModeApply,
	})
	wantCode(t, "apply with an environment without code", err, tutti.CodeNotFound)
	_, err = server.StartJob(ctx, api.StartJob{Runs: &api.NodeRuns{}, Mode: tutti.ModeApply})
	wantCode(t, "runs on no nodes", err, tutti.CodeInvalid)
}
