package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

var (
	asksShared = tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"}
	asksHiera  = tutti.Query{Kind: tutti.QueryHiera, Key: "port"}
	asksGroups = tutti.Query{Kind: tutti.QueryGroups}
	collects   = tutti.Query{Kind: tutti.QueryCollect, Type: "Database"}
)

func database(title string) tutti.Export {
	return tutti.Export{Type: "Database", Title: title, Parameters: map[string]json.RawMessage{"port": json.RawMessage("5432")}}
}

func set(t *testing.T, f *servertest.Fleet, key, value string) {
	t.Helper()
	if err := f.SetValue(servertest.Operator(), key, json.RawMessage(value)); err != nil {
		t.Fatal(err)
	}
}

func TestTheGateStopsWhatIsOutOfDate(t *testing.T) {
	set := func(key, value string) func(*testing.T, fixture) {
		return func(t *testing.T, f fixture) { set(t, f.Fleet, key, value) }
	}
	cases := map[string]struct {
		reason  string
		before  func(*testing.T, fixture)
		reads   []tutti.Query
		keys    []tutti.KeyRead
		between func(*testing.T, fixture)
		want    tutti.GateVerdict
		says    string
	}{
		"nothing changed": {"all answers are current", set("shared/x", "1"), []tutti.Query{asksShared, asksHiera, collects}, []tutti.KeyRead{{Key: "absent"}}, nil, tutti.GateGo, ""},
		"value changed":   {"a read has another answer", set("shared/x", "1"), []tutti.Query{asksShared}, nil, set("shared/x", "2"), tutti.GateStop, `value "shared/x"`},
		"value set again": {"equal JSON is the same answer", set("shared/x", "[1, 2]"), []tutti.Query{asksShared}, nil, set("shared/x", "[1,2]"), tutti.GateGo, ""},
		"value appeared":  {"absence was the answer", nil, []tutti.Query{asksShared}, nil, set("shared/x", "2"), tutti.GateStop, `value "shared/x"`},
		"hiera changed":   {"a hiera key is a read, too", set("shared/hiera/port", "1"), []tutti.Query{asksHiera}, nil, set("node/db-01/hiera/port", "2"), tutti.GateStop, `hiera "port"`},
		"hiera appeared":  {"one of the absent keys", nil, nil, []tutti.KeyRead{{Key: "port"}}, set("shared/hiera/port", "2"), tutti.GateStop, `hiera key "port"`},
		"groups changed": {"a fleet file moves the node", nil, []tutti.Query{asksGroups}, nil, func(_ *testing.T, f fixture) {
			f.Push(strings.Replace(twoSteps, "groups:", "groups:\n  canary: {nodes: [db-01]}", 1))
		}, tutti.GateStop, `the list of its groups has changed`},
		"others' groups": {"a fleet file moves another node", nil, []tutti.Query{asksGroups}, nil, func(_ *testing.T, f fixture) {
			f.Push(strings.Replace(twoSteps, "groups:", "groups:\n  canary: {nodes: [web-01]}", 1))
		}, tutti.GateGo, ""},
		"others' hiera": {"what another node is told is no answer for us", nil, nil, []tutti.KeyRead{{Key: "port"}}, set("node/db-01.example.net/hiera/port", "2"), tutti.GateGo, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if tc.before != nil {
				tc.before(t, f)
			}
			f.Start("deploy", tutti.ModeApply)
			order := f.db.MustClaim()
			in := wire.Gate{Run: order.Run, Keys: tc.keys}
			for _, q := range tc.reads {
				in.Reads = append(in.Reads, f.db.Read(order.Run, q))
			}
			if tc.between != nil {
				tc.between(t, f)
			}
			got := f.db.Gate(in)
			if got.Verdict != tc.want {
				t.Fatalf("%s: %+v, want %s", tc.reason, got, tc.want)
			}
			wantContains(t, got.Reason, tc.says)
			n := len(f.Events())
			if again := f.db.Gate(in); again != got || len(f.Since(n)) != 0 {
				t.Errorf("asked again: %+v, want the same without an event", again)
			}
		})
	}
}

