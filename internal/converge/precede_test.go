package converge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// The method `went` returns the nodes that passed their gates after a position in the log. The nodes are in the order
// in which they passed.
func (s *sim) went(since int) []tutti.NodeName {
	var out []tutti.NodeName
	for _, e := range s.log[since:] {
		if g, ok := e.Body.(*tutti.RunGated); ok && g.Verdict == tutti.GateGo {
			out = append(out, s.engine.Runs[g.Run].Node)
		}
	}
	return out
}

// feeds returns two nodes in a cycle. Node a exports what b collects, and reads the value
// that b publishes.
func feeds(n string) map[tutti.NodeName]*manifest {
	return map[tutti.NodeName]*manifest{
		"a": {values: []string{"v/b"}, compile: func(got answers) catalog {
			return catalog{exports: map[string][]string{"Device": {"device" + n}}, extra: n}
		}},
		"b": {types: []string{"Device"}, compile: func(got answers) catalog {
			return catalog{values: map[string]string{"v/b": strings.Join(got.exports["Device"], " ")}, extra: n}
		}},
	}
}

// Inside a cycle, an answer that is known after a compile does not determine the order. The exports of node a are
// known after its compile. The value of node b is known only after b has applied, so b goes first. All questions have
// answers from earlier runs, and by name a would go first.
func TestSoftEdgesAreDroppedFirst(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSim(rt, feeds("1"))
		s.all(first)
		s.push("two", feeds("2"))
		since := len(s.log)
		s.converged(s.all(pick(rapidDice{rt})), nil)
		if diff := cmp.Diff([]tutti.NodeName{"b", "a"}, s.went(since)); diff != "" {
			rt.Fatalf("-want +got\n%s%s", diff, s.tail())
		}
	})
}

// In a remaining cycle, the node with the fewest unanswered questions starts.
func TestTheFewestUnansweredQuestionsStart(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{
		"a": publishes("v/a", constant("1"), "v/b", "v/c"),
		"b": publishes("v/b", constant("1"), "v/a", "v/c"),
		"c": publishes("v/c", constant("1"), "v/b"),
	})
	s.converged(s.all(first), nil)
	if went := s.went(0); went[0] != "c" {
		t.Errorf("%v, want c first: it lacks one answer, the others two\n%s", went, s.tail())
	}
}

// The order of the fleet file always holds, even if nodes read from each other in the
// opposite order. A node's first run waits until all nodes that come earlier in the file
// have ended a run.
func TestTheFleetFilesOrderIsHonoured(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		nodes := monotone(d, kinds{nodes: 5})
		s := newSim(rt, nodes)
		names := s.names()
		at := d.roll(len(names), "turn") // the fleet file's order, independent of the cycles
		names = append(names[at:], names[:at]...)
		if d.roll(2, "back") == 1 {
			slices.Reverse(names)
		}
		for i := range names {
			for j := range i {
				if d.roll(3, "edge") == 0 {
					s.order = append(s.order, converge.Order{First: []tutti.NodeName{names[j]}, Then: []tutti.NodeName{names[i]}})
				}
			}
		}
		s.converged(s.atLast(pick(d)), nil)
		ended := map[tutti.NodeName]bool{}
		for _, e := range s.log {
			switch b := e.Body.(type) {
			case *tutti.RunFinished:
				if b.Result.Outcome.Good() {
					ended[s.engine.Runs[b.Result.Run].Node] = true
				}
			case *tutti.RunGated:
				for _, o := range s.order {
					if node := s.engine.Runs[b.Run].Node; b.Verdict == tutti.GateGo && o.Then[0] == node && !ended[o.First[0]] {
						rt.Fatalf("%s goes before %s has ended: %v\n%s", node, o.First[0], s.order, s.tail())
					}
				}
			}
		}
	})
}

// A value may change while a run applies, or in the same batch of events as the run's result. The comparison at the
// run's end sees both changes.
func TestAChangeBehindTheGateIsSeen(t *testing.T) {
	for _, batch := range []string{"while it applies", "with its result", "right after it"} {
		t.Run(batch, func(t *testing.T) {
			s := newSim(t, map[tutti.NodeName]*manifest{"a": {values: []string{"x"}, compile: func(a answers) catalog {
				return catalog{extra: fmt.Sprint(a)}
			}}})
			id := s.begin(tutti.ModeApply, tutti.ConvergeStep{})
			for !s.of("a").Passed() {
				s.step(first)
				s.settle()
			}
			switch batch {
			case "while it applies":
				s.write("x", "1")
				s.settle()
			case "with its result":
				s.write("x", "1")
				s.step(first)
			case "right after it":
				s.step(first)
				s.write("x", "1")
			}
			s.settle()
			j := s.run(id, first)
			if did := done(j)["a"]; did != "run run " {
				t.Errorf("%q, want another run\n%s", did, s.tail())
			}
			s.converged(j, map[string]string{"x": "1"})
		})
	}
}

// If nodes have just compiled, the server knows what they will publish. It does not
// matter that the nodes' last runs had other code and published other values.
func TestOtherCodeMayTurnTheOrderRound(t *testing.T) {
	plain := func() *manifest { return &manifest{compile: func(answers) catalog { return catalog{} }} }
	s := newSim(t, map[tutti.NodeName]*manifest{"a": plain(), "b": plain(), "c": plain()})
	s.all(first)
	pass := func(reads, writes string) *manifest {
		return &manifest{values: []string{reads}, compile: func(a answers) catalog {
			return catalog{values: map[string]string{writes: a.values[reads] + "x"}, extra: "new"}
		}}
	}
	s.push("two", map[tutti.NodeName]*manifest{"a": pass("of/b", "of/a"), "b": pass("of/c", "of/b"), "c": pass("of/nobody", "of/c")})
	j := s.all(first)
	if sum := j.Summary(s.now); j.Verdict != tutti.VerdictConverged || sum.Runs != 3 {
		t.Errorf("%s with %d runs, want c, b and a once each:\n%s", j.Verdict, sum.Runs, s.tail())
	}
}
