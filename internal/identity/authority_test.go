package identity_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/jwt/v2"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
)

func newAuthority(t *testing.T, hosts ...string) (*identity.Authority, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "identity")
	a, err := identity.Init(dir, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return a, dir
}

func wantCode(t *testing.T, reason string, err error, want tutti.Code) {
	t.Helper()
	if tutti.CodeOf(err) != want {
		t.Errorf("%s: got error %v with code %q, want code %q", reason, err, tutti.CodeOf(err), want)
	}
}

// The function `contents` returns the content of each file in dir, by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(raw)
	}
	return files
}

func TestInitRefusesWhatExists(t *testing.T) {
	_, dir := newAuthority(t)
	before := contents(t, dir)
	_, err := identity.Init(dir, nil)
	wantCode(t, "a second Init", err, tutti.CodeConflict)
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("the refused Init changed the directory: -before +after\n%s", diff)
	}
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	a, dir := newAuthority(t)
	bundle, err := a.IssueOperator("anna")
	if err != nil {
		t.Fatal(err)
	}
	operator := filepath.Join(t.TempDir(), "operator")
	if err := bundle.Write(operator); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, operator} {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, %v; want 0700", dir, info.Mode(), err)
		}
		for name := range contents(t, dir) {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: mode %v, %v; want 0600", name, info.Mode(), err)
			}
		}
	}
}

