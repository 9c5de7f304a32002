package converge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// The method `causes` returns the causes of all jobs except the first `since` jobs.
func (s *sim) causes(since int) []string {
	var out []string
	for _, id := range s.engine.Order[since:] {
		out = append(out, s.engine.Jobs[id].Cause)
	}
	return out
}

func TestAJobByItselfSaysWhy(t *testing.T) {
	broken := func(reads ...string) *manifest { return breaks(tutti.BecauseResources, reads...) }
	cases := map[string]struct {
		reason string
		nodes  map[tutti.NodeName]*manifest // more nodes besides a (reads x) and b (exports)
		change func(*sim)
		want   string
	}{
		"a value": {"who set it", nil, func(s *sim) { s.set("x", "1") }, "x set by ada"},
		"a value unset": {
			"as what it was before it was there", nil,
			func(s *sim) { s.write("x", "1"); s.live(time.Minute); s.append(&tutti.ValueUnset{Key: "x"}) }, "x unset by ada",
		},
		"a hiera key": {"by its whole path", nil, func(s *sim) { s.set("shared/hiera/ntp", "1") }, "shared/hiera/ntp set by ada"},
		"many": {
			"what many are is a number", nil,
			func(s *sim) {
				for _, key := range []string{"x", "x1", "x2", "x3", "x4"} {
					s.write(key, "1")
				}
			},
			"x set by ada, x1 set by ada, x2 set by ada, and 2 more",
		},
		"one for many": {
			"once, however many read it", map[tutti.NodeName]*manifest{"c": reads("x"), "d": reads("x")},
			func(s *sim) { s.set("x", "1") }, "x set by ada",
		},
		"joins":   {"who joined", nil, func(s *sim) { s.join("n9", reads("y")) }, "node n9 joined"},
		"removed": {"who is gone, not what it exported", nil, func(s *sim) { s.remove("b") }, "node b removed"},
		"code":    {"who pushed it", nil, func(s *sim) { s.push("two", s.nodes) }, "code pushed by ada"},
		"fleet file": {
			"it may have the grant that was lacking", map[tutti.NodeName]*manifest{"c": broken()},
			func(s *sim) { s.append(&tutti.FleetSet{}) }, "fleet file set by ada",
		},
		"safety": {
			"nothing has changed", nil,
			func(s *sim) { s.reaction.Safety = 30 * time.Minute }, "the safety run of a, the safety run of b",
		},
		"puppet": {
			"who has another one", nil, func(s *sim) { s.puppet = "9"; s.append(&tutti.NodeEnrolled{Node: "a"}) },
			"a: its last run was of Puppet 8, it has 9 now",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			nodes := map[tutti.NodeName]*manifest{
				"a": {values: []string{"x", "x1", "x2", "x3", "x4"}, hiera: []string{"ntp"}, types: []string{"Host"}, compile: func(answers) catalog { return catalog{} }},
				"b": {compile: func(answers) catalog { return catalog{exports: map[string][]string{"Host": {"b"}}} }},
			}
			for n, m := range tc.nodes {
				nodes[n] = m
			}
			s := newSim(t, nodes)
			s.puppet, s.reaction = "8", reactive()
			s.reaction.Safety = 0
			s.live(time.Hour)
			before := len(s.engine.Order)
			tc.change(s)
			s.live(time.Hour)
			got := s.causes(before)
			if len(got) == 0 || got[len(got)-1] != tc.want && got[0] != tc.want {
				t.Errorf("%s: %q, want %q\n%s", tc.reason, got, tc.want, s.tail())
			}
		})
	}
}

// For a job that a person begins, the log names the person and no cause.
func TestAJobOfAPersonNamesNoCause(t *testing.T) {
	s := newSim(t, swift())
	s.all(first)
	if diff := cmp.Diff([]string{""}, s.causes(0)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A cause may contain a node's message, which is then cut to one short line.
func TestACauseIsShort(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads("x")})
	s.reaction = reactive()
	s.settle()
	for i := 0; s.engine.Active["a"] == ""; i++ {
		s.live(time.Second)
		if i > 100 {
			t.Fatalf("a does not run:\n%s", s.tail())
		}
	}
	s.append(&tutti.RunClaimed{Run: s.engine.Active["a"], Node: "a"})
	s.append(&tutti.JobCancelled{Job: s.engine.Order[0]})
	s.append(&tutti.RunLost{Run: s.engine.Active["a"], Reason: "é\n" + strings.Repeat("é", 1000)})
	s.live(time.Hour)
	causes := s.causes(0)
	got := causes[len(causes)-1]
	if len(causes) < 2 || len(got) > 200 || strings.Contains(got, "\n") || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d jobs, the last because %q\n%s", len(causes), got, s.tail())
	}
}
