package tutti_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

var update = flag.Bool("update", false, "write the fixtures of events that have none; others are never changed")

const (
	aRun    = tutti.RunID("01234567-89ab-cdef-0123-456789abcdef")
	aNode   = tutti.NodeName("db-01.example.net")
	aKey    = tutti.NodeKey("UAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	aDigest = tutti.Digest("sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
)

var (
	at    = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	aPlan = tutti.Plan{Name: "deploy", Steps: []tutti.Step{
		{Name: "db", Timeout: time.Hour, Run: &tutti.RunStep{Target: "db", Accept: []tutti.Accept{tutti.AcceptFailedResources}, Limit: 2}},
		{Name: "up", After: []tutti.StepName{"db"}, PerNode: true, Timeout: time.Minute, Wait: &tutti.WaitStep{Value: "db/ready", Equals: json.RawMessage(`{"a":1}`)}},
	}}
	aCertificate = tutti.NodeCertificate{Key: aDigest, Serial: "0x0005", Issuer: aDigest, Ends: at, Extensions: map[string]string{"pp_role": "db"}}
	aHeld        = tutti.Held{Blob: aDigest, State: aDigest, At: at, Run: aRun, Environment: "production", Size: 9}
	aStatement   = tutti.Statement{Kind: tutti.StatementCode, Body: []byte(`{"fleet":"x"}`), Signatures: []tutti.Signature{{Key: aDigest, Signature: []byte("s")}}}
	// bodies has one body of each kind, with every field set.
	bodies = []tutti.Body{
		&tutti.FleetSet{
			Where: aDigest, Counter: 4, Statement: &aStatement,
			Fleet: tutti.Fleet{
				Name: "test", Environment: tutti.Environment{Name: "production", Path: "code", ENC: true},
				Groups: []tutti.Group{{Name: "db", Nodes: []tutti.NodeName{aNode}}, {Name: "redhat", Where: `facts.os.family == "RedHat"`}},
				Grants: []tutti.Grant{{To: "db", Write: []string{"db/**"}, Read: []string{"x"}, Dangerous: true, Types: []tutti.ExportGrant{{
					Type: "Database", Defined: true, Parameters: []string{"port"}, OwnTitle: true, Tags: []string{"main"}, NoRelations: true, Most: 3,
				}}, Exports: []string{"File"}}},
				Access: []tutti.Access{{
					To: []string{"ada"}, May: []tutti.Verb{tutti.VerbRun, tutti.VerbData}, Plans: []tutti.PlanName{"deploy"}, Groups: []tutti.GroupName{"db"}, Noop: true, Keys: []string{"x/**"},
				}},
				Plans: []tutti.Plan{aPlan},
			},
			Digest: aDigest, Source: "fleet: test\n",
		},
		&tutti.EpochBegun{Epoch: tutti.Epoch{Number: 2, Random: "QJ4ZJ7UO2E3PAXMM"}},
		&tutti.CodePushed{Environment: "production", Code: aDigest, Signed: aDigest, Files: 3, Bytes: 4096, Held: true, Canary: 2, Released: aDigest, PassedOver: []tutti.Digest{aDigest}, Counter: 7, Statement: &aStatement, Source: &tutti.CodeSource{Repository: "https://git.example.net/control.git", Ref: "main", Commit: "1a2b3c4d5e6f", Author: "Ada <ada@example.net>", Subject: "Mend ntp", At: at, Dirty: true}},
		&tutti.CodeRetired{Environment: "feature_x", Codes: []tutti.Digest{aDigest}, Gone: true, Counter: 7, Statement: &aStatement},
		&tutti.ReportsRetired{Through: 41, Foreign: 7},
		&tutti.CodeResigned{Environment: "production", Code: aDigest, Counter: 7, Statement: aStatement},
		&tutti.KeysTrusted{Counter: 1, Keys: []tutti.Digest{aDigest}, Statement: aStatement},
		&tutti.CodeReleased{Environment: "production", Code: aDigest, Reason: "2 nodes are good with it"},
		&tutti.TokenCreated{Token: "t1", Hash: aDigest, Name: "db-*", Groups: []tutti.GroupName{"db"}, Expires: at, Uses: 50},
		&tutti.TokenRevoked{Token: "t1"},
		&tutti.NodeBoxed{Node: aNode, BoxKey: "Ym94"},
		&tutti.NodeEnrolled{Node: aNode, Key: aKey, BoxKey: "Ym94", Token: "t1", Groups: []tutti.GroupName{"db"}, Certificate: &aCertificate},
		&tutti.JoinCASet{CA: "-----BEGIN CERTIFICATE-----", CRL: "-----BEGIN X509 CRL-----"},
		&tutti.NodePending{Node: aNode, Certificate: aCertificate, Why: "no rule fits"},
		&tutti.NodeApproved{Node: aNode, Key: aDigest, Groups: []tutti.GroupName{"db"}},
		&tutti.NodeRejected{Node: aNode, Key: aDigest},
		&tutti.NodeReplaceable{Node: aNode},
		&tutti.NodeRemoved{Node: aNode, Replaced: true, Keeps: true},
		&tutti.NodeConnected{Node: aNode, Ticket: aDigest, Boot: "b", Rivals: []tutti.Digest{aDigest}, Out: []tutti.Digest{aDigest}, Machine: aDigest},
		&tutti.NodeConflicted{Node: aNode, Why: "two machines"},
		&tutti.NodeKept{Node: aNode, Ticket: aDigest, Out: []tutti.Digest{aDigest}},
		&tutti.NodeTrusts{Node: aNode, Counter: 2},
		&tutti.NodeInventory{Node: aNode, Facts: &aHeld, Catalog: &tutti.Held{State: aDigest, At: at, Left: "it is too large"}},
		&tutti.InventoryDropped{Part: tutti.InventoryFacts},
		&tutti.NodeClassified{Node: aNode, Classification: &tutti.Classification{
			Classes: map[string]json.RawMessage{"role::db": json.RawMessage(`{"port":5432}`)}, Parameters: map[string]json.RawMessage{"site": json.RawMessage(`"ber"`)}, Environment: "canary",
		}},
		&tutti.NodeMatched{Node: aNode, Conditions: aDigest, Matches: []tutti.Match{{Group: "redhat", Unknown: "no facts", Since: at, Facts: aDigest}}},
		&tutti.NodeFacts{Node: aNode, FactsSeen: tutti.FactsSeen{Run: aRun, Facts: aDigest, Changed: []string{"ssh"}}, Row: 2, Vain: 1},
		&tutti.NodeSetBack{Node: aNode, Run: aRun, Begun: tutti.Fence{Epoch: 1, Seq: 12}, During: true, Moved: true},
		&tutti.JobStarted{Job: "deploy-1", Plan: aPlan, Mode: tutti.ModeApply, Env: "production", Code: aDigest, Codes: map[string]tutti.Digest{"canary": aDigest}, Commits: map[string]string{"canary": "1a2b3c4d5e6f, dirty"}, Targets: map[tutti.StepName][]tutti.NodeName{"db": {aNode}}, Cause: "shared/x set by ada", Diff: &tutti.DiffCode{Signed: aDigest, Statement: aStatement, Left: map[tutti.NodeName]string{aNode: "it is not connected"}}},
		&tutti.JobCancelled{Job: "deploy-1", Reason: "lunch"},
		&tutti.JobFinished{Job: "deploy-1", Verdict: tutti.VerdictFailed, Message: "failed: db"},
		&tutti.StepStarted{Job: "deploy-1", Step: "up"},
		&tutti.StepFinished{Job: "deploy-1", Step: "up", OK: true, Message: "there"},
		&tutti.LeaseChanged{Job: "deploy-1", Node: aNode, State: tutti.LeaseRefused, Message: "disabled: new disk"},
		&tutti.RunWanted{Order: tutti.Order{
			Run: aRun, Node: aNode, Job: "deploy-1", Step: "db", Mode: tutti.ModeNoop, Environment: "production", Code: aDigest, Timeout: time.Hour, Attempt: 2,
		}, ByFacts: true, Changed: []tutti.Query{{Kind: tutti.QueryValue, Key: "shared/x"}}, After: aRun},
		&tutti.RunClaimed{Run: aRun, Node: aNode, Fenced: true},
		&tutti.RunRefused{Run: aRun, Wants: []tutti.Grant{{Write: []string{"db/a"}}, {Types: []tutti.ExportGrant{{Type: "Service", Parameters: []string{"ensure"}}}, Dangerous: true}}},
		&tutti.RunGated{Run: aRun, Verdict: tutti.GateStop, Reason: "changed", Catalog: aDigest, Values: []string{"db/ready"}, After: aRun},
		&tutti.RunFinished{Result: tutti.Result{
			Run: aRun, Outcome: tutti.Failed, Reason: tutti.BecauseResources, Message: "1 resource failed",
			Failures: []tutti.Failure{{Resource: "File[/x]", File: "site.pp", Line: 3, Column: 7, Message: "no <space> & more"}},
			Stopped:  true, NoopPending: true, Corrective: true, Overlapped: true, Degraded: true, Phase: "apply",
			Counts:    tutti.Counts{Total: 5, Changed: 1, Failed: 1, Skipped: 1, OutOfSync: 2},
			StartedAt: at, EndedAt: at.Add(time.Second), Report: aDigest, Log: aDigest, Record: aDigest,
			Clock: tutti.Clock{Line: string(aRun), Count: 7}, Owed: []tutti.Owed{{Resource: "Service[x]", Run: aRun}},
		}},
		&tutti.RunCompiled{Groups: []tutti.GroupName{"web"}, Run: aRun, Set: aDigest, CatalogReport: tutti.CatalogReport{
			Catalog: aDigest, Sources: aDigest, Lib: aDigest, Facts: aDigest, Puppet: "8.10.0", Module: "0.3.0", Deferred: true, Values: []string{"db/ready"},
		}, Asked: aDigest, Absent: aDigest},
		&tutti.RunAsked{Run: aRun, Asked: aDigest, Absent: aDigest, Served: &tutti.Served{
			By: "puppet", Set: aDigest, Count: 2, Failed: true, CatalogUUID: string(aRun), Lags: []tutti.Lag{{Node: aNode, Run: aRun}},
			Waits: []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryValue, Key: "db/port"}, At: tutti.Place{Resource: "Class[Db]", File: "/x.pp", Line: 3}}},
		}},
		&tutti.RunProved{Run: aRun, Rests: at, Clock: tutti.Clock{Line: string(aRun), Count: 7}},
		&tutti.ConvergeFinished{Job: "converge-1", Step: "converge", Verdict: tutti.VerdictStuck, Message: "who waits for what", Diverging: map[tutti.NodeName]tutti.Digest{aNode: aDigest}},
		&tutti.Paused{Target: "db", Reason: "lunch", Until: at},
		&tutti.Unpaused{Target: "db"},
		&tutti.RunLost{Run: aRun, Reason: "silent", Left: true},
		&tutti.RunForeign{Node: aNode, Foreign: tutti.Foreign{
			Result: tutti.Result{
				Run: aRun, Outcome: tutti.Changed, Corrective: true, Counts: tutti.Counts{Total: 5, Changed: 1}, StartedAt: at, EndedAt: at.Add(time.Second), Report: aDigest,
				Clock: tutti.Clock{Line: string(aRun), Count: 7}, Owed: []tutti.Owed{{Resource: "Service[x]", Run: aRun}},
			},
			Environment: "production", Puppet: "8.10.0", Noop: true, Unwatched: true, Ago: time.Minute,
			Local: &tutti.Local{Safety: true, Away: true, Code: aDigest, As: aRun, Unpublished: []string{"db/port"}},
		}},
		&tutti.ExportsSet{Node: aNode, Run: aRun, Job: "deploy-1", Overlay: true, Set: aDigest, Count: 1, CatalogUUID: string(aRun)},
		&tutti.SecretSealed{Secret: tutti.Secret{
			Key: "db/password", ID: "0123456789abcdef", For: []string{"group:db", "node:web-01"}, Recovery: []byte("r"),
			Pieces: []tutti.Piece{{Node: aNode, Box: tutti.BoxDigest("Ym94"), Sealed: []byte("s")}},
		}, Owner: aNode, Run: aRun, Job: "deploy-1"},
		&tutti.ValueSet{Key: "db/ready", Value: json.RawMessage(`{"a":[1,null]}`), Owner: aNode, Run: aRun, Job: "deploy-1"},
		&tutti.ValueUnset{Key: "db/ready", Owner: aNode, Run: aRun, Job: "deploy-1"},
		&tutti.JobRetired{Job: "deploy-1"},
		&tutti.SnapshotTaken{Through: 7, Link: aDigest, State: aDigest, Events: 3, Segments: []tutti.AuditSegment{
			{First: 1, Last: 7, Before: aDigest, After: aDigest, Until: at, Blob: aDigest},
		}, Operators: []string{"ada"}},
		&tutti.OperatorIssued{Operator: "ada", Serial: "0a", Expires: at, CodeKey: true, CA: aDigest},
		&tutti.CARotated{
			Phase: tutti.RotationFinished, From: tutti.KeySet{CA: aDigest, Issuer: "AOLD"}, To: tutti.KeySet{CA: aDigest, Issuer: "ANEXT"},
			Left: []tutti.NodeName{aNode}, LeftOperators: []string{"bob"},
		},
		&tutti.NodePinned{Node: aNode, Pinned: tutti.Pinned{CAs: []tutti.Digest{aDigest}, Issuer: "ANEXT"}},
		&tutti.OperatorsTrusted{Counter: 3, Operators: []string{"ada"}, Statement: aStatement},
		&tutti.OperatorRevoked{Operator: "ada", Reason: "left"},
		&tutti.RemoteAsked{Request: "R", Action: tutti.RemoteDisable, On: "true", Message: "new disk", Force: true, Nodes: []tutti.NodeName{aNode}},
		&tutti.RemoteAnswered{Request: "R", Action: tutti.RemoteDisable, On: "true", What: "user[root]", Decisions: []tutti.RemoteDecision{
			{Verdict: tutti.RemoteRefused, Rule: "policy:3: deny", Count: 1, Nodes: []tutti.NodeName{aNode}},
		}},
		&tutti.Denied{Who: "node:x", What: "read y", Reason: "no grant"},
	}
)

