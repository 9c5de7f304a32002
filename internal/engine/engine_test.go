package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The type `fleet` is a log, the fold of the log, and nodes that answer every order.
type fleet struct {
	log   []tutti.Event
	state *engine.State
	now   time.Time
	ids   int
	wants map[string]int // how often a run was wanted, by step/node/attempt

	silence time.Duration
	seen    func(tutti.NodeName) time.Time
	by      string // the author of the next events
}

func newFleet() *fleet {
	return &fleet{state: engine.NewState(), now: epoch, wants: map[string]int{}, silence: time.Hour, seen: func(tutti.NodeName) time.Time { return time.Time{} }}
}

func (f *fleet) append(b tutti.Body) {
	e := tutti.Event{Seq: uint64(len(f.log) + 1), At: f.now, By: f.by, Body: b}
	f.log = append(f.log, e)
	f.state.Apply(e)
}

func (f *fleet) view() engine.View {
	return engine.View{Now: f.now, Since: epoch, Seen: f.seen, Silence: f.silence}
}

// The method `settle` asks the engine for events and appends them, until the engine returns none.
func (f *fleet) settle(t fataler) {
	t.Helper()
	for range 100 {
		bodies := f.state.Decide(f.view())
		if len(bodies) == 0 {
			return
		}
		for _, b := range bodies {
			if w, ok := b.(*tutti.RunWanted); ok {
				f.ids++
				w.Order.Run = tutti.RunID(fmt.Sprintf("00000000-0000-0000-0000-%012d", f.ids))
				f.wants[fmt.Sprintf("%s/%s/%d", w.Order.Step, w.Order.Node, w.Order.Attempt)]++
			}
			f.append(b)
		}
	}
	t.Fatalf("the engine still decides after 100 rounds: %v", f.state.Decide(f.view()))
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// The method `restart` folds the whole log again, as a server does after it was killed.
func (f *fleet) restart() {
	f.state = engine.NewState()
	for _, e := range f.log {
		f.state.Apply(e)
	}
}

func (f *fleet) finish(r tutti.RunID, result tutti.Result) {
	f.now = f.now.Add(time.Second)
	result.Run = r
	result.StartedAt, result.EndedAt = f.now.Add(-time.Second), f.now
	if !result.Stopped {
		f.append(&tutti.RunGated{Run: r, Verdict: tutti.GateGo})
	} else {
		f.append(&tutti.RunGated{Run: r, Verdict: tutti.GateStop})
	}
	f.append(&tutti.RunFinished{Result: result})
}

func run(name tutti.StepName, after ...tutti.StepName) tutti.Step {
	return tutti.Step{Name: name, After: after, Timeout: time.Hour, Run: &tutti.RunStep{}}
}

func targets(nodes ...tutti.NodeName) []tutti.NodeName { return nodes }

func (f *fleet) start(steps []tutti.Step, to map[tutti.StepName][]tutti.NodeName) {
	f.append(&tutti.JobStarted{Job: "j1", Plan: tutti.Plan{Name: "p", Steps: steps}, Mode: tutti.ModeApply, Targets: to})
}

func (f *fleet) active(node tutti.NodeName) tutti.RunID { return f.state.Active[node] }

var (
	good     = tutti.Result{Outcome: tutti.Changed}
	broken   = tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseResources}
	compile  = tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseCompile}
	stopped  = tutti.Result{Stopped: true}
	noLimits = 0
)

// TestAStepWithoutRunsTookNoTime: if a converge step has nothing to do, its beginning is
// the same as its end.
func TestAStepWithoutRunsTookNoTime(t *testing.T) {
	f := newFleet()
	f.append(&tutti.JobStarted{Job: "converge-1", Plan: tutti.Plan{Steps: []tutti.Step{{Name: "converge", Converge: &tutti.ConvergeStep{}}}}})
	f.now = f.now.Add(time.Second)
	f.append(&tutti.ConvergeFinished{Job: "converge-1", Step: "converge", Verdict: tutti.VerdictConverged})
	st := f.state.Jobs["converge-1"].Step("converge")
	if st.State != engine.Done || !st.StartedAt.Equal(f.now) || !st.EndedAt.Equal(f.now) {
		t.Errorf("the step is %s, from %s to %s, want done, both %s", st.State, st.StartedAt, st.EndedAt, f.now)
	}
}

