package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The variable `scripts` are messages of nodes, one message per line: the node, the operation and
// the content. RUN is the active run of the node. CODE is the code of this run, and FILE is a file
// of this code. BLOB is the content that the latest blobput stored.
var scripts = []string{
	`db claim {}
db hiera {"run":"RUN"}
db ask {"run":"RUN","query":{"kind":"value","key":"shared/x"}}
db ask {"run":"RUN","query":{"kind":"collect","type":"Database","filter":["or",["=","tag","A"],["and",["!=","port",5432],["=","title","x"]]]}}
db ask {"run":"RUN","query":{"kind":"published","key":"db/x"}}
db gate {"run":"RUN","catalog":"BLOB","facts":"BLOB","reads":[{"query":{"kind":"value","key":"shared/x"},"found":true,"digest":"BLOB","seq":3,"at":{"resource":"Class[A]","file":"a.pp","line":3}},{"query":{"kind":"collect","type":"Database","filter":["=","tag","a"]},"found":true,"seq":1}],"keys":[{"key":"port","found":false}],"exports":[{"type":"Database","title":"main","tags":["a","B"],"parameters":{"port":5432,"x":{"__ptype":"Sensitive"}},"sensitive":["pw"],"file":"a.pp","line":1}],"values":["db/x","shared/x"]}
db gate {"run":"RUN","exports":[{"type":"Database","title":"main"}],"values":["db/x"]}
db publish {"run":"RUN","key":"db/x","value":{"a":[1,2.50,null]}}
db publish {"run":"RUN","key":"node/db-01/hiera/y","value":"z"}
db publish {"run":"RUN","key":"db/x","withdraw":true}
db live [{"run":"RUN","at":"2026-01-02T03:04:05Z","phase":"apply","resource":"File[/x]","done":true,"message":"m","total":3}]
db beat {"version":"1","puppet":"8.10.0","run":"RUN","at":"2026-01-02T03:04:05Z"}
db blobput {"run":"RUN","reads":[]}
db result {"run":"RUN","outcome":"changed","message":"m","phase":"report","counts":{"total":3,"changed":1},"started_at":"2026-01-02T03:04:05Z","ended_at":"2026-01-02T03:04:06Z","record":"BLOB","log":"BLOB"}`,
	`db claim {"version":"0.3.0","knows":["run","noop","tags","later"]}
db code {"run":"RUN","code":"CODE"}
db blobget {"run":"RUN","digest":"FILE"}
web ask {"run":"RUN","query":{"kind":"hiera","key":"port"}}
db result {"run":"RUN","outcome":"failed","reason":"resources","failures":[{"resource":"File[/x]","file":"a.pp","line":2,"message":"no"}],"changes":[{"resource":"a","message":"b"}],"counts":{},"started_at":"2026-01-02T03:04:05Z","ended_at":"2026-01-02T03:04:06Z"}
web claim {}
db claim {}
db foreign {"result":{"run":"f0000000-0000-4000-8000-000000000001","outcome":"failed","reason":"resources","counts":{"changed":1},"started_at":"2026-01-02T03:04:05Z","ended_at":"2026-01-02T03:04:06Z","report":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},"environment":"production","puppet":"8.10.0","whole":true}`,
	`db claim {}
db gate {"run":"RUN","reads":[],"keys":[],"exports":[],"values":[]}
db result {"run":"RUN","outcome":"","stopped":true,"counts":{},"started_at":"2026-01-02T03:04:05Z","ended_at":"2026-01-02T03:04:06Z"}
db claim {}
db gate {"run":"RUN","exports":[{"type":"Exec","title":"x"}]}
db result {"run":"RUN","outcome":"lost","counts":{},"started_at":"0001-01-01T00:00:00Z","ended_at":"9999-12-31T23:59:59Z"}`,
}

// FuzzMessages lets nodes of the fleet send any messages, in each state of a job. The
// server must refuse such messages with a code and a bounded text. After that the server must do a
// job as usual, and the events that it has appended must fold to the same state.
func FuzzMessages(f *testing.F) {
	for i, script := range scripts {
		for seed := range uint64(8) {
			f.Add([]byte(script), uint8(i+int(seed)), seed*uint64(len(scripts))+uint64(i))
		}
	}
	f.Fuzz(func(t *testing.T, script []byte, stage uint8, seed uint64) {
		f := newFixture(t)
		set(t, f.Fleet, "shared/x", "1")
		f.stage(stage)
		lines := bytes.Split(script, []byte("\n"))
		lines = lines[:min(len(lines), 40)]
		for i, line := range lines {
			if uint64(i) != seed%uint64(len(lines)) {
				f.say(t, line, 0)
				continue
			}
			f.say(t, line, seed)
		}
		f.endJobs(t)
		job := f.Start("deploy", tutti.ModeApply)
		f.db.Pass()
		f.web1.Pass()
		f.web2.Pass()
		wantVerdict(t, f.Fleet, job, tutti.VerdictSucceeded)
		checkLog(t, f)
	})
}

