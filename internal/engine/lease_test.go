package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// machine is a node with the data that an exclusive job sees: the note of the agent, and Puppet's file.
type machine struct {
	node tutti.NodeName
	note tutti.JobID
	file string // empty if Puppet is enabled
	busy string
	dead bool // the node's agent is dead
}

const somebody = "somebody: new disk"

func ours(job tutti.JobID) string { return "ours: " + string(job) }

func (m *machine) report() tutti.LeaseReport {
	return tutti.LeaseReport{
		Job: m.note, Ours: m.note != "" && m.file == ours(m.note), Enabled: m.file == "", Message: m.file, Busy: m.busy,
	}
}

// exclusiveFleet is a fleet whose nodes are machines.
type exclusiveFleet struct {
	*fleet
	machines map[tutti.NodeName]*machine
}

func newExclusiveFleet(nodes ...tutti.NodeName) *exclusiveFleet {
	f := &exclusiveFleet{fleet: newFleet(), machines: map[tutti.NodeName]*machine{}}
	f.silence = 30 * time.Second
	f.seen = func(n tutti.NodeName) time.Time {
		if m := f.machines[n]; m != nil && !m.dead {
			return f.now
		}
		return time.Time{}
	}
	for _, n := range nodes {
		f.machines[n] = &machine{node: n}
	}
	return f
}

func (f *exclusiveFleet) begin(job tutti.JobID, x *tutti.Exclusive, to map[tutti.StepName][]tutti.NodeName, steps ...tutti.Step) {
	f.append(&tutti.JobStarted{Job: job, Plan: tutti.Plan{Name: "p", Steps: steps, Exclusive: x}, Mode: tutti.ModeApply, Targets: to})
}

// beginOneByOne starts job j-1, which runs on n1 and then on n2, and lets the nodes
// report.
func (f *exclusiveFleet) beginOneByOne(t *testing.T, x *tutti.Exclusive) {
	t.Helper()
	f.begin("j-1", x, map[tutti.StepName][]tutti.NodeName{"a": {"n1"}, "b": {"n2"}}, run("a"), run("b", "a"))
	f.settle(t)
	f.talk(t)
}

// The method `tell` makes a node report once and follow the order. If crash is true, the node's agent ends after it
// has written its note and before it changes Puppet's file.
func (f *exclusiveFleet) tell(m *machine, crash bool) (again bool) {
	if m.dead {
		return false
	}
	r := m.report()
	for c := f.state.Reported(m.node, r); c != nil; c = f.state.Reported(m.node, r) {
		f.append(c)
	}
	order := f.state.LeaseOrder(m.node, r)
	switch {
	case order.Want == tutti.LeaseHold && m.note != "" && m.note != order.Job:
		return false
	case order.Want == tutti.LeaseHold && r.Enabled:
		if m.note = order.Job; !crash {
			m.file = ours(order.Job)
		}
		return true
	case order.Want == tutti.LeaseRelease && m.note == order.Job:
		if m.file == ours(order.Job) {
			m.file = ""
		}
		if !crash {
			m.note = ""
		}
		return true
	case order.Want == tutti.LeaseKeep && m.note == order.Job:
		m.note = ""
		return true
	}
	return false
}

// The method `talk` lets all nodes report until nothing changes.
func (f *exclusiveFleet) talk(t fataler) {
	t.Helper()
	for range 20 {
		again := false
		for _, m := range f.machines {
			again = f.tell(m, false) || again
		}
		before := len(f.log)
		f.settle(t)
		if !again && len(f.log) == before {
			return
		}
	}
	t.Fatalf("nodes and engine do not come to rest")
}

// wantStates fails unless the nodes have these states in the job.
func (f *exclusiveFleet) wantStates(t *testing.T, reason string, job tutti.JobID, want map[tutti.NodeName]tutti.LeaseState) {
	t.Helper()
	got := map[tutti.NodeName]tutti.LeaseState{}
	for _, n := range f.state.Jobs[job].Leases.Nodes {
		got[n.Node] = n.State
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got\n%s", reason, diff)
	}
}

func (f *exclusiveFleet) wantEnded(t *testing.T, reason string, job tutti.JobID, verdict tutti.Verdict, says string) {
	t.Helper()
	j := f.state.Jobs[job]
	if j.Verdict != verdict || !strings.Contains(j.Message, says) {
		t.Errorf("%s: verdict %q (%s), want %q with %q", reason, j.Verdict, j.Message, verdict, says)
	}
}

