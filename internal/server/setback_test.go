package server_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// oneNode is a fleet in which only converge jobs cause runs.
const oneNode = "fleet: test\nenvironment: {name: production, path: ./code}\ngroups:\n  db: {nodes: [db-01]}\n"

// The type `fenced` is a fleet with the node db-01, whose agent keeps fences.
type fenced struct {
	*servertest.Fleet
	t  *testing.T
	db *servertest.Node
}

func newFenced(t *testing.T) *fenced {
	t.Helper()
	f := &fenced{Fleet: servertest.Start(t), t: t}
	f.db = f.Join("db-01")
	f.db.Agent = wire.Claim{Version: "now", Knows: tutti.Capabilities(), Begun: &tutti.Fence{}}
	f.Push(oneNode)
	return f
}

func (f *fenced) restart(change ...func(*server.Options)) {
	f.t.Helper()
	f.Fleet = f.Restart(change...)
	f.db.Fleet = f.Fleet
}

// The method `converge` starts a job that converges the fleet.
func (f *fenced) converge() tutti.JobID {
	f.t.Helper()
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
	if err != nil {
		f.t.Fatal(err)
	}
	return job
}

// The method `claim` asks for work as the agent does, and begins the order.
func (f *fenced) claim() *tutti.Order {
	f.t.Helper()
	var out wire.Claimed
	if err := f.db.Call(wire.OpClaim, f.db.Agent, &out); err != nil {
		f.t.Fatal(err)
	}
	if out.Order != nil {
		f.db.Agent.Begun = &out.Fence
	}
	f.db.Agent.Seen = out.Position
	return out.Order
}

// The function `full` returns a gate with everything that a proof needs.
func full(run tutti.RunID) wire.Gate {
	digest := tutti.DigestOf([]byte("same"))
	return wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Catalog: digest, Sources: digest, Lib: digest, Facts: digest}}
}

// The method `prove` starts a converge job in which the node compiles once and proves that it is good.
func (f *fenced) prove() {
	f.t.Helper()
	f.converge()
	order := f.claim()
	f.db.Gate(full(order.Run))
	if gated := f.db.Gate(full(order.Run)); gated.Verdict != tutti.GateStop {
		f.t.Fatalf("the gate says %+v: want a proof", gated)
	}
	result := servertest.Result(order.Run, "")
	result.Stopped = true
	if err := f.db.Call(wire.OpResult, result, nil); err != nil {
		f.t.Fatal(err)
	}
}

// The method `pass` starts a converge job in which the node runs once, and returns this run.
func (f *fenced) pass() tutti.RunID {
	f.t.Helper()
	job := f.converge()
	order := f.claim()
	if order == nil {
		f.t.Fatalf("nothing to claim for a stale node: %+v", f.Job(job))
	}
	f.db.Gate(full(order.Run))
	f.db.Finish(order.Run)
	if v := f.Job(job); v.Verdict != tutti.VerdictConverged {
		f.t.Fatalf("job %s: %s: %s", job, v.Verdict, v.Message)
	}
	return order.Run
}

// The method `why` returns what db-01 needs, and the reason.
func (f *fenced) why() string {
	f.t.Helper()
	x, err := f.ExplainNode(servertest.Operator(), "db-01")
	if err != nil {
		f.t.Fatal(err)
	}
	return string(x.Standing.State) + ": " + x.Standing.Why
}

// wantWhy checks what db-01 needs. If `want` is "good: ", the result of `why` must begin with this text. If `want` is
// another text, the result must contain this text.
func (f *fenced) wantWhy(when, want string) {
	f.t.Helper()
	why := f.why()
	if good := strings.HasPrefix(why, "good: "); good != (want == "good: ") || !good && !strings.Contains(why, want) {
		f.t.Errorf("%s: %s; want %q", when, why, want)
	}
}

// The method `applies` lets db-01 do a full run, because a proof is not enough. The node needs the run until the run
// has passed its gate. After the run the node is good.
func (f *fenced) applies(reason, want string) {
	f.t.Helper()
	f.converge()
	order := f.claim()
	if order == nil || order.Proof {
		f.t.Fatalf("%s: the order is %+v: want a full run that no proof ends", reason, order)
	}
	f.wantWhy(reason+", before its gate", want)
	f.db.Gate(full(order.Run))
	f.db.Finish(order.Run)
	f.wantWhy(reason+", after a full run", "good: ")
}

// The method `ending` returns the outcome of a run. The method returns an empty outcome while the run goes on.
func (f *fenced) ending(run tutti.RunID) (out tutti.Outcome) {
	for _, e := range f.Events() {
		switch b := e.Body.(type) {
		case *tutti.RunFinished:
			if b.Result.Run == run {
				out = b.Result.Outcome
			}
		case *tutti.RunLost:
			if b.Run == run {
				out = tutti.Lost
			}
		}
	}
	return out
}

