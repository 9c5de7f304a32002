package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// vault is a fleet with secrets, together with the private recovery key of its operators.
type vault struct {
	*servertest.Fleet
	t       *testing.T
	private string // recovery key
	source  string
}

func newVault(t *testing.T) *vault {
	t.Helper()
	private, public, err := seal.NewRecovery()
	if err != nil {
		t.Fatal(err)
	}
	v := &vault{Fleet: servertest.Start(t), t: t, private: private, source: `fleet: vault
environment: {name: production, path: ./code}
secrets: {recovery: ` + public + `}
groups: {web: {joined: true}, db: {nodes: [db-01]}, pair: {nodes: [web-01, web-02]}}
grants:
  - {to: web, read: [db/**]}
  - {to: db, write: [db/**], read: [db/**]}
plans: {all: {steps: [{run: web}, {run: db}]}, db: {steps: [{run: db}]}, web: {steps: [{run: web}]}}
`}
	v.Push(v.source)
	return v
}

func id(n int) string { return fmt.Sprintf("%016d", n) }

// The method `sealed` seals a secret in the same way as the command line.
func (v *vault) sealed(key string, n int, value string, targets ...string) tutti.SealSecret {
	v.t.Helper()
	to, err := v.Recipients(servertest.Operator(), targets)
	if err != nil {
		v.t.Fatal(err)
	}
	text := tutti.SecretText{Key: key, ID: id(n), Value: json.RawMessage(value)}
	recovery, err := seal.ToRecovery(text, targets, to.Recovery)
	if err != nil {
		v.t.Fatal(err)
	}
	batches, err := seal.Batches(tutti.Secret{Key: key, ID: text.ID, For: targets, Recovery: recovery}, text, to.Nodes)
	if err != nil || len(batches) != 1 {
		v.t.Fatal(len(batches), err)
	}
	return tutti.SealSecret{Secret: batches[0]}
}

func (v *vault) set(key string, n int, value string, targets ...string) {
	v.t.Helper()
	if err := v.SealSecret(servertest.Operator(), v.sealed(key, n, value, targets...)); err != nil {
		v.t.Fatal(err)
	}
}

// The function `opened` decrypts the value of an answer in the same way as a node.
func opened(t *testing.T, n *servertest.Node, value json.RawMessage) string {
	t.Helper()
	v, is := tutti.ParseSealed(value)
	if !is {
		return "clear " + string(value)
	}
	clear, err := seal.OpenNode(v, servertest.Box(string(n.Key)))
	if err != nil {
		return err.Error()
	}
	return string(clear)
}

