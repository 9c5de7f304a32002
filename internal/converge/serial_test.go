package converge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
)

// The function `one` returns one serial group.
func one(name string, nodes ...tutti.NodeName) []converge.Serial {
	return []converge.Serial{{Group: tutti.GroupName(name), Nodes: nodes}}
}

// The function `plain` returns nodes that read and publish nothing. The nodes in the map `fails` break when they
// apply.
func plain(fails map[tutti.NodeName]tutti.Reason, names ...tutti.NodeName) map[tutti.NodeName]*manifest {
	out := map[tutti.NodeName]*manifest{}
	for _, n := range names {
		out[n] = &manifest{compile: func(answers) catalog { return catalog{fails: fails[n]} }}
	}
	return out
}

// watchTurns fails if a node of a serial group passes its gate while another node of the group applies. The method
// also fails if another node of the group broke in this job and is not good again. If several nodes broke, any of
// them may be tried again.
func (s *sim) watchTurns() {
	applies, bad := map[tutti.NodeName]bool{}, map[tutti.NodeName]bool{}
	for _, e := range s.log {
		switch b := e.Body.(type) {
		case *tutti.RunGated:
			r := s.engine.Runs[b.Run]
			if b.Verdict != tutti.GateGo || r.Mode != tutti.ModeApply {
				continue
			}
			for _, g := range s.serial {
				if !slices.Contains(g.Nodes, r.Node) {
					continue
				}
				for _, n := range g.Nodes {
					if n != r.Node && (applies[n] || bad[n] && !bad[r.Node]) {
						s.t.Fatalf("%s goes while %s of its serial group %v applies (%t) or is broken (%t)\n%s", r.Node, n, g.Nodes, applies[n], bad[n], s.tail())
					}
				}
			}
			applies[r.Node] = true
		case *tutti.RunFinished:
			r := s.engine.Runs[b.Result.Run]
			delete(applies, r.Node)
			switch broke := !b.Result.Outcome.Good() && b.Result.Outcome != tutti.Waiting; {
			case b.Result.Stopped, broke && r.Lost != "": // the result shows nothing about the node, or belongs to a run that was already lost
			default:
				bad[r.Node] = broke
			}
		case *tutti.RunLost:
			r := s.engine.Runs[b.Run]
			delete(applies, r.Node)
			bad[r.Node] = true
		case *tutti.JobStarted:
			clear(bad)
		}
	}
}

// groupsOf returns up to two random serial groups of a fleet. The lists of the groups may
// contradict each other.
func groupsOf(d dice, names []tutti.NodeName) (out []converge.Serial) {
	for i := range 1 + d.roll(2, "groups") {
		var nodes []tutti.NodeName
		for _, n := range names {
			if d.roll(3, "member") > 0 {
				nodes = append(nodes, n)
			}
		}
		for k := range nodes {
			other := k + d.roll(len(nodes)-k, "place")
			nodes[k], nodes[other] = nodes[other], nodes[k]
		}
		out = append(out, converge.Serial{Group: tutti.GroupName(fmt.Sprint("g", i)), Nodes: nodes})
	}
	return out
}

// In any fleet, with and without cycles, only one node of a serial group applies at a time. The fleet comes to
// the same end as without groups.
func TestOneNodeOfASerialGroupAtATime(t *testing.T) {
	for name, fleet := range map[string]func(dice, kinds) map[tutti.NodeName]*manifest{"acyclic": acyclic, "cyclic": monotone} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				d := rapidDice{rt}
				operator := map[string]string{}
				s := newSim(rt, fleet(d, kinds{nodes: 6}))
				s.serial = groupsOf(d, s.names())
				j := s.atLast(pick(d))
				if name == "acyclic" && j.Verdict == tutti.VerdictStuck {
					rt.Skip("a node waits for what its group lets come later, or nobody publishes")
				}
				s.converged(j, operator)
				s.watchTurns()
			})
		})
	}
}

