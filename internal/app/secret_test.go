package app

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/operator"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/internal/servertest"
)

// secretFleet returns a fleet whose operator has already made the recovery key.
func secretFleet(t *testing.T) (*servertest.Fleet, cli.Connection) {
	t.Helper()
	c := cli.Connection{OperatorDir: filepath.Join(t.TempDir(), "operator")}
	public, err := operator.Sealer{}.Init(c)
	if err != nil {
		t.Fatal(err)
	}
	f := servertest.Start(t)
	pushRecovery(t, f, public)
	return f, c
}

func pushRecovery(t *testing.T, f *servertest.Fleet, public string) {
	t.Helper()
	source := "fleet: f\nsecrets: {recovery: " + public + "}\ngroups: {web: {joined: true}, app: {joined: true}}\n"
	if _, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "tutti.yaml", Source: []byte(source)}); err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err error, code tutti.Code, says string) {
	t.Helper()
	if tutti.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want code %q and %q", err, code, says)
	}
}

func onlySecret(t *testing.T, f *servertest.Fleet) api.SecretView {
	t.Helper()
	list, err := f.ListSecrets(servertest.Operator())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return list[0]
}

// The function `agreed` confirms every seal.
func agreed(cli.SealedFor) error { return nil }

// TestTheFirstSealAsks checks the question before the first seal. If the operator says no, nothing is sealed, and the
// question comes again next time.
func TestTheFirstSealAsks(t *testing.T) {
	f, c := secretFleet(t)
	ctx, s := servertest.Operator(), operator.Sealer{}
	f.Join("web-01", "web")
	var asked []tutti.NodeName
	answer := tutti.Errorf(tutti.CodeInvalid, "no")
	ask := func(to cli.SealedFor) error {
		asked = append(asked, to.First...)
		return answer
	}
	set := func() error {
		_, err := s.Seal(ctx, f, c, "db/pw", []string{"group:web"}, json.RawMessage(`1`), ask)
		return err
	}
	n := len(f.Events())
	for range 2 {
		wantErr(t, set(), tutti.CodeInvalid, "no")
	}
	if diff := cmp.Diff([]tutti.NodeName{"web-01", "web-01"}, asked); diff != "" || len(f.Events()) != n {
		t.Errorf("%d events after two times no, -want +asked for\n%s", len(f.Events())-n, diff)
	}
	answer = nil
	wantErr(t, set(), "", "")
	answer, asked = tutti.Errorf(tutti.CodeInvalid, "no"), nil
	wantErr(t, set(), "", "")
	f.Join("zz-evil", "web")
	_, err := s.Reseal(ctx, f, c, onlySecret(t, f), nil, ask)
	wantErr(t, err, tutti.CodeInvalid, "no")
	if diff := cmp.Diff([]tutti.NodeName{"zz-evil"}, asked); diff != "" || len(onlySecret(t, f).Sealed) != 1 {
		t.Errorf("-want +asked for\n%s", diff)
	}
}

// TestTheRecoveryKeyIsAskedFor checks that an operator who does not know the recovery key must confirm it. Without
// this confirmation, a dishonest server could send its own key. A new operator gets the recovery key together with
// the certificate.
func TestTheRecoveryKeyIsAskedFor(t *testing.T) {
	f, c := secretFleet(t)
	ctx, s := servertest.Operator(), operator.Sealer{}
	f.Join("web-01", "web")
	bob := cli.Connection{OperatorDir: filepath.Join(t.TempDir(), "bob")}
	public, err := s.Recovery(c)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	answer := tutti.Errorf(tutti.CodeInvalid, "no")
	set := func() error {
		_, err := s.Seal(ctx, f, bob, "db/pw", []string{"group:web"}, json.RawMessage(`1`), func(to cli.SealedFor) error {
			asked = append(asked, to.Recovery)
			return answer
		})
		return err
	}
	for range 2 {
		wantErr(t, set(), tutti.CodeInvalid, "no")
	}
	if diff := cmp.Diff([]string{public, public}, asked); diff != "" {
		t.Errorf("-want +asked for\n%s", diff)
	}
	if err := operator.HandOnRecovery(c.OperatorDir, bob.OperatorDir); err != nil {
		t.Fatal(err)
	}
	asked, answer = nil, nil
	wantErr(t, set(), "", "")
	if diff := cmp.Diff([]string{""}, asked); diff != "" {
		t.Errorf("who was given it is asked for it: -want +asked for\n%s", diff)
	}
	_, other, err := seal.NewRecovery()
	if err != nil {
		t.Fatal(err)
	}
	pushRecovery(t, f, other)
	wantErr(t, set(), tutti.CodeRefused, "is not the one that this operator knows")
}

