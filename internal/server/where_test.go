package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

const whereFleet = `
fleet: shop
environment: {name: production, path: ./code}
inventory: {facts: true}
secrets: {recovery: age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p}
groups:
  all: {nodes: [a, b, c]}
  redhat: {where: 'facts.os == "RedHat"'}
  web: {where: '"role::web" in classes'}
plans:
  redhat: {steps: [{run: redhat}]}
access:
  - {to: ada, may: admin}
  - {to: bob, may: [run, puppet], groups: all}
`

// whereFixture is a fleet of which a is Red Hat, b is Debian and c has sent nothing.
type whereFixture struct {
	*servertest.Fleet
	a, b, c *servertest.Node
}

func startWhere(t *testing.T) *whereFixture {
	t.Helper()
	f := servertest.Start(t)
	out := &whereFixture{Fleet: f, a: f.Join("a"), b: f.Join("b"), c: f.Join("c")}
	f.Push(whereFleet)
	mustHold(t, out.a, tutti.InventoryFacts, zipped(`{"os":"RedHat"}`))
	mustHold(t, out.b, tutti.InventoryFacts, zipped(`{"os":"Debian"}`))
	return out
}

// The method `decide` lets a keeper that has just started decide everything, and returns the nodes for which it has appended
// an event.
func (f *whereFixture) decide(t *testing.T) []tutti.NodeName {
	t.Helper()
	n := len(f.Events())
	if err := f.Matches().Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out []tutti.NodeName
	for _, e := range f.Events()[n:] {
		b, is := e.Body.(*tutti.NodeMatched)
		if !is {
			t.Errorf("a keeper appended %s", e.Body.Kind())
			continue
		}
		out = append(out, b.Node)
	}
	return out
}

