package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `stands` lets a node report the state of its lease, and returns the order of the server.
func stands(t *testing.T, n *servertest.Node, r tutti.LeaseReport) tutti.LeaseOrder {
	t.Helper()
	var out tutti.LeaseOrder
	if err := n.Call(wire.OpLease, r, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

var enabled = tutti.LeaseReport{Enabled: true}

func held(job tutti.JobID) tutti.LeaseReport {
	return tutti.LeaseReport{Job: job, Ours: true, Message: "Tutti job " + string(job)}
}

// The method `exclusive` starts the plan as an exclusive job.
func (f fixture) exclusive(t *testing.T) tutti.JobID {
	t.Helper()
	why := "new kernel"
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Plan: "deploy", Mode: tutti.ModeApply, Exclusive: &why})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// leaseRings skips the first n doorbells, and counts the others that are about a lease, by node.
func (f fixture) leaseRings(n int) map[tutti.NodeName]int {
	out := map[tutti.NodeName]int{}
	for _, r := range f.Bus.Rung()[n:] {
		for _, node := range []*servertest.Node{f.db, f.web1, f.web2} {
			if r.Op == wire.RingLease && r.Key == node.Key {
				out[node.Name]++
			}
		}
	}
	return out
}

// The method `resumed` returns the fixture after the server was killed and started again.
func (f fixture) resumed() fixture {
	g := f.Restart()
	return fixture{Fleet: g, db: g.Node("db-01"), web1: g.Node("web-01"), web2: g.Node("web-02")}
}

// TestAnExclusiveJobSurvivesItsServer kills the server in each phase. The next server must
// ring the nodes for which the job waits, and complete the job.
func TestAnExclusiveJobSurvivesItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		job := f.exclusive(t)
		all := func() []*servertest.Node { return []*servertest.Node{f.db, f.web1, f.web2} }
		every := map[tutti.NodeName]int{"db-01": 1, "web-01": 1, "web-02": 1}
		restarted := func(phase string, want map[tutti.NodeName]int) {
			t.Helper()
			f = f.resumed()
			synctest.Wait()
			<-time.After(time.Second) // the first tick rings the nodes
			if diff := cmp.Diff(want, f.leaseRings(0)); diff != "" {
				t.Errorf("%s: rung -want +got\n%s", phase, diff)
			}
		}
		restarted("check", every)
		for _, n := range all() {
			if order := stands(t, n, enabled); n != f.web2 && order.Want != "" {
				t.Errorf("%s is told to %s before all are known to be enabled", n.Name, order.Want)
			}
		}
		restarted("hold", every)
		for _, n := range all() {
			if order := stands(t, n, enabled); order.Want != tutti.LeaseHold || order.Job != job || order.Length != tutti.DefaultLease {
				t.Errorf("%s is told %+v", n.Name, order)
			}
			if f.db.Claim() != nil {
				t.Fatalf("a run was wanted before all are held")
			}
			stands(t, n, held(job))
		}
		restarted("run", map[tutti.NodeName]int{})
		for _, n := range all() {
			order := n.Pass()
			if !order.Exclusive {
				t.Errorf("%s runs by %+v", n.Name, order)
			}
		}
		restarted("release", every)
		wantVerdict(t, f.Fleet, job, "")
		for _, n := range all() {
			if order := stands(t, n, held(job)); order.Want != tutti.LeaseRelease || order.Job != job {
				t.Errorf("%s is told %+v", n.Name, order)
			}
			stands(t, n, enabled)
		}
		wantVerdict(t, f.Fleet, job, tutti.VerdictSucceeded)
		if order := stands(t, f.db, held(job)); order.Want != tutti.LeaseRelease {
			t.Errorf("one that comes late is told %+v", order)
		}
	})
}

// TestNodesThatDoNotAnswerAnExclusiveJob checks nodes that do not answer an exclusive job. The
// server rings them again and later names them, whether they are connected or not.
func TestNodesThatDoNotAnswerAnExclusiveJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		n := len(f.Bus.Rung())
		job := f.exclusive(t)
		for range 5 {
			<-time.After(5 * time.Second)
			if err := f.web1.Call(wire.OpBeat, wire.Beat{Version: "1"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		wantVerdict(t, f.Fleet, job, "")
		if got := f.Job(job).Message; got != "phase check: waits for db-01, web-01, web-02" {
			t.Errorf("meanwhile it says %q", got)
		}
		if got := f.leaseRings(n); got["db-01"] < 3 || got["db-01"] > 7 {
			t.Errorf("rung %v in 25 s, want once in 5 s", got)
		}
		<-time.After(10 * time.Second)
		wantVerdict(t, f.Fleet, job, tutti.VerdictFailed)
		for _, node := range []string{"db-01", "web-01", "web-02"} {
			wantContains(t, f.Job(job).Message, node+": no answer for 30s")
		}
	})
}