// TestSecretsAreForTheirNodes checks that the named nodes open a secret and other nodes do not see it. A newly joined
// node learns that it must wait. The new node gets the secret after an operator has sealed it again, and this makes no
// other node stale.
func TestSecretsAreForTheirNodes(t *testing.T) {
	v := newVault(t)
	web, db := v.Join("web-01", "web"), v.Join("db-01")
	v.set("db/password", 1, `"hunter2"`, "group:web")
	v.set("shared/hiera/app::key", 2, `{"a": 1}`, "group:web", "node:db-01")
	v.Start("all", tutti.ModeApply)
	password := tutti.Query{Kind: tutti.QueryValue, Key: "db/password"}
	order := web.MustClaim()
	a := web.Ask(order.Run, password)
	if got := opened(t, web, a.Value); got != `"hunter2"` || a.Digest != (tutti.Secret{ID: id(1)}).Digest() {
		t.Errorf("web-01 opens %s, digest %s", got, a.Digest)
	}
	var level wire.HieraData
	if err := web.Call(wire.OpHiera, wire.HieraQuestion{Run: order.Run, Opens: true}, &level); err != nil {
		t.Fatal(err)
	}
	if got := opened(t, web, level.Data["app::key"]); got != `{"a":1}` || len(level.Awaits) > 0 {
		t.Errorf("web-01 opens %s of hiera, awaits %v", got, level.Awaits)
	}
	web.Gate(wire.Gate{Run: order.Run, Reads: []tutti.Read{{Query: password, Found: true, Digest: a.Digest, Seq: a.Seq}}})
	web.Finish(order.Run)
	other := db.MustClaim()
	if a := db.Ask(other.Run, password); a.Found || a.Awaits != "" || a.Value != nil {
		t.Errorf("db-01 is told %+v, and is not meant", a)
	}
	db.Gate(wire.Gate{Run: other.Run})
	db.Finish(other.Run)

	late := v.Join("web-02", "web")
	v.Start("all", tutti.ModeApply)
	order = late.MustClaim()
	if a := late.Ask(order.Run, password); a.Found || a.Awaits != "db/password" {
		t.Errorf("web-02 is told %+v", a)
	}
	level = wire.HieraData{}
	if err := late.Call(wire.OpHiera, wire.HieraQuestion{Run: order.Run, Opens: true}, &level); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"app::key": "shared/hiera/app::key"}, level.Awaits); diff != "" {
		t.Errorf("-want +awaited of hiera\n%s", diff)
	}
	list, err := v.ListSecrets(servertest.Operator())
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if s := list[0]; s.Key != "db/password" || !slices.Equal(s.Sealed, []tutti.NodeName{"web-01"}) || !slices.Equal(s.Waiting, []tutti.NodeName{"web-02"}) || s.Former != nil {
		t.Errorf("listed as %+v", s)
	}

	// An operator seals the secret again, with the part that only operators can open.
	secret, err := v.RecoverSecret(servertest.Operator(), "db/password")
	if err != nil {
		t.Fatal(err)
	}
	clear, err := seal.OpenRecovery(tutti.SealedValue{Key: secret.Key, ID: secret.ID, For: secret.For, Sealed: secret.Recovery}, v.private)
	if err != nil {
		t.Fatal(err)
	}
	more := v.sealed("db/password", 1, string(clear), "group:web")
	more.Adds, more.Recovery = true, nil
	if err := v.SealSecret(servertest.Operator(), more); err != nil {
		t.Fatal(err)
	}
	if a := late.Ask(order.Run, password); opened(t, late, a.Value) != `"hunter2"` || a.Awaits != "" {
		t.Errorf("web-02 is told %+v", a)
	}
	for _, node := range []tutti.NodeName{"web-01", "db-01"} {
		if shown, err := v.ShowNode(servertest.Operator(), node); err != nil || shown.Standing.State != api.NodeGood {
			t.Errorf("%s stands as %+v, %v", node, shown.Standing, err)
		}
	}
}