// The method `has` compares the groups with `where` of a node: "in", or why nobody knows.
func (f *whereFixture) has(t *testing.T, reason string, node tutti.NodeName, want map[tutti.GroupName]string) {
	t.Helper()
	got := map[tutti.GroupName]string{}
	for _, m := range viewOf(t, f.Fleet, node).Matches {
		if got[m.Group] = m.Unknown; m.Unknown == "" {
			got[m.Group] = "in"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s: -want +got\n%s", reason, node, diff)
	}
}

type groupsWhy = map[tutti.GroupName]string

const (
	noFacts   = "the server has no facts of the node: a node sends them after its next run"
	noClasses = "the server has no answer of an ENC about the node"
)

// TestTheServerDecidesConditions checks that the log gets an event only if a node's groups change, and what an operator sees.
func TestTheServerDecidesConditions(t *testing.T) {
	f := startWhere(t)
	f.has(t, "before the first decision", "a", groupsWhy{"redhat": "the server has not decided the condition yet", "web": "the server has not decided the condition yet"})
	wantEvents := func(reason string, want ...tutti.NodeName) {
		t.Helper()
		if got := f.decide(t); !slices.Equal(got, want) {
			t.Errorf("%s: events about %v, want %v", reason, got, want)
		}
	}
	wantEvents("the first time", "a", "b", "c")
	wantEvents("after a restart", []tutti.NodeName(nil)...)
	f.has(t, "Red Hat", "a", groupsWhy{"redhat": "in", "web": noClasses})
	f.has(t, "Debian", "b", groupsWhy{"web": noClasses})
	f.has(t, "no facts", "c", groupsWhy{"redhat": noFacts, "web": noClasses})
	first := viewOf(t, f.Fleet, "a").Matches[0]
	if first.Facts != tutti.DigestOf([]byte(zipped(`{"os":"RedHat"}`))) || first.Since.IsZero() {
		t.Errorf("a is in %+v", first)
	}

	mustHold(t, f.a, tutti.InventoryFacts, zipped(`{"os":"RedHat","x":1}`))
	wantEvents("other facts, and the same groups", []tutti.NodeName(nil)...)
	mustHold(t, f.b, tutti.InventoryFacts, zipped(`{"os":"RedHat"}`))
	mustHold(t, f.c, tutti.InventoryFacts, zipped(`{}`))
	wantEvents("facts that matter", "b", "c")
	f.has(t, "Red Hat now", "b", groupsWhy{"redhat": "in", "web": noClasses})
	f.has(t, "no such fact", "c", groupsWhy{"redhat": "no such key: os; if not all nodes have it, the condition must check for it first: has(facts.NAME) && …", "web": noClasses})

	web := withClass("role::web", "null")
	if err := f.ENC().Classify(t.Context(), "a", &web); err != nil {
		t.Fatal(err)
	}
	wantEvents("an answer of the ENC", "a")
	f.has(t, "a class", "a", groupsWhy{"redhat": "in", "web": "in"})
	if now := viewOf(t, f.Fleet, "a").Matches[0]; now != first {
		t.Errorf("the other group is %+v now, want %+v", now, first)
	}
	if err := f.ENC().Classify(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	wantEvents("the ENC is gone", "a")
	f.has(t, "no ENC", "a", groupsWhy{"redhat": "in", "web": noClasses})

	mustHold(t, f.a, tutti.InventoryFacts, "no gzip")
	wantEvents("damaged facts", "a")
	wantContains(t, viewOf(t, f.Fleet, "a").Matches[0].Unknown, "the node has sent a damaged facts")

	setFleet(t, f.Fleet, strings.Replace(whereFleet, `== "RedHat"`, `!= "RedHat"`, 1))
	f.has(t, "another condition", "b", groupsWhy{"redhat": "the server has not decided the condition yet", "web": "the server has not decided the condition yet"})
	wantEvents("another condition", "a", "b", "c")
	f.has(t, "another condition", "b", groupsWhy{"web": noClasses})
	setFleet(t, f.Fleet, strings.ReplaceAll(strings.Replace(whereFleet, `'facts.os == "RedHat"'`, `'certname == "c"'`, 1), "inventory: {facts: true}\n", ""))
	wantEvents("a condition without facts", "a", "b", "c")
	f.has(t, "the name decides", "c", groupsWhy{"redhat": "in", "web": noClasses})
}

// TestOldDecisionsDoNotComeBack: conditions that were away are decided again, even if an earlier fleet file had the same.
// Without an ENC, decisions that may rest on its answers are made again, too.
func TestOldDecisionsDoNotComeBack(t *testing.T) {
	f := startWhere(t)
	f.decide(t)
	f.has(t, "decided", "a", groupsWhy{"redhat": "in", "web": noClasses})
	f.Push(whereFleet + "# a comment changes nothing\n")
	f.has(t, "the same conditions", "a", groupsWhy{"redhat": "in", "web": noClasses})
	f.Push("fleet: shop\nenvironment: {name: production, path: ./code}\ngroups:\n  all: {nodes: [a, b, c]}\n")
	f.Push(whereFleet)
	undecided := "the server has not decided the condition yet"
	f.has(t, "conditions that were away", "a", groupsWhy{"redhat": undecided, "web": undecided})
	f.decide(t)
	if err := f.Emit(&tutti.NodeClassified{Node: "a", Classification: &tutti.Classification{}}); err != nil {
		t.Fatal(err)
	}
	f.decide(t)
	if err := f.Emit(&tutti.NodeClassified{Node: "a"}); err != nil {
		t.Fatal(err)
	}
	f.has(t, "no ENC any more", "a", groupsWhy{"redhat": undecided, "web": undecided})
}

// TestNodesThatComeAndGo checks nodes that are removed, replaced, conflicted and observed.
func TestNodesThatComeAndGo(t *testing.T) {
	f := startWhere(t)
	f.decide(t)
	undecided := groupsWhy{"redhat": "the server has not decided the condition yet", "web": "the server has not decided the condition yet"}

	if err := f.ReplaceNode(servertest.Operator(), "a"); err != nil {
		t.Fatal(err)
	}
	other := machine(f.Fleet, "a", "another machine")
	if _, err := f.Enrol(t.Context(), other.Request(newToken(t, f.Fleet, api.CreateToken{Name: "a"}))); err != nil {
		t.Fatal(err)
	}
	f.has(t, "another machine", "a", undecided)
	f.decide(t)
	f.has(t, "another machine, whose facts nobody knows", "a", groupsWhy{"redhat": noFacts, "web": noClasses})

	if err := f.RemoveNode(servertest.Operator(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := f.decide(t); len(got) > 0 {
		t.Errorf("a removed node is decided: %v", got)
	}
	back := f.Join("a")
	f.has(t, "it joins again", "a", undecided)
	mustHold(t, back, tutti.InventoryFacts, zipped(`{"os":"RedHat"}`))
	f.decide(t)
	f.has(t, "it joins again, with facts", "a", groupsWhy{"redhat": "in", "web": noClasses})

	copied(t, back)
	const two = "two machines say that they are this node"
	f.has(t, "two machines", "a", groupsWhy{"redhat": two, "web": two})
	f.decide(t)
	f.has(t, "two machines", "a", groupsWhy{"redhat": two, "web": two})
	if _, err := f.StartJob(servertest.Operator(), api.StartJob{Plan: "redhat", Mode: tutti.ModeApply}); err == nil || !strings.Contains(err.Error(), "a: "+two) {
		t.Errorf("a job on two machines: %v", err)
	}

	setFleet(t, f.Fleet, strings.Replace(whereFleet, "groups:", "groups:\n  old: {nodes: [c], mode: observe}", 1))
	f.decide(t)
	f.has(t, "an observed node", "c", groupsWhy{"redhat": "the node is observed, so it sends no facts", "web": noClasses})
}

// TestJobsNameUndecidedNodes: a plan would run on a list that looks complete, so it is refused. A converge runs the nodes
// that it knows, and names the others. It is not converged.
func TestJobsNameUndecidedNodes(t *testing.T) {
	f := startWhere(t)
	f.decide(t)
	start := func(in api.StartJob) error {
		in.Mode = tutti.ModeApply
		_, err := f.StartJob(servertest.Operator(), in)
		return err
	}
	const c = "nobody knows whether these nodes are in group redhat: c: " + noFacts
	wantCode(t, start(api.StartJob{Plan: "redhat"}), tutti.CodeConflict, "plan redhat, step run-redhat: "+c)
	wantCode(t, start(api.StartJob{Converge: &tutti.ConvergeStep{Target: "web"}}), tutti.CodeConflict, "nobody knows whether these nodes are in group web: a, b, c: "+noClasses)

	job := startConverge(t, f.Fleet, "redhat")
	if o := f.b.Claim(); o != nil {
		t.Errorf("a node outside of the group runs: %+v", o)
	}
	f.a.Pass()
	wantVerdict(t, f.Fleet, job, tutti.VerdictPartial)
	wantContains(t, f.Job(job).Message, "nobody knows whether c is in group redhat: "+noFacts)
	plan, err := f.StartJob(servertest.Operator(), api.StartJob{Converge: &tutti.ConvergeStep{Target: "redhat"}, Mode: tutti.ModeCompile})
	if err != nil {
		t.Fatal(err)
	}
	wantVerdict(t, f.Fleet, plan, tutti.VerdictPartial)
	wantContains(t, f.Job(plan).Message, "nobody knows whether c is in group redhat")

	mustHold(t, f.c, tutti.InventoryFacts, zipped(`{"os":"Debian"}`))
	f.decide(t)
	job = startConverge(t, f.Fleet, "redhat")
	wantVerdict(t, f.Fleet, job, tutti.VerdictConverged)
	if err := start(api.StartJob{Plan: "redhat"}); err != nil {
		t.Fatal(err)
	}
	f.a.Pass()
	if o := f.c.Claim(); o != nil {
		t.Errorf("a node outside of the group runs: %+v", o)
	}
	mustHold(t, f.a, tutti.InventoryFacts, zipped(`{"os":"Debian"}`))
	f.decide(t)
	wantCode(t, start(api.StartJob{Plan: "redhat"}), tutti.CodeNotFound, `no node fits the condition of group "redhat"`)
	wantCode(t, start(api.StartJob{Converge: &tutti.ConvergeStep{Target: "redhat"}}), tutti.CodeNotFound, `no node fits the condition of group "redhat"`)
}

// TestAConditionMakesNobodyStale: a node's groups with `where` are no part of its code, so a change of them is no reason to
// run.
func TestAConditionMakesNobodyStale(t *testing.T) {
	f := startWhere(t)
	f.decide(t)
	startConverge(t, f.Fleet, "a")
	o := f.a.MustClaim()
	read := f.a.Read(o.Run, tutti.Query{Kind: tutti.QueryGroups})
	if string(f.a.Ask(o.Run, tutti.Query{Kind: tutti.QueryGroups}).Value) != `["all"]` {
		t.Errorf("its code reads %+v", read)
	}
	f.a.Pass()
	before := viewOf(t, f.Fleet, "a").Stands
	mustHold(t, f.a, tutti.InventoryFacts, zipped(`{"os":"Debian"}`))
	if got := f.decide(t); !slices.Equal(got, []tutti.NodeName{"a"}) {
		t.Errorf("events about %v", got)
	}
	if now := viewOf(t, f.Fleet, "a"); before != api.NodeGood || now.Stands != before {
		t.Errorf("it was %s, and is %s: %s", before, now.Stands, now.Why)
	}
}

// TestAGroupByFactsGivesNothingOnTheServer checks what no fleet file says: tokens, approvals, secrets, rights and pauses.
func TestAGroupByFactsGivesNothingOnTheServer(t *testing.T) {
	f := startWhere(t)
	f.decide(t)
	ctx := servertest.Operator()
	_, err := f.CreateToken(ctx, api.CreateToken{Name: "d", Groups: []tutti.GroupName{"redhat"}, TTL: time.Hour})
	wantCode(t, err, tutti.CodeInvalid, "group redhat: its `where` decides whether a node is in it; a token can name groups with `joined: true`")
	_, err = f.Recipients(ctx, []string{"group:redhat"})
	wantCode(t, err, tutti.CodeInvalid, "group redhat has `where`, so its nodes may read no secret: a node chooses its own facts")

	for verb, target := range map[tutti.Verb]string{tutti.VerbRun: "redhat", tutti.VerbPuppet: "redhat"} {
		got, err := f.ExplainAccess(ctx, api.AccessQuery{Operator: "bob", Verb: verb, Target: target})
		if err != nil || got.May || strings.Contains(got.Why, "groups: redhat") {
			t.Errorf("bob may %s on %s: %+v, %v", verb, target, got, err)
		}
	}
	if _, err := f.Pause(ctx, api.Pause{Target: "redhat", Reason: "lunch"}); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[tutti.NodeName]string{"a": "lunch", "b": "", "c": "nobody knows whether the node is in group redhat"} {
		if got := viewOf(t, f.Fleet, node).Paused; want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s is %q, want %q", node, got, want)
		}
	}
}

// TestAJobWaitsForTheDecision: after a push of the fleet file, the server needs some time to decide. A job waits for this.
func TestAJobWaitsForTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startWhere(t)
		mustHold(t, f.c, tutti.InventoryFacts, zipped(`{"os":"Debian"}`))
		began := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			_ = f.Matches().Once(t.Context())
		}()
		f.Start("redhat", tutti.ModeApply)
		if took := time.Since(began); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("it waited for %s", took)
		}
		setFleet(t, f.Fleet, strings.Replace(whereFleet, `== "RedHat"`, `!= "Debian"`, 1))
		began = time.Now()
		_, err := f.StartJob(servertest.Operator(), api.StartJob{Plan: "redhat", Mode: tutti.ModeApply})
		wantCode(t, err, tutti.CodeConflict, "the server has not decided the condition yet")
		if took := time.Since(began); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("it waited for %s", took)
		}
	})
}

