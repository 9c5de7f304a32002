package converge_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/engine"
)

// The function `swift` returns an example fleet. Storage nodes export their devices and
// read the value that the ring builder publishes when it applies.
func swift() map[tutti.NodeName]*manifest {
	nodes := map[tutti.NodeName]*manifest{
		"proxy-01": {types: []string{"Ring_device"}, compile: func(a answers) catalog {
			return catalog{
				exports: map[string][]string{"Swift::Ringsync": {"account", "object"}},
				values:  map[string]string{"swift/rings/object": strings.Join(a.exports["Ring_device"], ",")},
			}
		}},
	}
	for i := range 3 {
		name := fmt.Sprintf("storage-%02d", i+1)
		nodes[tutti.NodeName(name)] = &manifest{
			values: []string{"swift/rings/object"}, types: []string{"Swift::Ringsync"},
			compile: func(a answers) catalog {
				return catalog{
					exports: map[string][]string{"Ring_device": {name}},
					extra:   fmt.Sprint(a.exports), // the catalog does not contain the ring, but the node must run when the ring changes
				}
			},
		}
	}
	return nodes
}

func TestSwiftFromNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSim(rt, swift())
		j := s.all(pick(rapidDice{rt}))
		sum := j.Summary(s.now)
		if j.Verdict != tutti.VerdictConverged || sum.Runs != 4 || sum.Failed != 0 {
			rt.Fatalf("verdict %s, %d runs, %d failed, want converged, 4, 0:\n%s", j.Verdict, sum.Runs, sum.Failed, s.tail())
		}
		s.converged(j, nil)
	})
}

// The method `converged` checks three things. The verdict of the job is `converged`. The
// fleet has the same state as after repeated runs of all nodes. No node needs anything.
func (s *sim) converged(j *engine.Job, operator map[string]string) {
	s.t.Helper()
	if j.Verdict != tutti.VerdictConverged {
		s.t.Fatalf("verdict %s: %s\n%s", j.Verdict, j.Message, s.tail())
	}
	want, ok := fixpoint(s.nodes, operator)
	if !ok {
		s.t.Fatalf("the reference has no fixpoint")
	}
	if diff := cmp.Diff(want, s.world()); diff != "" {
		s.t.Fatalf("-want +got\n%s\n%s", diff, s.tail())
	}
	if needy := s.converge.Needy(s.view()); len(needy) > 0 {
		s.t.Fatalf("after it %v need something: %s\n%s", needy, s.converge.Standing(needy[0], converge.Has{Puppet: s.puppet}).Why(), s.tail())
	}
	if again := s.all(first); again.Verdict != tutti.VerdictConverged || len(done(again)) > 0 {
		s.t.Fatalf("the second: %s, %v, want converged and nothing done\n%s", again.Verdict, done(again), s.tail())
	}
}

func (s *sim) writeAll(operator map[string]string) {
	for _, key := range sortedKeys(operator) {
		s.write(key, operator[key])
	}
}

func TestAFleetWithoutCyclesEndsWhereItMust(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		operator := operators(d)
		s := newSim(rt, acyclic(d, kinds{nodes: 7}))
		s.writeAll(operator)
		s.converged(s.all(pick(d)), operator)
	})
}

// Some fleets with cycles do not converge within the bounds of one job (ADR 0008 shows a
// fleet for which no rule is good enough). The job then ends as diverging, and the next
// job continues.
func TestAFleetWithCyclesEndsWhereItMust(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		s := newSim(rt, monotone(d, kinds{nodes: 5}))
		s.converged(s.atLast(pick(d)), nil)
	})
}

// atLast begins converge jobs, one after another, until one of them does not end as
// diverging.
func (s *sim) atLast(pick func(int) int) *engine.Job {
	s.t.Helper()
	for range 5 {
		j := s.all(pick)
		if j.Verdict != tutti.VerdictDiverging {
			return j
		}
		most := 0
		for _, did := range done(j) {
			most = max(most, len(strings.Fields(did)))
		}
		if most < 6 {
			s.t.Fatalf("diverging, and nobody was tried more than %d times\n%s", most, s.tail())
		}
	}
	s.t.Fatalf("it does not end:\n%s", s.tail())
	return nil
}