// The method `stage` moves a job forward by some steps.
func (f fixture) stage(n uint8) {
	steps := []func(){
		func() { f.Start("deploy", tutti.ModeApply) },
		func() { f.db.MustClaim() },
		func() { f.db.Gate(wire.Gate{Run: f.active("db-01"), Exports: []tutti.Export{database("spare")}}) },
		func() { f.db.Finish(f.active("db-01")) },
		func() { f.web1.MustClaim() },
	}
	for _, step := range steps[:int(n)%(len(steps)+1)] {
		step()
	}
}

func (f fixture) active(node tutti.NodeName) tutti.RunID {
	nodes, err := f.ListNodes(context.Background())
	i := slices.IndexFunc(nodes, func(v api.NodeView) bool { return v.Node == node })
	if err != nil || i < 0 {
		return ""
	}
	return nodes[i].Active
}

// The method `say` sends one line of a script.
func (f fixture) say(t *testing.T, line []byte, seed uint64) {
	t.Helper()
	who, rest, _ := bytes.Cut(line, []byte(" "))
	op, payload, _ := bytes.Cut(rest, []byte(" "))
	node := map[string]*servertest.Node{"web": f.web1, "web2": f.web2}[string(who)]
	if node == nil {
		node = f.db
	}
	code := tutti.DigestOf(servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{
		servertest.CodePath: {Digest: tutti.DigestOf([]byte(servertest.CodeContent)), Size: int64(len(servertest.CodeContent))},
	}}).Manifest)
	names := strings.NewReplacer("RUN", string(f.active(node.Name)), "CODE", string(code), "FILE", string(tutti.DigestOf([]byte(servertest.CodeContent))),
		"BLOB", string(tutti.DigestOf([]byte("{}"))))
	reply, err := f.Handle(context.Background(), node.Key, string(op), hostile.Mangle([]byte(names.Replace(string(payload))), seed))
	switch tutti.CodeOf(err) {
	case "", tutti.CodeInvalid, tutti.CodeNotFound, tutti.CodeConflict, tutti.CodeRefused:
	default:
		t.Errorf("%.300s: code %q of %v", line, tutti.CodeOf(err), err)
	}
	if err != nil && (len(err.Error()) > tutti.MaxErrorText || len(reply) > 0) {
		t.Errorf("%.300s: an error of %d bytes with %d of an answer", line, len(err.Error()), len(reply))
	}
}

// endJobs ends all running jobs in the way that an operator and honest nodes would.
func (f fixture) endJobs(t *testing.T) {
	t.Helper()
	jobs, err := f.ListJobs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if j.Verdict == "" {
			if err := f.CancelJob(servertest.Operator(), api.CancelJob{Job: j.Job}); err != nil {
				t.Errorf("cancel: %v", err)
			}
		}
	}
	for _, n := range []*servertest.Node{f.db, f.web1, f.web2} {
		if o := n.Claim(); o != nil {
			if err := n.Call(wire.OpResult, servertest.Result(o.Run, tutti.Interrupted), nil); err != nil {
				t.Errorf("end %s of %s: %v", o.Run, n.Name, err)
			}
		}
	}
	for _, j := range jobs {
		if f.Job(j.Job).Verdict == "" {
			t.Errorf("job %s does not end", j.Job)
		}
	}
}

// checkLog checks that another server on this log has the same state, and that no event is
// larger than the message that caused it.
func checkLog(t *testing.T, f fixture) {
	t.Helper()
	for _, e := range f.Events() {
		raw, err := json.Marshal(e)
		if err != nil || len(raw) > 256<<10 || bytes.Contains(raw, []byte(`\u001b`)) {
			t.Errorf("%s of %d bytes, %v: %.80s…", e.Body.Kind(), len(raw), err, raw)
		}
	}
	before := f.views(t)
	again := fixture{Fleet: f.Restart()}
	if diff := cmp.Diff(before, again.views(t), cmpopts.IgnoreFields(api.NodeView{}, "SeenAt", "Connected", "Version", "Puppet", "Stands"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what was logged folds to another state: -want +got\n%s", diff)
	}
}

type views struct {
	Nodes  []api.NodeView
	Jobs   []api.JobView
	Values []api.ValueView
}

func (f fixture) views(t *testing.T) views {
	t.Helper()
	var v views
	var err, errJobs, errValues error
	v.Nodes, err = f.ListNodes(context.Background())
	v.Jobs, errJobs = f.ListJobs(context.Background())
	v.Values, errValues = f.ListValues(context.Background(), "")
	if err != nil || errJobs != nil || errValues != nil {
		t.Fatal(err, errJobs, errValues)
	}
	return v
}
