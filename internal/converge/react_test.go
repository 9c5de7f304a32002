package converge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/engine"
)

func reactive() *tutti.Reaction {
	return &tutti.Reaction{Window: tutti.DefaultWindow, Wide: tutti.DefaultWide, AskAbove: tutti.DefaultAskAbove}
}

// The function `since` returns how many runs each node had between the counts `before` and `now`.
func since(before, now map[tutti.NodeName]int) map[tutti.NodeName]int {
	out := map[tutti.NodeName]int{}
	for n, runs := range now {
		if runs > before[n] {
			out[n] = runs - before[n]
		}
	}
	return out
}

func reads(keys ...string) *manifest {
	return &manifest{values: keys, compile: func(a answers) catalog { return catalog{extra: fmt.Sprint(a)} }}
}

// The function `living` returns a converged fleet that keeps itself converged.
func living(t *testing.T, nodes map[tutti.NodeName]*manifest) *sim {
	s := newSim(t, nodes)
	s.reaction = reactive()
	s.live(5 * time.Minute)
	for n := range nodes {
		if s.runs()[n] == 0 {
			t.Fatalf("%s has not run:\n%s", n, s.tail())
		}
	}
	return s
}

// The method `live` lets the nodes act until the given time has passed.
func (s *sim) live(d time.Duration) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); {
		s.settle()
		actions := s.actions()
		if len(actions) == 0 {
			s.now = s.now.Add(time.Second)
			continue
		}
		s.now = s.now.Add(100 * time.Millisecond)
		actions[0]()
	}
	s.settle()
}

// The method `set` acts as an operator who sets a value.
func (s *sim) set(key, value string) {
	s.write(key, value)
	s.settle()
}

func (s *sim) join(n tutti.NodeName, m *manifest) {
	s.nodes[n] = m
	s.append(&tutti.NodeEnrolled{Node: n})
	s.settle()
}

func (s *sim) remove(n tutti.NodeName) {
	delete(s.nodes, n)
	s.append(&tutti.NodeRemoved{Node: n})
	s.settle()
}

// The method `runs` returns how often each node has passed its gate.
func (s *sim) runs() map[tutti.NodeName]int {
	out := map[tutti.NodeName]int{}
	for _, id := range s.engine.Order {
		for _, st := range s.engine.Jobs[id].Steps {
			for _, n := range st.Nodes {
				for _, r := range n.Runs {
					if r.Passed() {
						out[n.Node]++
					}
				}
			}
		}
	}
	return out
}

func TestAChangeRunsItsReaders(t *testing.T) {
	s := living(t, map[tutti.NodeName]*manifest{"a": reads("x"), "b": reads("y")})
	cases := []struct {
		reason string
		change func()
		want   map[tutti.NodeName]int
	}{
		{"one run of the one who reads it", func() { s.set("x", "1") }, map[tutti.NodeName]int{"a": 1}},
		{"the same again is no change", func() { s.set("x", "1") }, map[tutti.NodeName]int{}},
		{"what nobody reads runs nobody", func() { s.set("z", "1") }, map[tutti.NodeName]int{}},
		{"there and back within the window is no change", func() { s.set("x", "2"); s.set("x", "1") }, map[tutti.NodeName]int{}},
	}
	for _, tc := range cases {
		before := s.runs()
		tc.change()
		s.live(time.Minute)
		if diff := cmp.Diff(tc.want, since(before, s.runs())); diff != "" {
			t.Errorf("%s: -want +got\n%s%s", tc.reason, diff, s.tail())
		}
	}

	before := s.runs()
	for i := range 100 {
		s.set("x", fmt.Sprint(100+i))
		s.now = s.now.Add(10 * time.Millisecond)
		s.settle()
	}
	s.live(time.Minute)
	if got := since(before, s.runs()); got["a"] < 1 || got["a"] > 2 || len(got) != 1 {
		t.Errorf("100 changes in a second caused %v, want one or two runs of a", got)
	}
}