func TestPlan(t *testing.T) {
	s := newSim(t, swift())
	plan := func() string {
		j := s.run(s.begin(tutti.ModeCompile, tutti.ConvergeStep{}), first)
		if sum := j.Summary(s.now); sum.Runs != 0 || j.Verdict != tutti.VerdictConverged {
			t.Fatalf("%d runs, verdict %s:\n%s", sum.Runs, j.Verdict, s.tail())
		}
		return j.Message
	}
	cold := `1. proxy-01: it never ran
2. storage-01: it never ran; after proxy-01
2. storage-02: it never ran; after proxy-01
2. storage-03: it never ran; after proxy-01`
	if got := plan(); got != cold {
		t.Errorf("cold:\n%s\nwant\n%s", got, cold)
	}
	if sum := s.all(first).Summary(s.now); sum.Runs != 4 {
		t.Fatalf("%d ran\n%s", sum.Runs, s.tail())
	}
	if got := plan(); got != "nothing would run" {
		t.Errorf("converged:\n%s", got)
	}
	s.push("two", swift())
	if got, want := plan(), "nothing to do, as their compiles show: proxy-01, storage-01, storage-02, storage-03"; got != want {
		t.Errorf("other code, the same catalogs:\n%s\nwant\n%s", got, want)
	}
}

// A job with the mode compile prints a plan: the nodes that would run. The plan names
// the questions whose answers have changed, and who changed each answer: for example an
// operator, or an export of a compile of this job. A plan contains no values.
func TestPlanSaysWhatChanged(t *testing.T) {
	hosts := []string{"one"}
	values := []string{"db/port", "k1", "k2", "k3"}
	s := newSim(t, map[tutti.NodeName]*manifest{
		"db":  {compile: func(answers) catalog { return catalog{exports: map[string][]string{"Host": hosts}} }},
		"lb":  {types: []string{"Host"}, compile: func(answers) catalog { return catalog{} }},
		"web": {values: values, compile: func(got answers) catalog { return catalog{extra: got.values["db/port"]} }},
	})
	s.all(first)
	plan := func(want string) {
		t.Helper()
		got := s.run(s.begin(tutti.ModeCompile, tutti.ConvergeStep{}), first).Message
		if got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	s.write("db/port", "hunter2")
	plan(`1. web: what it read has changed since its last run: value "db/port" (set by ada)`)

	hosts = []string{"two"}
	s.push("two", s.nodes)
	plan(`1. db: its catalog, or a file that the catalog names, differs from that of its last run
1. web: what it read has changed since its last run: value "db/port" (set by ada)
2. lb: what it read has changed since its last run: Host <<| |>> (because of what these compiles export); after db`)
	s.all(first)
	for _, key := range values {
		s.write(key, "x")
	}
	plan(`1. web: what it read has changed since its last run: value "db/port" (set by ada), value "k1" (set by ada), value "k2" (set by ada), and 1 more`)
}

func TestNoop(t *testing.T) {
	s := newSim(t, swift())
	j := s.run(s.begin(tutti.ModeNoop, tutti.ConvergeStep{}), first)
	if sum := j.Summary(s.now); sum.Runs != 4 || j.Verdict != tutti.VerdictConverged {
		t.Errorf("%d runs, verdict %s, want each node once\n%s", sum.Runs, j.Verdict, s.tail())
	}
	if _, published := s.data.Value("swift/rings/object"); published || len(s.data.Exports("storage-01")) > 0 {
		t.Error("a noop job has published")
	}
	if needy := s.converge.Needy(s.view()); len(needy) != 4 {
		t.Errorf("%v need something, want all: nothing was applied", needy)
	}
}

// TestReadersAtOnce is a test for the race detector (-race). Without the race detector,
// the test only checks which nodes need something.
func TestReadersAtOnce(t *testing.T) {
	s := newSim(t, swift())
	s.converged(s.all(first), nil)
	s.push("two", s.nodes)
	v := s.view()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			if needy := s.converge.Needy(v); len(needy) != len(s.nodes) {
				t.Errorf("new code, and %d of %d nodes need something", len(needy), len(s.nodes))
			}
			for node := range s.nodes {
				s.converge.Standing(node, v.Has(node))
				s.converge.Basis(node)
				s.converge.Publishers(node, tutti.Query{Kind: tutti.QueryValue, Key: "swift/rings"}, "")
				s.converge.When(&tutti.Reaction{}, tutti.Query{Kind: tutti.QueryValue, Key: "swift/rings"})
			}
		})
	}
	readers.Wait()
}