func TestStepsFollowEachOther(t *testing.T) {
	cases := map[string]struct {
		reason  string
		accept  []tutti.Accept
		first   tutti.Result
		verdict tutti.Verdict
		runs    int
	}{
		"good":     {"a good step lets the next begin", nil, good, tutti.VerdictSucceeded, 2},
		"failed":   {"a failed step lets nothing after it begin", nil, broken, tutti.VerdictFailed, 1},
		"accepted": {"an accepted failure is as good", []tutti.Accept{tutti.AcceptFailedResources}, broken, tutti.VerdictSucceeded, 2},
		"compile":  {"a compile error is never accepted", []tutti.Accept{tutti.AcceptFailedResources}, compile, tutti.VerdictFailed, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFleet()
			a := run("a")
			a.Run.Accept = tc.accept
			f.start([]tutti.Step{a, run("b", "a")}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1"), "b": targets("n2")})
			f.settle(t)
			if f.active("n2") != "" {
				t.Fatalf("%s: b began before a ended", tc.reason)
			}
			f.finish(f.active("n1"), tc.first)
			f.settle(t)
			if id := f.active("n2"); id != "" {
				f.finish(id, good)
				f.settle(t)
			}
			j := f.state.Jobs["j1"]
			if got := j.Summary(f.now); j.Verdict != tc.verdict || got.Runs != tc.runs {
				t.Errorf("%s: verdict %q after %d runs, want %q after %d", tc.reason, j.Verdict, got.Runs, tc.verdict, tc.runs)
			}
		})
	}
}

