package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/release"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

var update = flag.Bool("update", false, "write the log of the release that is being made anew, see testdata/logs/README.md")

const (
	oldLogs     = "../../testdata/logs"
	thisRelease = "0.3.0" // this release is not finished, so docs/releases.md does not list it
)

// keptLog is the log of a release from testdata/logs.
type keptLog struct {
	entries []tutti.Entry
	blobs   map[tutti.Digest][]byte // the blobs that a start reads
}

type keptEntry struct {
	Seq   uint64          `json:"seq"`
	Link  tutti.Digest    `json:"link"`
	Event json.RawMessage `json:"event"`
}

// The type `golden` is the state that a server folds from a log.
type golden struct {
	Jobs      []api.JobView               `json:"jobs"`
	Watched   map[tutti.JobID][]string    `json:"watched"`
	Nodes     []api.NodeView              `json:"nodes"`
	Values    []api.ValueView             `json:"values"`
	Operators []api.OperatorView          `json:"operators"`
	Tokens    []api.TokenView             `json:"tokens"`
	Pauses    []api.PauseView             `json:"pauses"`
	Fleet     tutti.Fleet                 `json:"fleet"`
	Exports   map[tutti.NodeName][]string `json:"exports"`
}

func readLog(t *testing.T, dir string) keptLog {
	t.Helper()
	out := keptLog{blobs: map[tutti.Digest][]byte{}}
	raw, err := os.ReadFile(filepath.Join(dir, "log.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e keptEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		out.entries = append(out.entries, tutti.Entry{Seq: e.Seq, Raw: e.Event, Link: e.Link})
	}
	readJSON(t, filepath.Join(dir, "blobs.json"), &out.blobs)
	return out
}

func readJSON(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t *testing.T, name string, v any) {
	t.Helper()
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, name, append(raw, '\n'))
}

// plainLog is a log without support for snapshots: a server folds all of it.
type plainLog struct{ tutti.Log }

// The method `fold` starts a server with a log and makes all read requests.
func (l keptLog) fold(t *testing.T, change ...func(*server.Options)) golden {
	t.Helper()
	blobs := memory.NewBlobs()
	for digest, content := range l.blobs {
		if got, err := blobs.Put(t.Context(), content); err != nil || got != digest {
			t.Fatalf("blob %s: %s, %v", digest, got, err)
		}
	}
	f := servertest.Resume(t, memory.LoadLog(l.entries), blobs, append(change, func(o *server.Options) {
		o.Silence = 100 * 365 * 24 * time.Hour
	})...)
	defer func() { _ = f.Stop() }()
	out := golden{Watched: map[tutti.JobID][]string{}, Exports: map[tutti.NodeName][]string{}}
	ctx := servertest.Operator()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	out.Jobs, err = f.ListJobs(ctx)
	must(err)
	out.Nodes, err = f.ListNodes(ctx)
	must(err)
	out.Values, err = f.ListValues(ctx, "")
	must(err)
	out.Operators, err = f.ListOperators(ctx)
	must(err)
	out.Tokens, err = f.ListTokens(ctx)
	must(err)
	out.Pauses, err = f.ListPauses(ctx)
	must(err)
	out.Fleet, err = f.GetFleet(ctx)
	must(err)
	for _, j := range out.Jobs {
		must(f.WatchJob(ctx, api.WatchJob{Job: j.Job}, func(w api.Watched) error {
			out.Watched[j.Job] = append(out.Watched[j.Job], fmt.Sprintf("%d %s by %s", w.Event.Seq, w.Event.Body.Kind(), w.Event.By))
			return nil
		}))
	}
	for _, n := range out.Nodes {
		for _, e := range f.State().Exports(n.Node) {
			out.Exports[n.Node] = append(out.Exports[n.Node], e.Ref())
		}
	}
	return out
}