// TestOperatorsSeal seals a secret to the present nodes, later to a new node, and to other nodes. Each node opens the
// value that the operator set.
func TestOperatorsSeal(t *testing.T) {
	f, c := secretFleet(t)
	ctx, s := servertest.Operator(), operator.Sealer{}
	web := f.Join("web-01", "web")
	done, err := s.Seal(ctx, f, c, "db/pw", []string{"group:web"}, json.RawMessage(`"hunter2"`), agreed)
	if diff := cmp.Diff(cli.SealedFor{Key: "db/pw", For: []string{"group:web"}, Nodes: []tutti.NodeName{"web-01"}, First: []tutti.NodeName{"web-01"}}, done); err != nil || diff != "" {
		t.Fatalf("%v, -want +sealed\n%s", err, diff)
	}
	f.Join("web-02", "web")
	f.Join("app-01", "app")
	first := onlySecret(t, f)
	done, err = s.Reseal(ctx, f, c, first, nil, agreed)
	if diff := cmp.Diff(cli.SealedFor{Key: "db/pw", For: []string{"group:web"}, Nodes: []tutti.NodeName{"web-02"}, First: []tutti.NodeName{"web-02"}}, done); err != nil || diff != "" {
		t.Fatalf("%v, -want +sealed\n%s", err, diff)
	}
	n := len(f.Events())
	if done, err = s.Reseal(ctx, f, c, onlySecret(t, f), nil, agreed); err != nil || len(done.Nodes) > 0 || len(f.Events()) != n {
		t.Errorf("sealed again: %+v, %v, %d events", done, err, len(f.Events())-n)
	}
	if _, err = s.Reseal(ctx, f, c, onlySecret(t, f), []string{"group:app"}, agreed); err != nil {
		t.Fatal(err)
	}
	view := onlySecret(t, f)
	if diff := cmp.Diff([][]tutti.NodeName{{"app-01"}, {"web-01", "web-02"}}, [][]tutti.NodeName{view.Sealed, view.Former}); diff != "" || view.ID != first.ID {
		t.Errorf("for others: %+v\n%s", view, diff)
	}
	_, err = s.Reseal(ctx, f, c, first, nil, agreed)
	wantErr(t, err, tutti.CodeRefused, "is for group:web according to the server, but was for group:app when this operator last sealed it; if another operator has changed the targets, run: tutti secret reseal db/pw --for group:web")
	if _, err := s.Seal(ctx, f, c, "db/pw", []string{"group:web"}, json.RawMessage(`"another"`), agreed); err != nil {
		t.Fatal(err)
	}
	_, err = s.Reseal(ctx, f, c, first, nil, agreed)
	wantErr(t, err, tutti.CodeConflict, "has another value")
	for _, e := range f.Events() {
		b, is := e.Body.(*tutti.SecretSealed)
		if !is || b.Secret.ID != first.ID {
			continue
		}
		for _, p := range b.Pieces {
			if p.Node != "web-01" {
				continue
			}
			got, err := seal.OpenNode(tutti.SealedValue{Key: "db/pw", ID: first.ID, Sealed: p.Sealed}, servertest.Box(string(web.Key)))
			if err != nil || string(got) != `"hunter2"` {
				t.Errorf("web-01 opens %s, %v", got, err)
			}
		}
	}
}