// TestAnExclusiveJobHoldsAllBeforeItRuns: the phases are check, hold, idle, steps and
// release.
func TestAnExclusiveJobHoldsAllBeforeItRuns(t *testing.T) {
	f := newExclusiveFleet("n1", "n2")
	f.machines["n2"].busy = "pid 7"
	f.begin("j-1", tutti.DefaultExclusive("new kernel"), map[tutti.StepName][]tutti.NodeName{"a": {"n1"}, "b": {"n2"}}, run("a"), run("b", "a"))
	f.settle(t)
	f.tell(f.machines["n1"], false)
	f.settle(t)
	f.tell(f.machines["n1"], false)
	if f.machines["n1"].file != "" {
		t.Errorf("n1 is disabled, and n2 was not asked yet")
	}
	f.talk(t)
	if len(f.state.Active) != 0 || f.state.Jobs["j-1"].Leases.Phase != engine.PhaseIdle {
		t.Errorf("phase %s, active %v: want nothing to run while another Puppet does", f.state.Jobs["j-1"].Leases.Phase, f.state.Active)
	}
	f.machines["n2"].busy = ""
	f.talk(t)
	f.wantStates(t, "the steps", "j-1", map[tutti.NodeName]tutti.LeaseState{"n1": tutti.LeaseIdle, "n2": tutti.LeaseIdle})
	for _, n := range targets("n1", "n2") {
		r := f.state.Runs[f.active(n)]
		if r == nil || !r.Exclusive || f.machines["n1"].file == "" || f.machines["n2"].file == "" {
			t.Fatalf("%s: run %+v, files %q and %q: want an exclusive run while both are held", n, r, f.machines["n1"].file, f.machines["n2"].file)
		}
		f.finish(r.Run, good)
		f.talk(t)
	}
	f.wantEnded(t, "the end", "j-1", tutti.VerdictSucceeded, "")
	for n, m := range f.machines {
		if m.file != "" || m.note != "" {
			t.Errorf("%s has %q, note %q after the end", n, m.file, m.note)
		}
	}
}

