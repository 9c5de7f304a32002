package server_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `trust` returns a statement about which keys sign code.
func trust(counter uint64, keys []string, by ...string) tutti.Statement {
	return servertest.State(tutti.StatementTrust, tutti.Trusted{Fleet: servertest.FleetID, Counter: counter, Keys: keys}, by...)
}

// The function `pushes` sends code with one file to the server. The parameter `sign` is the function that signs the
// code.
func pushes(t *testing.T, f *servertest.Fleet, content string, sign func(tutti.CodeManifest) tutti.SignedCode) error {
	t.Helper()
	digest, err := f.PutBlob(servertest.Operator(), []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.PushCode(servertest.Operator(), tutti.CodePush{SignedCode: sign(tutti.CodeManifest{
		Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{servertest.CodePath: {Digest: digest, Size: int64(len(content))}},
	})})
	return err
}

// TestThePushThatNodesWouldRefuse checks that the server refuses a push of code that nodes would refuse.
func TestThePushThatNodesWouldRefuse(t *testing.T) {
	f := servertest.Start(t)
	counted := func(counter uint64) func(tutti.CodeManifest) tutti.SignedCode {
		return func(m tutti.CodeManifest) tutti.SignedCode { return servertest.SignAs(m, counter) }
	}
	for _, step := range []struct {
		reason, content string
		sign            func(tutti.CodeManifest) tutti.SignedCode
		code            tutti.Code
		says            string
		events          []string
	}{
		{"of a release of before", "one", servertest.Sign, "", "", []string{"code.pushed"}},
		{"the same, with a counter", "one", counted(1), "", "", []string{"code.signed"}},
		{"the same again", "one", counted(1), "", "", nil},
		{"later code", "two", counted(5), "", "", []string{"code.pushed"}},
		{"without a counter", "three", servertest.Sign, tutti.CodeRefused, "too old to push", nil},
		{"the same counter", "three", counted(5), tutti.CodeConflict, "push again", nil},
		{"a lower one", "three", counted(4), tutti.CodeConflict, "push again", nil},
		{"back, with a higher one", "one", counted(6), "", "", []string{"code.pushed"}},
	} {
		n := len(f.Events())
		err := pushes(t, f, step.content, step.sign)
		wantCode(t, err, step.code, step.says)
		if diff := cmp.Diff(step.events, f.Since(n)); diff != "" {
			t.Errorf("%s: -want +got\n%s", step.reason, diff)
		}
	}
}

// TestWhichCodeKeysSign checks that the code keys follow from the statements in their order. The code that
// nodes run must be signed by the keys that remain.
func TestWhichCodeKeysSign(t *testing.T) {
	f := servertest.Start(t)
	f.PushCounted("one", 1)
	ctx, both := servertest.Operator(), []string{"operator", "new"}
	wantCode(t, f.TrustKeys(ctx, trust(1, both, "somebody", "new")), tutti.CodeRefused, "not signed")
	wantCode(t, f.TrustKeys(ctx, trust(2, both, "operator", "new")), tutti.CodeRefused, "not signed")
	wantCode(t, f.TrustKeys(ctx, trust(1, []string{"new"}, "operator", "new")), tutti.CodeConflict, "would refuse the code")
	for range 2 { // the second call changes nothing
		wantCode(t, f.TrustKeys(ctx, trust(1, both, "operator", "new")), "", "")
	}
	n := len(f.Events())
	said, err := f.Signing(ctx)
	if err != nil || len(said.Trust) != 1 || len(said.Codes) != 1 || said.Codes[0].Statement == nil {
		t.Fatalf("%+v, %v", said, err)
	}
	again := *said.Codes[0].Statement
	again.Signatures = slices.Concat(again.Signatures, servertest.State("", nil, "new").Signatures)
	other := servertest.State(tutti.StatementCode, tutti.Signed{Environment: "production", Counter: 9}, "new")
	wantCode(t, f.SignCode(ctx, tutti.CodeSign{Code: said.Codes[0].Code, Statement: other}), tutti.CodeConflict, "pushed again")
	wantCode(t, f.SignCode(ctx, tutti.CodeSign{Code: "sha256:x", Statement: again}), tutti.CodeNotFound, "no node")
	wantCode(t, f.SignCode(ctx, tutti.CodeSign{Code: said.Codes[0].Code, Statement: again}), "", "")
	acting := servertest.State(tutti.StatementOperators, tutti.TrustedOperators{Fleet: servertest.FleetID, Counter: 1}, "operator")
	wantCode(t, f.TrustOperators(ctx, acting), "", "")
	wantCode(t, f.TrustKeys(ctx, trust(2, []string{"new"}, "new")), tutti.CodeConflict, "would refuse")
	acting.Signatures = append(acting.Signatures, servertest.State("", nil, "new").Signatures...)
	wantCode(t, f.TrustOperators(ctx, acting), "", "")
	wantCode(t, f.TrustKeys(ctx, trust(2, []string{"new"}, "new")), "", "")
	wantCode(t, pushes(t, f, "two", func(m tutti.CodeManifest) tutti.SignedCode { return servertest.SignAs(m, 2) }), tutti.CodeRefused, "not signed")
	if diff := cmp.Diff([]string{"code.signed", "operators.trusted", "operators.trusted", "keys.trusted"}, slices.DeleteFunc(f.Since(n), func(kind string) bool { return kind == "audit.denied" })); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	old := servertest.State(tutti.StatementOperators, tutti.TrustedOperators{Fleet: servertest.FleetID, Counter: 1, Operators: []tutti.OperatorKey{{Operator: "eve"}}}, "new")
	wantCode(t, f.TrustOperators(ctx, old), tutti.CodeConflict, "meanwhile")

	newcomer := machine(f, "db-01", "a machine")
	enrolled, err := f.Enrol(ctx, newcomer.Request(newToken(t, f, api.CreateToken{Name: "db-01"})))
	if err != nil || enrolled.CodeKey != "new" || enrolled.Trust == nil || enrolled.Operators == nil {
		t.Errorf("a newcomer is told %+v, %v", enrolled, err)
	}
}

// The server stores only signatures of code keys, and it stores each signature once.
func TestOnlyGoodSignaturesAreKept(t *testing.T) {
	f := servertest.Start(t)
	f.PushCounted("one", 1)
	ctx := servertest.Operator()
	list := servertest.State(tutti.StatementOperators, tutti.TrustedOperators{Fleet: servertest.FleetID, Counter: 1}, "operator")
	junk := servertest.State("", nil, "mallory").Signatures
	with := func(st tutti.Statement) tutti.Statement {
		st.Signatures = slices.Concat(junk, st.Signatures, st.Signatures)
		return st
	}
	wantCode(t, f.TrustOperators(ctx, with(list)), "", "")
	said, err := f.Signing(ctx)
	if err != nil || len(said.Codes) != 1 || said.Codes[0].Statement == nil || said.Operators == nil {
		t.Fatalf("%+v, %v", said, err)
	}
	n := len(f.Events())
	for range 3 {
		wantCode(t, f.TrustOperators(ctx, with(list)), "", "")
		wantCode(t, f.SignCode(ctx, tutti.CodeSign{Code: said.Codes[0].Code, Statement: with(*said.Codes[0].Statement)}), "", "")
	}
	if got := f.Since(n); len(got) != 0 || len(said.Operators.Signatures) != 1 {
		t.Errorf("appended %v; the list has %d signatures", got, len(said.Operators.Signatures))
	}
}

// TestANodeIsToldWhatItLacks checks that a node gets the statements about code keys that it lacks.
// The server records which statements the node has.
func TestANodeIsToldWhatItLacks(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	f.PushCounted("one", 1)
	both := []string{"operator", "new"}
	for i := range uint64(3) {
		wantCode(t, f.TrustKeys(servertest.Operator(), trust(i+1, both, both...)), "", "")
	}
	for _, tc := range []struct {
		reason string
		says   *uint64
		told   int
		notes  uint64
	}{
		{"an agent of before", nil, 0, 0},
		{"one that follows none", new(uint64(0)), 3, 0},
		{"one that was away", new(uint64(1)), 2, 1},
		{"one that has all", new(uint64(3)), 0, 3},
		{"one that knows more than a server that was put back", new(uint64(7)), 0, 7},
	} {
		var got wire.Claimed
		if err := db.Call(wire.OpClaim, wire.Claim{Trusts: tc.says}, &got); err != nil {
			t.Fatal(err)
		}
		nodes, err := f.ListNodes(servertest.Operator())
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Trust) != tc.told || nodes[0].Trusts != tc.notes {
			t.Errorf("%s: told %d statements, noted %d; want %d and %d", tc.reason, len(got.Trust), nodes[0].Trusts, tc.told, tc.notes)
		}
	}
}