// TestKeysArePinned checks that the operator's client refuses changed keys of nodes and a changed recovery key
// until the operator confirms them.
func TestKeysArePinned(t *testing.T) {
	f, c := secretFleet(t)
	ctx, s := servertest.Operator(), operator.Sealer{}
	f.Join("web-01", "web")
	set := func() error {
		_, err := s.Seal(ctx, f, c, "db/pw", []string{"group:web"}, json.RawMessage(`1`), agreed)
		return err
	}
	wantErr(t, set(), "", "")
	other := f.Node("another machine")
	other.Name = "web-01"
	token, err := f.CreateToken(ctx, api.CreateToken{Name: "web-01", Groups: []tutti.GroupName{"web"}})
	if err == nil {
		err = f.ReplaceNode(ctx, "web-01")
	}
	if err == nil {
		_, err = f.Enrol(t.Context(), other.Request(token))
	}
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, set(), tutti.CodeRefused, "tutti secret trust web-01")
	_, err = s.Reseal(ctx, f, c, onlySecret(t, f), nil, agreed)
	wantErr(t, err, tutti.CodeRefused, "tutti secret trust web-01")
	wantErr(t, s.Trust(ctx, f, c, []tutti.NodeName{"web-01"}, false), "", "")
	wantErr(t, set(), "", "")

	_, public, err := seal.NewRecovery()
	if err != nil {
		t.Fatal(err)
	}
	pushRecovery(t, f, public)
	wantErr(t, set(), tutti.CodeRefused, "differs from the recovery key of the fleet file")
	// An operator without the private recovery key knows only the public key.
	if err := os.Rename(filepath.Join(c.OperatorDir, operator.RecoveryFile), filepath.Join(c.OperatorDir, "away")); err != nil {
		t.Fatal(err)
	}
	wantErr(t, set(), tutti.CodeRefused, "tutti secret trust --recovery")
	wantErr(t, s.Trust(ctx, f, c, nil, true), "", "")
	wantErr(t, set(), "", "")
	_, err = s.Reseal(ctx, f, c, onlySecret(t, f), nil, agreed)
	wantErr(t, err, tutti.CodeNotFound, "no recovery key")
	if err := os.WriteFile(filepath.Join(c.OperatorDir, operator.PinsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantErr(t, set(), tutti.CodeInvalid, "it is damaged")
}

// The type `inventive` is a server that returns wrong recipients.
type inventive struct {
	cli.Server
	nodes []tutti.NodeName
}

func (s inventive) Recipients(ctx context.Context, targets []string) (tutti.Recipients, error) {
	to, err := s.Server.Recipients(ctx, targets)
	for _, n := range s.nodes {
		to.Nodes = append(to.Nodes, tutti.Recipient{Node: n, BoxKey: to.Nodes[0].BoxKey})
	}
	return to, err
}

// TestRecipientsArePlausible checks that a secret for named nodes is sealed only to these nodes, even if the server
// names other nodes.
func TestRecipientsArePlausible(t *testing.T) {
	f, c := secretFleet(t)
	ctx, s := servertest.Operator(), operator.Sealer{}
	f.Join("web-01", "web")
	f.Join("web-02", "web")
	for _, tc := range []struct {
		reason string
		nodes  []tutti.NodeName
		says   string
	}{
		{"another node", []tutti.NodeName{"web-02"}, "the server names node web-02 for node:web-01"},
		{"the node twice", []tutti.NodeName{"web-01"}, "the server names node web-01 for node:web-01"},
		{"a name that wipes the line", []tutti.NodeName{"web-02\x1b[2K"}, "node name"},
	} {
		_, err := s.Seal(ctx, inventive{f, tc.nodes}, c, "db/pw", []string{"node:web-01"}, json.RawMessage(`1`), agreed)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.says)
		}
		if err := s.Trust(ctx, inventive{f, tc.nodes}, c, []tutti.NodeName{"web-01"}, false); err == nil {
			t.Errorf("%s: the key is trusted", tc.reason)
		}
	}
	if _, err := s.Seal(ctx, f, c, "db/pw", []string{"node:web-01"}, json.RawMessage(`1`), agreed); err != nil {
		t.Error(err)
	}
	if list, err := f.ListSecrets(ctx); err != nil || len(list) != 1 || len(list[0].Sealed) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestARefusedSecretIsNotQuoted checks that an error does not contain the secret, because people copy errors into
// tickets.
func TestARefusedSecretIsNotQuoted(t *testing.T) {
	f, c := secretFleet(t)
	f.Join("web-01", "web")
	for _, value := range []string{"99999999999999999999471147", "1e999999999471147", `{"a": 471147`} {
		_, err := operator.Sealer{}.Seal(servertest.Operator(), f, c, "db/pw", []string{"group:web"}, json.RawMessage(value), agreed)
		wantErr(t, err, tutti.CodeInvalid, "not a value that Puppet can read")
		if err != nil && strings.Contains(err.Error(), "471147") {
			t.Errorf("it is quoted: %v", err)
		}
	}
}

// TestTheRecoveryKeyIsMadeOnce checks that a second recovery key is refused, because it could not open earlier
// secrets.
func TestTheRecoveryKeyIsMadeOnce(t *testing.T) {
	_, c := secretFleet(t)
	_, err := operator.Sealer{}.Init(c)
	wantErr(t, err, tutti.CodeConflict, "nobody could open the secrets that are sealed to it")
	path := filepath.Join(c.OperatorDir, operator.RecoveryFile)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want mode 0600", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("AGE-SECRET-KEY-1CANARY\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = operator.Sealer{}.Recovery(c)
	wantErr(t, err, tutti.CodeInvalid, path)
	if strings.Contains(err.Error(), "CANARY") {
		t.Errorf("the error has the key: %v", err)
	}
}