func TestAChangeDuringARunIsNotLost(t *testing.T) {
	s := living(t, map[tutti.NodeName]*manifest{"a": reads("x")})
	before := s.runs()
	s.set("x", "1")
	for i := 0; s.engine.Active["a"] == "" || !s.engine.Runs[s.engine.Active["a"]].Passed(); i++ {
		if i > 1000 {
			t.Fatalf("a does not apply:\n%s", s.tail())
		}
		s.live(100 * time.Millisecond)
	}
	s.set("x", "2") // the run has passed its gate
	s.live(time.Minute)
	if got := since(before, s.runs()); got["a"] != 2 {
		t.Errorf("%v, want two runs: what the first one read had changed when it ended\n%s", got, s.tail())
	}
}

func TestManyReadersRunLater(t *testing.T) {
	nodes := map[tutti.NodeName]*manifest{}
	host := func(i int) (tutti.NodeName, *manifest) {
		name := fmt.Sprintf("node-%04d", i)
		return tutti.NodeName(name), &manifest{types: []string{"Sshkey"}, compile: func(a answers) catalog {
			return catalog{exports: map[string][]string{"Sshkey": {name}}, extra: strings.Join(a.exports["Sshkey"], " ")}
		}}
	}
	const hosts, joins = 100, 50
	for i := range hosts {
		n, m := host(i)
		nodes[n] = m
	}
	s := living(t, nodes)
	s.live(time.Hour)
	before := s.runs()
	for i := range joins {
		n, m := host(hosts + i)
		s.join(n, m)
		s.live(time.Minute / joins)
	}
	for n, runs := range since(before, s.runs()) {
		if last, _ := host(hosts - 1); n <= last {
			t.Errorf("%s ran %d times within a minute of the first join, want that it waits for the others", n, runs)
		}
	}
	s.live(2 * time.Hour)
	for n, runs := range since(before, s.runs()) {
		if runs > 2 {
			t.Errorf("%s ran %d times", n, runs)
		}
	}
	if needy := s.converge.Needy(s.view()); len(needy) > 0 {
		t.Errorf("%d nodes were never told of the last joins: %v", len(needy), needy[:1])
	}
}

// An example of DESIGN: a fourth storage node causes runs when it joins and when it
// leaves.
func TestScaleOut(t *testing.T) {
	nodes := swift()
	delete(nodes, "storage-03")
	s := living(t, nodes)
	before := s.runs()
	s.join("storage-03", swift()["storage-03"])
	s.live(5 * time.Minute)
	want := map[tutti.NodeName]int{"storage-01": 1, "storage-02": 1, "storage-03": 1, "proxy-01": 1}
	if diff := cmp.Diff(want, since(before, s.runs())); diff != "" {
		t.Errorf("a storage node joined: -want +got\n%s%s", diff, s.tail())
	}
	before = s.runs()
	s.remove("storage-03")
	s.live(5 * time.Minute)
	want = map[tutti.NodeName]int{"storage-01": 1, "storage-02": 1, "proxy-01": 1} // these rings lose the devices of the removed node
	if diff := cmp.Diff(want, since(before, s.runs())); diff != "" {
		t.Errorf("a storage node was removed: -want +got\n%s%s", diff, s.tail())
	}
}

func TestWhatFailedWaitsForAChange(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": {values: []string{"x"}, compile: func(a answers) catalog {
		if a.values["x"] == "" {
			return catalog{fails: tutti.BecauseResources}
		}
		return catalog{}
	}}})
	s.reaction = reactive()
	s.live(time.Hour)
	if got, jobs := s.runs()["a"], len(s.engine.Order); got != 3 || jobs != 1 {
		t.Fatalf("%d runs in %d jobs in an hour, want the first and two more in one\n%s", got, jobs, s.tail())
	}
	s.set("x", "1")
	s.live(time.Minute)
	if got := s.runs()["a"]; got != 4 {
		t.Errorf("%d runs after what it reads has changed, want one more\n%s", got, s.tail())
	}
}

