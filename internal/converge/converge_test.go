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