// TestSecretsAreRefused checks invalid secrets and secrets for another key.
func TestSecretsAreRefused(t *testing.T) {
	v := newVault(t)
	v.Join("web-01", "web")
	v.Join("db-01")
	v.set("db/password", 1, `1`, "group:web")
	good := func() tutti.SealSecret { return v.sealed("db/other", 2, `1`, "group:web") }
	for _, tc := range []struct {
		reason string
		change func(*tutti.SealSecret)
		code   tutti.Code
		want   string
	}{
		{"no recovery", func(s *tutti.SealSecret) { s.Recovery = nil }, tutti.CodeInvalid, "not sealed to the recovery key"},
		{"a node that is not meant", func(s *tutti.SealSecret) { s.Pieces[0].Node = "db-01" }, tutti.CodeConflict, "it is not for node"},
		{"another key", func(s *tutti.SealSecret) { s.Pieces[0].Box = tutti.BoxDigest("x") }, tutti.CodeConflict, "now has another key"},
		{"an unknown group", func(s *tutti.SealSecret) { s.For = []string{"group:x"} }, tutti.CodeNotFound, `no group "x"`},
		{"other targets of the one that is there", func(s *tutti.SealSecret) {
			s.Adds, s.Key, s.ID, s.For, s.Recovery = true, "db/password", id(1), []string{"group:db"}, nil
		}, tutti.CodeConflict, "is now for group:web"},
		{"other targets without the recovery key", func(s *tutti.SealSecret) {
			s.Adds, s.Moves, s.Key, s.ID, s.For, s.Recovery = true, true, "db/password", id(1), []string{"group:db"}, nil
		}, tutti.CodeInvalid, "send a new piece for the recovery key"},
		{"another recovery of the one that is there", func(s *tutti.SealSecret) {
			s.Adds, s.Key, s.ID = true, "db/password", id(1)
		}, tutti.CodeInvalid, "must stay as long as value and targets do not change"},
		{"no target", func(s *tutti.SealSecret) { s.For = nil }, tutti.CodeInvalid, "0 targets"},
		{"more of another one", func(s *tutti.SealSecret) { s.Adds, s.Key = true, "db/password" }, tutti.CodeConflict, "has another value now"},
		{"more of nothing", func(s *tutti.SealSecret) { s.Adds = true }, tutti.CodeConflict, "or does not exist"},
		{"the same id again", func(s *tutti.SealSecret) { s.ID, s.Key = id(1), "db/password" }, tutti.CodeConflict, "a new value needs a new id"},
		{"an id that can be guessed", func(s *tutti.SealSecret) { s.ID = "1" }, tutti.CodeInvalid, "the id"},
		{"an empty piece", func(s *tutti.SealSecret) { s.Pieces[0].Sealed = nil }, tutti.CodeInvalid, "0 bytes"},
		{"twice", func(s *tutti.SealSecret) { s.Pieces = append(s.Pieces, s.Pieces[0]) }, tutti.CodeInvalid, "two pieces"},
	} {
		in := good()
		tc.change(&in)
		n := len(v.Events())
		wantCode(t, v.SealSecret(servertest.Operator(), in), tc.code, tc.want)
		if got := v.Since(n); len(got) > 0 {
			t.Errorf("%s: appended %v", tc.reason, got)
		}
	}
	// If the server already has a node's piece of this secret, it ignores another piece for the same node.
	again := good()
	again.Adds, again.Key, again.ID, again.Recovery, again.Pieces[0].Sealed = true, "db/password", id(1), nil, []byte("rubbish")
	n := len(v.Events())
	wantCode(t, v.SealSecret(servertest.Operator(), again), "", "")
	if got := v.Since(n); len(got) > 0 {
		t.Errorf("a piece that is there: appended %v", got)
	}
	wantCode(t, v.SetValue(servertest.Operator(), "db/password", json.RawMessage("1")), tutti.CodeConflict, "is a secret")
	wantCode(t, v.SetValue(servertest.Operator(), "db/x", (tutti.Secret{Key: "db/x", ID: id(1)}).Value(nil)), tutti.CodeInvalid, "Tutti::Sealed")
}

// TestAnOldAgentGetsNoSecret checks that an old agent gets no secret, because the agent would give the sealed form to
// Puppet.
func TestAnOldAgentGetsNoSecret(t *testing.T) {
	v := newVault(t)
	web := v.Join("web-01", "web")
	v.set("db/password", 1, `1`, "group:web")
	v.set("shared/hiera/k", 2, `1`, "group:web")
	v.Start("web", tutti.ModeApply)
	order := web.MustClaim()
	wantCode(t, web.Call(wire.OpAsk, wire.Question{Run: order.Run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "db/password"}}, nil), tutti.CodeRefused, "upgrade tutti")
	wantCode(t, web.Call(wire.OpHiera, wire.HieraQuestion{Run: order.Run}, nil), tutti.CodeRefused, "upgrade tutti")
}