// TestWhatIsHeldIsSaid checks that the description of a held node and the message of a waiting job name the job that
// holds the node. A held node must not leave.
func TestWhatIsHeldIsSaid(t *testing.T) {
	f := newFixture(t)
	job := f.exclusive(t)
	other := f.Start("deploy", tutti.ModeApply)
	if got := f.Job(other).Message; got != "db-01 is held by job "+string(job) {
		t.Errorf("the other job says %q", got)
	}
	n, err := f.ShowNode(servertest.Operator(), "web-01")
	if err != nil || n.HeldBy != job {
		t.Errorf("%+v, %v", n.NodeView, err)
	}
	wantCode(t, f.web1.Call(wire.OpLeave, wire.Leave{}, nil), tutti.CodeConflict, "held by job "+string(job))
	if err := f.CancelJob(servertest.Operator(), api.CancelJob{Job: job}); err != nil {
		t.Fatal(err)
	}
	wantVerdict(t, f.Fleet, job, tutti.VerdictCancelled)
	if f.db.MustClaim().Job != other {
		t.Error("the other job does not go on")
	}
}

// TestConvergingWaitsForAnExclusiveJob checks that a converge job neither runs a held node nor gives it up.
func TestConvergingWaitsForAnExclusiveJob(t *testing.T) {
	f := newFixture(t)
	for _, n := range []*servertest.Node{f.db, f.web1, f.web2} {
		if err := n.Call(wire.OpBeat, wire.Beat{Version: "1"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	job := f.exclusive(t)
	converge, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	if f.db.Claim() != nil || f.web1.Claim() != nil {
		t.Error("converging runs on nodes that are held")
	}
	wantVerdict(t, f.Fleet, converge, "")
	if err := f.CancelJob(servertest.Operator(), api.CancelJob{Job: job}); err != nil {
		t.Fatal(err)
	}
	if f.db.MustClaim().Job != converge {
		t.Error("converging does not go on")
	}
}

// TestWhatCannotBeExclusive checks that a converge job cannot be exclusive, and that a noop
// job does not become exclusive.
func TestWhatCannotBeExclusive(t *testing.T) {
	f := newFixture(t)
	why, long := "x", strings.Repeat("x", 1000)
	for _, tc := range []struct {
		reason string
		in     api.StartJob
		code   tutti.Code
		says   string
	}{
		{"converging", api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply, Exclusive: &why}, tutti.CodeInvalid, "no converge steps"},
		{"a reason that is none", api.StartJob{Plan: "deploy", Mode: tutti.ModeApply, Exclusive: &long}, tutti.CodeInvalid, "at most 200 bytes"},
		{"noop", api.StartJob{Plan: "deploy", Mode: tutti.ModeNoop, Exclusive: &why}, "", ""},
	} {
		job, err := f.StartJob(servertest.Operator(), tc.in)
		wantCode(t, err, tc.code, tc.says)
		if err == nil && f.db.MustClaim().Exclusive {
			t.Errorf("%s: job %s is exclusive", tc.reason, job)
		}
	}
}

// TestANodeDoesNotFillTheLogWithHowItStands checks a node that reports busy and idle in turns while an exclusive job
// waits for another node.
func TestANodeDoesNotFillTheLogWithHowItStands(t *testing.T) {
	f := newFixture(t)
	job := f.exclusive(t)
	busy := held(job)
	busy.Busy = "another run"
	for _, report := range []tutti.LeaseReport{enabled, enabled, busy} {
		for _, n := range []*servertest.Node{f.db, f.web1, f.web2} {
			stands(t, n, report)
		}
	}
	n := len(f.Events())
	var err error
	for i := 0; i < 1000 && err == nil; i++ {
		report := held(job)
		if i%2 == 1 {
			report = busy
		}
		err = f.db.Call(wire.OpLease, report, nil)
	}
	wantCode(t, err, tutti.CodeUnavailable, "more than 60 times in a minute")
	if got := f.Since(n); len(got) > 60 || len(got) < 10 {
		t.Errorf("%d events were appended", len(got))
	}
}