// TestOldLogsFold reads the logs of all releases. The state must still have everything that is in a
// golden file, and may have more fields.
func TestOldLogsFold(t *testing.T) {
	if *update {
		writeLog(t, filepath.Join(oldLogs, thisRelease))
	}
	dirs, err := filepath.Glob(filepath.Join(oldLogs, "*", "log.jsonl"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no logs in %s: %v", oldLogs, err)
	}
	kinds := map[string]bool{}
	for _, name := range dirs {
		dir := filepath.Dir(name)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			log := readLog(t, dir)
			for _, e := range log.entries {
				var event tutti.Event
				if err := json.Unmarshal(e.Raw, &event); err != nil {
					t.Fatal(err)
				}
				kinds[event.Body.Kind()] = true
			}
			synctest.Test(t, func(t *testing.T) {
				log.wantGolden(t, dir, "from its snapshot on", func(*server.Options) {})
				log.wantGolden(t, dir, "from its first event on", func(o *server.Options) { o.Log = plainLog{o.Log} })
			})
		})
	}
	for _, kind := range tutti.Kinds() {
		if !kinds[kind] {
			t.Errorf("no log of any release has a %s event: see testdata/logs/README.md", kind)
		}
	}
}

// TestThisReleaseIsNotReleased checks the versions of the logs. The log that -update writes must be of the
// next release. Every other log must be of a listed release, or of the time before the first release.
func TestThisReleaseIsNotReleased(t *testing.T) {
	releases, err := release.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	if last := releases[0].Version; !release.Before(last, thisRelease) {
		t.Errorf("thisRelease is %s, and docs/releases.md lists %s: docs/releasing.md says what to raise", thisRelease, last)
	}
	want := map[string]bool{thisRelease: true}
	for _, r := range releases {
		want[r.Version] = true
	}
	dirs, err := filepath.Glob(filepath.Join(oldLogs, "*", "log.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, dir := range dirs {
		if name := filepath.Base(filepath.Dir(dir)); !strings.HasPrefix(name, "before-") {
			got[name] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("testdata/logs has other releases than docs/releases.md and thisRelease: -want +got\n%s", diff)
	}
}

func (l keptLog) wantGolden(t *testing.T, dir, how string, change func(*server.Options)) {
	t.Helper()
	raw, err := json.Marshal(l.fold(t, change))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	readJSON(t, filepath.Join(dir, "golden.json"), &want)
	if diff := cmp.Diff(want, within(want, got)); diff != "" {
		t.Errorf("%s: -golden +folded\n%s", how, diff)
	}
}

// The function `within` removes from the value `got` all fields that the value `want` does not have, and returns
// the result.
func within(want, got any) any {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return got
		}
		out := map[string]any{}
		for k, v := range g {
			if of, ok := w[k]; ok {
				out[k] = within(of, v)
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return got
		}
		out := make([]any, len(g))
		for i := range g {
			out[i] = within(w[i], g[i])
		}
		return out
	}
	return got
}

// TestAGoldenMayOnlyGainFields checks that the comparison of old logs finds a changed
// value, a missing value, and an additional element of a list.
func TestAGoldenMayOnlyGainFields(t *testing.T) {
	cases := []struct {
		reason, want, got string
		same              bool
	}{
		{"a field is new", `{"a":[{"b":1}]}`, `{"a":[{"b":1,"c":2}],"d":3}`, true},
		{"a value is another one", `{"a":[{"b":1}]}`, `{"a":[{"b":2}]}`, false},
		{"a field is gone", `{"a":[{"b":1}]}`, `{"a":[{}]}`, false},
		{"a list is longer", `{"a":[{"b":1}]}`, `{"a":[{"b":1},{"b":1}]}`, false},
	}
	for _, tc := range cases {
		var want, got any
		if json.Unmarshal([]byte(tc.want), &want) != nil || json.Unmarshal([]byte(tc.got), &got) != nil {
			t.Fatal(tc)
		}
		if same := cmp.Equal(want, within(want, got)); same != tc.same {
			t.Errorf("%s: the same: %v", tc.reason, same)
		}
	}
}

// writeLog writes the log of a server that has seen every kind of event. The log ends as if
// the server was killed after a snapshot and before the log dropped the old events.
func writeLog(t *testing.T, dir string) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		p := startPast(t, func(o *server.Options) {
			o.SnapshotEvery = 100
			o.NewRunID = func() tutti.RunID {
				runs++
				return tutti.RunID(fmt.Sprintf("00000000-0000-4000-8000-%012d", runs))
			}
			o.Log.(*allLog).at = func(point string) error {
				if point == "before the log lets go" {
					return errors.New("killed")
				}
				return nil
			}
		})
		everythingHappens(t, p)
		synctest.Wait()
		blobs := map[tutti.Digest][]byte{}
		keep := func(digest tutti.Digest) {
			content, err := p.Blobs.Get(t.Context(), digest)
			if err != nil {
				t.Fatal(err)
			}
			blobs[digest] = content
		}
		var lines []byte
		for entry, err := range p.log.Entries(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			line, err := json.Marshal(keptEntry{entry.Seq, entry.Link, entry.Raw})
			if err != nil {
				t.Fatal(err)
			}
			lines = append(append(lines, line...), '\n')
		}
		for _, e := range p.log.everything() {
			switch b := e.Body.(type) {
			case *tutti.ExportsSet:
				if b.Count > 0 {
					keep(b.Set)
				}
			case *tutti.SnapshotTaken:
				keep(b.State)
			case *tutti.RunCompiled:
				keepAsked(keep, b.Asked, b.Absent)
			case *tutti.RunAsked:
				keepAsked(keep, b.Asked, b.Absent)
			}
		}
		writeFile(t, filepath.Join(dir, "log.jsonl"), lines)
		writeJSON(t, filepath.Join(dir, "blobs.json"), blobs)
	})
	synctest.Test(t, func(t *testing.T) {
		writeJSON(t, filepath.Join(dir, "golden.json"), readLog(t, dir).fold(t))
	})
}

