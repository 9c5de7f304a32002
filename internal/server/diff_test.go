package server_test

import (
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

const diffFleet = `fleet: shop
environment: {name: production, path: ./code}
groups:
  web: {nodes: [web-01, web-02]}
grants:
  - {to: web, exports: [Host]}
`

// The function `hosts` is the question of a node that collects exports.
var hosts = tutti.Query{Kind: tutti.QueryCollect, Type: "Host"}

// compiles claims a run for a diff, gates it with these reads and exports, and ends it as an agent does.
func compiles(t *testing.T, n *servertest.Node, catalog string, exports []tutti.Export, queries ...tutti.Query) tutti.Order {
	t.Helper()
	o := n.MustClaim()
	in := wire.Gate{Run: o.Run, Exports: exports}
	in.Catalog = tutti.DigestOf([]byte(catalog))
	for _, q := range queries {
		in.Reads = append(in.Reads, n.Read(o.Run, q))
	}
	for n.Gate(in).Verdict != tutti.GateStop { // the server answers hold until its next decision
		if err := n.Call(wire.OpGate, in, nil); err != nil {
			t.Fatal(err)
		}
	}
	result := servertest.Result(o.Run, "")
	result.Stopped, result.Phase = true, "gate"
	if err := n.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestADiffLeavesStandingsAlone: compiles for a diff, good and bad ones, change neither what the node needs nor what
// views show as its last run. They publish nothing, and no other order gets their code.
func TestADiffLeavesStandingsAlone(t *testing.T) {
	f := servertest.Start(t)
	one, two := f.Join("web-01"), f.Join("web-02")
	f.Push(diffFleet)
	if _, err := f.StartJob(servertest.Operator(), api.StartJob{Mode: tutti.ModeApply, Converge: &tutti.ConvergeStep{}}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*servertest.Node{one, two} {
		o := n.MustClaim()
		in := wire.Gate{Run: o.Run, Reads: []tutti.Read{n.Read(o.Run, hosts)}}
		in.Catalog, in.Sources, in.Lib = tutti.DigestOf([]byte("same")), tutti.DigestOf(nil), tutti.DigestOf(nil)
		n.Gate(in)
	}
	settle(t, f, one, two)
	before, err := f.ListNodes(servertest.Operator())
	if err != nil {
		t.Fatal(err)
	}

	job, err := f.StartDiff("# other code", "web-01", "web-02")
	if err != nil {
		t.Fatal(err)
	}
	export := []tutti.Export{{Type: "Host", Title: "two"}}
	first := compiles(t, one, "a", nil, hosts)
	if !first.Diff || first.Mode != tutti.ModeCompile {
		t.Fatalf("order %+v", first)
	}
	compiles(t, two, "b", export)
	again := compiles(t, one, "c", nil, hosts) // because web-02 exports something now
	if again.Code != first.Code {
		t.Fatalf("the second compile has the code %s", again.Code)
	}
	if got := f.Job(job); got.Verdict != tutti.VerdictSucceeded {
		t.Fatalf("job %+v", got)
	}
	job, err = f.StartDiff(servertest.CodeContent, "web-01") // the node's own code, which does not compile this time
	if err != nil {
		t.Fatal(err)
	}
	o := one.MustClaim()
	broken := servertest.Result(o.Run, tutti.Failed)
	broken.Reason, broken.Message, broken.Phase = tutti.BecauseCompile, "no such class", "compile"
	if err := one.Call(wire.OpResult, broken, nil); err != nil {
		t.Fatal(err)
	}
	if got := f.Job(job); got.Verdict != tutti.VerdictFailed {
		t.Fatalf("job %+v", got)
	}

	f.Push(diffFleet + "# The server judges all nodes again.\n")
	after, err := f.ListNodes(servertest.Operator())
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		before[i].SeenAt = after[i].SeenAt
		if before[i].Stands != "good" {
			t.Errorf("before the diff %s stands %s: %s", before[i].Node, before[i].Stands, before[i].Why)
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the diff has changed nodes: -before +after\n%s", diff)
	}
	for _, e := range f.Events() {
		if set, is := e.Body.(*tutti.ExportsSet); is && !set.Overlay && set.Count > 0 {
			t.Errorf("the diff published %+v", set)
		}
	}
}

// settle ends the runs of a converge job that the nodes have begun.
func settle(t *testing.T, f *servertest.Fleet, nodes ...*servertest.Node) {
	t.Helper()
	for _, e := range f.Events() {
		wanted, is := e.Body.(*tutti.RunWanted)
		if !is {
			continue
		}
		for _, n := range nodes {
			if n.Name == wanted.Order.Node {
				n.Finish(wanted.Order.Run)
			}
		}
	}
}

// TestWhoMayCompileForADiff: the server refuses code without a valid permission, and names the nodes that cannot compile.
func TestWhoMayCompileForADiff(t *testing.T) {
	f := servertest.Start(t)
	f.Join("web-01")
	f.Join("web-02")
	f.Push(`fleet: shop
environment: {name: production, path: ./code}
groups:
  web: {nodes: [web-01]}
  served: {nodes: [web-02], mode: agent}
`)
	now := time.Now()
	if _, err := f.PutBlob(servertest.Operator(), []byte("# x")); err != nil {
		t.Fatal(err)
	}
	code := servertest.Permit("production", "# x", now.Add(time.Hour))
	pushed := servertest.SignAs(tutti.CodeManifest{Version: 1, Environment: "production"}, 9)
	for _, tc := range []struct {
		reason string
		code   tutti.SignedCode
		mode   tutti.Mode
		says   string
	}{
		{"a permission that has ended", servertest.Permit("production", "# x", now.Add(-time.Second)), tutti.ModeCompile, "has ended"},
		{"a permission for too long", servertest.Permit("production", "# x", now.Add(25*time.Hour)), tutti.ModeCompile, "is the clock right"},
		{"a permission to apply", pushed, tutti.ModeCompile, "not signed"},
		{"no permission", servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "production"}), tutti.ModeCompile, "not signed"},
		{"a file that the server lacks", servertest.Permit("production", "# y", now.Add(time.Hour)), tutti.ModeCompile, "manifests/site.pp"},
		{"another mode", code, tutti.ModeApply, "mode compile"},
	} {
		_, err := f.StartJob(servertest.Operator(), api.StartJob{Mode: tc.mode, Diff: &api.NodeDiff{Nodes: []tutti.NodeName{"web-01"}, Code: tc.code}})
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.says)
		}
	}
	job, err := f.StartDiff("# x", "web-02")
	if err != nil {
		t.Fatal(err)
	}
	var left map[tutti.NodeName]string
	for _, e := range f.Events() {
		if b, is := e.Body.(*tutti.JobStarted); is && b.Job == job {
			left = b.Diff.Left
		}
	}
	if !strings.Contains(left["web-02"], "mode: agent") {
		t.Errorf("left out: %v", left)
	}
}

