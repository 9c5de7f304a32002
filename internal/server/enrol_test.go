package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

func newToken(t *testing.T, f *servertest.Fleet, in api.CreateToken) api.CreatedToken {
	t.Helper()
	token, err := f.CreateToken(servertest.Operator(), in)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// The function `machine` returns a machine that has not joined.
func machine(f *servertest.Fleet, name tutti.NodeName, key string) *servertest.Node {
	return &servertest.Node{Name: name, Key: servertest.Key(key), Fleet: f}
}

func TestWhoMayJoin(t *testing.T) {
	cases := map[string]struct {
		reason string
		token  api.CreateToken
		name   tutti.NodeName
		change func(*api.EnrolRequest)
		code   tutti.Code
		says   string
	}{
		"its name":      {"the token is for it", api.CreateToken{Name: "new"}, "new", nil, "", ""},
		"pattern":       {"a pattern admits any name that fits", api.CreateToken{Name: "web-*"}, "web-03", nil, "", ""},
		"dots":          {"a certname has dots", api.CreateToken{Name: "*.example.net"}, "new.example.net", nil, "", ""},
		"other name":    {"the token is for another name", api.CreateToken{Name: "new"}, "newer", nil, tutti.CodeRefused, "for the name new"},
		"dotted prefix": {"a name is no prefix of another", api.CreateToken{Name: "new"}, "new.example.net", nil, tutti.CodeRefused, "for the name new"},
		"literal star":  {"a star is no name", api.CreateToken{Name: "*"}, "web-*", nil, tutti.CodeInvalid, "node name"},
		"taken":         {"a name that exists", api.CreateToken{Name: "db-01"}, "db-01", nil, tutti.CodeConflict, "tutti node replace db-01"},
		"group":         {"it would be ambiguous in a plan", api.CreateToken{Name: "w*"}, "web", nil, tutti.CodeConflict, "the fleet file has a group \"web\""},
		"altered secret": {"the secret is another", api.CreateToken{Name: "new"}, "new",
			func(r *api.EnrolRequest) { r.Secret[0]++ }, tutti.CodeRefused, "not known"},
		"unknown token": {"nobody made this token", api.CreateToken{Name: "new"}, "new",
			func(r *api.EnrolRequest) { r.Token = "made-up" }, tutti.CodeRefused, "not known"},
		"not signed": {"somebody else's key", api.CreateToken{Name: "new"}, "new",
			func(r *api.EnrolRequest) { r.Signature = []byte("junk") }, tutti.CodeUnauthenticated, "not signed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			token := newToken(t, f.Fleet, tc.token)
			req := machine(f.Fleet, tc.name, "new machine").Request(token)
			if tc.change != nil {
				tc.change(&req)
			}
			got, err := f.Enrol(context.Background(), req)
			wantCode(t, err, tc.code, tc.says)
			if err == nil && (got.Node != tc.name || got.JWT == "") {
				t.Errorf("%s: %+v", tc.reason, got)
			}
			nodes, err := f.ListNodes(servertest.Operator())
			if err != nil || (len(nodes) == 4) != (tc.code == "") {
				t.Errorf("%s: %d nodes, %v", tc.reason, len(nodes), err)
			}
		})
	}
}

func TestATokenIsForNamesThatCanBe(t *testing.T) {
	cases := map[string]struct {
		reason string
		name   string
		code   tutti.Code
	}{
		"name":    {"a node's name", "web-01.example.net", ""},
		"pattern": {"a star stands for a part", "web-*.example.net", ""},
		"all":     {"or for all", "*", ""},
		"none":    {"nobody has no name", "", tutti.CodeInvalid},
		"capital": {"no certname has one, so nobody could use the token", "Web-01", tutti.CodeInvalid},
		"space":   {"as no certname has a space", "web 01", tutti.CodeInvalid},
		"group":   {"a plan could then mean both", "web", tutti.CodeConflict},
		"bracket": {"only the star stands for something else", "web-[0-9]", tutti.CodeInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			_, err := f.CreateToken(servertest.Operator(), api.CreateToken{Name: tc.name})
			if tutti.CodeOf(err) != tc.code {
				t.Errorf("%s: %v, want code %q", tc.reason, err, tc.code)
			}
		})
	}
}

