package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/wire"
)

// API contains all interfaces that operators use.
type API interface {
	api.Jobs
	api.Nodes
	api.Tokens
	api.Operators
	api.Codes
	api.Values
	api.Pauses
	api.Explains
	api.Remotes
	api.Reports
}

// Side returns one side of the server's interfaces: the server itself, or a client whose operator
// is called ada.
type Side func(t *testing.T, f *Fleet) API

const suiteFleet = `
fleet: suite
environment: {name: production, path: ./code}
groups: {db: {nodes: [db-01]}}
plans:
  deploy:
    steps: [{run: db}]
`

func wantCode(t *testing.T, what string, err error, want tutti.Code) {
	t.Helper()
	if tutti.CodeOf(err) != want || err != nil && err.Error() == "" {
		t.Errorf("%s: error %v (code %q), want code %q", what, err, tutti.CodeOf(err), want)
	}
}

func want[T any](t *testing.T, what string, want, got T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got\n%s", what, diff)
	}
}

// TestJobs is the contract of api.Jobs.
func TestJobs(t *testing.T, side Side) {
	f := Start(t)
	server, ctx := side(t, f), Operator()
	node := f.Join("db-01")
	jobs, err := server.ListJobs(ctx)
	want(t, "no jobs", 0, len(jobs), err)
	_, err = server.StartJob(ctx, api.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
	wantCode(t, "start without a fleet file", err, tutti.CodeNotFound)
	_, err = server.StartJob(ctx, api.StartJob{Plan: "deploy", Mode: "dance"})
	wantCode(t, "start in an unknown mode", err, tutti.CodeInvalid)
	f.Push(suiteFleet)
	job, err := server.StartJob(ctx, api.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
	want(t, "start", tutti.JobID("deploy-1"), job, err)

	kinds := follow(t, server, node, job)
	want(t, "watched", []string{
		"job.started", "run.wanted", "run.claimed", "live apply", "run.compiled", "run.gated", "run.finished", "job.finished",
	}, kinds, nil)
	jobs, err = server.ListJobs(ctx)
	if err != nil || len(jobs) != 1 || jobs[0].By != "operator:ada" || jobs[0].Verdict != tutti.VerdictSucceeded || jobs[0].Runs != 1 {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
	stop := errors.New("stop")
	err = server.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(api.Watched) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("a watch that the watcher ends: %v", err)
	}
	wantCode(t, "watch no job", server.WatchJob(ctx, api.WatchJob{Job: "deploy-9"}, nil), tutti.CodeNotFound)
	wantCode(t, "cancel a job that has ended", server.CancelJob(ctx, api.CancelJob{Job: job}), tutti.CodeConflict)
	_, err = server.RunRecord(ctx, NewRunID())
	wantCode(t, "no record", err, tutti.CodeNotFound)

	job, err = server.StartJob(ctx, api.StartJob{Plan: "deploy", Mode: tutti.ModeNoop})
	want(t, "start again", tutti.JobID("deploy-2"), job, err)
	if err := server.CancelJob(ctx, api.CancelJob{Job: job, Reason: "lunch"}); err != nil {
		t.Fatal(err)
	}
	jobs, err = server.ListJobs(ctx)
	if err != nil || len(jobs) != 2 || jobs[0].Job != job || jobs[0].Verdict != tutti.VerdictCancelled || jobs[0].Message != "lunch" {
		t.Errorf("jobs %+v, %v: want the cancelled one first", jobs, err)
	}
	why := "new kernel"
	job, err = server.StartJob(ctx, api.StartJob{Plan: "deploy", Mode: tutti.ModeApply, Exclusive: &why})
	want(t, "start an exclusive job", tutti.JobID("deploy-3"), job, err)
	jobs, err = server.ListJobs(ctx)
	want(t, "the node for which the exclusive job waits", "phase check: waits for db-01", jobs[0].Message, err)
	nodes, err := server.ListNodes(ctx)
	want(t, "the job that holds the node", job, nodes[0].HeldBy, err)
}

// The function `follow` watches a job and lets the job's node continue when certain events arrive.
func follow(t *testing.T, server API, node *Node, job tutti.JobID) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(Operator(), 20*time.Second)
	defer cancel()
	var kinds []string
	var run tutti.RunID
	err := server.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(w api.Watched) error {
		if w.Live != nil {
			kinds = append(kinds, "live "+w.Live.Phase)
			node.Gate(wire.Gate{Run: run})
			return nil
		}
		kinds = append(kinds, w.Event.Body.Kind())
		switch b := w.Event.Body.(type) {
		case *tutti.RunWanted:
			run = b.Order.Run
			node.MustClaim()
		case *tutti.RunClaimed:
			return node.Call(wire.OpLive, []tutti.Live{{Run: run, Phase: "apply"}}, nil)
		case *tutti.RunGated:
			record(t, server, node, run)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	return kinds
}

// The function `record` ends a run with a record, and then reads this record from the server.
func record(t *testing.T, server API, node *Node, run tutti.RunID) {
	t.Helper()
	sent := tutti.Record{Run: run, Node: node.Name, Keys: []tutti.KeyRead{{Key: "a"}}, Published: map[string]tutti.Digest{"x": tutti.DigestOf(nil)}}
	raw, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Fleet.Handle(Operator(), node.Key, wire.OpBlobPut, raw); err != nil {
		t.Fatal(err)
	}
	result := Result(run, tutti.Changed)
	result.Record = tutti.DigestOf(raw)
	if err := node.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
	got, err := server.RunRecord(Operator(), run)
	want(t, "record", sent, got, err)
}

// TestNodes is the contract of api.Nodes.
func TestNodes(t *testing.T, side Side) {
	f := Start(t)
	server, ctx := side(t, f), Operator()
	_, err := server.CreateToken(ctx, api.CreateToken{Name: "web-["})
	wantCode(t, "a pattern that is not valid", err, tutti.CodeInvalid)
	token, err := server.CreateToken(ctx, api.CreateToken{Name: "web-*", TTL: time.Hour, Groups: []tutti.GroupName{"web"}})
	if err != nil || token.Text == "" || token.Token == "" || time.Until(token.Expires) > time.Hour {
		t.Fatalf("token %+v, %v", token, err)
	}
	node := &Node{Name: "web-01", Key: Key("web-01"), Fleet: f}
	enrolled, err := server.Enrol(ctx, node.Request(token))
	want(t, "enrol", api.Enrolled{Node: "web-01", JWT: "jwt of " + string(node.Key)}, enrolled, err)
	other := &Node{Name: "web-02", Key: Key("web-02"), Fleet: f}
	_, err = server.Enrol(ctx, other.Request(token))
	wantCode(t, "a used token", err, tutti.CodeRefused)
	forged := other.Request(token)
	forged.Signature = nil
	_, err = server.Enrol(ctx, forged)
	wantCode(t, "a forged request", err, tutti.CodeUnauthenticated)
	nodes, err := server.ListNodes(ctx)
	if err != nil || len(nodes) != 1 || nodes[0].Node != "web-01" || nodes[0].Key != node.Key || nodes[0].JoinedAt.IsZero() {
		t.Fatalf("nodes %+v, %v", nodes, err)
	}
	node.Forget("0.1.0", "debug", "tags")
	node.Claim()
	nodes, err = server.ListNodes(ctx)
	want(t, "the capabilities that its agent lacks", []tutti.Capability{"debug", "tags"}, nodes[0].TooOldFor, err)
	shown, err := server.ShowNode(ctx, "web-01")
	want(t, "the same capabilities by ShowNode", nodes[0].TooOldFor, shown.TooOldFor, err)
	want(t, "its version", "0.1.0", shown.Version, err)
	wantCode(t, "replace nobody", server.ReplaceNode(ctx, "nobody"), tutti.CodeNotFound)
	wantCode(t, "remove nobody", server.RemoveNode(ctx, "nobody"), tutti.CodeNotFound)
	if err := server.ReplaceNode(ctx, "web-01"); err != nil {
		t.Fatal(err)
	}
	if err := server.RemoveNode(ctx, "web-01"); err != nil {
		t.Fatal(err)
	}
	nodes, err = server.ListNodes(ctx)
	want(t, "nobody is left", 0, len(nodes), err)
	for _, e := range f.Events() {
		if e.Body.Kind() == "node.removed" && e.By != "operator:ada" {
			t.Errorf("removed by %q, want operator:ada", e.By)
		}
	}
}

// TestCodes is the contract of api.Codes.
func TestCodes(t *testing.T, side Side) {
	f := Start(t)
	server, ctx := side(t, f), Operator()
	_, err := server.GetFleet(ctx)
	wantCode(t, "no fleet file", err, tutti.CodeNotFound)
	content := []byte("notify { 'a': }\x00\xff\n") // not every file is text
	digest := tutti.DigestOf(content)
	missing, err := server.MissingBlobs(ctx, []tutti.Digest{digest})
	want(t, "missing", []tutti.Digest{digest}, missing, err)
	signed := Sign(tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{
		CodePath: {Digest: digest, Size: int64(len(content))}, "x": {Link: CodePath},
	}})
	_, err = server.PushCode(ctx, tutti.CodePush{SignedCode: signed})
	wantCode(t, "code whose file is missing", err, tutti.CodeConflict)
	got, err := server.PutBlob(ctx, content)
	want(t, "put", digest, got, err)
	missing, err = server.MissingBlobs(ctx, []tutti.Digest{digest})
	want(t, "nothing is missing", 0, len(missing), err)
	_, err = server.MissingBlobs(ctx, []tutti.Digest{"x"})
	wantCode(t, "no digest", err, tutti.CodeInvalid)
	pushed, err := server.PushCode(ctx, tutti.CodePush{SignedCode: signed})
	if err != nil || pushed.Code != tutti.DigestOf(signed.Manifest) || pushed.Files != 2 || pushed.Bytes != int64(len(content)) {
		t.Errorf("pushed %+v, %v", pushed, err)
	}
	signed.Signature = []byte("forged")
	_, err = server.PushCode(ctx, tutti.CodePush{SignedCode: signed})
	wantCode(t, "forged code", err, tutti.CodeRefused)

	_, err = server.SetFleet(ctx, api.FleetSource{File: "my.yaml", Source: []byte("fleet: 3\n")})
	wantCode(t, "a bad fleet file", err, tutti.CodeInvalid)
	set, err := server.SetFleet(ctx, api.FleetSource{File: "my.yaml", Source: []byte(suiteFleet)})
	if err != nil || set.Name != "suite" || len(set.Plans) != 1 {
		t.Fatalf("fleet %+v, %v", set, err)
	}
	now, err := server.GetFleet(ctx)
	want(t, "the fleet file", set, now, err)

	effect, err := server.PushEffect(ctx, api.PushQuery{Code: digest, Fleet: api.FleetSource{File: "my.yaml", Source: []byte(suiteFleet)}})
	want(t, "the runs that a push causes if no node has joined", 0, effect.Runs, err)
	_, err = server.PushEffect(ctx, api.PushQuery{Fleet: api.FleetSource{File: "my.yaml", Source: []byte("fleet: 3\n")}})
	wantCode(t, "the effect of an invalid fleet file", err, tutti.CodeInvalid)
	suggested, err := server.SuggestGrants(ctx, "")
	want(t, "the missing grants if nothing ran", 0, len(suggested.Grants), err)
	_, err = server.SuggestGrants(ctx, "none-1")
	wantCode(t, "the missing grants of an unknown job", err, tutti.CodeNotFound)
	shown, err := server.ShowCode(ctx, api.CodeQuery{})
	want(t, "the code of the fleet file's environment", pushed.Code, shown.Pushed.Code, err)
	_, err = server.ShowCode(ctx, api.CodeQuery{Environment: "test"})
	wantCode(t, "the code of an environment without code", err, tutti.CodeNotFound)
	read, err := server.ReadCode(ctx, api.CodeQuery{Path: CodePath})
	want(t, "a file of the code", string(content), string(read.Content), err)
	read, err = server.ReadCode(ctx, api.CodeQuery{Path: "."})
	want(t, "the files below the top of the code", 2, len(read.Below), err)
	_, err = server.ReadCode(ctx, api.CodeQuery{Path: "../etc/passwd"})
	wantCode(t, "a file outside of the code", err, tutti.CodeNotFound)
	_, err = server.ReadCode(ctx, api.CodeQuery{Path: CodePath, Before: true})
	wantCode(t, "a file of the earlier code, which does not exist", err, tutti.CodeNotFound)
	_, err = server.ReleaseCode(ctx, "")
	wantCode(t, "code that is not held", err, tutti.CodeConflict)
	_, err = server.ReleaseCode(ctx, "test")
	wantCode(t, "code that was not pushed", err, tutti.CodeNotFound)
}

// TestValues is the contract of api.Values.
func TestValues(t *testing.T, side Side) {
	f := Start(t)
	server, ctx := side(t, f), Operator()
	for key, value := range map[string]string{"shared/a": `{"b": [1, 2.5, null], "a": "<&>"}`, "shared/b": "9007199254740993", "other": `""`} {
		if err := server.SetValue(ctx, key, json.RawMessage(value)); err != nil {
			t.Fatalf("set %s: %v", key, err)
		}
	}
	wantCode(t, "a bad key", server.SetValue(ctx, "a/../b", json.RawMessage("1")), tutti.CodeInvalid)
	wantCode(t, "null", server.SetValue(ctx, "shared/a", json.RawMessage("null")), tutti.CodeInvalid)
	values, err := server.ListValues(ctx, "shared")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range values {
		got[v.Key] = string(v.Value)
		if v.By != "operator:ada" || v.Seq == 0 || v.At.IsZero() {
			t.Errorf("value %+v", v)
		}
	}
	want(t, "values", map[string]string{"shared/a": `{"a":"<&>","b":[1,2.5,null]}`, "shared/b": "9007199254740993"}, got, nil)
	page, err := server.PageValues(ctx, api.ValuesQuery{Prefix: "shared", After: "shared/a"})
	if err != nil || len(page.Values) != 1 || page.Values[0].Key != "shared/b" || page.More {
		t.Errorf("the page after shared/a: %+v, %v", page, err)
	}
	for _, tc := range []struct {
		what, key, value string
		code             tutti.Code
	}{
		{"effect of a value", "shared/a", "1", ""},
		{"effect of unsetting it", "shared/a", "", ""},
		{"effect of unsetting nothing", "shared/zzz", "", tutti.CodeNotFound},
		{"effect of a bad key", "a/../b", "1", tutti.CodeInvalid},
		{"effect of null", "shared/a", "null", tutti.CodeInvalid},
	} {
		got, err := server.Effect(ctx, tc.key, json.RawMessage(tc.value))
		wantCode(t, tc.what, err, tc.code)
		want(t, tc.what, api.Effect{}, got, nil)
	}
	if err := server.UnsetValue(ctx, "shared/a"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unset again", server.UnsetValue(ctx, "shared/a"), tutti.CodeNotFound)
	all, err := server.ListValues(ctx, "")
	want(t, "what is left", 2, len(all), err)
}

// TestPauses is the contract of api.Pauses.
func TestPauses(t *testing.T, side Side) {
	f := Start(t)
	server, ctx := side(t, f), Operator()
	f.Join("db-01")
	f.Push(suiteFleet)
	none, err := server.ListPauses(ctx)
	want(t, "nothing is paused", []api.PauseView{}, none, err)
	for _, bad := range []struct {
		what string
		in   api.Pause
		code tutti.Code
	}{
		{"without a reason", api.Pause{Target: "db", Reason: " \n"}, tutti.CodeInvalid},
		{"for a negative time", api.Pause{Target: "db", Reason: "lunch", For: -time.Second}, tutti.CodeInvalid},
		{"nobody", api.Pause{Target: "nobody", Reason: "lunch"}, tutti.CodeNotFound},
	} {
		_, err := server.Pause(ctx, bad.in)
		wantCode(t, bad.what, err, bad.code)
	}
	for _, target := range []string{"", "db", "db-01"} {
		wantCode(t, "unpause a target that is not paused", server.Unpause(ctx, target), tutti.CodeNotFound)
	}
	var paused []api.PauseView
	for _, in := range []api.Pause{{Reason: "first"}, {Reason: "lunch"}, {Target: "db", Reason: "a\nb", For: time.Hour}, {Target: "db-01", Reason: "disk"}} {
		p, err := server.Pause(ctx, in)
		if err != nil || p.Target != in.Target || p.By != "operator:ada" || p.At.IsZero() || p.Until.IsZero() != (in.For == 0) {
			t.Fatalf("paused %+v, %v", p, err)
		}
		if in.For > 0 && (p.Until.Sub(p.At) != in.For || p.Reason != "a b") {
			t.Errorf("paused %+v, want an hour and one line", p)
		}
		paused = append(paused, p)
	}
	got, err := server.ListPauses(ctx)
	want(t, "paused; the second replaced the first", paused[1:], got, err)
	nodes, err := server.ListNodes(ctx)
	if err != nil || len(nodes) != 1 || nodes[0].Paused != "paused by operator:ada: lunch" {
		t.Errorf("nodes %+v, %v: want the pause of the node", nodes, err)
	}
	for _, target := range []string{"", "db"} {
		if err := server.Unpause(ctx, target); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "unpause again", server.Unpause(ctx, "db"), tutti.CodeNotFound)
	got, err = server.ListPauses(ctx)
	want(t, "what is left", paused[3:], got, err)
	if err := server.RemoveNode(ctx, "db-01"); err != nil {
		t.Fatal(err)
	}
	got, err = server.ListPauses(ctx)
	want(t, "no pause of a removed node", []api.PauseView{}, got, err)
}