// Only one node of a serial group applies at a time, even if runs are lost, messages
// arrive twice and late, and the server restarts.
func TestSerialGroupsInDisorder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		tr := &trouble{d: d, operator: operators(d), broken: map[tutti.NodeName]int{}, changes: 2, starts: 3}
		s := newSim(rt, acyclic(d, kinds{nodes: 5, calm: true}))
		s.serial = groupsOf(d, s.names())
		s.writeAll(tr.operator)
		j := tr.run(s, s.begin(tutti.ModeApply, tutti.ConvergeStep{}))
		s.watchTurns()
		if j.Verdict != tutti.VerdictConverged {
			j = s.all(pick(d))
		}
		s.converged(j, tr.operator)
		s.watchTurns()
	})
}

// If nodes read nothing from each other, they run in the order of the list. Each node runs after the previous one
// has ended. Nodes of two groups also run one after the other. Nodes outside the groups do not wait.
func TestTurns(t *testing.T) {
	cases := map[string]struct {
		reason string
		serial []converge.Serial
		order  []converge.Order
		data   [2]tutti.NodeName // the first node publishes what the second reads
		want   []tutti.NodeName
	}{
		"list":   {reason: "the order of the list, not of names", serial: one("g", "c", "a", "b"), want: []tutti.NodeName{"c", "a", "b"}},
		"order":  {reason: "what order says comes first", serial: one("g", "c", "a", "b"), order: []converge.Order{{First: []tutti.NodeName{"b"}, Then: []tutti.NodeName{"c"}}}, want: []tutti.NodeName{"a", "b", "c"}},
		"data":   {reason: "c reads what b publishes: by the list it would wait for ever", serial: one("g", "c", "a", "b"), data: [2]tutti.NodeName{"b", "c"}, want: []tutti.NodeName{"a", "b", "c"}},
		"groups": {reason: "a is in both, and comes where both allow it", serial: append(one("g", "b", "a"), one("h", "a", "c")...), want: []tutti.NodeName{"b", "a", "c"}},
		"contradiction": {
			reason: "by join tokens lists may contradict each other: the first of the file counts",
			serial: append(one("g", "b", "a", "c"), one("h", "a", "b", "c")...), want: []tutti.NodeName{"b", "a", "c"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			nodes := plain(nil, "a", "b", "c")
			if from, to := tc.data[0], tc.data[1]; from != "" {
				nodes[from] = publishes("v/x", constant("1"))
				nodes[to] = &manifest{values: []string{"v/x"}, compile: func(got answers) catalog {
					if got.values["v/x"] == "" {
						return catalog{waits: "v/x"}
					}
					return catalog{}
				}}
			}
			s := newSim(t, nodes)
			s.serial, s.order = tc.serial, tc.order
			s.converged(s.all(first), nil)
			s.watchTurns()
			if diff := cmp.Diff(tc.want, s.went(0)); diff != "" {
				t.Errorf("%s: -want +got\n%s%s", tc.reason, diff, s.tail())
			}
		})
	}
}