// TestTheKeeperFollowsTheLog: while a keeper runs, it decides after each change by itself.
func TestTheKeeperFollowsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startWhere(t)
		done := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		go func() { defer close(done); f.Matches().Run(ctx) }()
		time.Sleep(time.Second)
		f.has(t, "at first", "a", groupsWhy{"redhat": "in", "web": noClasses})
		mustHold(t, f.a, tutti.InventoryFacts, zipped(`{"os":"Debian"}`))
		time.Sleep(time.Second)
		f.has(t, "other facts", "a", groupsWhy{"web": noClasses})
		f.Join("d")
		time.Sleep(time.Second)
		f.has(t, "a node joins", "d", groupsWhy{"redhat": noFacts, "web": noClasses})
		for class, want := range map[string]groupsWhy{"role::web": {"web": "in"}, "role::db": {}} {
			answer := withClass(class, "null")
			if err := f.ENC().Classify(t.Context(), "a", &answer); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			f.has(t, "the ENC says "+class, "a", want)
		}
		n := len(f.Events())
		time.Sleep(time.Minute)
		if more := f.Since(n); len(more) > 0 {
			t.Errorf("an idle fleet appends %v", more)
		}
		stop()
		<-done
	})
}

// An operator who may only view does not see what a reason quotes.
func TestAViewerSeesNoReasons(t *testing.T) {
	f := startWhere(t)
	f.decide(t)
	setFleet(t, f.Fleet, whereFleet+"  - {to: eve, may: view}\n")
	ctx, leave, err := f.Admit(t.Context(), "eve", "1", tutti.VerbView)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	nodes, err := f.ListNodes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		for _, m := range n.Matches {
			if m.Unknown != "" && m.Unknown != "an operator with the verb read sees the reason" {
				t.Errorf("%s: %q", n.Node, m.Unknown)
			}
		}
	}
}