// TestAGroupHasNoNodesName checks that a fleet file cannot give a group the name of a node that has joined. A node
// cannot join with the name of a group either, even if its token is older than the group.
func TestAGroupHasNoNodesName(t *testing.T) {
	f := newFixture(t)
	n := len(f.Events())
	_, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte("fleet: test\ngroups:\n  web-01: {joined: true}\n")})
	wantCode(t, err, tutti.CodeConflict, "group \"web-01\": a node with this name has joined")
	if got := f.Since(n); len(got) > 0 {
		t.Errorf("appended %v", got)
	}
	token := newToken(t, f.Fleet, api.CreateToken{Name: "late"})
	if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte("fleet: test\ngroups:\n  late: {joined: true}\n")}); err != nil {
		t.Fatal(err)
	}
	_, err = f.Enrol(context.Background(), machine(f.Fleet, "late", "late").Request(token))
	wantCode(t, err, tutti.CodeConflict, "the fleet file has a group \"late\"")
}

func TestATokenIsOneKeysOwn(t *testing.T) {
	f := newFixture(t)
	token := newToken(t, f.Fleet, api.CreateToken{Name: "new-*", Groups: []tutti.GroupName{"web"}})
	first, thief := machine(f.Fleet, "new-1", "first"), machine(f.Fleet, "new-2", "thief")
	for range 2 { // the node may not have received the first answer
		n := len(f.Events())
		if _, err := f.Enrol(context.Background(), first.Request(token)); err != nil {
			t.Fatal(err)
		}
		t.Log(f.Since(n))
	}
	_, err := f.Enrol(context.Background(), thief.Request(token))
	wantCode(t, err, tutti.CodeRefused, "used by new-1 already")
	again := first.Request(token)
	again.Name = "new-2"
	_, err = f.Enrol(context.Background(), servertest.SignEnrol(again))
	wantCode(t, err, tutti.CodeRefused, "used for the name new-1")
	enrolled := 0
	for _, e := range f.Events() {
		if b, ok := e.Body.(*tutti.NodeEnrolled); ok && b.Node == "new-1" {
			enrolled++
		}
	}
	if enrolled != 1 {
		t.Errorf("new-1 was enrolled %d times, want once", enrolled)
	}
	if got := f.Denials(); len(got) != 2 {
		t.Errorf("the audit has %v, want both refusals", got)
	}
}

func TestEveryTokenThatLetsAKeyInIsThatKeysOwn(t *testing.T) {
	f := newFixture(t)
	first := newToken(t, f.Fleet, api.CreateToken{Name: "new-*"})
	second := newToken(t, f.Fleet, api.CreateToken{Name: "new-*", Groups: []tutti.GroupName{"web"}})
	node, thief := machine(f.Fleet, "new-1", "first"), machine(f.Fleet, "new-2", "thief")
	for _, token := range []api.CreatedToken{first, second} {
		if _, err := f.Enrol(context.Background(), node.Request(token)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.Enrol(context.Background(), thief.Request(second))
	wantCode(t, err, tutti.CodeRefused, "used by new-1 already")
	for range 2 { // the second time after a fold of the log
		if err := f.RemoveNode(servertest.Operator(), "new-1"); err != nil && tutti.CodeOf(err) != tutti.CodeNotFound {
			t.Fatal(err)
		}
		for _, token := range []api.CreatedToken{first, second} {
			_, err := f.Enrol(context.Background(), node.Request(token))
			wantCode(t, err, tutti.CodeRefused, "revoked")
		}
		f.Fleet = f.Restart()
	}
}

func TestATokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		token := newToken(t, f, api.CreateToken{Name: "*", TTL: time.Minute})
		used := newToken(t, f, api.CreateToken{Name: "*", TTL: time.Minute})
		if _, err := f.Enrol(context.Background(), machine(f, "early", "early").Request(used)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_, err := f.Enrol(context.Background(), machine(f, "late", "late").Request(token))
		wantCode(t, err, tutti.CodeRefused, "expired at")
		if _, err := f.Enrol(context.Background(), machine(f, "early", "early").Request(used)); err != nil {
			t.Errorf("the key that used the token in time asks again: %v", err)
		}
	})
}