// If a machine was set back to an earlier state, the runs that it has forgotten do not make
// it good (finding F3 b). A new run makes the machine good, but a proof does not.
func TestANodeThatWasSetBackIsNotGood(t *testing.T) {
	f := newFenced(t)
	f.pass()
	snapshot := *f.db.Agent.Begun
	f.PushSite("# two")
	lost := f.pass()
	if why := f.why(); why != "good: " {
		t.Fatalf("before: %s", why)
	}

	f.db.Agent.Begun = &snapshot
	f.claim()
	wantContains(t, f.why(), "it was set back to before run "+string(lost))
	n := len(f.Events())
	f.claim()
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("said twice: %v", got)
	}
	f.restart()
	wantContains(t, f.why(), "it was set back to before run "+string(lost))

	again := f.pass()
	if why := f.why(); why != "good: " {
		t.Errorf("after one run: %s", why)
	}
	f.db.Agent.Begun = &snapshot // the node is set back to the same state again
	f.claim()
	wantContains(t, f.why(), "it was set back to before run "+string(again))
}

// If a machine has forgotten a run that passed its gate, it does not get this run again (finding F3 a).
func TestARunIsNotGivenTwiceToANodeThatWasSetBack(t *testing.T) {
	f := newFenced(t)
	f.pass()
	snapshot := *f.db.Agent.Begun
	f.PushSite("# two")
	f.converge()
	first := f.claim()
	f.db.Gate(full(first.Run))

	f.db.Agent.Begun = &snapshot
	if again := f.claim(); again != nil && again.Run == first.Run {
		t.Fatalf("run %s is ordered again after its gate", again.Run)
	}
	if got := f.ending(first.Run); got != tutti.Interrupted {
		t.Errorf("run %s ended %q", first.Run, got)
	}
	// If the machine had begun the run but not reached the gate, nothing has changed. So the machine may get the
	// run again.
	f = newFenced(t)
	f.pass()
	snapshot = *f.db.Agent.Begun
	f.PushSite("# two")
	f.converge()
	first = f.claim()
	f.db.Agent.Begun = &snapshot
	if again := f.claim(); again == nil || again.Run != first.Run {
		t.Errorf("run %s, which has changed nothing, was not ordered again: %+v", first.Run, again)
	}
}

// A log that was restored from a backup does not contain what the nodes have done since the backup.
func TestANodeThatHasBegunMoreThanTheLogKnows(t *testing.T) {
	f := newFenced(t)
	f.pass()
	f.db.Agent.Begun.Seq += 1000
	f.claim()
	wantContains(t, f.why(), "the server was set back")
	f.pass()
	if why := f.why(); why != "good: " {
		t.Errorf("after one run: %s", why)
	}
}

// The following cases do not mean that the past of a node was lost.
func TestWhatIsNoSetBack(t *testing.T) {
	cases := map[string]func(f *fenced){
		"an agent of an earlier release": func(f *fenced) { f.db.Agent.Begun = nil },
		"an agent that was upgraded, its runs kept no fence": func(f *fenced) {
			f.db.Agent = wire.Claim{}
			f.PushSite("# two")
			f.pass0()
			f.db.Agent = wire.Claim{Version: "now", Knows: tutti.Capabilities(), Begun: &tutti.Fence{}}
		},
		"a run that ended before Puppet was started": func(f *fenced) {
			begun := f.db.Agent.Begun
			f.PushSite("# two")
			f.converge()
			order := f.claim()
			f.db.Agent.Begun = begun
			skipped := servertest.Result(order.Run, tutti.Skipped)
			if err := f.db.Call(wire.OpResult, skipped, nil); err != nil {
				f.t.Fatal(err)
			}
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFenced(t)
			f.pass()
			change(f)
			n := len(f.Events())
			f.claim()
			for _, kind := range f.Since(n) {
				if kind == "node.setback" {
					t.Errorf("%s: %s", name, f.why())
				}
			}
		})
	}
}

// pass0 is like pass, but for an agent of release 0.2.0.
func (f *fenced) pass0() {
	f.t.Helper()
	f.converge()
	order := f.db.MustClaim()
	f.db.Gate(full(order.Run))
	f.db.Finish(order.Run)
}

// The fence of an earlier machine with the same name says nothing about the present machine.
func TestTheFenceOfAMachineThatHadTheNameBefore(t *testing.T) {
	f := newFenced(t)
	f.pass()
	if err := f.RemoveNode(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	agent := f.db.Agent
	f.db = f.Join("db-01")
	f.db.Agent = agent // the disk of the machine was not erased
	n := len(f.Events())
	f.claim()
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("a machine that has joined again and never ran: %v", got)
	}
}

