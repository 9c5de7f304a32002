package converge_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
)

// TestATallyIsWhatALookAtAllNodesFinds compares each decision about a job for a diff with the decision of a server that has
// just folded the whole log. That server looks at all nodes. Runs compile, fail and are lost, nodes leave and join again,
// and another job lets the same nodes run.
func TestATallyIsWhatALookAtAllNodesFinds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		s := newSim(rt, acyclic(d, kinds{nodes: 6}))
		names := s.names()
		s.program = tutti.ProgramApply
		s.inFlight, s.compiles = d.roll(5, "in flight"), d.roll(4, "compiles")
		plan := tutti.Plan{Name: "diff", Steps: []tutti.Step{{Name: "diff", Converge: &tutti.ConvergeStep{Limit: d.roll(4, "limit"), Only: names}}}}
		job, other := tutti.JobID("diff-1"), tutti.JobID("other-2")
		s.append(&tutti.JobStarted{Job: other, Mode: tutti.ModeApply, Plan: tutti.Plan{Name: "other", Steps: []tutti.Step{{Name: "run", Run: &tutti.RunStep{}}}}})
		s.append(&tutti.JobStarted{Job: job, Mode: tutti.ModeCompile, Env: "production", Diff: &tutti.DiffCode{}, Plan: plan})
		for range 80 {
			s.diffSettles()
			if s.engine.Jobs[job].Ended() {
				return
			}
			s.diffStep(d, names, other)
		}
	})
}

// The method `diffSettles` appends what the server decides, and compares each decision.
func (s *sim) diffSettles() {
	for range 100 {
		slow := *s
		slow.fold()
		v := s.view()
		got, want := s.converge.Decide(v), slow.converge.Decide(v)
		if diff := cmp.Diff(want, got); diff != "" {
			s.t.Fatalf("-a look at all nodes +the tally\n%s\n%s", diff, s.tail())
		}
		for _, b := range got {
			if end, is := b.(*tutti.ConvergeFinished); is {
				got = append(got, &tutti.JobFinished{Job: end.Job, Verdict: end.Verdict, Message: end.Message})
			}
		}
		if s.emit(got); len(got) == 0 {
			return
		}
	}
	s.t.Fatalf("decides without end:\n%s", s.tail())
}

// The method `diffStep` lets something happen to one of the nodes.
func (s *sim) diffStep(d dice, names []tutti.NodeName, other tutti.JobID) {
	n := names[d.roll(len(names), "node")]
	r := s.engine.Runs[s.engine.Active[n]]
	result := tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseCompile}
	switch what := d.roll(13, "what"); {
	case what == 0 && r == nil:
		s.emit([]tutti.Body{&tutti.RunWanted{Order: tutti.Order{Node: n, Job: other, Step: "run", Mode: tutti.ModeApply}}})
	case what == 1:
		s.append(&tutti.NodeRemoved{Node: n})
	case what == 2:
		s.append(&tutti.NodeEnrolled{Node: n})
	case what == 3:
		s.paused = names[d.roll(len(names), "paused")]
	case what == 4:
		s.gone[n] = !s.gone[n]
	case what == 10:
		s.append(&tutti.JobRetired{Job: other})
	case r == nil:
	case what == 5:
		s.append(&tutti.RunLost{Run: r.Run, Reason: "silent"})
	case r.CompiledAt.IsZero() && what < 10:
		s.compilesForDiff(d, r)
	default:
		if result.Run = r.Run; r.Gate == tutti.GateStop {
			result.Outcome, result.Reason, result.Stopped = "", "", true
		}
		s.append(&tutti.RunFinished{Result: result})
	}
}

// The method `compilesForDiff` lets a run come to its gate, with one of two exports, or with none.
func (s *sim) compilesForDiff(d dice, r *engine.Run) {
	q := tutti.Query{Kind: tutti.QueryCollect, Type: "Host"}
	a := s.data.Answer(q, data.Asker{Node: r.Node, Job: r.Job, Overlay: true})
	var exports []tutti.Export
	if title := d.roll(3, "exports"); title > 0 {
		exports = []tutti.Export{{Type: "Host", Title: fmt.Sprint(r.Node, title), Node: r.Node}}
	}
	s.exports(r, exports, true)
	asked := &tutti.Questions{}
	if d.roll(2, "collects") == 1 {
		asked.Reads = []tutti.Read{{Query: q, Found: a.Found, Digest: a.Digest}}
	}
	s.append(&tutti.RunCompiled{Run: r.Run, CatalogReport: tutti.CatalogReport{Catalog: tutti.DigestOf([]byte("x"))}, Reads: asked})
}
