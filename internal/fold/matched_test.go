package fold_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/fold"
)

// TestGroupsByFactsAreTargetsOnly follows a node through everything that changes its groups with `where`. They are in none
// of the lists that give something to a node or that its code reads.
func TestGroupsByFactsAreTargetsOnly(t *testing.T) {
	s := fold.New()
	where := func(text string) *tutti.FleetSet {
		return &tutti.FleetSet{Fleet: tutti.Fleet{Groups: []tutti.Group{{Name: "redhat", Where: text}, {Name: "web", Nodes: []tutti.NodeName{"a"}}}}}
	}
	const one, two = `facts.x == 1`, `facts.x == 2`
	matched := func(text, unknown string) *tutti.NodeMatched {
		f := fold.New()
		f.Apply(tutti.Event{Seq: 1, Body: where(text)})
		return &tutti.NodeMatched{Node: "a", Conditions: f.Registry.Conditions.Digest(), Matches: []tutti.Match{{Group: "redhat", Unknown: unknown, Since: time.Unix(1, 0)}}}
	}
	none := matched(one, "")
	none.Matches = nil
	const notYet, in, out = fold.NotMatched, "", "out"
	for i, step := range []struct {
		reason string
		body   tutti.Body
		want   string
	}{
		{"there is no such group", &tutti.NodeEnrolled{Node: "a", Key: "a", Groups: []tutti.GroupName{"redhat"}}, out},
		{"the fleet file has one now", where(one), notYet},
		{"a match", matched(one, ""), in},
		{"nobody knows", matched(one, "no facts"), "no facts"},
		{"no match", none, out},
		{"a match", matched(one, ""), in},
		{"the same condition again", where(one), in},
		{"another condition", where(two), notYet},
		{"a decision about the earlier condition", matched(one, ""), notYet},
		{"a decision about the present one", matched(two, ""), in},
		{"two machines act as the node", &tutti.NodeConflicted{Node: "a", Why: "two"}, "two machines say that they are this node"},
		{"an operator keeps one", &tutti.NodeKept{Node: "a"}, in},
		{"the machine joins again, with another certificate", &tutti.NodeEnrolled{Node: "a", Key: "a"}, notYet},
		{"a match", matched(two, ""), in},
		{"another machine gets the name", &tutti.NodeEnrolled{Node: "a", Key: "b"}, notYet},
		{"a match", matched(two, ""), in},
		{"the node is removed", &tutti.NodeRemoved{Node: "a"}, out},
		{"a late decision", matched(two, ""), out},
		{"it joins again", &tutti.NodeEnrolled{Node: "a", Key: "c"}, notYet},
	} {
		s.Apply(tutti.Event{Seq: uint64(i + 1), Body: step.body})
		got := out
		n := s.Registry.Nodes["a"]
		if n != nil {
			if m := s.Registry.Match(n, "redhat"); m.Group != "" {
				got = m.Unknown
			}
			if groups := s.Registry.Groups(n); len(groups) > 1 || len(groups) == 1 && groups[0] != "web" {
				t.Errorf("%s: its groups are %v", step.reason, groups)
			}
			if why := s.Registry.GroupReasons(n); why["redhat"] != "" {
				t.Errorf("%s: its reasons are %v", step.reason, why)
			}
			if answer := string(s.Data.Answer(tutti.Query{Kind: tutti.QueryGroups}, data.Asker{Node: "a"}).Value); answer != `["web"]` && answer != `[]` {
				t.Errorf("%s: its code reads %s", step.reason, answer)
			}
			if has := s.Has("a", ""); len(has.Groups) > 1 {
				t.Errorf("%s: its standing rests on %v", step.reason, has.Groups)
			}
			if len(s.Registry.Enrolled()["redhat"]) > 0 {
				t.Errorf("%s: enrolled", step.reason)
			}
			if s.IsRecipient([]string{"group:redhat"}, "a") {
				t.Errorf("%s: it may read secrets of the group", step.reason)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", step.reason, diff)
		}
		if s.Member("redhat", "a") != (got == in) || (len(s.Members("redhat")) == 1) != (got == in) || (len(s.Registry.Targets()["redhat"]) == 1) != (got == in) {
			t.Errorf("%s: member %t", step.reason, s.Member("redhat", "a"))
		}
		unknown := got != in && got != out
		if s.MayBeMember("redhat", "a") != (got == in || unknown) || (s.WhyUndecided("redhat") != "") != unknown || len(s.UndecidedLines("redhat")) > 0 != unknown {
			t.Errorf("%s: undecided %q", step.reason, s.WhyUndecided("redhat"))
		}
	}
}

// A pause of such a group holds the nodes that may be in it. A job does not wait for an observed node of which nobody knows
// whether it is in the group, because the job would start nothing there.
func TestUndecidedNodes(t *testing.T) {
	s := fold.New()
	for i, body := range []tutti.Body{
		&tutti.FleetSet{Fleet: tutti.Fleet{Groups: []tutti.Group{{Name: "g", Where: `facts.x == 1`}, {Name: "old", Nodes: []tutti.NodeName{"b"}, Program: tutti.ProgramObserve}}}},
		&tutti.NodeEnrolled{Node: "a", Key: "a"},
		&tutti.NodeEnrolled{Node: "b", Key: "b"},
		&tutti.NodeEnrolled{Node: "c", Key: "c"},
	} {
		s.Apply(tutti.Event{Seq: uint64(i + 1), Body: body})
	}
	digest := s.Registry.Conditions.Digest()
	s.Apply(tutti.Event{Seq: 5, Body: &tutti.NodeMatched{Node: "c", Conditions: digest}})
	s.Apply(tutti.Event{Seq: 6, By: "ada", Body: &tutti.Paused{Target: "g", Reason: "lunch"}})
	now := time.Unix(9, 0)
	const held = "paused by ada: lunch; nobody knows whether the node is in group g"
	for node, want := range map[tutti.NodeName]string{"a": held, "b": held, "c": ""} {
		if got := s.PausedNode(now, node); got != want || s.Paused(now)(node) != want {
			t.Errorf("%s: %q and %q, want %q", node, got, s.Paused(now)(node), want)
		}
	}
	s.Apply(tutti.Event{Seq: 7, Body: &tutti.NodeMatched{Node: "a", Conditions: digest, Matches: []tutti.Match{{Group: "g"}}}})
	if got := s.PausedNode(now, "a"); got != "paused by ada: lunch" {
		t.Errorf("a member is %q", got)
	}
	if got := s.Undecided("g"); len(got) != 0 {
		t.Errorf("undecided %v, want none: b is observed", got)
	}
}
