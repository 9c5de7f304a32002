package server_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// wholePlan has everything that can happen in a job: reads of other nodes' data, a stop at
// a gate, an accepted failure, and a wait for a value.
const wholePlan = `
fleet: test
environment: {name: production, path: ./code}
groups:
  db: {nodes: [db-01, db-02]}
  web: {nodes: [web-01]}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true, most: 50000}]}
  - {to: web, read: [db/**]}
plans:
  deploy:
    steps:
      - {name: first, run: db, accept: ["failed:resources"]}
      - {wait: {value: db/ready}}
      - {name: second, run: db, limit: 1}
      - {name: third, run: web}
`

// The type `agents` contains what the machines of a fleet remember. If a machine has the marker of
// a run, it never starts this run again.
type agents struct {
	nodes   map[tutti.NodeName]*servertest.Node
	markers map[tutti.RunID]bool
	starts  map[string]int // by place in the plan and attempt
}

func newAgents() *agents {
	return &agents{nodes: map[tutti.NodeName]*servertest.Node{}, markers: map[tutti.RunID]bool{}, starts: map[string]int{}}
}

func (a *agents) move(f *servertest.Fleet) {
	for _, n := range []tutti.NodeName{"db-01", "db-02", "web-01"} {
		a.nodes[n] = f.Node(n)
	}
}

// The method `round` lets every machine do its work, and reports whether any machine had work.
func (a *agents) round(t *testing.T) bool {
	t.Helper()
	any := false
	for _, name := range []tutti.NodeName{"db-01", "db-02", "web-01"} {
		if o := a.nodes[name].Claim(); o != nil {
			any = true
			a.execute(t, a.nodes[name], *o)
		}
	}
	return any
}

func (a *agents) execute(t *testing.T, n *servertest.Node, o tutti.Order) {
	t.Helper()
	if !a.markers[o.Run] {
		a.markers[o.Run] = true
		a.starts[fmt.Sprintf("%s %s %d", o.Step, o.Node, o.Attempt)]++
	}
	read := n.Read(o.Run, collects)
	if o.Step == "second" && o.Node == "db-02" && o.Attempt == 1 {
		read.Digest = tutti.DigestOf([]byte("an answer of yesterday"))
	}
	result := servertest.Result(o.Run, tutti.Changed)
	compiled := tutti.CatalogReport{}
	if o.Node != "web-01" {
		compiled.Values = []string{"db/" + string(o.Node), "db/ready"}
	}
	gated := n.Gate(wire.Gate{Run: o.Run, CatalogReport: compiled, Reads: []tutti.Read{read}, Exports: exportsOf(o)})
	if gated.Verdict == tutti.GateStop {
		result.Outcome, result.Stopped = "", true
	} else if o.Step == "first" {
		result.Outcome, result.Reason = tutti.Failed, tutti.BecauseResources
		if err := n.Publish(o.Run, "db/"+string(o.Node), `"up"`); err != nil {
			t.Fatal(err)
		}
		if err := n.Publish(o.Run, "db/ready", "true"); err != nil && tutti.CodeOf(err) != tutti.CodeConflict {
			t.Fatal(err) // a conflict means that the other machine was faster
		}
	}
	if err := n.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
}

func exportsOf(o tutti.Order) []tutti.Export {
	if o.Step == "third" {
		return nil
	}
	e := database(string(o.Node) + " " + string(o.Step))
	e.Parameters["attempt"] = json.RawMessage(fmt.Sprint(o.Attempt))
	return []tutti.Export{e}
}

// outcome describes the end of a job, without the parts that may depend on restarts.
type outcome struct {
	Verdict tutti.Verdict
	Runs    int
	Stops   int
	Failed  int
	Values  map[string]string
	Exports []string
	Wanted  map[string]int // orders, by place in the plan and attempt
}