// If a run has passed its gate, a second gate of this run must have the same catalog. Puppet can
// run twice for one order.
func TestTheSecondGateOfARunIsComparedWithTheFirst(t *testing.T) {
	f := newFenced(t)
	f.converge()
	run := f.claim().Run
	first := f.db.Gate(full(run))
	if again := f.db.Gate(full(run)); first.Verdict == tutti.GateStop || again.Verdict != tutti.GateGo {
		t.Errorf("the same gate again: %+v, before %+v", again, first)
	}
	other := full(run)
	other.Catalog = tutti.DigestOf([]byte("other"))
	wantCode(t, f.db.Call(wire.OpGate, other, nil), tutti.CodeRefused, "another catalog")
}

// The type `epochs` remembers the epoch, as the server's directory does.
type epochs struct {
	last  tutti.Epoch
	above uint64
}

func (e *epochs) Last() (tutti.Epoch, uint64) { return e.last, e.above }
func (e *epochs) Began(now tutti.Epoch) error { e.last, e.above = now, 0; return nil }

// Each restore begins a new epoch. Nodes refuse a server whose log went back (findings F4, F14).
func TestEpochs(t *testing.T) {
	f := newFenced(t)
	f.claim()
	first := f.db.Agent.Seen
	if first.Epoch.Number != 1 || first.Epoch.Random == "" {
		t.Fatalf("the first epoch is %+v", first.Epoch)
	}
	memory := &epochs{above: 1}
	f.restart(func(o *server.Options) { o.Epochs = memory })
	f.claim()
	second := f.db.Agent.Seen
	if second.Epoch.Number != 2 || second.Epoch != memory.last || memory.above != 0 || second.Epoch.Random == first.Epoch.Random {
		t.Errorf("after a restore: %+v, noted %+v", second, memory)
	}

	for name, seen := range map[string]tutti.Position{
		"the log is behind what was seen":  {Epoch: second.Epoch, Seq: second.Seq + 1000},
		"the log has gone back, and on":    {Epoch: second.Epoch, Seq: second.Seq, Link: tutti.DigestOf(nil)},
		"of an earlier epoch":              {Epoch: tutti.Epoch{Number: 3, Random: "x"}},
		"a copy that was restored as well": {Epoch: tutti.Epoch{Number: 2, Random: "x"}},
	} {
		f.db.Agent.Seen = seen
		n := len(f.Events())
		wantCode(t, f.db.Call(wire.OpClaim, f.db.Agent, nil), tutti.CodeDamaged, "tutti server new-epoch")
		if got := f.Since(n); len(got) != 0 {
			t.Errorf("%s: appended %v", name, got)
		}
	}
	f.db.Agent.Seen = tutti.Position{Epoch: tutti.Epoch{Number: 1 << 60, Random: "x"}}
	// The server refuses this large epoch, because the next restore must begin a still larger one.
	wantCode(t, f.db.Call(wire.OpClaim, f.db.Agent, nil), tutti.CodeInvalid, "at most 9007199254740992")
	f.db.Agent.Seen = first
	if err := f.db.Call(wire.OpClaim, f.db.Agent, nil); err != nil {
		t.Errorf("a node that has seen the epoch before: %v", err)
	}
}

// A run was wanted before a restore. If the agent cannot say whether it has begun the run, the
// server does not order the run again. If the agent can say so, the run keeps its fence.
func TestARunFromBeforeARestore(t *testing.T) {
	f := newFenced(t)
	job := f.converge()
	run := f.claim().Run
	fence := *f.db.Agent.Begun
	f.restart(func(o *server.Options) { o.Epochs = &epochs{above: 1} })
	var again wire.Claimed
	if err := f.db.Call(wire.OpClaim, f.db.Agent, &again); err != nil || again.Order == nil || again.Order.Run != run || again.Fence != fence {
		t.Fatalf("claimed again: %+v: %v, want run %s with the fence %+v", again, err, run, fence)
	}
	f.db.Agent = wire.Claim{}
	if order := f.db.Claim(); order != nil && order.Run == run {
		t.Errorf("an agent that keeps no fences is given run %s again", run)
	}
	if got := f.ending(run); got != tutti.Lost {
		t.Errorf("run %s of job %s ended %q", run, job, got)
	}
}

// The server does not serve if its log is not the log that it served before.
func TestALogThatWasExchangedIsNotServed(t *testing.T) {
	cases := map[string]struct {
		last tutti.Epoch
		code tutti.Code
	}{
		"the same log":   {tutti.Epoch{}, ""},
		"an earlier one": {tutti.Epoch{Number: 2, Random: "x"}, tutti.CodeDamaged},
		"another one":    {tutti.Epoch{Number: 1, Random: "x"}, tutti.CodeDamaged},
		"not yet noted":  {tutti.Epoch{Number: 0}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := servertest.Start(t)
			memory := &epochs{last: tc.last}
			if name == "the same log" {
				memory.last = f.Position().Epoch
			}
			if err := f.Stop(); err != nil {
				t.Fatal(err)
			}
			core := server.New(server.Options{
				Log: f.Log, Blobs: f.Blobs, Bus: f.Bus, Identity: f.Identity, NewRunID: servertest.NewRunID, Epochs: memory,
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- core.Run(ctx) }()
			select {
			case <-core.Ready():
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if tc.code != "" {
					t.Error("it is served")
				}
			case err := <-ended:
				wantCode(t, err, tc.code, "nothing was changed")
			}
			cancel()
		})
	}
}