// TestTheCodeOfADiffStaysUntilItsEnd: a sweep keeps the files of a diff's code while its job goes on, and not longer. The
// manifest stays as long as the log has the job.
func TestTheCodeOfADiffStaysUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t, func(o *server.Options) { o.Keep.Jobs, o.Silence = 10, 48*time.Hour })
		p.db.Claim() // a node that is not connected does not take part
		const content = "# only for a diff"
		job, err := p.StartDiff(content, "db-01")
		if err != nil {
			t.Fatal(err)
		}
		manifest := tutti.Digest("")
		for _, e := range p.Events() {
			if b, is := e.Body.(*tutti.JobStarted); is && b.Job == job {
				manifest = b.Diff.Signed
			}
		}
		wants := func(when string, file bool) {
			t.Helper()
			time.Sleep(2 * time.Hour)
			if err := p.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			for digest, want := range map[tutti.Digest]bool{tutti.DigestOf([]byte(content)): file, manifest: true} {
				if has, err := p.Blobs.Has(t.Context(), digest); err != nil || has != want {
					t.Errorf("%s: %.19s is there: %t, %v; want %t", when, digest, has, err, want)
				}
			}
			time.Sleep(2 * time.Hour) // the call of Has was a use
		}
		wants("while the job goes on", true)
		if err := p.CancelJob(servertest.Operator(), api.CancelJob{Job: job}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := p.Job(job); got.Verdict != tutti.VerdictCancelled {
			t.Fatalf("job %+v", got)
		}
		wants("after the job", false)
	})
}

// TestDiffsTakeTurns: while one diff is going on, nobody starts another one. Otherwise the two would let the same node
// compile again, and one of them would end the other's run.
func TestDiffsTakeTurns(t *testing.T) {
	f := servertest.Start(t)
	one := f.Join("web-01")
	f.Join("web-02")
	f.Push(diffFleet)
	one.Claim() // the node is connected
	first, err := f.StartDiff("notify { 'a': }", "web-01")
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.StartDiff("notify { 'b': }", "web-01")
	wantCode(t, err, tutti.CodeUnavailable, "job "+string(first)+" compiles for another diff")
	compiles(t, one, "a", nil)
	if _, err := f.StartDiff("notify { 'b': }", "web-01"); err != nil {
		t.Errorf("after the end of the first diff: %v", err)
	}
}
