package fleet_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/dag"
	"github.com/tutti-project/tutti/internal/fleet"
)

// The function `names` returns a list with the names of groups.
func names(from, to int) string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("o%d", i))
	}
	return strings.Join(out, ", ")
}

// The function `reads` returns reactions for values of n keys.
func reads(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "{key: k%d, when: now},", i)
	}
	return out.String()
}

func TestParseBounds(t *testing.T) {
	manyGroups := strings.ReplaceAll(names(0, 201), ",", ": {joined: true},") + ": {joined: true}"
	var groups strings.Builder
	for i := range 60 {
		fmt.Fprintf(&groups, "  g%d: {}\n", i)
	}
	for _, tc := range []struct {
		reason, source, want string // want is the expected last line
		lines                int
	}{
		{"too large", strings.Repeat("#", fleet.MaxSource+1), "f:1: 1048577 bytes, at most 1048576", 1},
		{"more problems than anybody reads", "fleet: x\ngroups:\n" + groups.String(), "f:53: there are 10 more problems from here on", 51},
		{"an alias is wrong once", "fleet: x\nplans: {p: {steps: [&bad {rum: x}, *bad, *bad]}}\n", `f:2: step: unknown key "rum" (did you mean "run"?)`, 1},
		{"bytes that are no text", "fleet: \xff\n", "f:1: not YAML: invalid leading UTF-8 octet", 1},
		{"a word of many letters", "fleet: x\n" + strings.Repeat("k", 900) + ": 1\n", `f:2: the fleet file: unknown key "` + strings.Repeat("k", 900) + `" (there are 18: access, environment, environments, facts, fleet, grants, groups, inventory, join, mode, order, plans, reaction, reactive, replaced, runs_every, …)`, 1},
		{"order between more groups than anybody has", "fleet: x\ngroups: {" + manyGroups + "}\norder: [{first: [" + names(0, 101) + "], then: [" + names(101, 201) + "]}]\n", "f:3: order: more than 10000 pairs of groups (put groups with the same order into one group)", 1},
		{"an alias orders the same groups very often", "fleet: x\ngroups: {a: {joined: true}, b: {joined: true}}\norder: [&o {first: a, then: b}" + strings.Repeat(",*o", 200_000) + "]\n", "f:3: order: more than 10000 pairs of groups (put groups with the same order into one group)", 2},
		{"more tags than anybody has", "fleet: x\ngroups: {a: {joined: true}}\nplans: {p: {steps: [{run: a, tags: [" + names(0, 101) + "]}]}}\n", "f:3: step: tags: 101 tags: at most 100 are possible, because the log stores the tags of each run", 1},
		{"more reactions than anybody has", "fleet: x\nreactive: true\nreaction: {reads: [" + reads(1001) + "]}\n", "f:3: reaction: reads: more than 1000", 1},
		{"a long plan whose steps all follow one that is not there", "fleet: x\nplans: {p: {steps: [" + strings.Repeat("{run: a,after: q},", 55_000) + "]}}\n", "f:2: there are 109950 more problems from here on", 51},
	} {
		_, err := fleet.Parse("f", []byte(tc.source))
		if tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: error %v, want code invalid", tc.reason, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if diff := cmp.Diff(tc.want, lines[len(lines)-1]); diff != "" || len(lines) != tc.lines {
			t.Errorf("%s: %d lines, want %d; the last: -want +got\n%s", tc.reason, len(lines), tc.lines, diff)
		}
	}
}

var swift = tutti.Fleet{Groups: []tutti.Group{
	{Name: "storage", Nodes: []tutti.NodeName{"s2", "s1"}},
	{Name: "workers"},
	{Name: "idle"},
}}