// TestWhereOperatorsSign checks that no node gets a change that is not signed, and that each node gets its own
// statement.
func TestWhereOperatorsSign(t *testing.T) {
	f := servertest.Start(t)
	db, web := f.Join("db-01"), f.Join("web-01")
	db.Agent, web.Agent = wire.Claim{Knows: tutti.Capabilities()}, wire.Claim{}
	for _, n := range []*servertest.Node{db, web} {
		if err := n.Call(wire.OpClaim, n.Agent, nil); err != nil {
			t.Fatal(err)
		}
	}
	asked := map[tutti.NodeName]tutti.RemoteRequest{}
	for _, n := range []*servertest.Node{db, web} {
		f.Bus.Listen(n.Key, func(op string, payload []byte) {
			var q tutti.RemoteRequest
			if op == wire.RingRemote && json.Unmarshal(payload, &q) == nil {
				asked[n.Name] = q
			}
		})
	}
	acting := servertest.State(tutti.StatementOperators, tutti.TrustedOperators{Fleet: servertest.FleetID, Counter: 1}, "operator")
	wantCode(t, f.TrustOperators(servertest.Operator(), acting), "", "")
	nothing := func([]api.NodeAnswer) error { return nil }
	ask := api.NodesQuestion{Action: tutti.RemoteDisable, On: "true", Wait: 1}
	wantCode(t, f.AskNodes(servertest.Operator(), ask, nothing), tutti.CodeRefused, "this request is not signed")
	if len(asked) != 0 {
		t.Errorf("asked %v", asked)
	}
	signed := func(change func(*tutti.SignedAction)) []tutti.Statement {
		said := tutti.SignedAction{
			Fleet: servertest.FleetID, Operator: "ada", Action: tutti.RemoteDisable, Nodes: []tutti.NodeName{"db-01", "web-01", "gone"}, Message: "new disk",
			Until: time.Now().Add(time.Minute), Nonce: "n",
		}
		change(&said)
		return []tutti.Statement{servertest.State(tutti.StatementAction, said, "ada")}
	}
	ask.Message, ask.On = "new disk", `node == "db-01"`
	for says, change := range map[string]func(*tutti.SignedAction){
		"ada has signed the action enable, and the request is for disable": func(s *tutti.SignedAction) { s.Action = tutti.RemoteEnable },
		`has signed the message "another"`:                                 func(s *tutti.SignedAction) { s.Message = "another" },
		"has signed force":                                                 func(s *tutti.SignedAction) { s.Force = true },
		"bob has signed the action disable, but ada requests it":           func(s *tutti.SignedAction) { s.Operator = "bob" },
	} {
		n := len(f.Events())
		ask.Signed = signed(change)
		ada, leave, err := f.Admit(t.Context(), "ada", "serial")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Emit(&tutti.OperatorIssued{Operator: "ada", Serial: "serial", Expires: time.Now().AddDate(0, 0, 30)}); err != nil {
			t.Fatal(err)
		}
		wantCode(t, f.AskNodes(ada, ask, nothing), tutti.CodeRefused, says)
		leave()
		if got := slices.DeleteFunc(f.Since(n), func(kind string) bool { return kind == "audit.denied" }); !slices.Equal(got, []string{"operator.issued"}) {
			t.Errorf("%s: appended %v, want nothing but the refusal", says, got)
		}
	}
	if got := f.Denials(); !slices.Equal(got, []string{"operator:ada: disable Puppet"}) { // the same refusal is recorded once a minute
		t.Errorf("refused %q", got)
	}
	ask.Signed = signed(func(s *tutti.SignedAction) { s.Nodes = nil })
	wantCode(t, f.AskNodes(servertest.Operator(), ask, nothing), tutti.CodeInvalid, "an action of 0 nodes")
	if len(asked) != 0 {
		t.Errorf("asked %v", asked)
	}
	n := len(f.Events())
	ask.Signed = signed(func(*tutti.SignedAction) {})
	wantCode(t, f.AskNodes(servertest.Operator(), ask, nothing), "", "")
	for _, e := range f.Events()[n:] {
		on := ""
		switch b := e.Body.(type) {
		case *tutti.RemoteAsked:
			on = b.On
		case *tutti.RemoteAnswered:
			on = b.On
		}
		if want := "signed for db-01, gone, web-01"; on != want {
			t.Errorf("%s is on %q, want %q", e.Body.Kind(), on, want)
		}
	}
	if len(asked) != 2 || asked["db-01"].Signed == nil || asked["web-01"].Signed != nil {
		t.Errorf("asked %+v, want that an agent is given what it knows", asked)
	}
	wantCode(t, f.AskNodes(servertest.Operator(), api.NodesQuestion{Action: tutti.RemoteStatus, On: "true", Wait: 1}, nothing), "", "")
	ask.Action = tutti.RemoteStatus
	wantCode(t, f.AskNodes(servertest.Operator(), ask, nothing), tutti.CodeInvalid, "only enable and disable")
}