func TestTokensThatAreNone(t *testing.T) {
	f := newFixture(t)
	for name, in := range map[string]api.CreateToken{
		"no name":     {},
		"bad pattern": {Name: "web-["},
		"too short":   {Name: "x", TTL: time.Millisecond},
		"too long":    {Name: "x", TTL: 1000 * time.Hour},
		"bad group":   {Name: "x", Groups: []tutti.GroupName{"Not A Group"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.CreateToken(servertest.Operator(), in)
			wantCode(t, err, tutti.CodeInvalid, "")
		})
	}
}

// The function `replace` makes another machine take over the name db-01.
func replace(t *testing.T, f fixture) *servertest.Node {
	t.Helper()
	if err := f.ReplaceNode(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	other := machine(f.Fleet, "db-01", "another machine")
	if _, err := f.Enrol(context.Background(), other.Request(newToken(t, f.Fleet, api.CreateToken{Name: "db-01"}))); err != nil {
		t.Fatal(err)
	}
	return other
}

func TestAReplacedMachineIsNobody(t *testing.T) {
	f := newFixture(t)
	other := replace(t, f)
	wantCode(t, f.db.Call(wire.OpClaim, wire.Claim{}, nil), tutti.CodeUnauthenticated, "join again")
	if o := other.Claim(); o != nil {
		t.Errorf("claimed %+v", o)
	}
	if diff := cmp.Diff([]tutti.NodeKey{f.db.Key}, f.Identity.Revoked()); diff != "" {
		t.Errorf("revoked -want +got\n%s", diff)
	}
	if f := f.Restart(); !cmp.Equal([]tutti.NodeKey{servertest.Key("db-01")}, f.Identity.Revoked()) {
		t.Errorf("a server that starts revokes %v, want the old key anew", f.Identity.Revoked())
	}
}

// A run must not begin twice: if a new machine takes over the name of a node, the new machine must never start a run
// that the old machine may have started.
func TestAReplacedMachinesRunIsLost(t *testing.T) {
	f, job, order := started(t, tutti.ModeApply)
	other := replace(t, f)
	if o := other.Claim(); o != nil && o.Run == order.Run {
		t.Fatalf("the new machine claims the run %s of the old one", o.Run)
	}
	wantVerdict(t, f.Fleet, job, tutti.VerdictFailed)
}

// The runs of the old machine say nothing about the new machine of the same name (finding F1).
func TestAReplacedMachineNeverRan(t *testing.T) {
	cases := map[string]struct {
		reason string
		file   string
		kept   bool
	}{
		"withdraws": {"what the old machine said is withdrawn at once", twoSteps, false},
		"keeps":     {"the fleet file keeps it until the new machine runs", twoSteps + "replaced: keep\n", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Push(tc.file)
			f.Start("deploy", tutti.ModeApply)
			order := f.db.MustClaim()
			f.db.Gate(wire.Gate{Run: order.Run, CatalogReport: tutti.CatalogReport{Values: []string{"db/x"}}, Exports: []tutti.Export{database("main")}})
			if err := f.db.Publish(order.Run, "db/x", "1"); err != nil {
				t.Fatal(err)
			}
			f.db.Finish(order.Run)
			f.web1.Pass()
			f.web2.Pass()
			if _, err := f.Pause(servertest.Operator(), api.Pause{Target: "db-01", Reason: "being rebuilt"}); err != nil {
				t.Fatal(err)
			}
			other := replace(t, f)

			wantNeverRan := func(f *servertest.Fleet) {
				t.Helper()
				n, err := f.ShowNode(servertest.Operator(), "db-01")
				if err != nil || n.Standing.State != api.NodeNew || n.LastRun != "" || n.Paused == "" {
					t.Errorf("%s: %+v, %v", tc.reason, n, err)
				}
			}
			wantNeverRan(f.Fleet)
			wantCode(t, other.Call(wire.OpResult, servertest.Result(order.Run, tutti.Changed), nil), tutti.CodeRefused, "not a run of node")
			wantPublished(t, f.Fleet, tc.kept)
			again := f.Restart()
			wantNeverRan(again)
			wantPublished(t, again, tc.kept)

			// The first run of the new machine shows that the new machine publishes nothing.
			again.Start("deploy", tutti.ModeApply)
			other.Fleet = again
			other.Pass()
			wantPublished(t, again, false)
		})
	}
}

