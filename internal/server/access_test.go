package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// accessFleet has a group that lists its nodes, a group that nodes join, and rules about which operators may do what.
const accessFleet = `fleet: shop
groups:
  web: {nodes: [web-01]}
  wide: {nodes: [web-01, late-01]}
  late: {nodes: [late-01]}
  db: {joined: true}
plans:
  deploy: {steps: [{run: web}]}
  both: {steps: [{run: web}, {run: db}]}
  later: {steps: [{converge: db}]}
access:
  - {to: ada, may: admin}
  - {to: webber, may: [run, puppet], groups: [web]}
  - {to: deployer, may: run, plans: [deploy]}
  - {to: watcher, may: run, noop: true}
  - {to: app, may: data, keys: [shared/app/**]}
  - {to: pipeline, may: code}
  - {to: viewer, may: view}
  - {to: reader, may: read}
`

// shop is a fleet with access rules, and the open visits of its operators.
type shop struct {
	*servertest.Fleet
	t *testing.T
}

func newShop(t *testing.T) *shop {
	t.Helper()
	f := newShopOfStrangers(t)
	for _, name := range []string{"ada", "webber", "deployer", "watcher", "app", "pipeline", "viewer", "reader"} {
		if err := f.Emit(&tutti.OperatorIssued{Operator: name, Serial: "serial", Expires: time.Now().AddDate(0, 0, 30)}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// newShopOfStrangers returns a shop whose log knows no certificate of an operator.
func newShopOfStrangers(t *testing.T) *shop {
	t.Helper()
	f := &shop{servertest.Start(t), t}
	f.Join("web-01")
	f.Join("db-01", "db")
	f.Push(accessFleet)
	return f
}

// The method `as` opens a visit of an operator, and returns the context of this visit. The operator must have one of
// these verbs. The log knows the operator's certificate. The visit lasts until the test ends.
func (f *shop) as(name string, verbs ...tutti.Verb) context.Context {
	f.t.Helper()
	return f.with(name, "serial", verbs...)
}

// The method `with` opens a visit with the certificate that has this serial number, and returns the context of the
// visit.
func (f *shop) with(name, serial string, verbs ...tutti.Verb) context.Context {
	f.t.Helper()
	inside, leave, err := f.Admit(f.t.Context(), name, serial, verbs...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(leave)
	return inside
}

// wantAccess checks that the server refuses a call because the fleet file does not have the entry `missing`. If
// missing is empty, the call must succeed. A refusal must be in the audit trail, and the call must append nothing
// else.
func (f *shop) wantAccess(what string, do func() error, missing string) {
	f.t.Helper()
	n := len(f.Events())
	err := do()
	if missing == "" {
		if err != nil {
			f.t.Errorf("%s: %v", what, err)
		}
		return
	}
	line := "add to the access of the fleet file: - " + missing
	if tutti.CodeOf(err) != tutti.CodeRefused || !strings.HasSuffix(err.Error(), line) {
		f.t.Errorf("%s: %v; want it refused, with %q", what, err, missing)
	}
	if got := f.Since(n); !slices.Equal(got, []string{"audit.denied"}) {
		f.t.Errorf("%s: appended %v; want the refusal", what, got)
	}
}

// TestTheDoorNamesNoWiderLine checks the line that a refusal suggests for the fleet file. The
// suggested line must not allow more than the call needs.
func TestTheDoorNamesNoWiderLine(t *testing.T) {
	f := newShop(t)
	for verb, missing := range map[tutti.Verb]string{
		tutti.VerbRun: "run, plans: PLAN, groups: GROUP}", tutti.VerbPuppet: "puppet, groups: GROUP}", tutti.VerbData: `data, keys: ["KEY"]}`, tutti.VerbCode: "code}",
	} {
		_, _, err := f.Admit(t.Context(), "viewer", "serial", verb)
		wantCode(t, err, tutti.CodeRefused, "add to the access of the fleet file: - {to: viewer, may: "+missing)
		if explains := strings.Contains(err.Error(), "tutti access explain viewer "+string(verb)+" TARGET"); explains != (verb != tutti.VerbCode) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// TestAPauseOfAGroupThatIsGone checks a pause of a group that is no longer in the fleet file. The pause applies
// again when the group comes back, and then the group may have any nodes. So an operator whose access covers only
// other groups must not end this pause.
func TestAPauseOfAGroupThatIsGone(t *testing.T) {
	f := newShop(t)
	if _, err := f.Pause(f.as("ada", tutti.VerbRun), api.Pause{Target: "late", Reason: "new disk"}); err != nil {
		t.Fatal(err)
	}
	unpause := func() error { return f.Unpause(f.as("webber", tutti.VerbRun), "late") }
	f.wantAccess("while it is there", unpause, "{to: webber, may: run, groups: late}")
	f.Push(strings.ReplaceAll(accessFleet, "  late: {nodes: [late-01]}\n", ""))
	wantCode(t, unpause(), tutti.CodeRefused, "add to the access of the fleet file: - {to: webber, may: run}")
	if err := f.Unpause(f.as("ada", tutti.VerbRun), "late"); err != nil {
		t.Errorf("an admin: %v", err)
	}
}

// TestAccessIsNarrow checks that a verb for some plans, groups, modes or keys does not cover other ones.
func TestAccessIsNarrow(t *testing.T) {
	f := newShop(t)
	start := func(name string, in api.StartJob) func() error {
		return func() error {
			if in.Mode == "" {
				in.Mode = tutti.ModeApply
			}
			id, err := f.StartJob(f.as(name, tutti.VerbRun), in)
			if err == nil {
				return f.CancelJob(f.as(name, tutti.VerbRun), api.CancelJob{Job: id})
			}
			return err
		}
	}
	runs := func(nodes ...tutti.NodeName) api.StartJob {
		return api.StartJob{Runs: &api.NodeRuns{Nodes: nodes}}
	}
	converge := func(target string) api.StartJob {
		return api.StartJob{Converge: &tutti.ConvergeStep{Target: target}}
	}
	noop := func(in api.StartJob) api.StartJob { in.Mode = tutti.ModeNoop; return in }
	set := func(name, key string) func() error {
		return func() error { return f.SetValue(f.as(name, tutti.VerbData), key, []byte("1")) }
	}
	unset := func(name, key string) func() error {
		return func() error { return f.UnsetValue(f.as(name, tutti.VerbData), key) }
	}
	pause := func(name, target string) func() error {
		return func() error {
			_, err := f.Pause(f.as(name, tutti.VerbRun), api.Pause{Target: target, Reason: "lunch"})
			if err == nil {
				return f.Unpause(f.as(name, tutti.VerbRun), target)
			}
			return err
		}
	}
	deploy, both, later := api.StartJob{Plan: "deploy"}, api.StartJob{Plan: "both"}, api.StartJob{Plan: "later"}
	for _, tc := range []struct {
		what    string
		do      func() error
		missing string
	}{
		{"its group by a plan", start("webber", deploy), ""},
		{"also another group", start("webber", both), "{to: webber, may: run, plans: both, groups: db}"},
		{"two nodes of two others", start("webber", runs("db-01", "web-01")), "{to: webber, may: run, plans: puppet, groups: db}"},
		{"converge a group that lists who has not joined", start("webber", converge("wide")), "{to: webber, may: run, plans: converge, groups: late}"},
		{"pause it", pause("webber", "wide"), "{to: webber, may: run, groups: late}"},
		{"another group", start("webber", later), "{to: webber, may: run, plans: later, groups: db}"},
		{"a node of its group", start("webber", runs("web-01")), ""},
		{"a node of another", start("webber", runs("db-01")), "{to: webber, may: run, plans: puppet, groups: db}"},
		{"converge its group", start("webber", converge("web")), ""},
		{"converge a node of its group", start("webber", converge("web-01")), ""},
		{"converge another", start("webber", converge("db")), "{to: webber, may: run, plans: converge, groups: db}"},
		{"converge the fleet", start("webber", converge("")), "{to: webber, may: run, plans: converge}"},
		{"its plan", start("deployer", deploy), ""},
		{"another plan", start("deployer", both), "{to: deployer, may: run, plans: both, groups: [db, web]}"},
		{"a converge is another plan", start("deployer", converge("web")), "{to: deployer, may: run, plans: converge, groups: web}"},
		{"so are runs", start("deployer", runs("web-01")), "{to: deployer, may: run, plans: puppet, groups: web}"},
		{"noop", start("watcher", noop(both)), ""},
		{"noop of the fleet", start("watcher", noop(converge(""))), ""},
		{"no noop", start("watcher", deploy), "{to: watcher, may: run, plans: deploy, groups: web}"},
		{"everything", start("ada", converge("")), ""},

		{"pause its group", pause("webber", "web"), ""},
		{"pause its node", pause("webber", "web-01"), ""},
		{"pause another", pause("webber", "db"), "{to: webber, may: run, groups: db}"},
		{"pause the fleet", pause("webber", ""), "{to: webber, may: run}"},
		{"pause by who has plans", pause("deployer", "web"), "{to: deployer, may: run, groups: web}"},

		{"set its key", set("app", "shared/app/port"), ""},
		{"unset it", unset("app", "shared/app/port"), ""},
		{"set another", set("app", "shared/port"), `{to: app, may: data, keys: ["shared/port"]}`},
		{"unset another", unset("app", "shared/port"), `{to: app, may: data, keys: ["shared/port"]}`},
	} {
		f.wantAccess(tc.what, tc.do, tc.missing)
	}

	job, err := f.StartJob(servertest.Operator(), api.StartJob{Plan: "both", Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	f.wantAccess("cancel a job of others", func() error {
		return f.CancelJob(f.as("webber", tutti.VerbRun), api.CancelJob{Job: job})
	}, "{to: webber, may: run, plans: both, groups: db}")
	ask := func(on string) func() error {
		return func() error {
			return f.AskNodes(f.as("webber", tutti.VerbPuppet), api.NodesQuestion{Action: tutti.RemoteStatus, On: on, Wait: time.Second},
				func([]api.NodeAnswer) error { return nil })
		}
	}
	f.wantAccess("ask its node", ask(`node == "web-01"`), "")
	f.wantAccess("ask another", ask(`node == "db-01"`), "{to: webber, may: puppet, groups: db}")
	f.wantAccess("ask by a fact, which may be of any node", ask(`facts.role == "x"`), "{to: webber, may: puppet, groups: db}")
	compiles := func(name string, node tutti.NodeName) func() error {
		return func() error {
			if _, err := f.PutBlob(servertest.Operator(), []byte("# x")); err != nil {
				return err
			}
			_, err := f.StartJob(f.as(name, tutti.VerbRun), api.StartJob{Mode: tutti.ModeCompile, Diff: &api.NodeDiff{
				Nodes: []tutti.NodeName{node}, Code: servertest.Permit("production", "# x", time.Now().Add(time.Hour)),
			}})
			return err
		}
	}
	differs := func(name, on string) func() error {
		return func() error {
			return f.AskNodes(f.as(name, tutti.VerbPuppet, tutti.VerbRun), api.NodesQuestion{Action: tutti.RemoteDiff, On: on, Wait: time.Second},
				func([]api.NodeAnswer) error { return nil })
		}
	}
	f.wantAccess("compile for a diff on its node", compiles("webber", "web-01"), "")
	f.wantAccess("compile for a diff on another", compiles("webber", "db-01"), "{to: webber, may: run, plans: diff, groups: db, noop: true}")
	f.wantAccess("compile for a diff with noop", compiles("watcher", "db-01"), "")
	f.wantAccess("what differs on its node", differs("webber", `node == "web-01"`), "")
	f.wantAccess("what differs on another", differs("webber", `node == "db-01"`), "{to: webber, may: run, plans: diff, groups: db, noop: true}")
	f.wantAccess("what differs, with noop", differs("watcher", `node == "db-01"`), "")
	f.wantAccess("what differs, with a plan", differs("deployer", `node == "web-01"`), "{to: deployer, may: run, plans: diff, groups: web, noop: true}")
	f.wantAccess("only run does not ask for more", func() error {
		return f.AskNodes(f.as("watcher", tutti.VerbPuppet, tutti.VerbRun), api.NodesQuestion{Action: tutti.RemoteFacts, On: `node == "db-01"`},
			func([]api.NodeAnswer) error { return nil })
	}, "{to: watcher, may: puppet, groups: db}")
	effect := func(key string) func() error {
		return func() error {
			_, err := f.Effect(f.as("app", tutti.VerbRead, tutti.VerbData), key, []byte("1"))
			return err
		}
	}
	f.wantAccess("ask what its key changes", effect("shared/app/port"), "")
	f.wantAccess("guess another value", effect("shared/pin"), `{to: app, may: data, keys: ["shared/pin"]}`)
}

// TestWhoViewsSeesNoTexts checks that an operator who may only view sees no values. An
// operator who may set some values sees these values.
func TestWhoViewsSeesNoTexts(t *testing.T) {
	f := newShop(t)
	for _, key := range []string{"shared/app/port", "shared/port"} {
		if err := f.SetValue(servertest.Operator(), key, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	job := f.Start("deploy", tutti.ModeApply)
	web := f.Node("web-01")
	order := web.MustClaim()
	result := servertest.Result(order.Run, tutti.Failed)
	result.Reason, result.Message = tutti.BecauseCompile, "secret text"
	result.Failures = []tutti.Failure{{Message: "secret text"}}
	if err := web.Call(wire.OpResult, wire.Ended{Result: result}, nil); err != nil {
		t.Fatal(err)
	}
	if v := f.Job(job); v.Verdict != tutti.VerdictFailed {
		t.Fatalf("the job: %+v", v)
	}
	for name, sees := range map[string]bool{"viewer": false, "app": false, "reader": true, "webber": true} {
		ctx := f.as(name, tutti.VerbView)
		jobs, err := f.ListJobs(ctx)
		if err != nil || len(jobs) == 0 {
			t.Fatal(err)
		}
		nodes, err := f.ListNodes(ctx)
		if err != nil {
			t.Fatal(err)
		}
		text := jobs[0].Message
		for _, n := range nodes {
			text += n.Message
			for _, f := range n.Failures {
				text += f.Message
			}
		}
		if strings.Contains(text, "secret text") != sees {
			t.Errorf("%s sees %q; want the text: %t", name, text, sees)
		}
	}
	for name, want := range map[string][]string{"reader": {"shared/app/port", "shared/port"}, "app": {"shared/app/port"}} {
		values, err := f.ListValues(f.as(name, tutti.VerbRead, tutti.VerbData), "")
		if err != nil {
			t.Fatal(err)
		}
		page, err := f.PageValues(f.as(name, tutti.VerbRead, tutti.VerbData), api.ValuesQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for what, values := range map[string][]api.ValueView{"list": values, "page": page.Values} {
			var got []string
			for _, v := range values {
				got = append(got, v.Key)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s: -want +got\n%s", name, what, diff)
			}
		}
	}
}

// TestOnlyAnAdminChangesTheFleetFile checks that an operator who may only push code cannot change
// the fleet file in a push.
func TestOnlyAnAdminChangesTheFleetFile(t *testing.T) {
	f := newShop(t)
	other := api.FleetSource{File: "tutti.yaml", Source: []byte(strings.Replace(accessFleet, "to: pipeline, may: code", "to: pipeline, may: admin", 1))}
	if _, err := f.IssueOperator(servertest.Operator(), api.IssueOperator{Operator: "ada", Request: []byte("request")}); err != nil {
		t.Fatal(err)
	}
	set := func(name string, source api.FleetSource) func() error {
		return func() error { _, err := f.SetFleet(f.as(name, tutti.VerbCode), source); return err }
	}
	f.wantAccess("the same", set("pipeline", api.FleetSource{File: "tutti.yaml", Source: []byte(accessFleet)}), "")
	f.wantAccess("another", set("pipeline", other), "{to: pipeline, may: admin}")
	// the server does not read a file that the caller may not push
	unread := api.FleetSource{File: "tutti.yaml", Source: []byte("fleet: [")}
	_, err := f.SetFleet(f.as("pipeline", tutti.VerbCode), unread)
	wantCode(t, err, tutti.CodeRefused, "may not push another fleet file")
	_, err = f.PushEffect(f.as("pipeline", tutti.VerbCode), api.PushQuery{Fleet: unread})
	wantCode(t, err, tutti.CodeRefused, "tutti.yaml is not the fleet file of the server")
	_, err = f.PushEffect(f.as("pipeline", tutti.VerbCode), api.PushQuery{Fleet: other})
	wantCode(t, err, tutti.CodeRefused, "tutti.yaml is not the fleet file of the server: operator pipeline may not admin")
	f.wantAccess("another, by an admin", set("ada", other), "")
	f.wantAccess("who became one", set("pipeline", api.FleetSource{File: "tutti.yaml", Source: []byte(accessFleet + "# by pipeline\n")}), "")
}

// TestTheLastAdminStays checks that no operator can remove the last admin. Only root on the server
// can remove the last admin.
func TestTheLastAdminStays(t *testing.T) {
	f := newShop(t)
	issue := func(name string) (serial string) {
		t.Helper()
		issued, err := f.IssueOperator(servertest.Operator(), api.IssueOperator{Operator: name, Request: []byte("request")})
		if err != nil {
			t.Fatal(err)
		}
		return issued.Serial
	}
	fleet := func(admin string) api.FleetSource {
		return api.FleetSource{File: "tutti.yaml", Source: []byte(strings.Replace(accessFleet, "to: ada, may", "to: "+admin+", may", 1))}
	}
	serial := issue("grace")
	ada := f.as("ada", tutti.VerbAdmin)
	_, err := f.SetFleet(ada, fleet("nobody"))
	wantCode(t, err, tutti.CodeConflict, "no admin has a valid certificate")
	wantCode(t, err, tutti.CodeConflict, "add: - {to: ada, may: admin}")
	if _, err := f.SetFleet(ada, fleet("grace")); err != nil {
		t.Fatalf("grace has a certificate: %v", err)
	}
	if context.Cause(ada) == nil {
		t.Error("ada is no admin any more, and what she does as one goes on")
	}
	grace := f.with("grace", serial, tutti.VerbAdmin)
	issue("ada") // another operator remains, but she is not an admin
	_, err = f.RevokeOperator(grace, api.RevokeOperator{Operator: "grace"})
	wantCode(t, err, tutti.CodeConflict, "no admin has a valid certificate")
	if _, err := f.SetFleet(servertest.Operator(), fleet("nobody")); err != nil {
		t.Errorf("root on the server: %v", err)
	}
	if _, err := f.RevokeOperator(servertest.Operator(), api.RevokeOperator{Operator: "grace"}); err != nil {
		t.Errorf("root on the server: %v", err)
	}
}

// TestLostAccessEndsWhatGoesOn checks that calls end when their operator loses access. A call may
// have begun before the change, or may come after a restart of the server.
func TestLostAccessEndsWhatGoesOn(t *testing.T) {
	f := newShop(t)
	reader, viewer := f.as("reader", tutti.VerbRead), f.as("viewer", tutti.VerbView)
	without := strings.Replace(accessFleet, "  - {to: reader, may: read}\n", "", 1)
	f.Push(without)
	wantCode(t, context.Cause(reader), tutti.CodeRefused, "{to: reader, may: read}")
	if viewer.Err() != nil {
		t.Errorf("who still may is out: %v", context.Cause(viewer))
	}
	_, err := f.ListJobs(context.WithoutCancel(reader))
	wantCode(t, err, tutti.CodeRefused, "may not read")
	wantCode(t, f.SetValue(context.WithoutCancel(reader), "shared/x", []byte("1")), tutti.CodeRefused, "may not read")
	f.Fleet = f.Restart()
	_, _, err = f.Admit(t.Context(), "reader", "serial", tutti.VerbRead)
	wantCode(t, err, tutti.CodeRefused, "{to: reader, may: read}")
}

// TestExplainAccess checks that an explanation gives the same answer as the call itself would.
func TestExplainAccess(t *testing.T) {
	f := newShopOfStrangers(t)
	for _, tc := range []struct {
		in   api.AccessQuery
		may  bool
		says string
	}{
		{api.AccessQuery{Operator: "webber", Verb: tutti.VerbRun, Target: "db"}, false, "may not run on db: no access; to allow this, add to the access of the fleet file: - {to: webber, may: run, groups: db}"},
		{api.AccessQuery{Operator: "deployer", Verb: tutti.VerbRun, Target: "web"}, false, "may not run on web"},
		{api.AccessQuery{Operator: "watcher", Verb: tutti.VerbRun, Noop: true}, true, "noop: true"},
		{api.AccessQuery{Operator: "webber", Verb: tutti.VerbRun, Target: "web", Plan: "deploy"}, true, "the fleet file says: - {to: webber, may: [run, puppet], groups: web}; but no certificate"},
		{api.AccessQuery{Operator: "webber", Verb: tutti.VerbRun, Target: "db-01", Plan: "deploy"}, false, "{to: webber, may: run, plans: deploy, groups: db}"},
		{api.AccessQuery{Operator: "webber", Verb: tutti.VerbPuppet}, false, "may not puppet on all nodes"},
		{api.AccessQuery{Operator: "watcher", Verb: tutti.VerbRun, Plan: "both", Noop: true}, true, "noop: true"},
		{api.AccessQuery{Operator: "watcher", Verb: tutti.VerbRun, Plan: "both"}, false, "may not run both on all nodes"},
		{api.AccessQuery{Operator: "app", Verb: tutti.VerbData, Target: "shared/app/x"}, true, `keys: ["shared/app/**"]`},
		{api.AccessQuery{Operator: "app", Verb: tutti.VerbData}, false, "may not data of any key"},
		{api.AccessQuery{Operator: "ada", Verb: tutti.VerbNodes}, true, "- {to: ada, may: admin}"},
	} {
		got, err := f.ExplainAccess(f.as("viewer", tutti.VerbView), tc.in)
		if err != nil || got.May != tc.may || !strings.Contains(got.Why, tc.says) {
			t.Errorf("%+v: %+v, %v; want %t, and %q in it", tc.in, got, err, tc.may, tc.says)
		}
	}
	_, err := f.ExplainAccess(servertest.Operator(), api.AccessQuery{Operator: "ada", Verb: tutti.VerbRun, Target: "nowhere"})
	wantCode(t, err, tutti.CodeNotFound, "nowhere")
	_, err = f.ExplainAccess(servertest.Operator(), api.AccessQuery{Operator: "ada", Verb: "rule"})
	wantCode(t, err, tutti.CodeInvalid, "the verbs are: [view, read")
}