// TestWhatEndsAnExclusiveJob: the job fails with the name of the node and begins nothing
// more. The job releases exactly the nodes that it holds.
func TestWhatEndsAnExclusiveJob(t *testing.T) {
	held := func(t *testing.T, f *exclusiveFleet) { f.talk(t) }
	for _, tc := range []struct {
		reason  string
		keep    bool
		before  func(f *exclusiveFleet)
		during  func(t *testing.T, f *exclusiveFleet)
		after   time.Duration
		verdict tutti.Verdict
		says    string
		runs    int
		files   map[tutti.NodeName]string // Puppet's files after the end
	}{
		{
			reason: "one is disabled: nothing is changed on any", before: func(f *exclusiveFleet) { f.machines["n2"].file = somebody },
			verdict: tutti.VerdictFailed, says: "n2: disabled: " + somebody, files: map[tutti.NodeName]string{"n1": "", "n2": somebody},
		},
		{
			reason: "one is disabled between check and hold",
			during: func(t *testing.T, f *exclusiveFleet) {
				for _, n := range targets("n1", "n2") {
					f.tell(f.machines[n], false)
					f.settle(t)
				}
				f.machines["n2"].file = somebody
				f.talk(t)
			},
			verdict: tutti.VerdictFailed, says: "n2: disabled: " + somebody, files: map[tutti.NodeName]string{"n1": "", "n2": somebody},
		},
		{
			reason: "every node is silent", before: func(f *exclusiveFleet) { f.machines["n1"].dead, f.machines["n2"].dead = true, true },
			after: time.Minute, verdict: tutti.VerdictFailed, says: "n1: no answer for 1m0s; n2: no answer for 1m0s", files: map[tutti.NodeName]string{"n1": "", "n2": ""},
		},
		{
			reason: "one is silent", before: func(f *exclusiveFleet) { f.machines["n2"].dead = true },
			after: time.Minute, verdict: tutti.VerdictFailed, says: "n2: no answer", files: map[tutti.NodeName]string{"n1": "", "n2": ""},
		},
		{
			reason: "disabled by somebody else in the middle", during: func(t *testing.T, f *exclusiveFleet) {
				held(t, f)
				f.machines["n2"].file = somebody
				f.talk(t)
				f.finish(f.active("n1"), good)
			},
			verdict: tutti.VerdictFailed, says: "n2: disabled by somebody else: " + somebody, runs: 1, files: map[tutti.NodeName]string{"n1": "", "n2": somebody},
		},
		{
			reason: "enabled by somebody else in the middle", during: func(t *testing.T, f *exclusiveFleet) {
				held(t, f)
				f.machines["n2"].file = ""
				f.talk(t)
				f.finish(f.active("n1"), good)
			},
			verdict: tutti.VerdictFailed, says: "n2: enabled by somebody else", runs: 1, files: map[tutti.NodeName]string{"n1": "", "n2": ""},
		},
		{
			reason: "the lease of a node has ended", during: func(t *testing.T, f *exclusiveFleet) {
				held(t, f)
				f.machines["n2"].file, f.machines["n2"].note = "", ""
				f.talk(t)
				f.finish(f.active("n1"), good)
			},
			verdict: tutti.VerdictFailed, says: "n2: not held any more: the node heard nothing for 5m0s", runs: 1, files: map[tutti.NodeName]string{"n1": "", "n2": ""},
		},
		{
			reason: "a Puppet that had waited since before the job", during: func(t *testing.T, f *exclusiveFleet) {
				held(t, f)
				f.machines["n2"].busy = "pid 9"
				f.talk(t)
				f.finish(f.active("n1"), good)
			},
			verdict: tutti.VerdictFailed, says: "n2: a Puppet process of somebody else is running: pid 9", runs: 1, files: map[tutti.NodeName]string{"n1": "", "n2": ""},
		},
		{
			reason: "another Puppet does not end", before: func(f *exclusiveFleet) { f.machines["n2"].busy = "pid 9" }, after: 20 * time.Minute,
			during:  func(t *testing.T, f *exclusiveFleet) { held(t, f) },
			verdict: tutti.VerdictFailed, says: "n2: a Puppet process of somebody else has not ended", files: map[tutti.NodeName]string{"n1": "", "n2": ""},
		},
		{
			reason: "a step fails: restored", during: func(t *testing.T, f *exclusiveFleet) { held(t, f); f.finish(f.active("n1"), compile) },
			verdict: tutti.VerdictFailed, says: "failed: a", runs: 1, files: map[tutti.NodeName]string{"n1": "", "n2": ""},
		},
		{
			reason: "a step fails: left disabled, as asked", keep: true, during: func(t *testing.T, f *exclusiveFleet) { held(t, f); f.finish(f.active("n1"), compile) },
			verdict: tutti.VerdictFailed, says: "failed: a", runs: 1, files: map[tutti.NodeName]string{"n1": ours("j-1"), "n2": ours("j-1")},
		},
		{
			reason: "refused with keep: nothing ran, there is nothing to look into", keep: true, before: func(f *exclusiveFleet) { f.machines["n2"].file = somebody },
			verdict: tutti.VerdictFailed, says: "n2: disabled", files: map[tutti.NodeName]string{"n1": "", "n2": somebody},
		},
		{
			reason: "cancelled while held", keep: true, during: func(t *testing.T, f *exclusiveFleet) {
				held(t, f)
				f.append(&tutti.JobCancelled{Job: "j-1", Reason: "lunch"})
				f.talk(t)
				f.finish(f.active("n1"), good)
			},
			verdict: tutti.VerdictCancelled, says: "lunch", runs: 1, files: map[tutti.NodeName]string{"n1": "", "n2": ""},
		},
		{
			reason: "a node dies while held", during: func(t *testing.T, f *exclusiveFleet) {
				held(t, f)
				f.machines["n2"].dead = true
				f.finish(f.active("n1"), compile)
				f.talk(t)
			},
			after: time.Minute, verdict: tutti.VerdictFailed, says: "n2: no answer for 1m0s; if the node is disabled, it becomes enabled by itself within 5m0s", runs: 1,
			files: map[tutti.NodeName]string{"n1": "", "n2": ours("j-1")},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			f := newExclusiveFleet("n1", "n2")
			if tc.before != nil {
				tc.before(f)
			}
			x := tutti.DefaultExclusive("new kernel")
			x.Keep = tc.keep
			f.begin("j-1", x, map[tutti.StepName][]tutti.NodeName{"a": {"n1"}, "b": {"n2"}}, run("a"), run("b", "a"))
			f.settle(t)
			if tc.during != nil {
				tc.during(t, f)
			}
			f.talk(t)
			if tc.after > 0 {
				if j := f.state.Jobs["j-1"]; j.Ended() {
					t.Fatalf("it ended before its deadline: %s", j.Message)
				}
				f.now = f.now.Add(tc.after)
				f.talk(t)
			}
			f.wantEnded(t, "the end", "j-1", tc.verdict, tc.says)
			files := map[tutti.NodeName]string{}
			for n, m := range f.machines {
				files[n] = m.file
			}
			if diff := cmp.Diff(tc.files, files); diff != "" {
				t.Errorf("files: -want +got\n%s", diff)
			}
			if runs := len(f.wants); runs != tc.runs {
				t.Errorf("%d runs were wanted, want %d: %v", runs, tc.runs, f.wants)
			}
		})
	}
}