// TestAReplacedMachineHasNoSecrets checks a new machine under a known name with another key.
// TestAReplacedMachineHasNoSecrets also checks that a node which has left a group counts as a node that had the
// secrets.
func TestAReplacedMachineHasNoSecrets(t *testing.T) {
	v := newVault(t)
	v.Join("web-01", "web")
	v.Join("web-02", "web")
	v.set("db/password", 1, `1`, "group:pair")
	if err := v.RemoveNode(servertest.Operator(), "web-01"); err != nil {
		t.Fatal(err)
	}
	v.Join("web-01", "web")
	again := v.Node("another machine")
	again.Name = "web-02"
	token, err := v.CreateToken(servertest.Operator(), api.CreateToken{Name: "web-02"})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.ReplaceNode(servertest.Operator(), "web-02"); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Enrol(t.Context(), again.Request(token)); err != nil {
		t.Fatal(err)
	}
	lists := func() api.SecretView {
		t.Helper()
		list, err := v.ListSecrets(servertest.Operator())
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0]
	}
	// The machine web-01 has come back with its old key. The machine that had the secret as web-02 was replaced. The
	// list names web-02 as replaced until the secret has a new value, even if the new machine gets the secret.
	replaced := []tutti.NodeName{"web-02"}
	if s := lists(); !slices.Equal(s.Sealed, []tutti.NodeName{"web-01"}) || !slices.Equal(s.Waiting, []tutti.NodeName{"web-02"}) || !slices.Equal(s.Replaced, replaced) {
		t.Errorf("listed as %+v", s)
	}
	more := v.sealed("db/password", 1, `1`, "group:pair")
	more.Adds, more.Recovery = true, nil
	if err := v.SealSecret(servertest.Operator(), more); err != nil {
		t.Fatal(err)
	}
	if s := lists(); len(s.Sealed) != 2 || !slices.Equal(s.Replaced, replaced) {
		t.Errorf("listed as %+v", s)
	}
	v.set("db/password", 2, `2`, "group:pair")
	if s := lists(); len(s.Sealed) != 2 || s.Replaced != nil {
		t.Errorf("listed as %+v", s)
	}
	v.Push(strings.Replace(v.source, "web-01, web-02", "web-02", 1))
	if s := lists(); len(s.Sealed) != 1 || !slices.Equal(s.Former, []tutti.NodeName{"web-01"}) {
		t.Errorf("listed as %+v", s)
	}
}

// TestANodePublishesASecret checks that the node asks for the recipients, seals the secret,
// and can open what it has published.
func TestANodePublishesASecret(t *testing.T) {
	v := newVault(t)
	db, web := v.Join("db-01"), v.Join("web-01", "web")
	v.Start("db", tutti.ModeApply)
	order := db.MustClaim()
	db.Gate(wire.Gate{Run: order.Run, CatalogReport: tutti.CatalogReport{Values: []string{"db/password"}}})
	ask := func(n *servertest.Node, run tutti.RunID, key string) (out wire.NodeRecipients, err error) {
		err = n.Call(wire.OpRecipients, wire.RecipientsQuestion{Run: run, Key: key, For: []string{"group:web", "group:pair"}}, &out)
		return out, err
	}
	to, err := ask(db, order.Run, "db/password")
	if err != nil || len(to.Nodes) != 1 || to.Nodes[0].Node != "web-01" || to.Current != nil || !slices.Equal(to.Absent, []tutti.NodeName{"web-02"}) {
		t.Fatalf("told %+v, %v", to, err)
	}
	_, err = ask(db, order.Run, "db/undeclared")
	wantCode(t, err, tutti.CodeRefused, "the run has not named this key at its gate")
	in := v.sealed("db/password", 1, `"made here"`, "group:web")
	text := tutti.SecretText{Key: in.Key, ID: in.ID, Value: json.RawMessage(`"made here"`)}
	own, err := seal.Batches(tutti.Secret{}, text, []tutti.Recipient{{Node: "db-01", BoxKey: seal.PublicKey(servertest.Box(string(db.Key)))}})
	if err != nil {
		t.Fatal(err)
	}
	in.Pieces = append(in.Pieces, own[0].Pieces...)
	publish := func(in tutti.SealSecret, key string) error {
		return db.Call(wire.OpPublish, wire.Publish{Run: order.Run, Key: key, Secret: &in}, nil)
	}
	wantCode(t, publish(in, "db/other"), tutti.CodeInvalid, "published as")
	wantCode(t, publish(in, "db/password"), "", "")
	if to, err = ask(db, order.Run, "db/password"); err != nil || to.Current == nil || to.Current.ID != in.ID || len(to.Current.Boxes) != 2 {
		t.Fatalf("told %+v, %v", to, err)
	}
	a := db.Ask(order.Run, tutti.Query{Kind: tutti.QueryPublished, Key: "db/password"})
	if got := opened(t, db, a.Value); got != `"made here"` {
		t.Errorf("db-01 opens %s", got)
	}
	db.Finish(order.Run)
	v.Start("web", tutti.ModeApply)
	order = web.MustClaim()
	if got := opened(t, web, web.Ask(order.Run, tutti.Query{Kind: tutti.QueryValue, Key: "db/password"}).Value); got != `"made here"` {
		t.Errorf("web-01 opens %s", got)
	}
}