// If a node is not good and does not run, it stops the nodes after it. The job names this node and the nodes
// that wait.
func TestASerialGroupStops(t *testing.T) {
	cases := map[string]struct {
		reason string
		set    func(*sim)
		went   []tutti.NodeName
		want   tutti.Verdict
		says   string
	}{
		"failed": {
			reason: "b breaks", set: func(s *sim) {
				s.nodes["b"].compile = func(answers) catalog { return catalog{fails: tutti.BecauseRefused} }
			},
			went: []tutti.NodeName{"a", "b"}, want: tutti.VerdictFailed, says: "c, d were not run: serial group g stops at b: failed:refused: it broke",
		},
		"tried again": {
			reason: "b breaks three times", set: func(s *sim) {
				s.nodes["b"].compile = func(answers) catalog { return catalog{fails: tutti.BecauseResources} }
			},
			went: []tutti.NodeName{"a", "b", "b", "b"}, want: tutti.VerdictFailed, says: "c, d were not run: serial group g stops at b: failed:resources: it broke",
		},
		"not connected": {
			reason: "b is away", set: func(s *sim) { s.gone["b"] = true },
			went: []tutti.NodeName{"a"}, want: tutti.VerdictPartial, says: "c, d were not run: serial group g stops at b: not connected",
		},
		"paused": {
			reason: "somebody works on b", set: func(s *sim) { s.paused = "b" },
			went: []tutti.NodeName{"a"}, want: tutti.VerdictPartial, says: "c, d were not run: serial group g stops at b: paused: somebody works on it",
		},
		"waits": {
			reason: "b waits for what nobody publishes", set: func(s *sim) { *s.nodes["b"] = *needs("x") },
			went: []tutti.NodeName{"a"}, want: tutti.VerdictStuck, says: "c, d were not run: serial group g stops at b: it waits",
		},
		"the first": {
			reason: "a is away, and nobody else runs", set: func(s *sim) { s.gone["a"] = true },
			want: tutti.VerdictPartial, says: "b, c, d were not run: serial group g stops at a: not connected",
		},
		"the last": {
			reason: "d is away: nobody comes after it", set: func(s *sim) { s.gone["d"] = true },
			went: []tutti.NodeName{"a", "b", "c"}, want: tutti.VerdictPartial, says: "d is not connected",
		},
		"two groups": {
			reason: "what stops one group stops the next at the node that is in both",
			set: func(s *sim) {
				s.serial, s.gone["a"] = append(one("g", "a", "b"), one("h", "b", "c", "d")...), true
			},
			want: tutti.VerdictPartial, says: "c, d were not run: serial group h stops at b: it waits, too: serial group g stops at a: not connected",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, plain(nil, "a", "b", "c", "d"))
			s.serial = one("g", "a", "b", "c", "d")
			tc.set(s)
			j := s.all(first)
			s.watchTurns()
			if diff := cmp.Diff(tc.went, s.went(0)); diff != "" || j.Verdict != tc.want || !strings.Contains(j.Message, tc.says) {
				t.Errorf("%s: %s: %s\nwant %s: …%s…\nwent: -want +got\n%s%s", tc.reason, j.Verdict, j.Message, tc.want, tc.says, diff, s.tail())
			}
			for n := range s.gone {
				delete(s.gone, n)
			}
			s.paused = ""
			if again := s.all(first); (name != "failed" && name != "tried again" && name != "waits") && again.Verdict != tutti.VerdictConverged {
				t.Errorf("when it is back: %s: %s\n%s", again.Verdict, again.Message, s.tail())
			}
		})
	}
}

// A good node stops no other node, even while it is not connected.
func TestAGoodNodeStopsNobody(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{
		"a": publishes("v/a", constant("1"), "op/0"), "b": publishes("v/b", constant("1"), "op/1"),
	})
	s.serial = one("g", "a", "b")
	s.converged(s.all(first), nil)
	s.gone["a"] = true
	s.write("op/1", "x")
	since := len(s.log)
	if j := s.all(first); j.Verdict != tutti.VerdictConverged || len(s.went(since)) != 1 {
		t.Errorf("%s: %s, %v went, want b\n%s", j.Verdict, j.Message, s.went(since), s.tail())
	}
}