// TestAPuppetThatBeginsBeforeTheStepsIsWaitedFor: all nodes must be idle at the same
// time. A node that was idle once may be busy again when the last node becomes idle.
func TestAPuppetThatBeginsBeforeTheStepsIsWaitedFor(t *testing.T) {
	f := newExclusiveFleet("n1", "n2")
	f.machines["n2"].busy = "pid 9"
	f.beginOneByOne(t, tutti.DefaultExclusive("new kernel"))
	f.wantStates(t, "one is waited for", "j-1", map[tutti.NodeName]tutti.LeaseState{"n1": tutti.LeaseIdle, "n2": tutti.LeaseHeld})
	f.machines["n1"].busy = "pid 8"
	f.talk(t)
	f.machines["n2"].busy = ""
	f.talk(t)
	if len(f.wants) > 0 {
		t.Errorf("runs %v beside pid 8 of n1", f.wants)
	}
	f.machines["n1"].busy = ""
	f.talk(t)
	f.finish(f.active("n1"), good)
	f.settle(t)
	f.finish(f.active("n2"), good)
	f.settle(t)
	f.talk(t)
	f.wantEnded(t, "the end", "j-1", tutti.VerdictSucceeded, "")
}

// TestANodeThatIsGoneWhileOthersRun: if a node no longer answers, its lease ends by itself,
// so the job no longer holds the node.
func TestANodeThatIsGoneWhileOthersRun(t *testing.T) {
	f := newExclusiveFleet("n1", "n2")
	f.beginOneByOne(t, tutti.DefaultExclusive("new kernel"))
	f.machines["n2"].dead = true
	f.now = f.now.Add(tutti.DefaultLease - time.Minute)
	f.settle(t)
	f.wantStates(t, "within its lease", "j-1", map[tutti.NodeName]tutti.LeaseState{"n1": tutti.LeaseIdle, "n2": tutti.LeaseIdle})
	f.now = f.now.Add(2 * time.Minute)
	f.settle(t)
	f.finish(f.active("n1"), good)
	f.settle(t)
	f.talk(t)
	f.wantEnded(t, "the end", "j-1", tutti.VerdictFailed, "n2: nothing heard of the node for 6m0s: its lease has ended by itself")
}

// TestNothingToLookIntoIsNotKept: all runs were good, so the option `keep` has no effect.
// If a node is silent when the job releases its nodes, the node is released when it answers
// again.
func TestNothingToLookIntoIsNotKept(t *testing.T) {
	f := newExclusiveFleet("n1", "n2")
	x := tutti.DefaultExclusive("new kernel")
	x.Keep = true
	f.beginOneByOne(t, x)
	f.finish(f.active("n1"), good)
	f.settle(t)
	f.machines["n2"].dead = true
	f.finish(f.active("n2"), good)
	f.settle(t)
	f.now = f.now.Add(time.Minute)
	f.talk(t)
	f.wantEnded(t, "n2 is silent", "j-1", tutti.VerdictFailed, "n2: no answer")
	f.machines["n2"].dead = false
	f.talk(t)
	for n, m := range f.machines {
		if m.file != "" {
			t.Errorf("%s: disabled: %q", n, m.file)
		}
	}
}

