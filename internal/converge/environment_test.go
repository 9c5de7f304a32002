package converge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// inCanary reports whether a node of branching is in the environment canary.
func inCanary(n tutti.NodeName) bool { return n < "node-3" }

// The function `branching` returns a living fleet with two environments. The first three nodes are in canary.
func branching(t *testing.T) *sim {
	t.Helper()
	s := newSim(t, ten(readsX))
	s.environment = func(n tutti.NodeName) string {
		if inCanary(n) {
			return "canary"
		}
		return "production"
	}
	s.pushBranch("branch one", 0, readsX)
	s.reaction = reactive()
	s.live(5 * time.Minute)
	if needy := s.converge.Needy(s.view()); len(needy) > 0 {
		t.Fatalf("%v are not good\n%s", needy, s.tail())
	}
	return s
}

// pushBranch pushes code of the environment canary. With a number of canaries, the code is held.
func (s *sim) pushBranch(code string, canaries int, m func() *manifest) {
	digest := tutti.DigestOf([]byte(code))
	s.manifests[digest] = ten(m)
	pushed := tutti.CodePushed{Environment: "canary", Code: digest, Held: canaries > 0, Canary: canaries, Released: s.branches["canary"].Goes()}
	s.branches = map[string]tutti.CodePushed{"canary": pushed}
	s.append(&pushed)
}

// ranSince returns the nodes that have run since the given numbers of runs, sorted.
func (s *sim) ranSince(before map[tutti.NodeName]int) []tutti.NodeName {
	return sortedKeys(since(before, s.runs()))
}

// has returns the nodes whose last run had some code.
func (s *sim) has(code string) []tutti.NodeName {
	var out []tutti.NodeName
	for _, n := range s.names() {
		if last := s.engine.Last(n).Applied; last != nil && last.Code == tutti.DigestOf([]byte(code)) {
			out = append(out, n)
		}
	}
	return out
}

// A push to an environment makes only the nodes of this environment run.
func TestAPushConcernsItsEnvironment(t *testing.T) {
	s := branching(t)
	before := s.runs()
	s.pushBranch("branch two", 0, other)
	s.live(5 * time.Minute)
	if got, want := s.ranSince(before), []tutti.NodeName{"node-0", "node-1", "node-2"}; !slices.Equal(got, want) {
		t.Errorf("%v ran, want %v\n%s", got, want, s.tail())
	}
	before = s.runs()
	s.push("two", ten(other))
	s.live(5 * time.Minute)
	if got := s.ranSince(before); len(got) != 7 || slices.ContainsFunc(got, inCanary) {
		t.Errorf("after a push to production %v ran, want the seven nodes of production\n%s", got, s.tail())
	}
	if needy := s.converge.Needy(s.view()); len(needy) > 0 {
		t.Errorf("%v are not good\n%s", needy, s.tail())
	}
}

// While the code of one environment is held, all nodes react to other changes: canaries with the held code, the other
// nodes of this environment with the released code, and the other environment as always.
func TestHeldCodeOfOneEnvironment(t *testing.T) {
	s := branching(t)
	s.pushBranch("branch two", 1, func() *manifest {
		return &manifest{values: []string{"x"}, compile: func(answers) catalog { return catalog{fails: tutti.BecauseResources} }}
	})
	s.live(time.Hour)
	if got := s.has("branch two"); len(got) != 1 || len(s.releases()) > 0 {
		t.Fatalf("%v ran with the held code, releases %q; want one canary, which fails\n%s", got, s.releases(), s.tail())
	}
	before := s.runs()
	s.set("x", "1")
	s.live(time.Hour)
	got := map[string]int{}
	for _, code := range []string{"one", "branch one", "branch two"} {
		got[code] = len(s.has(code))
	}
	if diff := cmp.Diff(map[string]int{"one": 7, "branch one": 2, "branch two": 1}, got); diff != "" || len(s.ranSince(before)) != 10 {
		t.Errorf("after a change %v ran; nodes by code: -want +got\n%s\n%s", s.ranSince(before), diff, s.tail())
	}
	s.pushBranch("branch three", 1, other)
	s.live(30 * time.Minute)
	if got := s.has("branch three"); len(got) != 3 || !slices.Equal(s.releases(), []string{"1 node is good with it"}) {
		t.Errorf("%v have the mended code, releases %q; want all three nodes of canary\n%s", got, s.releases(), s.tail())
	}
}

// An environment without code makes no node run, and the node says what it waits for.
func TestAnEnvironmentWithoutCode(t *testing.T) {
	s := branching(t)
	s.environment = func(n tutti.NodeName) string {
		if n == "node-9" {
			return "nothing"
		}
		return "production"
	}
	s.append(&tutti.FleetSet{})
	s.live(time.Hour)
	v := s.view()
	if needy := s.converge.Needy(v); !slices.Equal(needy, []tutti.NodeName{"node-9"}) || len(s.has("one")) != 10 {
		t.Errorf("%v are not good, want only node-9, which has not run since\n%s", needy, s.tail())
	}
	standing := s.converge.Standing("node-9", v.Has("node-9"))
	if rests := s.converge.Rests(v, "node-9", standing); !strings.Contains(rests, "no code was pushed for its environment nothing") {
		t.Errorf("node-9 rests: %q", rests)
	}
	job := s.begin(tutti.ModeApply, tutti.ConvergeStep{})
	s.live(10 * time.Minute)
	if j := s.engine.Jobs[job]; j.Verdict != tutti.VerdictFailed || !strings.Contains(j.Message, "environment nothing had no code when the job began") {
		t.Errorf("a person's job ends %q: %s", j.Verdict, j.Message)
	}
}