// TestEventsOfAllKinds reads and writes the present shape of each kind, with every field set.
// TestOlderShapesOfEvents reads the shapes in older logs.
func TestEventsOfAllKinds(t *testing.T) {
	for _, body := range bodies {
		t.Run(body.Kind(), func(t *testing.T) {
			e := tutti.Event{Seq: 7, At: at, By: "operator:ada", Body: body}
			file := filepath.Join("testdata", "events", body.Kind()+".json")
			old, err := os.ReadFile(file)
			if os.IsNotExist(err) && *update {
				old = encode(t, e)
				err = os.WriteFile(file, old, 0o644)
			}
			if err != nil {
				t.Fatalf("%v; a new kind needs its fixture: go test . -update", err)
			}
			var back tutti.Event
			if err := json.Unmarshal(old, &back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(e, back); diff != "" {
				t.Errorf("-want +read from %s\n%s", file, diff)
			}
			if diff := cmp.Diff(string(old), string(encode(t, back))); diff != "" {
				t.Errorf("-%s +written again\n%s", file, diff)
			}
			if strings.Count(body.Kind(), ".") != 1 || body.ID() == "" {
				t.Errorf("kind %q, id %q: want noun.verb and an id", body.Kind(), body.ID())
			}
			checkFull(t, reflect.ValueOf(body).Elem())
		})
	}
}

func encode(t *testing.T, e tutti.Event) []byte {
	t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return append(raw, '\n')
}

// checkFull fails if the fixture leaves a field empty.
func checkFull(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("json") != "-" && v.Field(i).IsZero() {
			t.Errorf("%s.%s is empty in the fixture: nobody would notice that it is lost", v.Type(), f.Name)
		}
	}
}