const everyFleet = `
fleet: every
secrets: {recovery: age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p}
environment: {name: production, path: ./code}
groups:
  db: {nodes: [db-01, db-02]}
  web: {nodes: [web-01]}
  tokened: {joined: true}
  certified: {trusted: 'trusted.pp_role == "web" && certname != "cert-03"'}
  matched: {where: '"role::db" in classes || certname == "web-01"'}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true, most: 50000}]}
  - {to: web, read: [db/**]}
plans:
  deploy:
    steps:
      - {name: first, run: db, accept: ["failed:resources", lost]}
      - {name: ready, wait: {value: db/ready}}
      - {name: second, run: web}
`

func keepAsked(keep func(tutti.Digest), asked, absent tutti.Digest) {
	keep(asked)
	if absent != "" {
		keep(absent)
	}
}

// everythingHappens causes each kind of event by calls of operators and nodes.
func everythingHappens(t *testing.T, p *trimming) {
	t.Helper()
	ctx := servertest.Operator()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p.jobs(t, 2)
	second, web := p.Join("db-02", "tokened"), p.Join("web-01")
	p.Push(holdsAll)
	mustHold(t, p.db, tutti.InventoryFacts, "facts of db-01")
	mustHold(t, p.db, tutti.InventoryCatalog, "catalog of db-01")
	p.Push(everyFleet + "inventory: {facts: true}\n")
	p.PushHeld("notify { 'held': }\n", tutti.CodeReaction{Confirm: true})
	_, err := p.ReleaseCode(ctx, "")
	must(err)
	p.PushSite("notify { 'again': }\n")
	p.PushSiteTo("feature_x", "notify { 'branch': }\n")
	_, err = p.RetireCode(ctx, api.RetireCode{Environment: "feature_x", Remove: true})
	must(err)
	_, err = p.IssueOperator(ctx, api.IssueOperator{Operator: "bob", Request: []byte("request")})
	must(err)
	_, err = p.IssueOperator(ctx, api.IssueOperator{Operator: "eve", Request: []byte("request"), CodeKey: true})
	must(err)
	_, err = p.RevokeOperator(ctx, api.RevokeOperator{Operator: "bob", Reason: "left"})
	must(err)
	newToken(t, p.Fleet, api.CreateToken{Name: "app-*", TTL: 24 * time.Hour}) // no machine uses it
	revoked := newToken(t, p.Fleet, api.CreateToken{Name: "x"})
	must(p.RevokeToken(ctx, revoked.Token))
	set(t, p.Fleet, "shared/hiera/port", "5432")
	set(t, p.Fleet, "shared/old", `{"a": [1, null, "<&>"]}`)
	must(p.UnsetValue(ctx, "shared/old"))
	secretsOf(t, p.Fleet, web)
	must(p.ENC().Classify(ctx, "db-01", &tutti.Classification{Classes: map[string]json.RawMessage{"role::db": json.RawMessage(`{"text":"<&>"}`)}, Environment: "production"}))
	must(p.Matches().Once(ctx))
	must(p.ENC().Classify(ctx, "db-01", nil)) // without an answer again, because the runs below do not ask for it

	for _, mode := range []tutti.Mode{tutti.ModeApply, tutti.ModeNoop, tutti.ModeApply} {
		p.Start("deploy", mode)
		p.act(t, p.db, "db/ready", false)
		p.act(t, second, "db/second", mode == tutti.ModeApply)
		time.Sleep(time.Second)
		p.act(t, web, "web/x", false) // the node has no grant for this key
	}
	p.convergeOnce(t, second)
	p.factsChange(t)
	p.exclusive(t, second, web)
	run, report := foreign(1, tutti.Changed, whole)
	mustTell(t, second, run, report)
	lost := p.Start("deploy", tutti.ModeApply)
	p.act(t, p.db, "db/ready", false)
	second.MustClaim()
	must(p.CancelJob(ctx, api.CancelJob{Job: lost, Reason: "enough"}))
	time.Sleep(time.Minute) // the nodes send nothing for a minute, so the server gives them up
	gone := p.Join("gone")
	for _, in := range []api.Pause{{Target: "web", Reason: "lunch", For: time.Hour}, {Reason: "all"}, {Target: "gone", Reason: "disk"}} {
		_, err = p.Pause(ctx, in)
		must(err)
	}
	must(p.Unpause(ctx, ""))
	must(p.AskNodes(ctx, api.NodesQuestion{Action: tutti.RemoteDisable, Message: "disk"}, func([]api.NodeAnswer) error { return nil }))
	must(p.RemoveNode(ctx, gone.Name))
	must(p.ReplaceNode(ctx, "web-01"))
	other := machine(p.Fleet, "web-01", "another machine")
	_, err = p.Enrol(ctx, other.Request(newToken(t, p.Fleet, api.CreateToken{Name: "web-01"})))
	must(err)
	must(p.ReplaceNode(ctx, "db-02"))
	p.codeKeys(t)
	for i := range 60 { // enough events to make a snapshot due
		set(t, p.Fleet, "shared/counter", fmt.Sprint(i))
	}
	synctest.Wait()
	p.db.Agent = wire.Claim{Knows: tutti.Capabilities(), Begun: &tutti.Fence{Epoch: 1, Seq: 1 << 40}}
	must(p.Retired(t.Context()))
	copied(t, p.db)
	must(p.KeepNode(ctx, api.KeepNode{Node: "db-01", Boot: "boot-2"}))
	p.certificates(t)
	p.rotates(t)
	time.Sleep(presence.TrialFor) // the kept machine gets no order before that; the sleep is in a bubble
	goesOn := p.Start("deploy", tutti.ModeApply)
	p.db.MustClaim()
	set(t, p.Fleet, "shared/last", fmt.Sprintf("%q", goesOn))
}