// TestACompileHostOpensWhatItCompilesWith checks a secret of a node whose catalog a Puppet Server compiles. The
// secret must also be sealed to the Puppet Server's node, which gets its own piece. Both nodes get the same digest.
func TestACompileHostOpensWhatItCompilesWith(t *testing.T) {
	v := newVault(t)
	setFleet(t, v.Fleet, strings.Replace(compileFleet, "\nmode: agent", "\nmode: agent"+v.source[strings.Index(v.source, "\nsecrets"):strings.Index(v.source, "\ngroups")], 1))
	f := compileFixture{v.Fleet, v.Join("puppet"), v.Join("db-01"), v.Join("web-01")}
	wantCode(t, v.SealSecret(servertest.Operator(), v.sealed("db/password", 1, `1`, "group:db")), tutti.CodeInvalid, "name the server's node as well")
	v.set("db/password", 1, `"hunter2"`, "group:db", "node:puppet")
	v.set("node/db-01/hiera/pw", 2, `"hunter3"`, "group:db", "node:puppet")
	v.Start("deploy", tutti.ModeApply)
	run := f.db.MustClaim().Run
	password := tutti.Query{Kind: tutti.QueryValue, Key: "db/password"}
	var a wire.Answer
	if err := f.host.Call(wire.OpAsk, wire.Question{Run: run, For: "db-01", Query: password, Opens: true}, &a); err != nil {
		t.Fatal(err)
	}
	if got := opened(t, f.host, a.Value); got != `"hunter2"` || a.Digest != f.db.Ask(run, password).Digest {
		t.Errorf("the compile host opens %s, digest %s", got, a.Digest)
	}
	var level wire.HieraData
	if err := f.host.Call(wire.OpHiera, wire.HieraQuestion{Run: run, For: "db-01", Opens: true}, &level); err != nil {
		t.Fatal(err)
	}
	if got := opened(t, f.host, level.Data["pw"]); got != `"hunter3"` {
		t.Errorf("the compile host opens %s of hiera", got)
	}
	// Another machine joins as the node puppet. This machine has no piece.
	if err := v.RemoveNode(servertest.Operator(), "puppet"); err != nil {
		t.Fatal(err)
	}
	f.host = v.Node("another")
	f.host.Name = "puppet"
	token, err := v.CreateToken(servertest.Operator(), api.CreateToken{Name: "puppet"})
	if err == nil {
		_, err = v.Enrol(t.Context(), f.host.Request(token))
	}
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, f.host.Call(wire.OpAsk, wire.Question{Run: run, For: "db-01", Query: password, Opens: true}, nil), tutti.CodeRefused, "not sealed to puppet, which compiles for that node")
}

// TestANodeHasAnotherKeyNowAndThen checks that each change of the key is in the audit trail. Another node may publish
// a secret for this node under a key that this node may not read. Then this node gets no piece of the secret.
func TestANodeHasAnotherKeyNowAndThen(t *testing.T) {
	synctest.Test(t, anotherKeyNowAndThen)
}

func anotherKeyNowAndThen(t *testing.T) {
	v := newVault(t)
	db, web := v.Join("db-01"), v.Join("web-01", "web")
	v.Start("db", tutti.ModeApply)
	order := db.MustClaim()
	db.Gate(wire.Gate{Run: order.Run, CatalogReport: tutti.CatalogReport{Values: []string{"node/db-01/x"}}})
	in := v.sealed("node/db-01/x", 1, `"garbage"`, "node:web-01")
	if err := db.Call(wire.OpPublish, wire.Publish{Run: order.Run, Key: in.Key, Secret: &in}, nil); err != nil {
		t.Fatal(err)
	}
	var own wire.OwnPieces
	if err := web.Call(wire.OpPieces, struct{}{}, &own); err != nil || len(own.Pieces) != 0 {
		t.Errorf("it is to seal again %+v, %v", own, err)
	}
	box := func(i int) error {
		return web.Call(wire.OpBox, wire.NewBox{BoxKey: seal.PublicKey(servertest.Box(fmt.Sprint("box ", i))), Pieces: []wire.OwnPiece{}}, nil)
	}
	for i := range 3 {
		wantCode(t, box(i), "", "")
	}
	time.Sleep(10 * time.Minute)
	n := len(v.Events())
	wantCode(t, box(4), tutti.CodeUnavailable, "3 times in an hour; ask again later")
	if got := strings.Join(v.Since(n), " "); strings.Contains(got, "node.boxed") || strings.Contains(got, "secret.sealed") {
		t.Errorf("appended %v", got)
	}
	time.Sleep(time.Hour)
	wantCode(t, box(4), "", "")
	if err := v.Stop(); err != nil {
		t.Error(err)
	}
}