// A reaction tries a disabled node as often as its daemon would, and the node runs when
// Puppet is enabled.
func TestWhoIsDisabledIsTriedSeldom(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads("x")})
	s.reaction, s.disabled = reactive(), true
	s.live(2 * time.Hour)
	if jobs := len(s.engine.Order); jobs < 3 || jobs > 5 {
		t.Errorf("%d jobs in two hours, want one each half hour\n%s", jobs, s.tail())
	}
	s.disabled = false
	s.live(31 * time.Minute)
	if got := s.runs()["a"]; got != 1 {
		t.Errorf("%d runs after it was enabled, want one\n%s", got, s.tail())
	}
}

// The function `quarrel` returns two nodes. Whenever one of the two nodes has published a value, the other node
// publishes a new one.
func quarrel() map[tutti.NodeName]*manifest {
	negate := func(mine, other string) *manifest {
		return &manifest{values: []string{other, "salt"}, compile: func(a answers) catalog {
			return catalog{values: map[string]string{mine: a.values[other] + "x"}}
		}}
	}
	return map[tutti.NodeName]*manifest{"a": negate("of/a", "of/b"), "b": negate("of/b", "of/a")}
}

func TestNodesThatChangeEachOtherAreStopped(t *testing.T) {
	s := newSim(t, quarrel())
	s.reaction = reactive()
	s.live(2 * time.Hour)
	first := s.runs()
	if total := first["a"] + first["b"]; total > 12 {
		t.Fatalf("%v runs in two hours, want six each at most\n%s", first, s.tail())
	}
	last := s.engine.Jobs[s.engine.Order[len(s.engine.Order)-1]]
	if last.Verdict != tutti.VerdictDiverging || !strings.Contains(last.Message, `value "of/`) {
		t.Errorf("verdict %s: %s", last.Verdict, last.Message)
	}
	s.set("salt", "1") // somebody repairs the problem
	s.live(2 * time.Hour)
	if got := since(first, s.runs()); got["a"]+got["b"] == 0 || got["a"]+got["b"] > 12 {
		t.Errorf("%v runs after somebody changed what they read", got)
	}
}

func TestSafetyRuns(t *testing.T) {
	s := living(t, map[tutti.NodeName]*manifest{"a": reads("x"), "b": reads("y")})
	before := s.runs()
	s.reaction.Safety = time.Hour
	s.live(5 * time.Hour)
	for n, runs := range since(before, s.runs()) {
		if runs < 4 || runs > 6 {
			t.Errorf("%s ran %d times in five hours, once an hour is wanted", n, runs)
		}
	}
	if len(since(before, s.runs())) != 2 {
		t.Error("not all ran")
	}
}

// The safety schedule also tries nodes that failed or wait, whoever ran them last. A run
// may help, because Tutti may not know what has to be repaired. Each try is one job, with
// the bounds of a job.
func TestSafetyRunsOfWhatFailed(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		program tutti.Program
		fails   tutti.Reason
		foreign []tutti.Foreign // half an hour after each run of ours
	}{
		{"it failed", tutti.ProgramApply, tutti.BecauseResources, nil},
		{"it failed through the agent", tutti.ProgramAgent, tutti.BecauseResources, nil},
		{"it did not compile", tutti.ProgramAgent, tutti.BecauseCompile, nil},
		{"a foreign run failed behind it", tutti.ProgramAgent, tutti.BecauseResources, []tutti.Foreign{others(failed)}},
		{"and under apply", tutti.ProgramApply, tutti.BecauseResources, []tutti.Foreign{others(failed)}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			mended := false
			s := newSim(t, map[tutti.NodeName]*manifest{"a": {compile: func(answers) catalog {
				if mended {
					return catalog{}
				}
				return catalog{fails: tc.fails}
			}}})
			s.by(tc.program)
			s.reaction = reactive()
			s.reaction.Safety = time.Hour
			live := func(half int) (jobs int) {
				before := len(s.engine.Order)
				for range half {
					s.live(30 * time.Minute)
					for _, f := range tc.foreign {
						s.tell("a", s.now, f)
					}
				}
				return len(s.engine.Order) - before
			}
			if jobs := live(10); jobs < 4 || jobs > 6 {
				t.Fatalf("%d jobs in five hours, want one at once and one an hour\n%s", jobs, s.tail())
			}
			if j := s.engine.Jobs[s.engine.Order[len(s.engine.Order)-1]]; j.Cause != "the safety run of a" {
				t.Errorf("the last one began by %q", j.Cause)
			}
			mended = true
			tc.foreign = nil
			live(3)
			if got := s.standing("a"); got.Need != converge.Nothing {
				t.Errorf("mended, it needs %s: %s\n%s", got.Need, got.Why(), s.tail())
			}
		})
	}
}