// A running job also treats the new machine as a machine that has never run. The verdict on the old machine's runs
// does not apply to the new machine.
func TestAReplacedMachineIsTriedInTheJobThatGoesOn(t *testing.T) {
	f := newFixture(t)
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	failed := servertest.Result(f.db.MustClaim().Run, tutti.Failed)
	failed.Reason = tutti.BecauseCompile
	if err := f.db.Call(wire.OpResult, failed, nil); err != nil {
		t.Fatal(err)
	}
	f.web1.MustClaim() // web-01 keeps its run, so that the job goes on
	other := replace(t, f)
	if o := other.Claim(); o == nil || o.Job != job {
		t.Errorf("the new machine is ordered %+v, want a run of %s", o, job)
	}
}

// wantPublished fails if `want` is false and db-01 has publications, or if `want` is true and db-01 has none.
func wantPublished(t *testing.T, f *servertest.Fleet, want bool) {
	t.Helper()
	values, err := f.ListValues(servertest.Operator(), "")
	if err != nil || (len(values) == 1) != want {
		t.Errorf("values %v, %v; want db/x: %t", values, err, want)
	}
	if exports := f.State().Exports("db-01"); (len(exports) == 1) != want {
		t.Errorf("exports %v; want Database[main]: %t", exports, want)
	}
}

func TestANodeThatWasRemovedStaysOut(t *testing.T) {
	f := servertest.Start(t)
	token := newToken(t, f, api.CreateToken{Name: "new"})
	node := machine(f, "new", "new")
	if _, err := f.Enrol(context.Background(), node.Request(token)); err != nil {
		t.Fatal(err)
	}
	if err := f.RemoveNode(servertest.Operator(), "new"); err != nil {
		t.Fatal(err)
	}
	_, err := f.Enrol(context.Background(), node.Request(token))
	wantCode(t, err, tutti.CodeRefused, "revoked")
	if _, err := f.Enrol(context.Background(), node.Request(newToken(t, f, api.CreateToken{Name: "new"}))); err != nil {
		t.Errorf("with a new token it is welcome: %v", err)
	}
	wantCode(t, f.RemoveNode(servertest.Operator(), "nobody"), tutti.CodeNotFound, "tutti node list")
	wantCode(t, f.ReplaceNode(servertest.Operator(), "nobody"), tutti.CodeNotFound, "tutti node list")
}

func TestARemovedNodeWithdrawsItsData(t *testing.T) {
	f, job, order := started(t, tutti.ModeApply)
	f.db.Gate(wire.Gate{Run: order.Run, Exports: []tutti.Export{database("main")}})
	if err := f.db.Publish(order.Run, "db/x", "1"); err != nil {
		t.Fatal(err)
	}
	if err := f.RemoveNode(servertest.Operator(), "db-01"); err != nil {
		t.Fatal(err)
	}
	wantVerdict(t, f.Fleet, job, tutti.VerdictFailed)
	values, err := f.ListValues(servertest.Operator(), "")
	if err != nil || len(values) != 0 {
		t.Errorf("values %v, %v, want none", values, err)
	}
}

func TestNodesAsTheyAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		f.Push(twoSteps)
		db := f.Join("db-01", "all")
		f.Join("web-01")
		view := func() api.NodeView {
			nodes, err := f.ListNodes(servertest.Operator())
			if err != nil || len(nodes) != 2 || nodes[0].Node != "db-01" {
				t.Fatalf("nodes %v, %v, want db-01 first of two", nodes, err)
			}
			return nodes[0]
		}
		if v := view(); v.Connected || !v.SeenAt.IsZero() || !cmp.Equal(v.Groups, []tutti.GroupName{"all", "db"}) {
			t.Errorf("before its first word: %+v", v)
		}
		if err := db.Call(wire.OpBeat, wire.Beat{Version: "1", Puppet: "8"}, nil); err != nil {
			t.Fatal(err)
		}
		if v := view(); !v.Connected || v.Version != "1" || v.Puppet != "8" {
			t.Errorf("after a heartbeat: %+v", v)
		}
		time.Sleep(31 * time.Second)
		if v := view(); v.Connected {
			t.Errorf("after a silence: %+v", v)
		}
		if err := f.RemoveNode(servertest.Operator(), "db-01"); err != nil {
			t.Fatal(err)
		}
		f.Join("db-01")
		if v := view(); !v.SeenAt.IsZero() || v.Version != "" {
			t.Errorf("a new machine has the signs of life of the old one: %+v", v)
		}
	})
}