// An earlier job has left node a broken. A later job that does not try node a stops at this node. A reaction does not
// begin either. When node a is repaired, the other nodes run by themselves.
func TestABrokenNodeStopsOtherJobs(t *testing.T) {
	broken := true
	s := newSim(t, map[tutti.NodeName]*manifest{
		"a": {values: []string{"op/0"}, compile: func(answers) catalog {
			if broken {
				return catalog{fails: tutti.BecauseRefused}
			}
			return catalog{}
		}},
		"b": publishes("v/b", constant("1"), "op/1"),
	})
	s.serial = one("g", "a", "b")
	s.all(first)
	since := len(s.log)
	j := s.run(s.begin(tutti.ModeApply, tutti.ConvergeStep{Target: "b"}), first)
	if want := "b was not run: serial group g stops at a: failed:refused"; j.Verdict != tutti.VerdictFailed || !strings.Contains(j.Message, want) {
		t.Errorf("%s: %s, want failed: …%s…", j.Verdict, j.Message, want)
	}
	s.reaction = &tutti.Reaction{Window: time.Second, Wide: time.Minute}
	s.write("op/1", "x")
	jobs := len(s.engine.Order)
	s.idle(time.Minute)
	if went := s.went(since); len(went) > 0 || len(s.engine.Order) != jobs {
		t.Fatalf("%v went in %d jobs, want none\n%s", went, len(s.engine.Order)-jobs, s.tail())
	}
	if why := s.converge.Rests(s.view(), "b", s.converge.Standing("b", converge.Has{})); !strings.Contains(why, "serial group g stops at a") {
		t.Errorf("b rests because %q", why)
	}
	broken = false
	s.write("op/0", "x")
	s.idle(time.Minute)
	if diff := cmp.Diff([]tutti.NodeName{"a", "b"}, s.went(since)); diff != "" {
		t.Errorf("-want +got\n%s%s", diff, s.tail())
	}
	s.watchTurns()
}

// The method `idle` lets nodes act and time pass.
func (s *sim) idle(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.step(first)
		s.settle()
	}
}

// Two jobs at the same time respect the same turns.
func TestTwoJobsHeedTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		s := newSim(rt, plain(nil, "a", "b", "c"))
		s.serial = one("g", "a", "b", "c")
		var ids []tutti.JobID
		for _, target := range []string{"c", "a", ""} {
			ids = append(ids, s.begin(tutti.ModeApply, tutti.ConvergeStep{Target: target}))
			for range d.roll(4, "steps") {
				s.step(pick(d))
				s.settle()
			}
		}
		for _, id := range ids {
			if j := s.run(id, pick(d)); j.Verdict != tutti.VerdictConverged {
				rt.Fatalf("%s %s: %s\n%s", id, j.Verdict, j.Message, s.tail())
			}
		}
		s.watchTurns()
	})
}

// A plan shows the turns. The plan names the nodes that do not run, and the node that stops them. A plan compiles all
// nodes at once, and so does a noop job.
func TestPlanShowsTurns(t *testing.T) {
	s := newSim(t, plain(nil, "a", "b", "c", "d"))
	s.serial = one("g", "c", "a", "b", "d")
	s.gone["b"] = true
	want := `1. c: it never ran
2. a: it never ran; after c
not: b: it never ran
not: d: serial group g stops at b: not connected`
	if got := s.run(s.begin(tutti.ModeCompile, tutti.ConvergeStep{}), first).Message; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	j := s.run(s.begin(tutti.ModeNoop, tutti.ConvergeStep{}), first)
	if runs := j.Summary(s.now).Runs; runs != 3 {
		t.Errorf("%d noop runs, want those of all that are there\n%s", runs, s.tail())
	}
}

// The canaries of held code run in turn. A canary that breaks stops the other nodes of its
// group.
func TestCanariesRunInTurn(t *testing.T) {
	s := newSim(t, plain(nil, "a", "b", "c"))
	s.serial = one("g", "a", "b", "c")
	s.all(first)
	s.reaction = &tutti.Reaction{Window: time.Second, Wide: time.Minute}
	nodes := plain(map[tutti.NodeName]tutti.Reason{"a": tutti.BecauseRefused, "b": tutti.BecauseRefused, "c": tutti.BecauseRefused}, "a", "b", "c")
	since := len(s.log)
	s.holdBack("two", 2, nodes)
	s.idle(time.Minute)
	if went := s.went(since); len(went) != 1 {
		t.Errorf("%v went with broken code, want the first canary\n%s", went, s.tail())
	}
	s.watchTurns()
}

