package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

const whereFile = `fleet: x
inventory: {facts: true}
groups:
  redhat: {where: 'facts.os.family == "RedHat"'}
  web: {where: '"role::web" in classes'}
  large: {where: 'has(facts.cores) && facts.cores >= 4.0'}
  mixed: {where: 'certname.startsWith("db-") || trusted.pp_role == "db" || "role::db" in classes'}
  virtual: {where: facts.is_virtual}
  listed: {nodes: [a]}
plans:
  one: {steps: [{run: redhat}, {converge: web}]}
`

// TestAConditionHasATime: a node that makes a condition slow by the size of its facts is unknown.
func TestAConditionHasATime(t *testing.T) {
	keys := map[string]any{}
	for i := range 5000 {
		keys[fmt.Sprint("key", i)] = int64(i)
	}
	c := fleet.NewConditions(tutti.Fleet{Groups: []tutti.Group{{Name: "g", Where: `facts.a.all(x, facts.a.exists(y, y != x))`}}}, "").Matcher()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the time is over at the first look
	got := c.Match(ctx, fleet.Known{Node: "a", Facts: map[string]any{"a": keys}})
	want := []tutti.Match{{Group: "g", Unknown: "the condition takes too long with the facts of this node"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestGroupsByFacts checks in which groups a node is, and for which groups nobody knows. Nothing that is not known is a no.
func TestGroupsByFacts(t *testing.T) {
	f, err := fleet.Parse("f", []byte(whereFile))
	if err != nil {
		t.Fatal(err)
	}
	conditions := fleet.NewConditions(f, "")
	facts := func(family string, more ...any) map[string]any {
		out := map[string]any{"os": map[string]any{"family": family}, "is_virtual": false}
		if len(more) > 0 {
			out["cores"] = more[0]
		}
		return out
	}
	noKey := "no such key: %s; if not all nodes have it, the condition must check for it first: has(facts.NAME) && …"
	for _, tc := range []struct {
		reason string
		known  fleet.Known
		want   map[tutti.GroupName]string // group → why nobody knows; empty if the node is in the group
	}{
		{"facts and classes", fleet.Known{Node: "a", Facts: facts("RedHat", int64(4)), Classes: []string{"role::web"}},
			map[tutti.GroupName]string{"redhat": "", "web": "", "large": "", "mixed": fmt.Sprintf(noKey, "pp_role")}},
		{"others", fleet.Known{Node: "db-01", Facts: facts("Debian"), Classes: []string{}}, map[tutti.GroupName]string{"mixed": ""}},
		{"no facts", fleet.Known{Node: "db-01", NoFacts: "it never ran", Classes: []string{"role::db"}},
			map[tutti.GroupName]string{"redhat": "it never ran", "large": "it never ran", "virtual": "it never ran", "mixed": ""}},
		{"no answer of the ENC", fleet.Known{Node: "a", Facts: facts("Debian"), NoClasses: "no ENC", Certificate: &tutti.NodeCertificate{Extensions: map[string]string{"pp_role": "x"}}},
			map[tutti.GroupName]string{"web": "no ENC", "mixed": "no ENC"}},
		{"a fact of another type", fleet.Known{Node: "db-01", Facts: map[string]any{"os": "RedHat", "is_virtual": "yes"}, Classes: []string{}},
			map[tutti.GroupName]string{"redhat": "unsupported index type 'string' in qualifier of 'string'", "virtual": "the condition is a string, and must be true or false", "mixed": ""}},
	} {
		tc.known.FactsOf = "sha256:f"
		got := map[tutti.GroupName]string{}
		for _, m := range conditions.Matcher().Match(t.Context(), tc.known) {
			got[m.Group] = m.Unknown
			if reads := m.Group == "redhat" || m.Group == "large" || m.Group == "virtual"; (m.Facts != "") != reads {
				t.Errorf("%s: group %s rests on facts %q", tc.reason, m.Group, m.Facts)
			}
		}
		if tc.reason == "a fact of another type" {
			if got["redhat"] == "" {
				t.Errorf("%s: %v", tc.reason, got)
			}
			got["redhat"] = tc.want["redhat"]
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
	if conditions.Digest() == "" || !conditions.Matcher().ReadsFacts() || !conditions.Has("web") || conditions.Has("listed") {
		t.Errorf("digest %q", conditions.Digest())
	}
	var none *fleet.Conditions
	if none.Digest() != "" || none.Matcher().ReadsFacts() || none.Has("web") || none.Matcher().Match(t.Context(), fleet.Known{}) != nil || none.Groups() != nil {
		t.Error("a fleet without conditions has some")
	}
	if m := fleet.NewMembership(f); m.GroupsOf("a", []tutti.GroupName{"redhat", "web"}, nil)[0] != "listed" || len(m.GroupsOf("a", []tutti.GroupName{"redhat", "web"}, nil)) != 1 {
		t.Errorf("a token puts a node into %v", m.GroupsOf("a", []tutti.GroupName{"redhat", "web"}, nil))
	}
}

// A condition of a later release may be unknown here. Then nobody knows who is in the group.
func TestAConditionOfALaterRelease(t *testing.T) {
	got := fleet.NewConditions(tutti.Fleet{Groups: []tutti.Group{{Name: "g", Where: `later(facts)`}}}, "").Matcher().Match(t.Context(), fleet.Known{Node: "a"})
	if len(got) != 1 || got[0].Unknown != "the server cannot read the condition: upgrade the server" {
		t.Errorf("%+v", got)
	}
}

// A node can put any text into its facts. The reason stays short and plain.
func TestAReasonIsShortAndPlain(t *testing.T) {
	c := fleet.NewConditions(tutti.Fleet{Groups: []tutti.Group{{Name: "g", Where: `int(facts.x) == 1`}}}, "").Matcher()
	got := c.Match(t.Context(), fleet.Known{Node: "a", Facts: map[string]any{"x": "\x1b[2J\n" + strings.Repeat("é", 500)}})
	if len(got) != 1 || got[0].Unknown == "" || len(got[0].Unknown) > tutti.MaxUnknown || strings.ContainsAny(got[0].Unknown, "\x1b\n") {
		t.Errorf("%q", got)
	}
}

// A condition that costs too much ends, and nobody knows whether the node is in the group.
func TestAConditionThatCostsTooMuch(t *testing.T) {
	all := `facts.l.all(%s, %s)`
	text := "true"
	for _, v := range []string{"a", "b", "c", "d"} {
		text = fmt.Sprintf(all, v, text)
	}
	list := make([]any, 100)
	got := fleet.NewConditions(tutti.Fleet{Groups: []tutti.Group{{Name: "g", Where: text}}}, "").Matcher().Match(t.Context(), fleet.Known{Node: "a", Facts: map[string]any{"l": list}})
	if len(got) != 1 || !strings.Contains(got[0].Unknown, "cost limit") {
		t.Errorf("%q", got)
	}
}

// A condition that sees the order of structured facts has the same answer each time.
func TestConditionsSeeFactsInOrder(t *testing.T) {
	inner := map[string]any{}
	for i := range 20 {
		inner[fmt.Sprintf("k%02d", i)] = int64(i)
	}
	for _, text := range []string{`facts.map(k, k)[0] == "a"`, `facts.a.map(k, facts.a[k])[0] == 0`, `facts.l[0].map(k, k)[19] == "k19"`} {
		c := fleet.NewConditions(tutti.Fleet{Groups: []tutti.Group{{Name: "g", Where: text}}}, "").Matcher()
		for range 30 {
			got := c.Match(t.Context(), fleet.Known{Node: "a", Facts: map[string]any{"l": []any{inner}, "a": inner, "z": "z"}})
			if len(got) != 1 || got[0].Unknown != "" {
				t.Errorf("%s: %+v", text, got)
				break
			}
		}
	}
}

// TestAGroupByFactsGivesNothing checks that the fleet file refuses such a group wherever it would give something, with the
// line and with what to do.
func TestAGroupByFactsGivesNothing(t *testing.T) {
	own := " (a node chooses its own facts; use a group with `trusted: CONDITION`, `joined: true` or `nodes`)"
	only := "group \"redhat\" has `where`, so it can only be a target" + own
	file := "fleet: x\ninventory: {facts: true}\ngroups:\n  web: {joined: true}\n  redhat: {where: 'facts.x == 1'%s}\n%s"
	for _, tc := range []struct{ key, rest, want string }{
		{"", "grants:\n  - {to: redhat, read: [x]}\n", "f:7: grant: " + only},
		{"", "grants:\n  - {to: redhat, exports: [File], dangerous: true}\n", "f:7: grant: " + only},
		{"", "access:\n  - {to: ada, may: run, groups: redhat}\n  - {to: bob, may: admin}\n", "f:7: access: " + only},
		{"", "order:\n  - first: web\n    then: redhat\n", "f:8: order: then: " + only},
		{"", "order:\n  - first: redhat\n    then: web\n", "f:7: order: first: " + only},
		{"", "join:\n  - {certname: '*', groups: redhat}\n", "f:7: join: groups: " + only},
		{", mode: agent", "", "f:5: group redhat: a group with `where` can only be a target, so it has no mode" + own},
		{", environment: canary", "", "so it has no environment" + own},
		{", serial: true", "", "so it has no serial" + own},
		{", safety_when_away: 1h", "", "so it has no safety_when_away" + own},
		{", runs_every: 30m", "", "so it has no runs_every" + own},
		{", remove_after: 24h", "", "so it has no remove_after" + own},
		{", nodes: [a]", "", "f:5: group redhat: exactly one of `nodes`, `joined`, `trusted` and `where` is needed"},
		{", joined: true", "", "exactly one of"},
		{", trusted: 'true'", "", "exactly one of"},
	} {
		_, err := fleet.Parse("f", fmt.Appendf(nil, file, tc.key, tc.rest))
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s%s: %v, want %q", tc.key, tc.rest, err, tc.want)
		}
	}
	for source, want := range map[string]string{
		`{where: 'facts.x == 1'}`:                      "f:2: group g: where: the condition reads facts, and the server does not hold the facts of nodes (add `inventory: {facts: true}`)",
		`{where: 'certname == "a" && facts.x == 1'}`:   "add `inventory: {facts: true}`",
		`{where: 'fact.x == 1'}`:                       "f:2: group g: where: line 1, character 1 of the condition: undeclared reference to 'fact'",
		`{where: 'certname'}`:                          "the condition is a string, and must be true or false",
		`{where: 'classes.size()'}`:                    "the condition is a int",
		`{where: 'trusted.pp_rol == "x"'}`:             `unknown extension "pp_rol"`,
		`{where: 'certname.matches("[")'}`:             "invalid matches argument",
		`{where: 5}`:                                   "f:2: group g: where: text needed",
		"{where: '" + strings.Repeat(" ", 5000) + "'}": "at most 4096",
		"{where: '" + strings.Repeat("[", 60) + strings.Repeat("]", 60) + " == []'}": "recursion limit",
	} {
		_, err := fleet.Parse("f", []byte("fleet: x\ngroups: {g: "+source+"}\n"))
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", source, err, want)
		}
	}
	if _, err := fleet.Parse("f", []byte("fleet: x\ngroups: {g: {where: '\"a\" in classes && trusted.pp_role == \"x\"'}}\n")); err != nil {
		t.Errorf("a condition without facts needs no key: %v", err)
	}
}

// A plan with such a group has the nodes that the caller gives.
func TestResolveWhere(t *testing.T) {
	f, err := fleet.Parse("f", []byte(whereFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := fleet.Resolve(f, map[tutti.GroupName][]tutti.NodeName{"redhat": {"b", "a"}}, f.Plans[0])
	if diff := cmp.Diff(map[tutti.StepName][]tutti.NodeName{"run-redhat": {"a", "b"}}, got); diff != "" || err != nil {
		t.Errorf("%v -want +got\n%s", err, diff)
	}
	if _, err := fleet.Resolve(f, nil, f.Plans[0]); err == nil || !strings.Contains(err.Error(), `no node fits the condition of group "redhat"`) {
		t.Errorf("%v", err)
	}
}
