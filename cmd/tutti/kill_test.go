//go:build killpoints

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
)

// The list `unstarted` has the points at which an agent has written the marker but not started
// Puppet. After a crash nobody can know whether Puppet has started, so the run is `interrupted` and
// is not tried again.
var unstarted = []string{"durable.renamed run.json", "durable.done run.json"}

// The list `beside` has kill points of an agent that this test leaves out, because they are not
// part of a run. If the server is not ready when the agent asks for its lease, the agent asks again
// later. The load of the machine decides whether this happens before the job ends.
// TestAnExclusiveJobKilledAtEveryPoint kills the agent at these points, because its job waits for
// the agent's answer.
var beside = []string{"agent.calls lease", "agent.answered lease"}

// The keys of the map `greeting` are the ends of the names of the kill points in a ticket exchange.
// The numbers say how often one exchange passes each point. Whether an agent exchanges its ticket a
// second time depends on when the server starts.
var greeting = map[string]int{"agent.ticket": 1, "agent.calls hello": 1, "agent.answered hello": 1, " node.connected": 1, " ticket.json": 2}

// TestKilledAtEveryPoint runs a job once and records every kill point that server and agent pass.
// After that, TestKilledAtEveryPoint repeats the job for each point. TestKilledAtEveryPoint kills
// the process at the point with SIGKILL and starts the process again. The job must end as it does
// without a kill, and no Puppet may start twice.
func TestKilledAtEveryPoint(t *testing.T) {
	tpl := newTemplate(t, killSite+"db-01 owe Service[x]\n")
	noted := t.TempDir()
	to := map[string]string{}
	for _, name := range []string{serverProcess, dbProcess} {
		to[name] = killpoint.To + "=" + filepath.Join(noted, name)
	}
	f := tpl.fleet(t, to)
	want, err := f.outcome(t.Context())
	f.clear(t)
	if err != nil {
		t.Fatal(err)
	}
	if want.Verdict != tutti.VerdictSucceeded || len(want.Runs) != 2 || len(want.Values) != 2 || want.Starts[dbProcess] != 1 || want.Starts[webProcess] != 1 ||
		!slices.Equal(want.Runs[0].Owed, []string{"Service[x]"}) {
		t.Fatalf("without a kill: %+v", want)
	}
	var cases []killCase
	for _, name := range []string{serverProcess, dbProcess} {
		cases = append(cases, casesOf(t, name, filepath.Join(noted, name))...)
	}
	cases = slices.DeleteFunc(cases, func(c killCase) bool {
		point, nth, _ := strings.Cut(c.point, "#")
		n, err := strconv.Atoi(nth)
		if err != nil {
			t.Fatal(err)
		}
		for of, once := range greeting {
			if strings.HasSuffix(point, of) && n > once {
				return true
			}
		}
		return slices.Contains(beside, point)
	})
	t.Logf("%d points", len(cases))
	got := make([]outcome, len(cases))
	errs := make([]error, len(cases))
	var working sync.WaitGroup
	next := make(chan int)
	for range 6 { // six workers at once, because a worker mostly waits
		working.Go(func() {
			for i := range next {
				got[i], errs[i] = cases[i].try(t, tpl)
			}
		})
	}
	for i := range cases {
		next <- i
	}
	close(next)
	working.Wait()
	for i, c := range cases {
		t.Run(fmt.Sprintf("%s %s", c.process, c.point), func(t *testing.T) {
			if errs[i] != nil {
				t.Fatal(errs[i])
			}
			wanted := want
			if c.process == dbProcess && slices.ContainsFunc(unstarted, func(p string) bool { return strings.HasPrefix(c.point, p+"#") }) {
				wanted = interrupted(want)
			}
			if diff := cmp.Diff(wanted, got[i]); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// killCase is one kill point of a process, written as NAME#N.
type killCase struct{ process, point string }

func casesOf(t *testing.T, process, file string) []killCase {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%s passed no point: %v", process, err)
	}
	var out []killCase
	passed := map[string]int{}
	for name := range strings.Lines(string(raw)) {
		name = strings.TrimSuffix(name, "\n")
		passed[name]++
		out = append(out, killCase{process, fmt.Sprintf("%s#%d", name, passed[name])})
	}
	return out
}

func (c killCase) try(t *testing.T, tpl template) (outcome, error) {
	f := tpl.fleet(t, map[string]string{c.process: killpoint.At + "=" + c.point})
	defer f.clear(t)
	got, err := f.outcome(t.Context())
	if err == nil {
		err = f.died(t.Context())
	}
	return got, err
}

// The type `outcome` is the part of a job's result that must not depend on a kill.
type outcome struct {
	Verdict tutti.Verdict
	Runs    []runOutcome
	Values  map[string]string
	Starts  map[string]int
}

type runOutcome struct {
	Node      tutti.NodeName
	Outcome   tutti.Outcome
	Published map[string]tutti.Digest
	Reads     map[string]tutti.Digest
	Exports   []string
	Events    []string // the kinds of the run's events, in the log's order
	Failed    string   // the message of a failure
	Owed      []string // resources whose refresh the node owes
}

// The function `interrupted` returns the outcome of a job whose first run had a marker, but whose
// Puppet never started.
func interrupted(want outcome) outcome {
	first := runOutcome{
		Node: want.Runs[0].Node, Outcome: tutti.Interrupted,
		Reads: map[string]tutti.Digest{}, Events: []string{"run.wanted", "run.claimed", "run.finished"},
	}
	return outcome{Verdict: tutti.VerdictFailed, Runs: []runOutcome{first}, Values: map[string]string{}, Starts: map[string]int{}}
}

// The method `outcome` executes the job to its end and returns the job's outcome.
func (f *killFleet) outcome(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, killDeadline, fmt.Errorf("the job does not end within %s", killDeadline))
	defer cancel()
	out := outcome{Values: map[string]string{}, Starts: map[string]int{}}
	events, err := f.runJob(ctx, 1)
	if err != nil {
		return out, err
	}
	if err := f.runs(ctx, &out, events); err != nil {
		return out, err
	}
	err = again(ctx, func() error {
		values, err := f.client.ListValues(ctx, "")
		for _, v := range values {
			out.Values[v.Key] = string(v.Value)
		}
		return err
	})
	for _, node := range []string{dbProcess, webProcess} {
		raw, readErr := os.ReadFile(filepath.Join(f.dir, node, "starts"))
		if readErr == nil {
			out.Starts[node] = strings.Count(string(raw), "\n")
		}
	}
	return out, err
}

// The method `runs` fills the outcome from the events of a job. Each event must come once and in a
// correct order.
func (f *killFleet) runs(ctx context.Context, out *outcome, events []tutti.Event) error {
	at := map[tutti.RunID]int{}
	last := uint64(0)
	of := func(run tutti.RunID, e tutti.Event) (*runOutcome, error) {
		i, ok := at[run]
		if !ok {
			return nil, fmt.Errorf("event %d, %s: of a run that nobody wanted", e.Seq, e.Body.Kind())
		}
		out.Runs[i].Events = append(out.Runs[i].Events, e.Body.Kind())
		return &out.Runs[i], nil
	}
	for _, e := range events {
		if e.Seq <= last {
			return fmt.Errorf("event %d comes after event %d", e.Seq, last)
		}
		last = e.Seq
		var err error
		switch b := e.Body.(type) {
		case *tutti.RunWanted:
			at[b.Order.Run] = len(out.Runs)
			out.Runs = append(out.Runs, runOutcome{Node: b.Order.Node, Events: []string{e.Body.Kind()}, Reads: map[string]tutti.Digest{}})
		case *tutti.RunClaimed:
			_, err = of(b.Run, e)
		case *tutti.RunGated:
			_, err = of(b.Run, e)
		case *tutti.RunLost:
			_, err = of(b.Run, e)
		case *tutti.RunFinished:
			var r *runOutcome
			if r, err = of(b.Result.Run, e); err == nil {
				if r.Outcome = b.Result.Outcome; r.Outcome == tutti.Failed {
					r.Failed = b.Result.Message
				}
				for _, o := range b.Result.Owed {
					r.Owed = append(r.Owed, o.Resource)
				}
				err = f.record(ctx, r, b.Result)
			}
		case *tutti.JobFinished:
			out.Verdict = b.Verdict
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *killFleet) record(ctx context.Context, r *runOutcome, result tutti.Result) error {
	if result.Record == "" && !result.Outcome.Good() {
		return nil // the server has no record of this run
	}
	return again(ctx, func() error {
		rec, err := f.client.RunRecord(ctx, result.Run)
		if err != nil {
			return fmt.Errorf("record of run %s: %w", result.Run, err)
		}
		r.Published, r.Exports = rec.Published, rec.Exports
		for _, read := range rec.Reads {
			r.Reads[string(read.Query.Kind)+" "+read.Query.Key+read.Query.Type] = read.Digest
		}
		return nil
	})
}
