package converge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
)

// holdBack pushes code that waits for its release. With canary 0, the code waits for a
// person. With another number, the code waits for this number of canaries.
func (s *sim) holdBack(code string, canary int, nodes map[tutti.NodeName]*manifest) {
	before := s.pushed
	s.code, s.nodes = tutti.DigestOf([]byte(code)), nodes
	s.manifests[s.code] = nodes
	s.pushed = tutti.CodePushed{Environment: "production", Code: s.code, Held: true, Canary: canary, Released: before.Goes()}
	if before.Held {
		s.pushed.PassedOver = append(slices.Clone(before.PassedOver), before.Code)
	}
	s.append(&s.pushed)
}

// The method `release` acts as a person who releases the code.
func (s *sim) release() {
	s.pushed.Held = false
	s.append(&tutti.CodeReleased{Environment: "production", Code: s.code})
}

// The method `ran` returns the nodes that have run with the last pushed code.
func (s *sim) ran() []tutti.NodeName {
	var out []tutti.NodeName
	for _, n := range s.names() {
		if last := s.engine.Last(n).Applied; last != nil && last.Code == s.code {
			out = append(out, n)
		}
	}
	return out
}

func (s *sim) releases() (reasons []string) {
	for _, e := range s.log {
		if r, is := e.Body.(*tutti.CodeReleased); is {
			reasons = append(reasons, r.Reason)
		}
	}
	return reasons
}

func ten(m func() *manifest) map[tutti.NodeName]*manifest {
	out := map[tutti.NodeName]*manifest{}
	for i := range 10 {
		out[tutti.NodeName(fmt.Sprintf("node-%d", i))] = m()
	}
	return out
}

func readsX() *manifest { return reads("x") }

func other() *manifest {
	return &manifest{values: []string{"x"}, compile: func(a answers) catalog { return catalog{extra: "new " + a.values["x"]} }}
}

// Held code waits for a person. Until the release, nodes react to other changes with the code that was
// released last.
func TestHeldCodeWaitsForAPerson(t *testing.T) {
	s := living(t, ten(readsX))
	s.holdBack("two", 0, ten(other))
	s.live(time.Hour)
	if got := s.ran(); len(got) > 0 {
		t.Fatalf("%v ran with code that nobody has let go\n%s", got, s.tail())
	}

	before := s.runs()
	s.set("x", "1")
	s.live(5 * time.Minute)
	if got := since(before, s.runs()); len(got) != 10 || len(s.ran()) > 0 {
		t.Errorf("after a change %v ran, %v of them with the held code, want all with the one before\n%s", got, s.ran(), s.tail())
	}
	verdicts, messages := s.ends()
	if last := len(verdicts) - 1; verdicts[last] != tutti.VerdictDeferred || !strings.Contains(messages[last], "the code that was pushed waits for a person") {
		t.Errorf("%s: %s, want deferred: all nodes wait for the code", verdicts[last], messages[last])
	}

	s.release()
	s.live(5 * time.Minute)
	if got := s.ran(); len(got) != 10 {
		t.Errorf("only %v ran with code that was let go\n%s", got, s.tail())
	}
	if needy := s.converge.Needy(s.view()); len(needy) > 0 {
		t.Errorf("%v are not good\n%s", needy, s.tail())
	}
}

// Canaries run first. When the canaries are good, all other nodes run.
func TestCanaries(t *testing.T) {
	for _, restart := range []bool{false, true} {
		s := living(t, ten(readsX))
		s.holdBack("two", 3, ten(other))
		most := 0
		for i := range 600 {
			if len(s.releases()) > 0 {
				break
			}
			s.live(time.Second)
			if restart && i%10 == 9 { // each fold restarts the window
				s.fold()
			}
			most = max(most, len(s.ran()))
		}
		if most != 3 || !slices.Equal(s.releases(), []string{"3 nodes are good with it"}) {
			t.Fatalf("%d nodes ran before the release, want 3; releases: %q\n%s", most, s.releases(), s.tail())
		}
		s.live(10 * time.Minute)
		if got := s.ran(); len(got) != 10 {
			t.Errorf("only %v ran with code whose canaries are good\n%s", got, s.tail())
		}
	}
}