func outcomeOf(t *testing.T, f *servertest.Fleet, job tutti.JobID) outcome {
	t.Helper()
	j := f.Job(job)
	out := outcome{Verdict: j.Verdict, Runs: j.Runs, Stops: j.Compiles, Failed: j.Failed, Values: map[string]string{}, Wanted: map[string]int{}}
	values, err := f.ListValues(servertest.Operator(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		out.Values[v.Key] = string(v.Value)
	}
	for _, e := range f.Events() {
		if b, ok := e.Body.(*tutti.RunWanted); ok {
			out.Wanted[fmt.Sprintf("%s %s %d", b.Order.Step, b.Order.Node, b.Order.Attempt)]++
		}
	}
	// The list has the exports at the end, as a run of another job sees them.
	f.Start("deploy", tutti.ModeNoop)
	n := f.Node("db-01")
	for _, e := range n.Ask(n.MustClaim().Run, collects).Exports {
		out.Exports = append(out.Exports, fmt.Sprintf("%s %s", e.Node, e.Title))
	}
	return out
}

// The method `finish` lets a job go on until it ends.
func (a *agents) finish(t *testing.T, f *servertest.Fleet, job tutti.JobID) outcome {
	t.Helper()
	a.move(f)
	// A server that has just started decides at its first request. So the job is only idle
	// after two rounds without work.
	idle := 0
	for range 100 {
		if a.round(t) {
			idle = 0
			continue
		}
		if idle++; idle == 2 {
			return outcomeOf(t, f, job)
		}
	}
	t.Fatal("the job does not end")
	return outcome{}
}

// TestEveryPrefixOfAJobGoesOn cuts the log of a job after each event, as a kill of the server could do, and
// lets another server go on. The end must be the same, and nothing may be ordered or started twice.
func TestEveryPrefixOfAJobGoesOn(t *testing.T) {
	f := servertest.Start(t)
	for _, n := range []tutti.NodeName{"db-01", "db-02", "web-01"} {
		f.Join(n)
	}
	f.Push(wholePlan)
	first := uint64(len(f.Everything()) + 1)
	job := f.Start("deploy", tutti.ModeApply)
	a := newAgents()
	a.move(f)
	for a.round(t) {
	}
	events := f.Everything()
	last := uint64(len(events))
	want := outcomeOf(t, f, job)
	if want.Verdict != tutti.VerdictSucceeded || want.Runs != 5 || want.Stops != 1 || want.Failed != 2 || len(want.Values) != 3 {
		t.Fatalf("without a restart: %+v", want)
	}
	for cut := first; cut <= last; cut++ {
		t.Run(fmt.Sprintf("%d %s", cut, events[cut-1].Body.Kind()), func(t *testing.T) {
			log, survivors := prefix(t, f.Log, cut)
			next := servertest.Resume(t, log, f.Blobs)
			got := survivors.finish(t, next, job)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			for place, n := range survivors.starts {
				if n != 1 {
					t.Errorf("%s was started %d times", place, n)
				}
			}
			if len(survivors.starts) != len(want.Wanted) {
				t.Errorf("started %v, want each of %v once", survivors.starts, want.Wanted)
			}
		})
	}
}

// The function `prefix` returns a log that is cut after an event, and the memory of the
// machines at that time. A machine that has claimed a run may have started it.
func prefix(t *testing.T, log *memory.Log, cut uint64) (*memory.Log, *agents) {
	t.Helper()
	out, a := log.Prefix(cut), newAgents()
	orders := map[tutti.RunID]tutti.Order{}
	for _, e := range servertest.Events(t, out) {
		switch b := e.Body.(type) {
		case *tutti.RunWanted:
			orders[b.Order.Run] = b.Order
		case *tutti.RunClaimed:
			o := orders[b.Run]
			a.markers[b.Run] = true
			a.starts[fmt.Sprintf("%s %s %d", o.Step, o.Node, o.Attempt)]++
		}
	}
	return out, a
}