// TestOthersWaitForAnExclusiveJob: no run of another job begins on the nodes of an exclusive job.
// Present runs on these nodes end first. A second exclusive job on these nodes begins after the
// first one has ended.
func TestOthersWaitForAnExclusiveJob(t *testing.T) {
	f := newExclusiveFleet("n1", "n2")
	one := map[tutti.StepName][]tutti.NodeName{"a": {"n1"}}
	both := map[tutti.StepName][]tutti.NodeName{"a": {"n1", "n2"}}
	f.begin("j-1", nil, one, run("a"))
	f.talk(t)
	before := f.active("n1")
	f.begin("j-2", tutti.DefaultExclusive("new kernel"), both, run("a"))
	f.begin("j-3", nil, both, run("a"))
	f.begin("j-4", tutti.DefaultExclusive("another"), one, run("a"))
	f.talk(t)
	if f.active("n1") != before || f.active("n2") != "" || f.machines["n1"].file != "" {
		t.Fatalf("active %v, file %q: want the earlier run to go on, undisturbed, and nobody to begin", f.state.Active, f.machines["n1"].file)
	}
	for job, want := range map[tutti.JobID]string{
		"j-2": "waits for the run of job j-1 on n1", "j-3": "n1 is held by job j-2", "j-4": "waits for the end of job j-2, which uses some of its nodes",
	} {
		if got := f.state.WaitsFor(f.state.Jobs[job]); got != want {
			t.Errorf("%s: %q, want %q", job, got, want)
		}
	}
	f.finish(before, good)
	f.talk(t)
	for _, turn := range []struct {
		job tutti.JobID
		on  []tutti.NodeName
	}{{"j-2", targets("n1", "n2")}, {"j-3", targets("n1", "n2")}, {"j-4", targets("n1")}} {
		for _, n := range turn.on {
			r := f.state.Runs[f.active(n)]
			if r == nil || r.Job != turn.job {
				t.Fatalf("%s runs %+v, want a run of %s", n, r, turn.job)
			}
			f.finish(r.Run, good)
		}
		f.talk(t)
		f.wantEnded(t, "in turn", turn.job, tutti.VerdictSucceeded, "")
	}
}

// TestExclusiveJobsComeToAnEnd: whatever nodes, people and servers do, no run begins before all
// nodes are held. When all jobs have ended, a node is disabled only if somebody else has disabled
// it.
func TestExclusiveJobsComeToAnEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newExclusiveFleet("n1", "n2", "n3")
		nodes := targets("n1", "n2", "n3")
		f.begin("j-1", tutti.DefaultExclusive("x"), map[tutti.StepName][]tutti.NodeName{"a": {"n1", "n2"}, "b": {"n2", "n3"}}, run("a"), run("b", "a"))
		f.begin("j-2", tutti.DefaultExclusive("y"), map[tutti.StepName][]tutti.NodeName{"a": {"n2"}}, run("a"))
		f.settle(t)
		theirs := map[tutti.NodeName]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			m := f.machines[rapid.SampledFrom(nodes).Draw(t, "node")]
			switch rapid.IntRange(0, 11).Draw(t, "what") {
			case 0: // somebody disables Puppet, and replaces a file that is there
				m.file, theirs[m.node] = somebody, true
			case 1: // somebody enables Puppet
				m.file, theirs[m.node] = "", false
			case 2:
				m.busy = rapid.SampledFrom([]string{"", "pid 1"}).Draw(t, "busy")
			case 3:
				f.tell(m, true)
			case 4: // the node's lease ends
				if m.note != "" && m.file == ours(m.note) {
					m.file = ""
				}
				m.note = ""
			case 5:
				f.restart()
			case 6:
				f.now = f.now.Add(10 * time.Second)
			case 7:
				if id := f.active(m.node); id != "" {
					f.finish(id, rapid.SampledFrom([]tutti.Result{good, broken}).Draw(t, "result"))
				}
			default:
				f.tell(m, false)
			}
			f.settle(t)
			f.checkHeld(t)
		}
		for range 10 {
			for _, m := range f.machines {
				m.busy = ""
				if id := f.active(m.node); id != "" {
					f.finish(id, good)
				}
			}
			f.talk(t)
			f.now = f.now.Add(time.Minute)
			f.talk(t)
		}
		f.restart()
		for _, job := range []tutti.JobID{"j-1", "j-2"} {
			if j := f.state.Jobs[job]; !j.Ended() {
				t.Fatalf("%s has not ended: phase %s, %s", job, j.Leases.Phase, f.state.WaitsFor(j))
			}
		}
		for _, m := range f.machines {
			if m.note != "" || (m.file == somebody) != theirs[m.node] || m.file != "" && m.file != somebody {
				t.Fatalf("%s has file %q and note %q; somebody disabled it: %v", m.node, m.file, m.note, theirs[m.node])
			}
		}
	})
}

// checkHeld fails if a run was wanted before its job held all its nodes.
func (f *exclusiveFleet) checkHeld(t *rapid.T) {
	held := map[string]bool{}
	for _, e := range f.log {
		switch b := e.Body.(type) {
		case *tutti.LeaseChanged:
			held[fmt.Sprintf("%s %s", b.Job, b.Node)] = b.State == tutti.LeaseIdle
		case *tutti.RunWanted:
			for _, n := range f.state.Jobs[b.Order.Job].Leases.Nodes {
				if !held[fmt.Sprintf("%s %s", b.Order.Job, n.Node)] {
					t.Fatalf("run %s on %s was wanted, and %s is not held and idle", b.Order.Job, b.Order.Node, n.Node)
				}
			}
		}
	}
}