func TestEveryKindHasAFixture(t *testing.T) {
	today, _ := fixtures(t)
	if len(today) != len(bodies) {
		t.Errorf("%d fixtures of %d kinds: old fixtures stay, and every kind has one", len(today), len(bodies))
	}
	tested := map[string]bool{}
	for _, body := range bodies {
		tested[body.Kind()] = true
	}
	if diff := cmp.Diff(tutti.Kinds(), slices.Sorted(maps.Keys(tested))); diff != "" {
		t.Errorf("-kinds +tested\n%s", diff)
	}
	// If the table has no row for a body, the log could append this body but never read it again.
	source, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	methods := 0
	for _, file := range source {
		if name := file.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			methods += bytes.Count(raw, []byte("// Kind implements Body.\n"))
		}
	}
	if rows := len(tutti.Kinds()) + 1; methods != rows { // one method for each kind, and one for UnknownEvent
		t.Errorf("%d bodies in %d rows: a kind needs its row", methods, rows)
	}
}

// Every row says which watch shows the kind, and which events of the kind stay in the audit trail and in snapshots.
func TestEveryKindHasItsColumns(t *testing.T) {
	scopes := []tutti.Scope{tutti.ScopeJob, tutti.ScopeRun, tutti.ScopeNode, tutti.ScopeNone}
	ids := map[tutti.Scope]string{tutti.ScopeJob: "-1", tutti.ScopeRun: string(aRun)}
	elsewhere := map[string]string{
		"run.foreign": "its run is of no job", "node.facts": "the next run says it", "node.setback": "the end of the run says it",
		"node.connected": "of no run", "node.conflicted": "of no run", "node.kept": "of no run", "node.boxed": "of no run", "node.pinned": "of no run",
		"exports.set": "the run says what it exports", "value.set": "the run says what it sets", "value.unset": "the run says what it unsets",
		"secret.sealed": "the run says what it sets",
		"job.retired":   "whoever folded it would lose the job that is shown",
	}
	for _, body := range bodies {
		kind := body.Kind()
		if scope := tutti.ScopeOf(kind); !slices.Contains(scopes, scope) || !strings.HasSuffix(body.ID(), ids[scope]) {
			t.Errorf("%s of %q has the scope %q", kind, body.ID(), scope)
		}
		shown := tutti.ScopeOf(kind) == tutti.ScopeJob || tutti.ScopeOf(kind) == tutti.ScopeRun
		if why := elsewhere[kind]; shown != (ofJob(body) && why == "") {
			t.Errorf("a watch of a job shows %s: %t; %s", kind, shown, why)
		}
		if trail := tutti.TrailOf(kind); trail != tutti.TrailAlways && trail != tutti.TrailOperators {
			t.Errorf("%s has the trail %q", kind, trail)
		}
		keeps := []tutti.Keep{tutti.KeepNever, tutti.KeepLast, tutti.KeepWithJob, tutti.KeepWithRun, tutti.KeepOwn}
		if keep := tutti.KeepOf(kind); !slices.Contains(keeps, keep) {
			t.Errorf("%s is kept %q", kind, keep)
		}
	}
	if scope, trail := tutti.ScopeOf("moon.landed"), tutti.TrailOf("moon.landed"); scope != tutti.ScopeNone || trail != tutti.TrailOperators {
		t.Errorf("an unknown kind has the scope %q and the trail %q", scope, trail)
	}
}

