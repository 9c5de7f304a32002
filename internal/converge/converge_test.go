package converge_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
)

// swift is the example: storage exports its devices and reads what the ring
// builder publishes when it applies.
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
					extra:   fmt.Sprint(a.exports), // the value is not used, and yet the run is needed
				}
			},
		}
	}
	return nodes
}

func TestSwiftFromNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSim(t, swift())
		j := s.start(tutti.ModeApply, tutti.ConvergeStep{})
		s.run(j, func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "next") })
		sum := j.Summary(s.now)
		if j.Verdict != tutti.VerdictConverged || sum.Runs != 4 || sum.Failed != 0 {
			rt.Fatalf("verdict %s, %d runs, %d failed, want converged, 4, 0:\n%s", j.Verdict, sum.Runs, sum.Failed, tail(s.log))
		}
		again := s.start(tutti.ModeApply, tutti.ConvergeStep{})
		s.run(again, first)
		if sum := again.Summary(s.now); again.Verdict != tutti.VerdictConverged || sum.Runs+sum.Compiles != 0 {
			rt.Fatalf("the second: %s, %d runs, %d compiles, want converged and nothing done", again.Verdict, sum.Runs, sum.Compiles)
		}
	})
}

func TestPlan(t *testing.T) {
	s := newSim(t, swift())
	plan := func() string {
		j := s.start(tutti.ModeCompile, tutti.ConvergeStep{})
		s.run(j, first)
		if sum := j.Summary(s.now); sum.Runs != 0 || j.Verdict != tutti.VerdictConverged {
			t.Fatalf("%d runs, verdict %s:\n%s", sum.Runs, j.Verdict, tail(s.log))
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
	s.run(s.start(tutti.ModeApply, tutti.ConvergeStep{}), first)
	if got := s.runs(); len(got) != 4 {
		t.Fatalf("%v ran\n%s", got, tail(s.log))
	}
	if got := plan(); got != "nothing would run" {
		t.Errorf("converged:\n%s", got)
	}
	s.push("two")
	if got, want := plan(), "nothing to do, as their compiles show: proxy-01, storage-01, storage-02, storage-03"; got != want {
		t.Errorf("other code, the same catalogs:\n%s\nwant\n%s", got, want)
	}
}

func TestNoop(t *testing.T) {
	s := newSim(t, swift())
	j := s.start(tutti.ModeNoop, tutti.ConvergeStep{})
	s.run(j, first)
	if sum := j.Summary(s.now); sum.Runs != 4 || j.Verdict != tutti.VerdictConverged {
		t.Errorf("%d runs, verdict %s, want each node once\n%s", sum.Runs, j.Verdict, tail(s.log))
	}
	if _, published := s.data.Value("swift/rings/object"); published || len(s.data.Exports("storage-01")) > 0 {
		t.Error("a noop job has published")
	}
	if needy := s.converge.Needy(s.view()); len(needy) != 4 {
		t.Errorf("%v need something, want all: nothing was applied", needy)
	}
}