// After a snapshot and a restart the groups are the same, and the keeper appends nothing.
func TestMatchesSurviveASnapshot(t *testing.T) {
	f := startWhere(t)
	f.decide(t)
	events := f.Events()
	if diff := server.Fold(events).Diff(server.Fold(needed(events)), events[len(events)-1].At); diff != "" {
		t.Errorf("-whole +from a snapshot\n%s", diff)
	}
	again := &whereFixture{Fleet: f.Restart()}
	again.has(t, "after a restart", "a", groupsWhy{"redhat": "in", "web": noClasses})
	if got := again.decide(t); len(got) > 0 {
		t.Errorf("after a restart the keeper appends events about %v", got)
	}
}

// TestADecisionThatIsOutOfDate: the facts of a node change while the keeper decides. The keeper stores nothing about the
// earlier facts, and decides again.
func TestADecisionThatIsOutOfDate(t *testing.T) {
	var blobs hookedBlobs
	f := servertest.Start(t, func(o *server.Options) {
		blobs.Blobs = o.Blobs
		o.Blobs = &blobs
	})
	w := &whereFixture{Fleet: f, a: f.Join("a")}
	f.Push(whereFleet)
	mustHold(t, w.a, tutti.InventoryFacts, zipped(`{"os":"RedHat"}`))
	blobs.first = func() { mustHold(t, w.a, tutti.InventoryFacts, zipped(`{"os":"Debian"}`)) }
	keeper, n := f.Matches(), len(f.Events())
	for range 2 {
		if err := keeper.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.Since(n); !slices.Equal(got, []string{"node.inventory", "node.matched"}) {
		t.Errorf("events %v", got)
	}
	w.has(t, "the later facts", "a", groupsWhy{"web": noClasses})
}

// hookedBlobs calls a function before it reads the first content.
type hookedBlobs struct {
	tutti.Blobs
	first func()
}

func (b *hookedBlobs) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	if first := b.first; first != nil {
		b.first = nil
		first()
	}
	return b.Blobs.Get(ctx, digest)
}