func TestEventsOfLaterReleases(t *testing.T) {
	for name, raw := range map[string]string{
		"unknown kind":    `{"v":1,"seq":1,"kind":"moon.landed","at":"2026-01-01T00:00:00Z","by":"x","data":{}}`,
		"later version":   `{"v":2,"seq":1,"kind":"token.revoked","at":"2026-01-01T00:00:00Z","by":"x","data":{"token":"t"}}`,
		"no version":      `{"kind":"token.revoked","data":{"token":"t"}}`,
		"data of no kind": `{"v":1,"seq":1,"kind":"token.revoked","at":"2026-01-01T00:00:00Z","by":"x","data":[]}`,
		"no event":        `[]`,
	} {
		var e tutti.Event
		if err := json.Unmarshal([]byte(raw), &e); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: %v: what a log says is never skipped", name, err)
		}
	}
	var e tutti.Event
	later := `{"v":1,"seq":1,"kind":"token.revoked","at":"2026-01-01T00:00:00Z","by":"x","data":{"token":"t","new":1}}`
	if err := json.Unmarshal([]byte(later), &e); err != nil || e.Body.ID() != "t" {
		t.Errorf("a new field: %v", err)
	}
}

// ofJob reports whether a body names a job or a run.
func ofJob(body tutti.Body) bool {
	v := reflect.ValueOf(body).Elem()
	for _, field := range []string{"Job", "Run", "Order", "Result"} {
		if v.FieldByName(field).IsValid() {
			return true
		}
	}
	return false
}