func TestResolve(t *testing.T) {
	enrolled := map[tutti.GroupName][]tutti.NodeName{
		"workers": {"w2", "w1", "w2"},
		"storage": {"intruder"},
		"dropped": {"d1.example.net"},
	}
	for _, tc := range []struct {
		reason, target string
		want           []tutti.NodeName
		err            string
	}{
		{"a listed group, sorted; a token adds nobody", "storage", []tutti.NodeName{"s1", "s2"}, ""},
		{"a joined group, unique", "workers", []tutti.NodeName{"w1", "w2"}, ""},
		{"a listed node", "s2", []tutti.NodeName{"s2"}, ""},
		{"a joined node", "w1", []tutti.NodeName{"w1"}, ""},
		{"a node of a group that the fleet has no more", "d1.example.net", []tutti.NodeName{"d1.example.net"}, ""},
		{"a group that nobody has joined", "idle", nil, `plan p, step s: no node has joined group "idle" yet: create a join token with that group`},
		{"a group without a declaration", "dropped", nil, `plan p, step s: node "dropped" has not joined and is not in a group of the fleet file`},
		{"a node that never joined", "x.example.net", nil, `plan p, step s: node "x.example.net" has not joined and is not in a group of the fleet file`},
	} {
		plan := tutti.Plan{Name: "p", Steps: []tutti.Step{
			{Name: "w", Wait: &tutti.WaitStep{TCP: "x:1"}},
			{Name: "s", Run: &tutti.RunStep{Target: tc.target}},
		}}
		got, err := fleet.Resolve(swift, enrolled, plan)
		var want map[tutti.StepName][]tutti.NodeName
		if tc.err == "" {
			want = map[tutti.StepName][]tutti.NodeName{"s": tc.want}
		}
		message := ""
		if err != nil {
			message = err.Error()
			if tutti.CodeOf(err) != tutti.CodeNotFound {
				t.Errorf("%s: code %q, want not_found", tc.reason, tutti.CodeOf(err))
			}
		}
		if diff := cmp.Diff(want, got) + cmp.Diff(tc.err, message); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
	if diff := cmp.Diff([]tutti.NodeName{"s2", "s1"}, swift.Groups[0].Nodes); diff != "" {
		t.Errorf("the fleet was changed: -want +got\n%s", diff)
	}
}

func TestGroupsOf(t *testing.T) {
	for _, tc := range []struct {
		reason string
		node   tutti.NodeName
		token  []tutti.GroupName
		want   []tutti.GroupName
	}{
		{"listed", "s1", nil, []tutti.GroupName{"storage"}},
		{"by token, sorted", "w1", []tutti.GroupName{"workers", "idle"}, []tutti.GroupName{"idle", "workers"}},
		{"both", "s1", []tutti.GroupName{"workers"}, []tutti.GroupName{"storage", "workers"}},
		{"a token does not list", "w1", []tutti.GroupName{"storage"}, nil},
		{"nor declare", "w1", []tutti.GroupName{"admin"}, nil},
		{"a longer name is another node", "s1.example.net", nil, nil},
	} {
		if diff := cmp.Diff(tc.want, fleet.NewMembership(swift).GroupsOf(tc.node, tc.token, nil)); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

func TestRenderWithoutTargets(t *testing.T) {
	plan := tutti.Plan{Name: "p", Steps: []tutti.Step{
		{Name: "second", After: []tutti.StepName{"first"}, Run: &tutti.RunStep{Target: "b"}, Timeout: fleet.DefaultRunTimeout},
		{Name: "first", Run: &tutti.RunStep{Target: "a"}, Timeout: fleet.DefaultRunTimeout},
	}}
	many := map[tutti.StepName][]tutti.NodeName{"first": {"n1", "n2", "n3", "n4", "n5"}}
	want := `plan p, 2 steps

  STEP    AFTER  DOES                               OPTIONS
  first   -      run a (5 nodes: n1, n2, n3, n4, …)  timeout 1h
  second  first  run b                              timeout 1h
`
	want = strings.ReplaceAll(want, "DOES                               ", "DOES                                ")
	want = strings.ReplaceAll(want, "run b                              ", "run b                               ")
	if diff := cmp.Diff(want, fleet.Render(plan, many)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

var exampleRE = regexp.MustCompile("(?s)```yaml\n(fleet: .*?)```")

// TestExamplesOfTheManual reads every complete fleet file in docs/howto.
func TestExamplesOfTheManual(t *testing.T) {
	manual, err := os.ReadFile("../../docs/howto/fleet-file.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := exampleRE.FindAllSubmatch(manual, -1)
	if len(examples) == 0 {
		t.Fatal("no example in the manual")
	}
	for i, e := range examples {
		if _, err := fleet.Parse(fmt.Sprintf("example-%d", i+1), e[1]); err != nil {
			t.Error(err)
		}
	}
}

// checkPlan checks the properties of a plan that the engine needs.
func checkPlan(t *testing.T, p tutti.Plan) {
	t.Helper()
	g := dag.New[tutti.StepName]()
	for _, s := range p.Steps {
		if g.Has(s.Name) || s.Name.Validate() != nil || s.Timeout <= 0 {
			t.Errorf("plan %q has the step %+v", p.Name, s)
		}
		g.Add(s.Name)
	}
	for _, s := range p.Steps {
		for _, earlier := range s.After {
			if !g.Has(earlier) {
				t.Errorf("plan %q: step %q waits for %q, which is not there", p.Name, s.Name, earlier)
			}
			g.Connect(earlier, s.Name)
		}
	}
	if cycle := g.Cycle(); cycle != nil || len(p.Steps) == 0 {
		t.Errorf("plan %q: cycle %v among %d steps", p.Name, cycle, len(p.Steps))
	}
	if !strings.Contains(fleet.Render(p, nil), string(p.Steps[0].Name)) {
		t.Errorf("plan %q does not show its first step", p.Name)
	}
}

// TestReadReactions checks which questions a rule matches, and which rules can never match because of an earlier rule.
func TestReadReactions(t *testing.T) {
	value := func(key string) tutti.Query { return tutti.Query{Kind: tutti.QueryValue, Key: key} }
	hiera := func(key string) tutti.Query { return tutti.Query{Kind: tutti.QueryHiera, Key: key} }
	collect := func(name string) tutti.Query { return tutti.Query{Kind: tutti.QueryCollect, Type: name} }
	for _, tc := range []struct {
		reason, key, kind string // a key, or a kind of resource
		query             tutti.Query
		want              bool
	}{
		{"a value", "swift/rings/object", "", value("swift/rings/object"), true},
		{"values below", "swift/**", "", value("swift/rings/object"), true},
		{"not the key itself", "swift/**", "", value("swift"), false},
		{"a hiera key", "hiera/ntp::servers", "", hiera("ntp::servers"), true},
		{"the keys of a class", "hiera/ntp/**", "", hiera("ntp::servers"), true},
		{"and of classes below it", "hiera/profile/**", "", hiera("profile::base::motd"), true},
		{"written as Puppet does", "hiera/profile::base/**", "", hiera("profile::base::motd"), true},
		{"another class", "hiera/ntp/**", "", hiera("ntpd::servers"), false},
		{"all hiera keys", "hiera/**", "", hiera("a key of any kind"), true},
		{"hiera keys are no values", "hiera/**", "", value("hiera/ntp::servers"), false},
		{"values are no hiera keys", "ntp::servers", "", hiera("ntp::servers"), false},
		{"whatever has a key", "**", "", hiera("ntp::servers"), true},
		{"whatever has a key", "**", "", value("x"), true},
		{"a collector has none", "**", "", collect("Sshkey"), false},
		{"a type", "", "Sshkey", collect("Sshkey"), true},
		{"another type", "", "Sshkey", collect("Host"), false},
		{"a type is no key", "", "Sshkey", value("Sshkey"), false},
	} {
		rule := tutti.ReadReaction{Key: tc.key, Type: tc.kind, When: tutti.ReactNow}
		if got := rule.Fits(tc.query); got != tc.want {
			t.Errorf("%s: %+v fits %+v: %t, want %t", tc.reason, rule, tc.query, got, tc.want)
		}
	}
	rules := []tutti.ReadReaction{{Type: "Host"}, {Type: "Sshkey"}}
	for _, key := range []string{"**", "a", "a/**", "a/b", "hiera/**", "hiera/a", "hiera/a/**", "hiera/a::b", "hiera/a/b"} {
		rules = append(rules, tutti.ReadReaction{Key: key})
	}
	queries := []tutti.Query{collect("Host"), collect("Sshkey")}
	for _, key := range []string{"a", "a/b", "a/b/c", "x", "a::b", "a::b::c", "hiera/a", "hiera/a/b", "hiera/a::b"} {
		queries = append(queries, value(key), hiera(key))
	}
	for _, rule := range rules {
		for _, other := range rules {
			covered := true // whether `other` fits every question that `rule` fits
			for _, q := range queries {
				covered = covered && (other.Fits(q) || !rule.Fits(q))
			}
			if got := rule.CoveredBy(other); got != covered {
				t.Errorf("%+v is covered by %+v: %t, want %t", rule, other, got, covered)
			}
		}
	}
}
