package servertest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// API is all that operators ask of a server.
type API interface {
	tutti.Jobs
	tutti.Nodes
	tutti.Tokens
	tutti.Operators
	tutti.Codes
	tutti.Values
	tutti.Pauses
	tutti.Explains
	tutti.Remotes
	tutti.Reports
}

// Side makes one side of a server's interfaces: the server itself, or a client
// of it whose operator is called ada.
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

// TestJobs is the contract of tutti.Jobs.
func TestJobs(t *testing.T, side Side) {
	f := Start(t)
	api, ctx := side(t, f), Operator()
	node := f.Join("db-01")
	jobs, err := api.ListJobs(ctx)
	want(t, "no jobs", 0, len(jobs), err)
	_, err = api.StartJob(ctx, tutti.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
	wantCode(t, "start without a fleet file", err, tutti.CodeNotFound)
	_, err = api.StartJob(ctx, tutti.StartJob{Plan: "deploy", Mode: "dance"})
	wantCode(t, "start in a mode that is none", err, tutti.CodeInvalid)
	f.Push(suiteFleet)
	job, err := api.StartJob(ctx, tutti.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
	want(t, "start", tutti.JobID("deploy-1"), job, err)

	kinds := follow(t, api, node, job)
	want(t, "watched", []string{
		"job.started", "run.wanted", "run.claimed", "live apply", "run.compiled", "run.gated", "run.finished", "job.finished",
	}, kinds, nil)
	jobs, err = api.ListJobs(ctx)
	if err != nil || len(jobs) != 1 || jobs[0].By != "operator:ada" || jobs[0].Verdict != tutti.VerdictSucceeded || jobs[0].Runs != 1 {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
	stop := errors.New("stop")
	err = api.WatchJob(ctx, tutti.WatchJob{Job: job, Follow: true}, func(tutti.Watched) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("a watch that its watcher ends: %v", err)
	}
	wantCode(t, "watch no job", api.WatchJob(ctx, tutti.WatchJob{Job: "deploy-9"}, nil), tutti.CodeNotFound)
	wantCode(t, "cancel a job that has ended", api.CancelJob(ctx, tutti.CancelJob{Job: job}), tutti.CodeConflict)
	_, err = api.RunRecord(ctx, NewRunID())
	wantCode(t, "no record", err, tutti.CodeNotFound)

	job, err = api.StartJob(ctx, tutti.StartJob{Plan: "deploy", Mode: tutti.ModeNoop})
	want(t, "start again", tutti.JobID("deploy-2"), job, err)
	if err := api.CancelJob(ctx, tutti.CancelJob{Job: job, Reason: "lunch"}); err != nil {
		t.Fatal(err)
	}
	jobs, err = api.ListJobs(ctx)
	if err != nil || len(jobs) != 2 || jobs[0].Job != job || jobs[0].Verdict != tutti.VerdictCancelled || jobs[0].Message != "lunch" {
		t.Errorf("jobs %+v, %v: want the cancelled one first", jobs, err)
	}
	why := "new kernel"
	job, err = api.StartJob(ctx, tutti.StartJob{Plan: "deploy", Mode: tutti.ModeApply, Exclusive: &why})
	want(t, "start an exclusive one", tutti.JobID("deploy-3"), job, err)
	jobs, err = api.ListJobs(ctx)
	want(t, "what it waits for", "phase check: waits for db-01", jobs[0].Message, err)
	nodes, err := api.ListNodes(ctx)
	want(t, "whose the node is", job, nodes[0].HeldBy, err)
}

// follow watches a job and lets its node go on with what it sees.
func follow(t *testing.T, api API, node *Node, job tutti.JobID) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(Operator(), 20*time.Second)
	defer cancel()
	var kinds []string
	var run tutti.RunID
	err := api.WatchJob(ctx, tutti.WatchJob{Job: job, Follow: true}, func(w tutti.Watched) error {
		if w.Live != nil {
			kinds = append(kinds, "live "+w.Live.Phase)
			node.Gate(tutti.Gate{Run: run})
			return nil
		}
		kinds = append(kinds, w.Event.Body.Kind())
		switch b := w.Event.Body.(type) {
		case *tutti.RunWanted:
			run = b.Order.Run
			node.MustClaim()
		case *tutti.RunClaimed:
			return node.Call(tutti.OpLive, []tutti.Live{{Run: run, Phase: "apply"}}, nil)
		case *tutti.RunGated:
			record(t, api, node, run)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	return kinds
}

// record ends a run with a record, and reads it.
func record(t *testing.T, api API, node *Node, run tutti.RunID) {
	t.Helper()
	sent := tutti.Record{Run: run, Node: node.Name, Keys: []tutti.KeyRead{{Key: "a"}}, Published: map[string]tutti.Digest{"x": tutti.DigestOf(nil)}}
	raw, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Fleet.Handle(Operator(), node.Key, tutti.OpBlobPut, raw); err != nil {
		t.Fatal(err)
	}
	result := Result(run, tutti.Changed)
	result.Record = tutti.DigestOf(raw)
	if err := node.Call(tutti.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
	got, err := api.RunRecord(Operator(), run)
	want(t, "record", sent, got, err)
}

// TestNodes is the contract of tutti.Nodes.
func TestNodes(t *testing.T, side Side) {
	f := Start(t)
	api, ctx := side(t, f), Operator()
	_, err := api.CreateToken(ctx, tutti.CreateToken{Name: "web-["})
	wantCode(t, "a pattern that is none", err, tutti.CodeInvalid)
	token, err := api.CreateToken(ctx, tutti.CreateToken{Name: "web-*", TTL: time.Hour, Groups: []tutti.GroupName{"web"}})
	if err != nil || token.Text == "" || token.Token == "" || time.Until(token.Expires) > time.Hour {
		t.Fatalf("token %+v, %v", token, err)
	}
	node := &Node{Name: "web-01", Key: Key("web-01"), Fleet: f}
	enrolled, err := api.Enrol(ctx, node.Request(token))
	want(t, "enrol", tutti.Enrolled{Node: "web-01", JWT: "jwt of " + string(node.Key)}, enrolled, err)
	other := &Node{Name: "web-02", Key: Key("web-02"), Fleet: f}
	_, err = api.Enrol(ctx, other.Request(token))
	wantCode(t, "a used token", err, tutti.CodeRefused)
	forged := other.Request(token)
	forged.Signature = nil
	_, err = api.Enrol(ctx, forged)
	wantCode(t, "a forged request", err, tutti.CodeUnauthenticated)
	nodes, err := api.ListNodes(ctx)
	if err != nil || len(nodes) != 1 || nodes[0].Node != "web-01" || nodes[0].Key != node.Key || nodes[0].JoinedAt.IsZero() {
		t.Fatalf("nodes %+v, %v", nodes, err)
	}
	node.Forget("0.1.0", "debug", "tags")
	node.Claim()
	nodes, err = api.ListNodes(ctx)
	want(t, "what its agent is too old for", []tutti.Capability{"debug", "tags"}, nodes[0].TooOldFor, err)
	shown, err := api.ShowNode(ctx, "web-01")
	want(t, "the same of one node", nodes[0].TooOldFor, shown.TooOldFor, err)
	want(t, "its version", "0.1.0", shown.Version, err)
	wantCode(t, "replace nobody", api.ReplaceNode(ctx, "nobody"), tutti.CodeNotFound)
	wantCode(t, "remove nobody", api.RemoveNode(ctx, "nobody"), tutti.CodeNotFound)
	if err := api.ReplaceNode(ctx, "web-01"); err != nil {
		t.Fatal(err)
	}
	if err := api.RemoveNode(ctx, "web-01"); err != nil {
		t.Fatal(err)
	}
	nodes, err = api.ListNodes(ctx)
	want(t, "nobody is left", 0, len(nodes), err)
	for _, e := range f.Events() {
		if e.Body.Kind() == "node.removed" && e.By != "operator:ada" {
			t.Errorf("removed by %q, want operator:ada", e.By)
		}
	}
}

// TestCodes is the contract of tutti.Codes.
func TestCodes(t *testing.T, side Side) {
	f := Start(t)
	api, ctx := side(t, f), Operator()
	_, err := api.GetFleet(ctx)
	wantCode(t, "no fleet file", err, tutti.CodeNotFound)
	content := []byte("notify { 'a': }\x00\xff\n") // not all files are text
	digest := tutti.DigestOf(content)
	missing, err := api.MissingBlobs(ctx, []tutti.Digest{digest})
	want(t, "missing", []tutti.Digest{digest}, missing, err)
	signed := Sign(tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{
		CodePath: {Digest: digest, Size: int64(len(content))}, "x": {Link: CodePath},
	}})
	_, err = api.PushCode(ctx, tutti.CodePush{SignedCode: signed})
	wantCode(t, "code whose file is missing", err, tutti.CodeConflict)
	got, err := api.PutBlob(ctx, content)
	want(t, "put", digest, got, err)
	missing, err = api.MissingBlobs(ctx, []tutti.Digest{digest})
	want(t, "nothing is missing", 0, len(missing), err)
	_, err = api.MissingBlobs(ctx, []tutti.Digest{"x"})
	wantCode(t, "no digest", err, tutti.CodeInvalid)
	pushed, err := api.PushCode(ctx, tutti.CodePush{SignedCode: signed})
	if err != nil || pushed.Code != tutti.DigestOf(signed.Manifest) || pushed.Files != 2 || pushed.Bytes != int64(len(content)) {
		t.Errorf("pushed %+v, %v", pushed, err)
	}
	signed.Signature = []byte("forged")
	_, err = api.PushCode(ctx, tutti.CodePush{SignedCode: signed})
	wantCode(t, "forged code", err, tutti.CodeRefused)

	_, err = api.SetFleet(ctx, tutti.FleetSource{File: "my.yaml", Source: []byte("fleet: 3\n")})
	wantCode(t, "a bad fleet file", err, tutti.CodeInvalid)
	set, err := api.SetFleet(ctx, tutti.FleetSource{File: "my.yaml", Source: []byte(suiteFleet)})
	if err != nil || set.Name != "suite" || len(set.Plans) != 1 {
		t.Fatalf("fleet %+v, %v", set, err)
	}
	now, err := api.GetFleet(ctx)
	want(t, "the fleet file", set, now, err)

	effect, err := api.PushEffect(ctx, tutti.AskPush{Code: digest, Fleet: tutti.FleetSource{File: "my.yaml", Source: []byte(suiteFleet)}})
	want(t, "what a push causes where nobody has joined", 0, effect.Runs, err)
	_, err = api.PushEffect(ctx, tutti.AskPush{Fleet: tutti.FleetSource{File: "my.yaml", Source: []byte("fleet: 3\n")}})
	wantCode(t, "what a bad fleet file causes", err, tutti.CodeInvalid)
	suggested, err := api.SuggestGrants(ctx, "")
	want(t, "the grants that are missing where nothing ran", 0, len(suggested.Grants), err)
	_, err = api.SuggestGrants(ctx, "none-1")
	wantCode(t, "the grants that a job lacked that is not there", err, tutti.CodeNotFound)
	shown, err := api.ShowCode(ctx, tutti.AskCode{})
	want(t, "the code of the fleet file's environment", pushed.Code, shown.Pushed.Code, err)
	_, err = api.ShowCode(ctx, tutti.AskCode{Environment: "test"})
	wantCode(t, "the code of an environment that has none", err, tutti.CodeNotFound)
	read, err := api.ReadCode(ctx, tutti.AskCode{Path: CodePath})
	want(t, "a file of the code", string(content), string(read.Content), err)
	read, err = api.ReadCode(ctx, tutti.AskCode{Path: "."})
	want(t, "what is below the top of the code", 2, len(read.Below), err)
	_, err = api.ReadCode(ctx, tutti.AskCode{Path: "../etc/passwd"})
	wantCode(t, "a file that is not of the code", err, tutti.CodeNotFound)
	_, err = api.ReadCode(ctx, tutti.AskCode{Path: CodePath, Before: true})
	wantCode(t, "a file of the code before, which there is not", err, tutti.CodeNotFound)
	_, err = api.ReleaseCode(ctx, "")
	wantCode(t, "code that is not held", err, tutti.CodeConflict)
	_, err = api.ReleaseCode(ctx, "test")
	wantCode(t, "code that was not pushed", err, tutti.CodeNotFound)
}

// TestValues is the contract of tutti.Values.
func TestValues(t *testing.T, side Side) {
	f := Start(t)
	api, ctx := side(t, f), Operator()
	for key, value := range map[string]string{"shared/a": `{"b": [1, 2.5, null], "a": "<&>"}`, "shared/b": "9007199254740993", "other": `""`} {
		if err := api.SetValue(ctx, key, json.RawMessage(value)); err != nil {
			t.Fatalf("set %s: %v", key, err)
		}
	}
	wantCode(t, "a bad key", api.SetValue(ctx, "a/../b", json.RawMessage("1")), tutti.CodeInvalid)
	wantCode(t, "null", api.SetValue(ctx, "shared/a", json.RawMessage("null")), tutti.CodeInvalid)
	values, err := api.ListValues(ctx, "shared")
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
	page, err := api.PageValues(ctx, tutti.AskValues{Prefix: "shared", After: "shared/a"})
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
		got, err := api.Effect(ctx, tc.key, json.RawMessage(tc.value))
		wantCode(t, tc.what, err, tc.code)
		want(t, tc.what, tutti.Effect{}, got, nil)
	}
	if err := api.UnsetValue(ctx, "shared/a"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unset again", api.UnsetValue(ctx, "shared/a"), tutti.CodeNotFound)
	all, err := api.ListValues(ctx, "")
	want(t, "what is left", 2, len(all), err)
}

// TestPauses is the contract of tutti.Pauses.
func TestPauses(t *testing.T, side Side) {
	f := Start(t)
	api, ctx := side(t, f), Operator()
	f.Join("db-01")
	f.Push(suiteFleet)
	none, err := api.ListPauses(ctx)
	want(t, "nothing is paused", []tutti.PauseView{}, none, err)
	for _, bad := range []struct {
		what string
		in   tutti.Pause
		code tutti.Code
	}{
		{"without a reason", tutti.Pause{Target: "db", Reason: " \n"}, tutti.CodeInvalid},
		{"for less than nothing", tutti.Pause{Target: "db", Reason: "lunch", For: -time.Second}, tutti.CodeInvalid},
		{"nobody", tutti.Pause{Target: "nobody", Reason: "lunch"}, tutti.CodeNotFound},
	} {
		_, err := api.Pause(ctx, bad.in)
		wantCode(t, bad.what, err, bad.code)
	}
	for _, target := range []string{"", "db", "db-01"} {
		wantCode(t, "unpause what is not paused", api.Unpause(ctx, target), tutti.CodeNotFound)
	}
	var paused []tutti.PauseView
	for _, in := range []tutti.Pause{{Reason: "first"}, {Reason: "lunch"}, {Target: "db", Reason: "a\nb", For: time.Hour}, {Target: "db-01", Reason: "disk"}} {
		p, err := api.Pause(ctx, in)
		if err != nil || p.Target != in.Target || p.By != "operator:ada" || p.At.IsZero() || p.Until.IsZero() != (in.For == 0) {
			t.Fatalf("paused %+v, %v", p, err)
		}
		if in.For > 0 && (p.Until.Sub(p.At) != in.For || p.Reason != "a b") {
			t.Errorf("paused %+v, want an hour and one line", p)
		}
		paused = append(paused, p)
	}
	got, err := api.ListPauses(ctx)
	want(t, "paused; the second replaced the first", paused[1:], got, err)
	nodes, err := api.ListNodes(ctx)
	if err != nil || len(nodes) != 1 || nodes[0].Paused != "paused by operator:ada: lunch" {
		t.Errorf("nodes %+v, %v: want the pause of the node", nodes, err)
	}
	for _, target := range []string{"", "db"} {
		if err := api.Unpause(ctx, target); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "unpause again", api.Unpause(ctx, "db"), tutti.CodeNotFound)
	got, err = api.ListPauses(ctx)
	want(t, "what is left", paused[3:], got, err)
	if err := api.RemoveNode(ctx, "db-01"); err != nil {
		t.Fatal(err)
	}
	got, err = api.ListPauses(ctx)
	want(t, "nothing of a node that was removed", []tutti.PauseView{}, got, err)
}