func TestLoadNamesTheFileThatIsWrong(t *testing.T) {
	_, good := newAuthority(t)
	_, other := newAuthority(t)
	if _, err := identity.Load(good); err != nil {
		t.Fatal(err)
	}
	foreign := contents(t, other)
	for name, content := range contents(t, good) {
		for _, c := range []struct {
			reason string
			spoil  func(path string) error
			want   error
		}{
			{"missing", os.Remove, identity.ErrMissing},
			{"empty", func(p string) error { return os.Truncate(p, 0) }, identity.ErrCorrupt},
			{"cut", func(p string) error { return os.Truncate(p, int64(len(content)/2)) }, identity.ErrCorrupt},
			{"rubbish", func(p string) error { return os.WriteFile(p, []byte("rubbish"), 0o600) }, identity.ErrCorrupt},
			{"readable by the group", func(p string) error { return os.Chmod(p, 0o640) }, identity.ErrExposed},
			{"readable by all", func(p string) error { return os.Chmod(p, 0o604) }, identity.ErrExposed},
		} {
			t.Run(name+"/"+c.reason, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
					t.Fatal(err)
				}
				for n := range foreign { // CopyFS does not keep the mode 0600
					if err := os.Chmod(filepath.Join(dir, n), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.spoil(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				_, err := identity.Load(dir)
				if (name == "code.key" || name == "fleet") && errors.Is(c.want, identity.ErrMissing) {
					if err != nil {
						t.Errorf("a server works without the code-signing key, and where an earlier release noted no id of the fleet: %v", err)
					}
					return
				}
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), name) {
					t.Errorf("got %v, want %v that names %s", err, c.want, name)
				}
			})
		}
	}
	for _, name := range []string{"ca.crt", "ca.key", "server.crt", "server.key", "bus-nodes.jwt", "bus-nodes.nk", "bus-operator.nk"} {
		t.Run(name+"/of another fleet", func(t *testing.T) {
			dir := t.TempDir()
			for n, content := range contents(t, good) {
				if n == name {
					content = foreign[n]
				}
				if err := os.WriteFile(filepath.Join(dir, n), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := identity.Load(dir); !errors.Is(err, identity.ErrCorrupt) {
				t.Errorf("got %v, want %v", err, identity.ErrCorrupt)
			}
		})
	}
}

func TestLoadIsWhatInitMade(t *testing.T) {
	a, dir := newAuthority(t)
	b, err := identity.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if a.Pin() != b.Pin() || string(a.CA()) != string(b.CA()) || !a.CodePublicKey().Equal(b.CodePublicKey()) {
		t.Error("the loaded authority is another one")
	}
	at, err := a.Trust()
	if err != nil {
		t.Fatal(err)
	}
	bt, err := b.Trust()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(at.System, bt.System); diff != "" {
		t.Error(diff)
	}
	for key := range at.Accounts {
		if bt.Accounts[key] == "" {
			t.Errorf("account %s is gone", key)
		}
	}
}

func TestAccounts(t *testing.T) {
	a, _ := newAuthority(t)
	trust, err := a.Trust()
	if err != nil {
		t.Fatal(err)
	}
	jetstream := map[string]bool{}
	for _, text := range trust.Accounts {
		claims, err := jwt.DecodeAccountClaims(text)
		if err != nil {
			t.Fatal(err)
		}
		jetstream[claims.Name] = claims.Limits.IsJSEnabled()
	}
	if diff := cmp.Diff(map[string]bool{"SYS": false, "LOG": true, "NODES": false}, jetstream); diff != "" {
		t.Errorf("which accounts have JetStream: -want +got\n%s", diff)
	}
}

func TestNodeJWT(t *testing.T) {
	a, _ := newAuthority(t)
	node, err := identity.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.NodeJWT(node.Key, "web.>")
	if err != nil {
		t.Fatal(err)
	}
	claims, err := jwt.DecodeUserClaims(text)
	if err != nil {
		t.Fatal(err)
	}
	key := string(node.Key)
	want := jwt.UserPermissionLimits{
		Permissions: jwt.Permissions{
			Pub: jwt.Permission{Allow: jwt.StringList{"n." + key + ".>"}},
			Sub: jwt.Permission{Allow: jwt.StringList{"d." + key + ".>", "i." + key + ".>"}},
		},
		Limits: jwt.Limits{
			NatsLimits: jwt.NatsLimits{Subs: 16, Data: -1, Payload: 256 << 10},
		},
		AllowedConnectionTypes: jwt.StringList{"STANDARD"},
	}
	if diff := cmp.Diff(want, claims.UserPermissionLimits); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	mistyped := node.Key[:55] + "A"
	if mistyped == node.Key {
		mistyped = node.Key[:55] + "B"
	}
	for _, bad := range []tutti.NodeKey{"", "U", "*", ">", node.Key + ".x", mistyped, "A" + node.Key[1:]} {
		_, err := a.NodeJWT(bad, "web")
		wantCode(t, "key "+string(bad), err, tutti.CodeInvalid)
	}
}

func TestNodeIdentityOnDisk(t *testing.T) {
	dir := t.TempDir()
	node, err := identity.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := identity.LoadNode(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.Key != node.Key || string(got.Seed) != string(node.Seed) || got.BoxKey() != node.BoxKey() {
		t.Error("another identity came back")
	}
	for name := range contents(t, dir) {
		path := filepath.Join(dir, name)
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.LoadNode(dir); !errors.Is(err, identity.ErrExposed) {
			t.Errorf("%s with mode 0644: %v, want %v", name, err, identity.ErrExposed)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.LoadNode(dir); !errors.Is(err, identity.ErrMissing) {
			t.Errorf("without %s: %v, want %v", name, err, identity.ErrMissing)
		}
		if err := node.Write(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := identity.LoadNode(dir); !errors.Is(err, identity.ErrCorrupt) {
			t.Errorf("%s with rubbish: %v, want %v", name, err, identity.ErrCorrupt)
		}
		if err := node.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRevokedKeyIsAdmittedAgainInALaterSecond(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "identity")
	synctest.Test(t, func(t *testing.T) {
		a, err := identity.Init(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		node, err := identity.NewNode()
		if err != nil {
			t.Fatal(err)
		}
		account, err := a.Revoke(node.Key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.NodeJWT(node.Key, "web")
		wantCode(t, "in the same second", err, tutti.CodeUnavailable)
		time.Sleep(time.Second) // of synctest's clock
		text, err := a.NodeJWT(node.Key, "web")
		if err != nil {
			t.Fatal(err)
		}
		user, err := jwt.DecodeUserClaims(text)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := jwt.DecodeAccountClaims(account)
		if err != nil {
			t.Fatal(err)
		}
		if claims.IsClaimRevoked(user) {
			t.Error("the bus would refuse the new JWT")
		}
	})
}