func TestAStoppedRunCompilesAgain(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	read := f.db.Read(order.Run, asksShared)
	set(t, f.Fleet, "shared/x", "1")
	f.db.Gate(wire.Gate{Run: order.Run, Reads: []tutti.Read{read}, Exports: []tutti.Export{database("main")}})
	stopped := servertest.Result(order.Run, "")
	stopped.Stopped = true
	if err := f.db.Call(wire.OpResult, stopped, nil); err != nil {
		t.Fatal(err)
	}
	again := f.db.MustClaim()
	if again.Run == order.Run || again.Attempt != 2 {
		t.Errorf("claimed %+v after a stop, want another run, attempt 2", again)
	}
	for _, e := range f.Events() {
		if set, ok := e.Body.(*tutti.ExportsSet); ok {
			t.Errorf("a stopped run published %+v", set)
		}
	}
}

func TestExportsAreReplacedAsAWhole(t *testing.T) {
	f, job, order := started(t, tutti.ModeApply)
	f.db.Gate(wire.Gate{Run: order.Run, Exports: []tutti.Export{database("main"), database("spare")}})
	f.db.Finish(order.Run)
	web := f.web1.MustClaim()
	if got := titles(f.web1.Ask(web.Run, collects)); !cmp.Equal(got, []string{"main", "spare"}) {
		t.Fatalf("collected %v, want both", got)
	}
	f.web1.Gate(wire.Gate{Run: web.Run})
	f.web1.Finish(web.Run)
	f.web2.Pass()
	wantVerdict(t, f.Fleet, job, tutti.VerdictSucceeded)

	f.Start("deploy", tutti.ModeApply)
	order = f.db.MustClaim()
	n := len(f.Events())
	f.db.Gate(wire.Gate{Run: order.Run, Exports: []tutti.Export{database("spare"), database("main")}})
	if diff := cmp.Diff([]string{"run.compiled", "run.gated"}, f.Since(n)); diff != "" {
		t.Errorf("an equal set was published again: -want +got\n%s", diff)
	}
	f.db.Finish(order.Run)
	f.web1.Pass()
	f.web2.Pass()

	f.Start("deploy", tutti.ModeApply)
	order = f.db.MustClaim()
	f.db.Gate(wire.Gate{Run: order.Run, Exports: []tutti.Export{database("spare")}})
	f.db.Finish(order.Run)
	web = f.web1.MustClaim()
	if got := titles(f.web1.Ask(web.Run, collects)); !cmp.Equal(got, []string{"spare"}) {
		t.Errorf("collected %v, want the new set alone", got)
	}
	restarted := f.Restart()
	if got := titles(restarted.Node("web-01").Ask(web.Run, collects)); !cmp.Equal(got, []string{"spare"}) {
		t.Errorf("after a restart %v, want the same", got)
	}
}

func TestTheOverlayIsReadByItsOwnJobOnly(t *testing.T) {
	for _, mode := range []tutti.Mode{tutti.ModeNoop} {
		f, job, order := started(t, mode)
		got := f.db.Gate(wire.Gate{Run: order.Run, Exports: []tutti.Export{database("main")}})
		if got.Verdict != tutti.GateGo {
			t.Fatalf("%s: gate %+v, want go", mode, got)
		}
		wantCode(t, f.db.Publish(order.Run, "db/x", "1"), tutti.CodeRefused, "publishes nothing")
		f.db.Finish(order.Run)
		web := f.web1.MustClaim()
		if got := titles(f.web1.Ask(web.Run, collects)); !cmp.Equal(got, []string{"main"}) {
			t.Errorf("%s: its own job collects %v, want main", mode, got)
		}
		f.web1.Gate(wire.Gate{Run: web.Run})
		f.web1.Finish(web.Run)
		f.web2.Pass()
		wantVerdict(t, f.Fleet, job, tutti.VerdictSucceeded)

		f.Start("deploy", tutti.ModeApply)
		f.db.Pass()
		web = f.web1.MustClaim()
		if got := titles(f.web1.Ask(web.Run, collects)); len(got) != 0 {
			t.Errorf("a later job collects %v of what a %s run handed over, want nothing", got, mode)
		}
	}
}