// A viewer shows as much as it can of the events of a later server. A viewer passes the events on
// unchanged.
func TestEventsAreViewed(t *testing.T) {
	const head = `{"v":1,"seq":7,"kind":"KIND","at":"2026-01-02T03:04:05Z","by":"operator:ada","data":DATA}`
	event := func(kind, data string) string {
		return strings.NewReplacer("KIND", kind, "DATA", data).Replace(head)
	}
	started := func(steps string) string {
		return event("job.started", `{"job":"p-1","plan":{"name":"p","steps":[`+steps+`]},"mode":"apply","environment":"","code":"","targets":null}`)
	}
	reboot := `{"name":"x","timeout":0,"reboot":{"target":"web"}}`
	for name, c := range map[string]struct{ raw, kind, reason string }{
		"a kind of a later release":         {event("moon.landed", `{"moon":1}`), "moon.landed", "it has a name and a time"},
		"a kind without data":               {event("moon.landed", `null`), "moon.landed", "nothing of it is needed"},
		"a later version":                   {strings.Replace(event("run.lost", `{"run":1}`), `"v":1`, `"v":2`, 1), "run.lost", "what is in it may have changed"},
		"a step kind of a later release":    {started(reboot), "job.started", "its name can be shown"},
		"a lease state of a later release":  {event("lease.changed", `{"job":"p-1","node":"web-01","state":"lent"}`), "lease.changed", "its name can be shown"},
		"an event of this release":          {event("run.lost", `{"run":"r","reason":"silent"}`), "run.lost", "as the log has it"},
		"a plan of which no step is first":  {started(`{"name":"x","after":["x"],"timeout":0,"run":{"target":"web"}}`), "", "nobody could follow its edges"},
		"a plan with an edge to nowhere":    {started(`{"name":"x","after":["y"],"timeout":0,"run":{"target":"web"}}`), "", "nobody could follow its edges"},
		"a known kind with other contents":  {event("run.lost", `{"run":1}`), "", "fields never change"},
		"a list":                            {`[]`, "", "it has no kind"},
		"a year that nobody can write down": {strings.Replace(event("moon.landed", `{}`), "2026", "-026", 1), "", "it could not be handed on"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := tutti.ViewEvent([]byte(c.raw))
			if c.kind == "" {
				if err == nil {
					t.Fatalf("viewed as %+v, want a refusal: %s", e, c.reason)
				}
				return
			}
			if err != nil || e.Body.Kind() != c.kind || e.Seq != 7 || e.By != "operator:ada" || e.At.IsZero() {
				t.Fatalf("%+v, %v; want it viewed: %s", e, err, c.reason)
			}
			if diff := cmp.Diff(c.raw+"\n", string(encode(t, e))); diff != "" {
				t.Errorf("-came +handed on\n%s", diff)
			}
			w := api.Watched{}
			if err := json.Unmarshal([]byte(`{"event":`+c.raw+`}`), &w); err != nil || w.Event == nil || w.Event.Body.Kind() != c.kind {
				t.Errorf("watched: %+v, %v", w, err)
			}
		})
	}
	var w api.Watched
	if err := json.Unmarshal([]byte(`{"live":{"at":"2026-01-02T03:04:05Z"}}`), &w); err != nil || w.Event != nil || w.Live == nil {
		t.Errorf("live: %+v, %v", w, err)
	}
	if err := json.Unmarshal([]byte(`{"moon":{}}`), &w); err != nil || w.Event != nil || w.Live != nil {
		t.Errorf("something else: %+v, %v", w, err)
	}
}