// codeKeys adds a code key, which then signs the present code.
func (p *trimming) codeKeys(t *testing.T) {
	t.Helper()
	ctx := servertest.Operator()
	p.PushCounted("notify { 'counted': }\n", 1)
	both := tutti.Trusted{Fleet: servertest.FleetID, Counter: 1, Keys: []string{"operator", "new"}}
	if err := p.TrustKeys(ctx, servertest.State(tutti.StatementTrust, both, "operator", "new")); err != nil {
		t.Fatal(err)
	}
	said, err := p.Signing(ctx)
	if err != nil {
		t.Fatal(err)
	}
	again := *said.Codes[0].Statement
	again.Signatures = append(again.Signatures, servertest.State("", nil, "new").Signatures...)
	if err := p.SignCode(ctx, tutti.CodeSign{Code: said.Codes[0].Code, Statement: again}); err != nil {
		t.Fatal(err)
	}
	acting := tutti.TrustedOperators{Fleet: servertest.FleetID, Counter: 1, Operators: []tutti.OperatorKey{{Operator: "ada", Key: "ada's"}}}
	if err := p.TrustOperators(ctx, servertest.State(tutti.StatementOperators, acting, "new")); err != nil {
		t.Fatal(err)
	}
	follows := uint64(1)
	if err := p.db.Call(wire.OpClaim, wire.Claim{Trusts: &follows}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestANodeThatFollowsSomethingElseAllTheTime checks that a node does not fill the log if it reports two statements
// in turns.
func TestANodeThatFollowsSomethingElseAllTheTime(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	before := len(f.Everything())
	for i := range uint64(200) {
		if err := db.Call(wire.OpClaim, wire.Claim{Trusts: new(i%2 + 1)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if more := len(f.Everything()) - before; more == 0 || more > 40 {
		t.Errorf("%d events more, want 1 to 40", more)
	}
}