// A node was stopped because it and another node change each other's data. The schedule
// does not start this node again. The other node is good and runs once each time.
func TestSafetyRunsEndNoQuarrel(t *testing.T) {
	s := newSim(t, quarrel())
	s.reaction = reactive()
	s.live(10 * time.Minute)
	before := s.runs()
	s.reaction.Safety = time.Hour
	s.live(3 * time.Hour)
	for n, runs := range since(before, s.runs()) {
		if n == "a" || runs > 3 {
			t.Errorf("%s ran %d times in three hours, want at most 3 of b\n%s", n, runs, s.tail())
		}
	}
}

// If readers of an answer run `when: scheduled`, they get a changed answer with the
// safety run.
func TestSafetyRunsTakeUpWhatIsScheduled(t *testing.T) {
	s := living(t, map[tutti.NodeName]*manifest{"a": reads("x")})
	s.reaction.Reads = []tutti.ReadReaction{{Key: "x", When: tutti.ReactScheduled}}
	s.reaction.Safety = time.Hour
	before := s.runs()["a"]
	s.set("x", "1")
	s.live(30 * time.Minute)
	if got := s.runs()["a"] - before; got != 0 {
		t.Errorf("%d runs before its turn\n%s", got, s.tail())
	}
	s.live(time.Hour)
	if got := s.runs()["a"] - before; got != 1 {
		t.Errorf("%d runs in an hour and a half, want one\n%s", got, s.tail())
	}
}

// After a new fleet file, a failed node is tried again, because the file may have the
// grant that the node lacked.
func TestAFleetFileIsAReasonToTryAgain(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": {compile: func(answers) catalog { return catalog{fails: tutti.BecauseResources} }}})
	s.reaction = reactive()
	s.live(time.Hour)
	before := s.runs()["a"]
	s.append(&tutti.FleetSet{})
	s.live(time.Hour)
	if got := s.runs()["a"]; got <= before {
		t.Errorf("%d runs before the fleet file was set, %d after it\n%s", before, got, s.tail())
	}
}

// Held nodes make room for nodes that have not compiled yet.
func TestHeldNodesMakeRoom(t *testing.T) {
	s := newSim(t, swift())
	s.inFlight = 1
	j := s.all(first)
	if sum := j.Summary(s.now); j.Verdict != tutti.VerdictConverged || sum.Runs != 4 || sum.Wall > 2*time.Minute {
		t.Errorf("%s after %s, %d runs\n%s", j.Verdict, sum.Wall, sum.Runs, s.tail())
	}
}

// A reaction never has more runs at the same time than the fleet file allows.
func TestAReactionsLimit(t *testing.T) {
	nodes := map[tutti.NodeName]*manifest{}
	for _, n := range []tutti.NodeName{"a", "b", "c", "d", "e"} {
		nodes[n] = reads("x")
	}
	s := living(t, nodes)
	s.reaction.Limit = 2
	s.set("x", "1")
	for before := len(s.engine.Order); len(s.engine.Order) == before; s.now = s.now.Add(time.Second) {
		s.settle()
	}
	id := s.engine.Order[len(s.engine.Order)-1]
	if got := s.watch(id, func(*engine.Run) bool { return true }); got != 2 {
		t.Errorf("%d ran at once, want 2\n%s", got, s.tail())
	}
}