// The machine was set back to a snapshot from the middle of its last run. The server has the result of this run, and
// the node now reports another result.
func TestANodeThatWasSetBackIntoItsLastRun(t *testing.T) {
	f := newFenced(t)
	run := f.pass()
	n := len(f.Events())
	f.db.Finish(run)
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("the same result again: %v", got)
	}
	if err := f.db.Call(wire.OpResult, servertest.Result(run, tutti.Interrupted), nil); err != nil {
		t.Fatal(err)
	}
	f.claim()
	wantContains(t, f.why(), "it was set back to before run "+string(run)+" ended")
	f.pass()
	if why := f.why(); why != "good: " {
		t.Errorf("after one run: %s", why)
	}
}

// An agent is upgraded between the claim of a run and the beginning of the run. The new agent keeps a fence of this
// run as well.
func TestAnUpgradeInTheMiddleOfAClaim(t *testing.T) {
	f := newFenced(t)
	f.db.Agent = wire.Claim{}
	f.pass0()
	f.PushSite("# two")
	f.converge()
	first := f.db.MustClaim()
	f.db.Agent = wire.Claim{Version: "now", Knows: tutti.Capabilities(), Begun: &tutti.Fence{}}
	again := f.claim()
	if again == nil || again.Run != first.Run {
		t.Fatalf("claimed again: %+v, want run %s", again, first.Run)
	}
	f.claim()
	if why := f.why(); strings.Contains(why, "set back") {
		t.Errorf("after an upgrade: %s", why)
	}
	f.db.Gate(full(first.Run))
	f.db.Agent.Begun = &tutti.Fence{}
	if order := f.claim(); order != nil && order.Run == first.Run {
		t.Errorf("run %s is ordered again after its gate", first.Run)
	}
}

// There are two cases: an agent's state is copied to another machine and the first machine stays off, or a machine is
// installed again and keeps the agent's state. In both cases the machine lacks the results of the last run, so the
// node must run.
func TestANodeOnAnotherMachine(t *testing.T) {
	f := newFenced(t)
	hello := func(name string, machine tutti.Digest) {
		t.Helper()
		f.db.Machine = machine
		if err := f.db.Hello(ticket(name), "boot"); err != nil {
			t.Fatal(err)
		}
	}
	one, two := tutti.DigestOf([]byte("one")), tutti.DigestOf([]byte("two"))
	hello("t1", "")
	f.pass()
	hello("t2", one) // the agent of the node was upgraded
	f.wantWhy("the machine is known", "good: ")
	hello("t3", one)
	hello("t4", "")
	f.wantWhy("it is the same", "good: ")
	hello("t5", two)
	f.wantWhy("it is another one", "another machine")
	f.restart()
	hello("t6", two)
	f.wantWhy("a restart later", "another machine")
	f.pass()
	f.wantWhy("it has run there", "good: ")
	hello("t7", one)
	f.wantWhy("it is the first one again", "another machine")
	for _, other := range []tutti.Digest{two, one, two} {
		hello("t8"+string(other[len(other)-4:]), other)
	}
	n := 0
	for _, e := range f.Everything() {
		if _, is := e.Body.(*tutti.NodeSetBack); is {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d times in the log, want 2: what is known is not said again", n)
	}
}

// The state of an agent is copied to another machine, and that machine joins again with the same key and another token.
// The results of the last run are not on this machine. A machine that joins again by itself stays good.
func TestANodeThatJoinsAgainOnAnotherMachine(t *testing.T) {
	one, two := tutti.DigestOf([]byte("one")), tutti.DigestOf([]byte("two"))
	for machine, want := range map[tutti.Digest]string{one: "good: ", two: "another machine"} {
		f := newFenced(t)
		f.db.Machine = one
		if err := f.db.Hello(ticket("t1"), "boot"); err != nil {
			t.Fatal(err)
		}
		f.pass()
		agent, has := f.db.Agent, f.db.Ticket
		f.db = f.Join("db-01")
		f.db.Agent, f.db.Ticket, f.db.Machine = agent, has, machine
		f.restart()
		if err := f.db.Hello(ticket("t2"), "boot"); err != nil {
			t.Fatal(err)
		}
		f.wantWhy("it has joined again", want)
	}
}