func TestOneFailureDoesNotStopTheOthersOfItsStep(t *testing.T) {
	f := newFleet()
	a := run("a")
	a.Run.Limit = 1
	f.start([]tutti.Step{a}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1", "n2", "n3")})
	f.settle(t)
	for _, n := range targets("n1", "n2", "n3") {
		id := f.active(n)
		if id == "" || len(f.state.Active) != 1 {
			t.Fatalf("before %s: active %v, want this node alone", n, f.state.Active)
		}
		f.finish(id, broken)
		f.settle(t)
	}
	if got := f.state.Jobs["j1"].Summary(f.now); got.Failed != 3 || got.Outcome != tutti.VerdictFailed {
		t.Errorf("summary %+v, want three failures and the verdict failed", got)
	}
}

// In a noop job, the runs do not create the value for which a wait step waits. The job
// therefore skips the wait.
func TestANoopJobPassesItsWaitsOver(t *testing.T) {
	f := newFleet()
	wait := tutti.Step{Name: "w", After: []tutti.StepName{"a"}, Timeout: time.Hour, Wait: &tutti.WaitStep{Value: "k"}}
	f.append(&tutti.JobStarted{
		Job: "j1", Plan: tutti.Plan{Name: "p", Steps: []tutti.Step{run("a"), wait, run("b", "w")}}, Mode: tutti.ModeNoop,
		Targets: map[tutti.StepName][]tutti.NodeName{"a": targets("n1"), "b": targets("n2")},
	})
	f.settle(t)
	if st := f.state.Jobs["j1"].Step("w"); st.State != engine.Pending {
		t.Fatalf("the wait is %s before the step that it follows has ended", st.State)
	}
	f.finish(f.active("n1"), good)
	f.settle(t)
	st := f.state.Jobs["j1"].Step("w")
	if st.State != engine.Done || st.Message == "" || !st.StartedAt.Equal(st.EndedAt) {
		t.Errorf("the wait: %+v, want it done in no time, with a message that says why", st)
	}
	if f.active("n2") == "" {
		t.Error("b has not begun")
	}
}

func TestPerNodeEdgesWaitForTheSameNodeOnly(t *testing.T) {
	f := newFleet()
	b := run("b", "a")
	b.PerNode = true
	f.start([]tutti.Step{run("a"), b}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1", "n2"), "b": targets("n1", "n2")})
	f.settle(t)
	f.finish(f.active("n1"), good)
	f.settle(t)
	if r := f.state.Runs[f.active("n1")]; r == nil || r.Step != "b" {
		t.Errorf("n1 is done with a and runs %v, want b while n2 is still in a", r)
	}
}

func TestAStoppedCompileIsTriedAgain(t *testing.T) {
	f := newFleet()
	f.start([]tutti.Step{run("a")}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1")})
	f.settle(t)
	f.finish(f.active("n1"), stopped)
	f.settle(t)
	f.finish(f.active("n1"), good)
	f.settle(t)
	got := f.state.Jobs["j1"].Summary(f.now)
	if got.Runs != 1 || got.Compiles != 1 || got.Outcome != tutti.VerdictSucceeded {
		t.Errorf("summary %+v, want one run after one compile", got)
	}
	if got.CriticalPath != 2*time.Second {
		t.Errorf("critical path %s, want both processes: 2s", got.CriticalPath)
	}
}

// TestThePathOfAPlan checks the path of a job with run steps. The runs of a step with a limit follow each other. The log
// does not say which run let another one begin.
func TestThePathOfAPlan(t *testing.T) {
	f := newFleet()
	a := run("a")
	a.Run.Limit = 1
	f.start([]tutti.Step{a, run("b", "a")}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1", "n2"), "b": targets("n3")})
	f.settle(t)
	for _, n := range targets("n1", "n2", "n3") {
		f.finish(f.active(n), good)
		f.settle(t)
	}
	j := f.state.Jobs["j1"]
	at := j.StartedAt
	var nodes []tutti.NodeName
	for _, p := range j.Path() {
		if !p.From.Equal(at) || p.Phase == engine.PathWait || p.Phase == engine.PathDecide {
			t.Errorf("%+v, and the part before it ended at %s", p, at)
		}
		if at = p.To; len(nodes) == 0 || nodes[len(nodes)-1] != p.Node {
			nodes = append(nodes, p.Node)
		}
	}
	if !slices.Equal(nodes, targets("n1", "n2", "n3")) || !at.Equal(j.EndedAt) {
		t.Errorf("the path has %v and ends at %s, the job at %s", nodes, at, j.EndedAt)
	}
}

func TestSilenceIsLost(t *testing.T) {
	f := newFleet()
	f.start([]tutti.Step{run("a")}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1")})
	f.settle(t)
	id := f.active("n1")
	v := f.view()
	v.Now = epoch.Add(59 * time.Minute)
	if got := f.state.Decide(v); len(got) != 0 {
		t.Fatalf("decided %v before the silence was long enough", got)
	}
	v.Now = epoch.Add(3 * time.Hour)
	v.Since = epoch.Add(150 * time.Minute)
	if got := f.state.Decide(v); len(got) != 0 {
		t.Fatalf("a server that serves for half an hour decided %v: it must first listen for a whole deadline", got)
	}
	f.now = epoch.Add(2 * time.Hour)
	f.settle(t)
	if j := f.state.Jobs["j1"]; j.Verdict != tutti.VerdictFailed || f.state.Runs[id].Outcome() != tutti.Lost {
		t.Fatalf("verdict %q, outcome %q, want failed because lost", j.Verdict, f.state.Runs[id].Outcome())
	}
	f.finish(id, good)
	if r := f.state.Runs[id]; r.Result == nil || r.Outcome() != tutti.Lost {
		t.Errorf("a late result must be kept and judge nothing again: %+v", r)
	}
}

func TestEveryWaitHasADeadline(t *testing.T) {
	wait := tutti.Step{Name: "w", Timeout: time.Hour, Wait: &tutti.WaitStep{Value: "k"}}
	cases := map[string]struct {
		reason  string
		step    tutti.Step
		claimed bool
		ahead   time.Duration // how far the clock that wrote the log was ahead
		after   time.Duration
	}{
		"unclaimed":   {"a node that beats and never claims", run("a"), false, 0, 3 * time.Hour},
		"no result":   {"a node that beats and never ends its run", run("a"), true, 0, 3 * time.Hour},
		"clock, run":  {"the log was written by a clock that was a year ahead", run("a"), true, 365 * 24 * time.Hour, 3 * time.Hour},
		"clock, wait": {"the wait began at a time to come", wait, false, 365 * 24 * time.Hour, time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFleet()
			f.start([]tutti.Step{tc.step}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1")})
			f.now = epoch.Add(tc.ahead)
			v := f.view()
			for _, b := range f.state.Decide(v) {
				if w, ok := b.(*tutti.RunWanted); ok {
					w.Order.Run = "r1"
				}
				f.append(b)
			}
			if tc.claimed {
				f.append(&tutti.RunClaimed{Run: "r1", Node: "n1"})
			}
			v.Now = epoch.Add(tc.after - time.Second)
			heard := v.Now.Add(time.Millisecond) // a message that arrives during the decision
			v.Seen = func(tutti.NodeName) time.Time { return heard }
			if got := f.state.Decide(v); len(got) != 0 {
				t.Fatalf("%s: decided %v before the deadline", tc.reason, got)
			}
			v.Now = v.Now.Add(time.Second)
			if got := f.state.Decide(v); len(got) != 1 {
				t.Errorf("%s: decided %v, want its end", tc.reason, got)
			}
		})
	}
}

func TestCancelLetsRunsEnd(t *testing.T) {
	f := newFleet()
	f.start([]tutti.Step{run("a"), run("b", "a")}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1"), "b": targets("n1")})
	f.settle(t)
	f.append(&tutti.RunClaimed{Run: f.active("n1"), Node: "n1"})
	f.append(&tutti.JobCancelled{Job: "j1"})
	f.settle(t)
	if f.state.Jobs["j1"].Ended() {
		t.Fatal("the job ended while its run goes on")
	}
	f.finish(f.active("n1"), good)
	f.settle(t)
	if v := f.state.Jobs["j1"].Verdict; v != tutti.VerdictCancelled {
		t.Errorf("verdict %q, want cancelled", v)
	}
}

func TestACancelledJobBeginsNothing(t *testing.T) {
	f := newFleet()
	f.start([]tutti.Step{run("a")}, map[tutti.StepName][]tutti.NodeName{"a": targets("n1", "n2")})
	f.settle(t)
	claimed, wanted := f.active("n1"), f.active("n2")
	f.append(&tutti.RunClaimed{Run: claimed, Node: "n1"})
	f.append(&tutti.JobCancelled{Job: "j1"})
	f.settle(t)
	if f.active("n1") != claimed || f.active("n2") != "" || f.state.Runs[wanted].Outcome() != tutti.Skipped {
		t.Fatalf("active %v, the unclaimed run is %q: want the claimed one alone, and the other skipped", f.state.Active, f.state.Runs[wanted].Outcome())
	}
	f.finish(claimed, good)
	f.settle(t)
	if got := f.state.Jobs["j1"].Summary(f.now); got.Outcome != tutti.VerdictCancelled || got.Runs != 1 || got.Failed != 0 {
		t.Errorf("summary %+v, want one run and the verdict cancelled", got)
	}
}

// TestEveryPrefixResumes executes random plans with random results, and folds the log
// again after random events. The same attempt of a node in a step is never wanted twice.
// The plan's edges and limits hold, and every job ends.
func TestEveryPrefixResumes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet()
		steps, to := drawPlan(t)
		f.start(steps, to)
		results := []tutti.Result{good, good, good, broken, stopped}
		for range 1000 {
			f.settle(t)
			if rapid.Bool().Draw(t, "restart") {
				f.restart()
				f.settle(t)
			}
			checkEdges(t, f.state.Jobs["j1"])
			id := drawActive(t, f.state)
			if id == "" {
				break
			}
			f.finish(id, rapid.SampledFrom(results).Draw(t, "result"))
		}
		for want, times := range f.wants {
			if times != 1 {
				t.Fatalf("%s was wanted %d times", want, times)
			}
		}
		if !f.state.Jobs["j1"].Ended() {
			t.Fatalf("nothing runs and the job has no verdict")
		}
	})
}

func drawPlan(t *rapid.T) ([]tutti.Step, map[tutti.StepName][]tutti.NodeName) {
	var steps []tutti.Step
	to := map[tutti.StepName][]tutti.NodeName{}
	for i := range rapid.IntRange(1, 5).Draw(t, "steps") {
		s := run(tutti.StepName(fmt.Sprintf("s%d", i)))
		for k := range i {
			if rapid.Bool().Draw(t, "edge") {
				s.After = append(s.After, steps[k].Name)
			}
		}
		s.PerNode = rapid.Bool().Draw(t, "per node")
		s.Run.Limit = rapid.IntRange(noLimits, 2).Draw(t, "limit")
		if rapid.Bool().Draw(t, "accept") {
			s.Run.Accept = []tutti.Accept{tutti.AcceptFailedResources}
		}
		for n := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			to[s.Name] = append(to[s.Name], tutti.NodeName(fmt.Sprintf("n%d", n)))
		}
		steps = append(steps, s)
	}
	return steps, to
}

func drawActive(t *rapid.T, s *engine.State) tutti.RunID {
	var ids []tutti.RunID
	for n := range 5 {
		if id := s.Active[tutti.NodeName(fmt.Sprintf("n%d", n))]; id != "" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return rapid.SampledFrom(ids).Draw(t, "run")
}

// checkEdges fails if a step runs before the steps that it depends on are done.
func checkEdges(t *rapid.T, j *engine.Job) {
	for _, st := range j.Steps {
		active := 0
		for _, n := range st.Nodes {
			if n.State != engine.Active {
				continue
			}
			active++
			for _, name := range st.After {
				for _, before := range j.Step(name).Nodes {
					if before.State != engine.Done && (!st.PerNode || before.Node == n.Node) {
						t.Fatalf("%s runs on %s while %s of %s is %s", st.Name, n.Node, before.Node, name, before.State)
					}
				}
			}
		}
		if st.Run.Limit > 0 && active > st.Run.Limit {
			t.Fatalf("%d runs in %s, limit %d", active, st.Name, st.Run.Limit)
		}
	}
}