// If the content cannot be read now, the last decision stays, and the keeper tries again.
func TestFactsThatCannotBeRead(t *testing.T) {
	blobs := &brokenBlobs{}
	f := servertest.Start(t, func(o *server.Options) {
		blobs.Blobs = o.Blobs
		o.Blobs = blobs
	})
	w := &whereFixture{Fleet: f, a: f.Join("a"), b: f.Join("b")}
	f.Push(whereFleet)
	mustHold(t, w.a, tutti.InventoryFacts, zipped(`{"os":"RedHat"}`))
	w.decide(t)
	mustHold(t, w.a, tutti.InventoryFacts, zipped(`{"os":"Debian"}`))
	mustHold(t, w.b, tutti.InventoryFacts, zipped(`{"os":"RedHat"}`))
	blobs.broken = tutti.DigestOf([]byte(zipped(`{"os":"Debian"}`)))
	keeper := f.Matches()
	if err := keeper.Once(t.Context()); err == nil || !strings.Contains(err.Error(), "the facts of a: disk") {
		t.Errorf("%v", err)
	}
	w.has(t, "its facts cannot be read", "a", groupsWhy{"redhat": "in", "web": noClasses})
	w.has(t, "the others are decided", "b", groupsWhy{"redhat": "in", "web": noClasses})
	blobs.broken = ""
	if err := keeper.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.has(t, "they can be read again", "a", groupsWhy{"web": noClasses})
}

type brokenBlobs struct {
	tutti.Blobs
	broken tutti.Digest
}

func (b *brokenBlobs) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	if digest == b.broken {
		return nil, tutti.Errorf(tutti.CodeUnavailable, "disk")
	}
	return b.Blobs.Get(ctx, digest)
}

// A group that may read a secret does not get a condition: its nodes would lose the secret without a word.
func TestASecretForAGroupThatGetsACondition(t *testing.T) {
	f := startWhere(t)
	if err := f.SealSecret(servertest.Operator(), tutti.SealSecret{Secret: tutti.Secret{
		Key: "shared/password", ID: "0123456789abcdef", For: []string{"group:all"}, Recovery: []byte("for the recovery key"),
		Pieces: []tutti.Piece{f.piece("a"), f.piece("b"), f.piece("c")},
	}}); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(whereFleet, "all: {nodes: [a, b, c]}", `all: {where: 'certname == "a"'}`, 1)
	text, _, _ = strings.Cut(text, "access:")
	_, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(text)})
	wantCode(t, err, tutti.CodeConflict, "group all has `where`, so its nodes may read no secret, and secret shared/password is for this group")
}

func (f *whereFixture) piece(node tutti.NodeName) tutti.Piece {
	return tutti.Piece{Node: node, Box: tutti.BoxDigest(seal.PublicKey(servertest.Box(string(f.Node(node).Key)))), Sealed: []byte("for " + node)}
}