// TestANodeHasAnotherKey checks that a node must replace all its pieces together with its key. No node becomes
// stale. The server refuses a list with missing pieces or with pieces of another secret.
func TestANodeHasAnotherKey(t *testing.T) {
	v := newVault(t)
	web := v.Join("web-01", "web")
	v.Join("web-02", "web")
	v.set("db/password", 1, `"hunter2"`, "group:web")
	v.set("shared/hiera/pw", 2, `"hunter3"`, "node:web-01")
	next := seal.PublicKey(servertest.Box("next"))
	resealed := func(change func([]wire.OwnPiece) []wire.OwnPiece) wire.NewBox {
		t.Helper()
		var own wire.OwnPieces
		if err := web.Call(wire.OpPieces, struct{}{}, &own); err != nil || len(own.Pieces) != 2 {
			t.Fatal(own, err)
		}
		for i, p := range own.Pieces {
			clear := opened(t, web, (tutti.Secret{Key: p.Key, ID: p.ID}).Value(p.Sealed))
			var err error
			if own.Pieces[i].Sealed, err = seal.ToNode(tutti.SecretText{Key: p.Key, ID: p.ID, Value: json.RawMessage(clear)}, next); err != nil {
				t.Fatal(err)
			}
		}
		return wire.NewBox{BoxKey: next, Pieces: change(own.Pieces)}
	}
	for reason, change := range map[string]func([]wire.OwnPiece) []wire.OwnPiece{
		"one is missing":  func(p []wire.OwnPiece) []wire.OwnPiece { return p[1:] },
		"an older secret": func(p []wire.OwnPiece) []wire.OwnPiece { p[0].ID = id(7); return p },
		"another's":       func(p []wire.OwnPiece) []wire.OwnPiece { p[0].Key = "db/other"; return p },
	} {
		n := len(v.Events())
		wantCode(t, web.Call(wire.OpBox, resealed(change), nil), tutti.CodeConflict, "changed meanwhile")
		if got := v.Since(n); len(got) > 0 {
			t.Errorf("%s: appended %v", reason, got)
		}
	}
	wantCode(t, web.Call(wire.OpBox, wire.NewBox{BoxKey: "AAAA"}, nil), tutti.CodeInvalid, "not an X25519 key")
	whole := resealed(func(p []wire.OwnPiece) []wire.OwnPiece { return p })
	n := len(v.Events())
	wantCode(t, web.Call(wire.OpBox, whole, nil), "", "")
	if diff := cmp.Diff([]string{"node.boxed", "secret.sealed", "secret.sealed"}, v.Since(n)); diff != "" {
		t.Errorf("appended -want +got\n%s", diff)
	}
	if list, err := v.ListSecrets(servertest.Operator()); err != nil || list[0].Replaced != nil {
		t.Errorf("listed as %+v, %v: want no machine that was replaced", list, err)
	}
	wantCode(t, web.Call(wire.OpBox, whole, nil), "", "") // the node has not received the answer
	if got := v.Since(n); len(got) != 3 {
		t.Errorf("said again: %v", got)
	}
	v.Start("web", tutti.ModeApply)
	order := web.MustClaim()
	a := web.Ask(order.Run, tutti.Query{Kind: tutti.QueryValue, Key: "db/password"})
	sealed, _ := tutti.ParseSealed(a.Value)
	if got, err := seal.OpenNode(sealed, servertest.Box("next")); err != nil || string(got) != `"hunter2"` {
		t.Errorf("opened %s, %v", got, err)
	}
	list, err := v.ListSecrets(servertest.Operator())
	if err != nil || list[0].ID != id(1) || len(list[0].Waiting)+len(list[1].Waiting) > 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
}

