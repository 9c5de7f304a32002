package server_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

func factsDigest(text string) tutti.Digest { return tutti.DigestOf([]byte(text)) }

// The method `compiles` lets db-01 claim a run and report a catalog that was compiled with these facts.
func (h *factsHouse) compiles(facts string) (tutti.RunID, tutti.GateVerdict) {
	h.t.Helper()
	run, same := h.db.MustClaim().Run, factsDigest("catalog")
	gate := wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Catalog: same, Sources: same, Lib: same, Facts: factsDigest(facts)}}
	h.db.Gate(gate)
	synctest.Wait()
	return run, h.db.Gate(gate).Verdict
}

// The method `pass` lets db-01 compile with these facts, pass the gate of a converge job, change something and end the
// run.
func (h *factsHouse) pass(facts string) tutti.RunID {
	h.t.Helper()
	run, verdict := h.compiles(facts)
	if verdict != tutti.GateGo {
		h.t.Fatalf("the gate says %s", verdict)
	}
	result := servertest.Result(run, tutti.Changed)
	result.Counts.Changed = 1
	h.end(result)
	return run
}

func (h *factsHouse) end(result tutti.Result) {
	h.t.Helper()
	if err := h.db.Call(wire.OpResult, result, nil); err != nil {
		h.t.Fatal(err)
	}
}

// The method `stopped` reports the end of a run that the gate has stopped.
func (h *factsHouse) stopped(run tutti.RunID) {
	h.t.Helper()
	result := servertest.Result(run, "")
	result.Stopped = true
	h.end(result)
}

func (h *factsHouse) standing() api.NodeStanding {
	h.t.Helper()
	d, err := h.f.ShowNode(servertest.Operator(), "db-01")
	if err != nil {
		h.t.Fatal(err)
	}
	return d.Standing
}

type factsHouse struct {
	t  *testing.T
	f  *servertest.Fleet
	db *servertest.Node
}

// The method `tell` reports the present facts of the node.
func (h *factsHouse) tell(run tutti.RunID, facts string, changed ...string) error {
	return h.db.Call(wire.OpFacts, tutti.FactsSeen{Run: run, Facts: factsDigest(facts), Changed: changed}, nil)
}

func (h *factsHouse) events() int {
	n := 0
	for _, e := range h.f.Events() {
		if _, is := e.Body.(*tutti.NodeFacts); is {
			n++
		}
	}
	return n
}

func newFactsHouse(t *testing.T) *factsHouse {
	f := servertest.Start(t)
	f.Push(everyFleet)
	f.PushSite("notify { 'one': }\n")
	return &factsHouse{t, f, f.Join("db-01")}
}

func (h *factsHouse) converge() tutti.JobID {
	h.t.Helper()
	j, err := h.f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{Target: "db-01"}, Mode: tutti.ModeApply})
	if err != nil {
		h.t.Fatal(err)
	}
	return j
}

// TestOtherFactsMakeANodeSuspect checks that the server compares the facts after a run with the
// facts of the run's compile, also after a restart. One job then compiles the node again.
func TestOtherFactsMakeANodeSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFactsHouse(t)
		h.db.Claim() // with the claim, the agent reports its capabilities
		h.converge()
		run := h.pass("before")
		if s := h.standing(); s.State != api.NodeGood {
			t.Fatalf("before it has told: %+v", s)
		}
		h.must(h.tell(run, "with sshd", "ssh"))
		h.f = h.f.Restart()
		h.db.Fleet = h.f
		h.wants(api.NodeSuspect, "its facts have changed since its last run: ssh")

		proof, verdict := h.compiles("with sshd")
		if verdict != tutti.GateStop {
			t.Fatalf("the proof is told %s", verdict)
		}
		h.stopped(proof)
		for range 2 { // the second report is not new
			h.must(h.tell(proof, "with sshd"))
		}
		if n := h.events(); n != 2 {
			t.Errorf("%d events", n)
		}
		h.wants(api.NodeGood, "")
		if j := h.f.Job("converge-1"); j.Verdict != tutti.VerdictConverged {
			t.Errorf("%+v", j)
		}
		// Between two runs, a node may report changed facts only once in ten seconds.
		if err := h.tell(proof, "third"); tutti.CodeOf(err) != tutti.CodeUnavailable {
			t.Errorf("at once: %v", err)
		}
		time.Sleep(10 * time.Second)
		h.must(h.tell(proof, "third"))
		h.wants(api.NodeSuspect, "its facts have changed since its last run")
		time.Sleep(10 * time.Second)
		h.must(h.tell(proof, "with sshd"))
		h.wants(api.NodeGood, "")
	})
}

func (h *factsHouse) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *factsHouse) wants(state api.NodeState, why string) {
	h.t.Helper()
	if s := h.standing(); s.State != state || s.Why != why {
		h.t.Errorf("%s, %q, want %s, %q", s.State, s.Why, state, why)
	}
}