// A canary that fails keeps the code from the other nodes. The other nodes go on with the earlier
// code until new code repairs the problem. The failed canary is the first node to get the new code.
func TestACanaryThatFails(t *testing.T) {
	s := living(t, ten(readsX))
	s.holdBack("two", 1, ten(func() *manifest { return breaks(tutti.BecauseCompile) }))
	s.live(time.Hour)
	canary := s.ran()
	if len(canary) != 1 || len(s.releases()) > 0 {
		t.Fatalf("%v ran, releases: %q; want one that fails, and no release\n%s", canary, s.releases(), s.tail())
	}
	s.set("x", "1")
	s.live(5 * time.Minute)
	if got := s.ran(); len(got) != 1 {
		t.Errorf("%v have run with broken code after another change\n%s", got, s.tail())
	}

	s.holdBack("three", 1, ten(other))
	var first []tutti.NodeName
	for range 600 {
		s.live(time.Second)
		if first = s.ran(); len(first) > 0 {
			break
		}
	}
	if !slices.Equal(first, canary) {
		t.Errorf("%v ran first with new code, want who has the broken one, %v\n%s", first, canary, s.tail())
	}
	s.live(10 * time.Minute)
	if got := s.ran(); len(got) != 10 || len(s.releases()) != 1 {
		t.Errorf("%v ran with code that is mended, releases: %q\n%s", got, s.releases(), s.tail())
	}
}

// A node has run with code that was never released, and newer code was pushed. The node
// does not run by itself with either of the two codes.
func TestWhoRanWithCodeThatWasPassedOverRests(t *testing.T) {
	s := living(t, ten(readsX))
	s.holdBack("two", 0, ten(other))
	s.run(s.begin(tutti.ModeApply, tutti.ConvergeStep{Target: "node-4"}), first)
	s.holdBack("three", 0, ten(other))
	before := s.runs()
	s.set("x", "1")
	s.live(5 * time.Minute)
	if got := since(before, s.runs()); len(got) != 9 || got["node-4"] != 0 {
		t.Errorf("%v ran, want all but node-4\n%s", got, s.tail())
	}
}

// If a person's converge of the whole fleet ends well, it releases the code. A failed converge, or a converge of
// a part of the fleet, does not release the code.
func TestAConvergeOfAllLetsCodeGo(t *testing.T) {
	cases := map[string]struct {
		target string
		broken bool
		want   int
	}{
		"all":    {"", false, 1},
		"a part": {"node-4", false, 0},
		"broken": {"", true, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := living(t, ten(readsX))
			nodes := ten(other)
			if tc.broken {
				nodes["node-7"] = breaks(tutti.BecauseCompile)
			}
			s.holdBack("two", 0, nodes)
			j := s.run(s.begin(tutti.ModeApply, tutti.ConvergeStep{Target: tc.target}), first)
			if got := s.releases(); len(got) != tc.want {
				t.Errorf("%s: releases %q, want %d\n%s", j.Verdict, got, tc.want, s.tail())
			}
		})
	}
}

// The first code of a fleet can be held like any other code.
func TestTheFirstCodeIsHeld(t *testing.T) {
	s := emptySim(t)
	for n := range ten(readsX) {
		s.append(&tutti.NodeEnrolled{Node: n})
	}
	s.reaction = reactive()
	s.holdBack("one", 2, ten(readsX))
	s.live(10 * time.Minute)
	if got := s.ran(); len(got) != 10 || len(s.releases()) != 1 {
		t.Errorf("%v ran, releases: %q\n%s", got, s.releases(), s.tail())
	}
}
