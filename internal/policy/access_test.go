package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/policy"
)

func access(to string, verb tutti.Verb, change ...func(*tutti.Access)) tutti.Access {
	a := tutti.Access{To: []string{to}, May: []tutti.Verb{verb}}
	for _, c := range change {
		c(&a)
	}
	return a
}

func onlyOn(groups ...tutti.GroupName) func(*tutti.Access) {
	return func(a *tutti.Access) { a.Groups = groups }
}

func onlyPlans(plans ...tutti.PlanName) func(*tutti.Access) {
	return func(a *tutti.Access) { a.Plans = plans }
}

func onlyKeys(keys ...string) func(*tutti.Access) { return func(a *tutti.Access) { a.Keys = keys } }

func onlyNoop(a *tutti.Access) { a.Noop = true }

func target(node tutti.NodeName, groups ...tutti.GroupName) policy.Target {
	return policy.Target{Node: node, Groups: groups}
}

// TestMayOperate checks the table of ADR 0024.
func TestMayOperate(t *testing.T) {
	const no, paste = "operator ada may not do it: no access; to allow this, add to the access of the fleet file: - ", "{to: ada, may: "
	web1, web2, db := target("web-01", "all", "web"), target("web-02", "all", "web"), target("db-01", "all", "db")
	run := func(change ...func(*policy.Wish)) policy.Wish {
		w := policy.Wish{Verbs: []tutti.Verb{tutti.VerbRun}, Narrow: true, Plan: "deploy", Nodes: []policy.Target{web1, web2}}
		for _, c := range change {
			c(&w)
		}
		return w
	}
	wish := func(verbs ...tutti.Verb) policy.Wish { return policy.Wish{Verbs: verbs} }
	key := func(key string) policy.Wish {
		return policy.Wish{Verbs: []tutti.Verb{tutti.VerbData}, Narrow: true, Key: key}
	}
	for _, tc := range []struct {
		reason string
		access []tutti.Access
		wish   policy.Wish
		want   string // the missing entry; empty if the wish is allowed
	}{
		{"a fleet without the section", nil, wish(tutti.VerbAdmin), ""},
		{"who is not in it", []tutti.Access{access("bob", tutti.VerbAdmin)}, wish(tutti.VerbView), "view}"},
		{"everybody", []tutti.Access{access("*", tutti.VerbView)}, wish(tutti.VerbView), ""},
		{"a name is no pattern", []tutti.Access{access("ad", tutti.VerbAdmin), access("ada2", tutti.VerbAdmin)}, wish(tutti.VerbView), "view}"},
		{"what everybody may", []tutti.Access{access("bob", tutti.VerbRun)}, wish(), ""},
		{"read is more than view", []tutti.Access{access("ada", tutti.VerbView)}, wish(tutti.VerbRead), "read}"},
		{"run reads", []tutti.Access{access("ada", tutti.VerbRun, onlyOn("web"))}, wish(tutti.VerbRead), ""},
		{"data does not read", []tutti.Access{access("ada", tutti.VerbData)}, wish(tutti.VerbRead), "read}"},
		{"data views", []tutti.Access{access("ada", tutti.VerbData, onlyKeys("shared/a"))}, wish(tutti.VerbView), ""},
		{"one of two verbs", []tutti.Access{access("ada", tutti.VerbData)}, wish(tutti.VerbRead, tutti.VerbData), ""},
		{"admin has all", []tutti.Access{access("ada", tutti.VerbAdmin)}, wish(tutti.VerbApprove), ""},
		{"admin is not narrowed", []tutti.Access{access("ada", tutti.VerbAdmin)}, run(func(w *policy.Wish) { w.All = true }), ""},
		{"nothing has admin", []tutti.Access{access("ada", tutti.VerbRun), access("ada", tutti.VerbNodes), access("ada", tutti.VerbCode)}, wish(tutti.VerbAdmin), "admin}"},

		{"run all", []tutti.Access{access("ada", tutti.VerbRun)}, run(func(w *policy.Wish) { w.All = true }), ""},
		{"run in its group", []tutti.Access{access("ada", tutti.VerbRun, onlyOn("web"))}, run(), ""},
		{"run beside it", []tutti.Access{access("ada", tutti.VerbRun, onlyOn("web"))}, run(func(w *policy.Wish) { w.Nodes = append(w.Nodes, db) }), "run, plans: deploy, groups: db}"},
		{"nodes of two groups", []tutti.Access{access("ada", tutti.VerbView)}, run(func(w *policy.Wish) { w.Nodes = []policy.Target{target("a", "x"), target("b", "app")} }), "run, plans: deploy, groups: [app, x]}"},
		{"two entries cover all nodes", []tutti.Access{access("ada", tutti.VerbRun, onlyOn("web")), access("ada", tutti.VerbRun, onlyOn("db"))},
			run(func(w *policy.Wish) { w.Nodes = append(w.Nodes, db) }), ""},
		{"the groups of all nodes are not all", []tutti.Access{access("ada", tutti.VerbRun, onlyOn("all"))}, run(func(w *policy.Wish) { w.All = true }), "run, plans: deploy}"},
		{"a node in no group", []tutti.Access{access("ada", tutti.VerbRun, onlyOn("web"))}, run(func(w *policy.Wish) { w.Nodes = []policy.Target{target("x")} }), "run, plans: deploy, groups: GROUP}"},
		{"its plan", []tutti.Access{access("ada", tutti.VerbRun, onlyPlans("deploy"))}, run(), ""},
		{"another plan", []tutti.Access{access("ada", tutti.VerbRun, onlyPlans("converge"))}, run(), "run, plans: deploy, groups: web}"},
		{"plan and group of two entries do not add up", []tutti.Access{access("ada", tutti.VerbRun, onlyPlans("deploy"), onlyOn("db")), access("ada", tutti.VerbRun, onlyPlans("x"), onlyOn("web"))},
			run(), "run, plans: deploy, groups: web}"},
		{"noop alone", []tutti.Access{access("ada", tutti.VerbRun, onlyNoop)}, run(), "run, plans: deploy, groups: web}"},
		{"noop alone, with noop", []tutti.Access{access("ada", tutti.VerbRun, onlyNoop)}, run(func(w *policy.Wish) { w.Noop = true }), ""},
		{"what is missing for noop", []tutti.Access{access("ada", tutti.VerbView)}, run(func(w *policy.Wish) { w.Noop = true }), "run, plans: deploy, groups: web, noop: true}"},
		{"a plan of no node", []tutti.Access{access("ada", tutti.VerbRun, onlyOn("web"))}, run(func(w *policy.Wish) { w.Nodes = nil }), ""},
		{"a pause", []tutti.Access{access("ada", tutti.VerbRun, onlyOn("web"))}, run(func(w *policy.Wish) { w.Plan = "" }), ""},
		{"a pause by who has plans", []tutti.Access{access("ada", tutti.VerbRun, onlyPlans("deploy"))}, run(func(w *policy.Wish) { w.Plan = "" }), "run, groups: web}"},
		{"a pause by who has noop", []tutti.Access{access("ada", tutti.VerbRun, onlyNoop)}, run(func(w *policy.Wish) { w.Plan = "" }), "run, groups: web}"},

		{"any key", []tutti.Access{access("ada", tutti.VerbData)}, key("shared/x"), ""},
		{"its keys", []tutti.Access{access("ada", tutti.VerbData, onlyKeys("shared/app/**"))}, key("shared/app/port"), ""},
		{"others", []tutti.Access{access("ada", tutti.VerbData, onlyKeys("shared/app/**"))}, key("shared/apps"), `data, keys: ["shared/apps"]}`},
		{"any key by who has some", []tutti.Access{access("ada", tutti.VerbData, onlyKeys("shared/app/**"))}, key(""), "data}"},
		{"keys do not narrow another verb", []tutti.Access{access("ada", tutti.VerbNodes, onlyKeys("shared/app/**"))}, wish(tutti.VerbNodes), ""},
		{"puppet on its group", []tutti.Access{access("ada", tutti.VerbPuppet, onlyOn("web"))},
			policy.Wish{Verbs: []tutti.Verb{tutti.VerbPuppet}, Narrow: true, Nodes: []policy.Target{web1}}, ""},
		{"puppet on another", []tutti.Access{access("ada", tutti.VerbPuppet, onlyOn("web"))},
			policy.Wish{Verbs: []tutti.Verb{tutti.VerbPuppet}, Narrow: true, Nodes: []policy.Target{db}}, "puppet, groups: db}"},
	} {
		tc.wish.What = "do it"
		err := policy.MayOperate(tutti.Fleet{Groups: swift.Groups, Access: tc.access}, "ada", tc.wish)
		want := ""
		if tc.want != "" {
			want = no + paste + tc.want
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
		if err != nil && tutti.CodeOf(err) != tutti.CodeRefused {
			t.Errorf("%s: code %s", tc.reason, tutti.CodeOf(err))
		}
	}
}