// A reaction does not begin if an earlier node of the group is away and not good. When this node is
// back, the nodes run in turn.
func TestAReactionWaitsForANodeThatIsAway(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{
		"a": publishes("v/a", constant("1"), "op/0"), "b": publishes("v/b", constant("1"), "op/0"), "c": publishes("v/c", constant("1"), "op/1"),
	})
	s.serial = one("g", "a", "b", "c")
	s.all(first)
	s.reaction = &tutti.Reaction{Window: time.Second, Wide: time.Minute}
	s.gone["a"] = true
	since, jobs := len(s.log), len(s.engine.Order)
	s.write("op/0", "x")
	s.idle(time.Minute)
	if went := s.went(since); len(went) > 0 || len(s.engine.Order) != jobs {
		t.Fatalf("%v went in %d jobs, want none\n%s", went, len(s.engine.Order)-jobs, s.tail())
	}
	s.write("op/1", "x")
	delete(s.gone, "a")
	s.idle(time.Minute)
	if diff := cmp.Diff([]tutti.NodeName{"a", "b", "c"}, s.went(since)); diff != "" {
		t.Errorf("-want +got\n%s%s", diff, s.tail())
	}
	s.watchTurns()
}

// TestBrokenNodesDoNotStopEachOther: three nodes of a group are broken, and the order of their reads differs from
// the list. When the input of the broken nodes is repaired, all of them run by themselves, one after the other.
func TestBrokenNodesDoNotStopEachOther(t *testing.T) {
	broken := false
	node := func(key string, reads ...string) *manifest {
		m := publishes(key, constant("1"), append(reads, "op/0")...)
		compile := m.compile
		m.compile = func(a answers) catalog {
			c := compile(a)
			if broken {
				c.fails = tutti.BecauseResources
			}
			return c
		}
		return m
	}
	s := newSim(t, map[tutti.NodeName]*manifest{"a": node("v/a", "v/c"), "b": node("v/b"), "c": node("v/c")})
	s.converged(s.all(first), nil)
	broken = true
	s.write("op/0", "bad")
	if j := s.all(first); j.Verdict != tutti.VerdictFailed {
		t.Fatalf("verdict %s: %s", j.Verdict, j.Message)
	}
	s.serial = one("g", "a", "b", "c")
	s.reaction = &tutti.Reaction{Window: time.Second, Wide: time.Minute}
	broken = false
	s.write("op/0", "mended")
	s.idle(time.Hour)
	for _, n := range s.names() {
		if st := s.standing(n); st.Need != converge.Nothing {
			t.Errorf("%s needs %s, and rests because %q", n, st.Need, s.converge.Rests(s.view(), n, st))
		}
	}
}

// In random fleets that react by themselves while nodes come and go, nodes respect the turns. In
// the end no node needs anything.
func TestReactionsHeedTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		operator := operators(d)
		s := newSim(rt, acyclic(d, kinds{nodes: 5, calm: true}))
		s.serial = groupsOf(d, s.names())
		s.writeAll(operator)
		s.reaction = &tutti.Reaction{Window: time.Second, Wide: time.Minute}
		for range 4 {
			for range d.roll(15, "steps") {
				s.step(pick(d))
				s.settle()
			}
			switch name := nodeNamed(d.roll(len(s.nodes), "who")); d.roll(3, "what") {
			case 0:
				key := fmt.Sprintf("op/%d", d.roll(3, "key"))
				operator[key] += "x"
				s.write(key, operator[key])
			case 1:
				if s.engine.Active[name] == "" {
					s.gone[name] = true
				}
			case 2:
				delete(s.gone, name)
			}
			s.settle()
		}
		clear(s.gone)
		s.idle(20 * time.Minute)
		if needy := s.converge.Needy(s.view()); len(needy) > 0 {
			rt.Fatalf("%v need something when all is quiet\n%s", needy, s.tail())
		}
		s.watchTurns()
	})
}