// secretsOf causes each kind of event about secrets once.
func secretsOf(t *testing.T, f *servertest.Fleet, web *servertest.Node) {
	t.Helper()
	ctx := servertest.Operator()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(f.SealSecret(ctx, tutti.SealSecret{Secret: tutti.Secret{
		Key: "shared/password", ID: "0123456789abcdef", For: []string{"node:web-01"}, Recovery: []byte("for the recovery key"),
		Pieces: []tutti.Piece{{Node: "web-01", Box: tutti.BoxDigest(seal.PublicKey(servertest.Box(string(web.Key)))), Sealed: []byte("for web-01")}},
	}}))
	for range 2 { // the second call repeats what is known
		must(web.Call(wire.OpBox, wire.NewBox{BoxKey: seal.PublicKey(servertest.Box("next")), Pieces: []wire.OwnPiece{
			{Key: "shared/password", ID: "0123456789abcdef", Sealed: []byte("for its next key")},
		}}, nil))
	}
}

// TestWhoIsMeantFromNowOnIsNotGood checks a node that used a default because a secret was not for
// this node. After the node's group becomes a target of the secret, the node is not good.
func TestWhoIsMeantFromNowOnIsNotGood(t *testing.T) {
	v := newVault(t)
	v.Join("web-01", "web")
	db := v.Join("db-01")
	v.set("db/password", 1, `1`, "group:web")
	v.set("shared/hiera/pw", 2, `1`, "group:web")
	v.Start("db", tutti.ModeApply)
	order := db.MustClaim()
	db.Gate(wire.Gate{
		Run: order.Run, Reads: []tutti.Read{db.Read(order.Run, tutti.Query{Kind: tutti.QueryValue, Key: "db/password"})}, Keys: []tutti.KeyRead{{Key: "pw"}},
	})
	db.Finish(order.Run)
	stands := func() api.NodeStanding {
		t.Helper()
		n, err := v.ShowNode(servertest.Operator(), "db-01")
		if err != nil {
			t.Fatal(err)
		}
		return n.Standing
	}
	if got := stands(); got.State != api.NodeGood {
		t.Errorf("before: %+v", got)
	}
	for _, key := range []string{"db/password", "shared/hiera/pw"} {
		more := v.sealed(key, map[string]int{"db/password": 1, "shared/hiera/pw": 2}[key], `1`, "group:db", "group:web")
		whole := more.Pieces
		more.Adds, more.Moves, more.Pieces = true, true, nil
		if err := v.SealSecret(servertest.Operator(), more); err != nil {
			t.Fatal(err)
		}
		if got := stands(); got.State == api.NodeGood || !strings.Contains(got.Why, "not sealed to it yet") {
			t.Errorf("%s is for it: %+v", key, got)
		}
		more.Moves, more.Recovery, more.Pieces = false, nil, whole
		if err := v.SealSecret(servertest.Operator(), more); err != nil {
			t.Fatal(err)
		}
		if got := stands(); got.State == api.NodeGood || !strings.Contains(got.Why, "has changed since it was read") {
			t.Errorf("%s is sealed to it: %+v", key, got)
		}
		order := func() tutti.Order { v.Start("db", tutti.ModeApply); return db.MustClaim() }()
		read := db.Read(order.Run, tutti.Query{Kind: tutti.QueryValue, Key: "db/password"})
		keys := []tutti.KeyRead{{Key: "pw"}}
		reads := []tutti.Read{read}
		if key != "db/password" {
			keys, reads = nil, append(reads, db.Read(order.Run, tutti.Query{Kind: tutti.QueryHiera, Key: "pw"}))
		}
		db.Gate(wire.Gate{Run: order.Run, Reads: reads, Keys: keys})
		db.Finish(order.Run)
		if got := stands(); got.State != api.NodeGood {
			t.Errorf("after its run with %s: %+v", key, got)
		}
	}
}