func TestWithoutAGrantNothingIsExported(t *testing.T) {
	cases := map[string]struct {
		reason string
		export tutti.Export
		code   tutti.Code
	}{
		"granted":   {"the grant names the type", database("main"), ""},
		"other":     {"no grant names it", tutti.Export{Type: "Vip", Title: "v"}, tutti.CodeRefused},
		"dangerous": {"it means root on the collector", tutti.Export{Type: "Exec", Title: "rm"}, tutti.CodeRefused},
		"malformed": {"no type has this name", tutti.Export{Type: "database", Title: "v"}, tutti.CodeInvalid},
		"foreign":   {"an export of another node", tutti.Export{Type: "Database", Title: "v", Node: "web-01"}, tutti.CodeInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			err := f.db.Call(wire.OpGate, wire.Gate{Run: order.Run, Exports: []tutti.Export{tc.export}}, nil)
			wantCode(t, err, tc.code, "")
			if denied := len(f.Denials()) == 1; denied != (tc.code == tutti.CodeRefused) {
				t.Errorf("%s: the audit has %v", tc.reason, f.Denials())
			}
		})
	}
}

// If a node has no grant for a publication in its catalog, the node applies nothing of this catalog (finding T5).
func TestWithoutAGrantNothingIsPublished(t *testing.T) {
	cases := map[string]struct {
		reason string
		keys   []string
		code   tutti.Code
	}{
		"granted": {"the grant names the keys", []string{"db/x", "db/y"}, ""},
		"own":     {"what is the node's own takes no grant", []string{"node/db-01/x"}, ""},
		"other":   {"no grant names one of them", []string{"db/x", "other/key"}, tutti.CodeRefused},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, _, order := started(t, tutti.ModeApply)
			err := f.db.Call(wire.OpGate, wire.Gate{Run: order.Run, CatalogReport: tutti.CatalogReport{Values: tc.keys}}, nil)
			wantCode(t, err, tc.code, "")
			if denied := len(f.Denials()) == 1; denied != (tc.code == tutti.CodeRefused) {
				t.Errorf("%s: the audit has %v", tc.reason, f.Denials())
			}
		})
	}
}

// A held run goes only with the grants of the present fleet file. A grant that was removed
// while the run was held does not count (finding F9).
func TestAHeldRunIsLetGoByTheGrantsOfNow(t *testing.T) {
	f := newFixture(t)
	if err := f.RemoveNode(servertest.Operator(), "web-02"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply}); err != nil {
		t.Fatal(err)
	}
	held, other := f.db.MustClaim(), f.web1.MustClaim()
	in := wire.Gate{Run: held.Run, Exports: []tutti.Export{database("main")}}
	if got := f.db.Gate(in); got.Verdict != tutti.GateHold {
		t.Fatalf("while another node compiles: %+v, want it held", got)
	}
	without := strings.Replace(twoSteps, ", exports: [{type: Database, defined: true, most: 50000}]", "", 1)
	if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(without)}); err != nil {
		t.Fatal(err)
	}
	f.web1.Gate(wire.Gate{Run: other.Run})
	got := f.db.Gate(in)
	if got.Verdict != tutti.GateStop || !strings.Contains(got.Reason, "may not export resources of type Database") {
		t.Errorf("after its grant was taken away: %+v, want it stopped for that", got)
	}
	if exports := f.State().Exports("db-01"); len(exports) != 0 {
		t.Errorf("others read %v", exports)
	}
}

func titles(a wire.Answer) []string {
	var out []string
	for _, e := range a.Exports {
		out = append(out, e.Title)
	}
	return out
}