// factsChange makes db-01 report facts that differ from the facts of its last run. With the new
// facts the node proves that it is good.
func (p *trimming) factsChange(t *testing.T) {
	t.Helper()
	h := &factsHouse{t, p.Fleet, p.db}
	r, err := p.ShowNode(servertest.Operator(), "db-01")
	if err != nil {
		t.Fatal(err)
	}
	h.must(h.tell(r.LastRun, "other", "ssh"))
}

// The method `exclusive` begins an exclusive job in which one node is disabled.
func (p *trimming) exclusive(t *testing.T, nodes ...*servertest.Node) {
	t.Helper()
	why := "new kernel"
	if _, err := p.StartJob(servertest.Operator(), api.StartJob{Plan: "deploy", Mode: tutti.ModeApply, Exclusive: &why}); err != nil {
		t.Fatal(err)
	}
	for i, n := range append([]*servertest.Node{p.db}, nodes...) {
		if err := n.Call(wire.OpLease, tutti.LeaseReport{Enabled: i > 0, Message: "new disk"}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// convergeOnce makes db-01 apply. Later, with other code, db-01 proves that it is good. The node db-02 waits for a
// value.
func (p *trimming) convergeOnce(t *testing.T, second *servertest.Node) {
	t.Helper()
	begin := func(target string) {
		t.Helper()
		_, err := p.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{Target: target}, Mode: tutti.ModeApply})
		if err != nil {
			t.Fatal(err)
		}
	}
	same := tutti.DigestOf([]byte("the same"))
	end := func(n *servertest.Node, result tutti.Result) {
		t.Helper()
		if err := n.Call(wire.OpResult, result, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, site := range []string{"notify { 'one': }\n", "notify { 'two': }\n"} {
		p.PushSite(site)
		begin("db-01")
		run := p.db.MustClaim().Run
		gate := wire.Gate{
			Run: run, CatalogReport: tutti.CatalogReport{Catalog: same, Sources: same, Lib: same, Values: []string{"db/ready"}},
			Exports: []tutti.Export{database("db-01")},
			Reads:   []tutti.Read{p.db.Read(run, asksShared)}, Keys: []tutti.KeyRead{{Key: "absent"}},
		}
		p.db.Gate(gate)
		result := servertest.Result(run, tutti.Changed)
		if i > 0 {
			result.Outcome, result.Stopped = "", true
		}
		end(p.db, result)
	}
	begin("db-02")
	run := second.MustClaim().Run
	read := tutti.Read{Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/nobody"}}
	record, err := json.Marshal(tutti.Record{Run: run, Node: second.Name, Reads: []tutti.Read{read}, Keys: []tutti.KeyRead{{Key: "absent"}}})
	if err != nil {
		t.Fatal(err)
	}
	var stored wire.BlobStored
	raw, err := p.Handle(t.Context(), second.Key, wire.OpBlobPut, record)
	if err == nil {
		err = json.Unmarshal(raw, &stored)
	}
	if err != nil {
		t.Fatal(err)
	}
	result := servertest.Result(run, tutti.Waiting)
	result.Record, result.Waits = stored.Digest, []tutti.Wait{{Query: read.Query}}
	end(second, result)
}

// The method `act` claims a run and completes it. If the gate stops the run, the method claims and completes a
// second run.
func (p *trimming) act(t *testing.T, n *servertest.Node, key string, stopped bool) {
	t.Helper()
	run := n.MustClaim().Run
	gate := wire.Gate{Run: run}
	if n.Name != "web-01" { // web-01 has no grant for the value, so it does not name the value at its gate
		gate.Values = []string{key}
		gate.Exports = []tutti.Export{database(string(n.Name))}
	} else {
		wantCode(t, n.Call(wire.OpAsk, wire.Question{Run: run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "other/x"}}, nil), tutti.CodeRefused, "other/x")
	}
	if stopped {
		gate.Reads = []tutti.Read{{Query: asksShared, Found: true, Digest: tutti.DigestOf(nil)}}
	}
	if n.Gate(gate).Verdict == tutti.GateStop {
		result := servertest.Result(run, "")
		result.Stopped = true
		if err := n.Call(wire.OpResult, result, nil); err != nil {
			t.Fatal(err)
		}
		p.act(t, n, key, false)
		return
	}
	_ = n.Publish(run, key, fmt.Sprintf("%q", run))
	result := servertest.Result(run, tutti.Changed)
	result.Changes = []tutti.Change{{Resource: "File[/etc/motd]", File: "site.pp", Line: 3, Message: "content changed"}}
	if n.Name == "db-02" {
		result.Outcome, result.Reason, result.Message = tutti.Failed, tutti.BecauseResources, "1 resource failed"
		result.Failures = []tutti.Failure{{Resource: "Package[nginx]", File: "site.pp", Line: 4, Message: "not found"}}
	}
	if err := n.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
}