// TestAFactThatIsVolatileNoMore checks a fleet file that removes a name from the list of volatile facts. While the fact
// was volatile, nobody compared it. So the node is suspect until a compile has used the present list. If a name is
// added to the list, nothing changes.
func TestAFactThatIsVolatileNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFactsHouse(t)
		volatile := func(names string) { setFleet(t, h.f, everyFleet+"facts: {volatile: ["+names+"]}\n") }
		volatile("role, site")
		h.converge()
		h.must(h.tell(h.pass("without role"), "without role"))
		h.wants(api.NodeGood, "")
		volatile("more, site, role")
		h.wants(api.NodeGood, "")
		volatile("site")
		h.wants(api.NodeSuspect, `the fact "role" was volatile at its last run, and nobody has compared it since`)
		h.converge()
		proof, verdict := h.compiles("with role")
		if verdict != tutti.GateStop {
			t.Fatalf("the proof is told %s", verdict)
		}
		h.stopped(proof)
		h.must(h.tell(proof, "with role"))
		h.wants(api.NodeGood, "")
		volatile("site, role")
		h.wants(api.NodeGood, "")
		setFleet(t, h.f, everyFleet)
		h.wants(api.NodeSuspect, `the fact "site" was volatile at its last run, and nobody has compared it since`)
	})
}

// TestFactsOfWhichNothingFollows checks reports of facts that have no effect: for a run that is
// not the latest of the node, for a run of another node, and in a form that no agent sends.
func TestFactsOfWhichNothingFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFactsHouse(t)
		other := h.f.Join("web-01")
		h.converge()
		first := h.pass("before")
		if err := h.tell(first, "before"); err != nil {
			t.Fatal(err)
		}
		n := h.events()
		if err := other.Call(wire.OpFacts, tutti.FactsSeen{Run: first, Facts: factsDigest("x")}, nil); tutti.CodeOf(err) != tutti.CodeRefused {
			t.Errorf("of another node's run: %v", err)
		}
		h.f.PushSite("notify { 'two': }\n")
		h.converge()
		// The server keeps no facts while a run is wanted. The node must report them later, because
		// the run may never begin to apply.
		if err := h.tell(first, "while a run is wanted"); tutti.CodeOf(err) != tutti.CodeUnavailable {
			t.Errorf("while a run is wanted: %v", err)
		}
		second, _ := h.compiles("before")
		h.stopped(second)
		if err := h.tell(first, "of the run before"); err != nil {
			t.Fatal(err)
		}
		if h.events() != n {
			t.Errorf("%d events more", h.events()-n)
		}
		for name, in := range map[string]tutti.FactsSeen{
			"no run": {Facts: factsDigest("x")}, "no digest": {Run: first},
			"eleven names":  {Run: first, Facts: factsDigest("x"), Changed: make([]string, 11)},
			"an empty name": {Run: first, Facts: factsDigest("x"), Changed: []string{""}},
		} {
			if err := h.db.Call(wire.OpFacts, in, nil); tutti.CodeOf(err) != tutti.CodeInvalid {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestAPersonsJobHasFreshFacts checks that in the job of a person the first run of a node
// collects new facts, and later runs do not.
func TestAPersonsJobHasFreshFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFactsHouse(t)
		h.converge()
		o := h.db.MustClaim()
		if !o.FreshFacts {
			t.Errorf("the first run of a person's job may use facts of before")
		}
		gate := wire.Gate{Run: o.Run, CatalogReport: tutti.CatalogReport{Catalog: factsDigest("c")}, Reads: []tutti.Read{{Query: asksShared, Found: true, Digest: factsDigest("old")}}}
		h.db.Gate(gate)
		synctest.Wait()
		if g := h.db.Gate(gate); g.Verdict != tutti.GateStop {
			t.Fatalf("%+v", g)
		}
		h.stopped(o.Run)
		if again := h.db.MustClaim(); again.FreshFacts {
			t.Error("the second run of the job must collect its own facts")
		}
	})
}

// TestANodeCannotFloodTheLogWithFacts checks the limit of reports also for a node that reports about two runs in turns.
func TestANodeCannotFloodTheLogWithFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFactsHouse(t)
		h.db.Claim()
		h.converge()
		runs := []tutti.RunID{h.pass("before")}
		h.must(h.tell(runs[0], "before"))
		h.f.PushSite("notify { 'two': }\n")
		h.converge()
		runs = append(runs, h.db.MustClaim().Run)
		h.end(servertest.Result(runs[1], tutti.Skipped))
		time.Sleep(time.Minute)
		before := h.events()
		for i := range 100 {
			_ = h.tell(runs[i%2], fmt.Sprint("facts ", i)) // the server refuses or ignores most of these reports
		}
		if n := h.events() - before; n > 2 {
			t.Errorf("%d events", n)
		}
	})
}
