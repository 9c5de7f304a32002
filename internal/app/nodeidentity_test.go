package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
)

// The function `joined` makes the state directory of a node, with the same files as
// after Join. The function also returns a token of a server that does not exist.
func joined(t *testing.T) (dir, token string) {
	t.Helper()
	authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), nil)
	if err != nil {
		t.Fatal(err)
	}
	node, err := identity.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	jwt, err := authority.NodeJWT(node.Key, "web")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	at := machine.IdentityDir(dir)
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	member := identity.EnrolResponse{
		Node: "web", JWT: jwt, CA: string(authority.CA()), Bus: "127.0.0.1:1",
		CodeKey: identity.EncodeCodePublicKey(authority.CodePublicKey()), Time: time.Now(),
	}
	if err := node.Write(at); err != nil {
		t.Fatal(err)
	}
	if err := member.Write(at); err != nil {
		t.Fatal(err)
	}
	token, _, _, err = identity.NewToken(identity.TokenParams{Address: "127.0.0.1:1", Bus: "127.0.0.1:1", Pin: authority.Pin(), Name: "web", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return dir, token
}

// The test damages the files of a node's identity. The agent and the join command
// must refuse to begin, name the damaged file and the remedy, and write nothing.
func TestADamagedNodeSaysSo(t *testing.T) {
	damages := []struct {
		reason string
		spoil  func(path string) error
	}{
		{"empty", func(p string) error { return os.Truncate(p, 0) }},
		{"truncated", func(p string) error {
			info, err := os.Stat(p)
			if err != nil {
				return err
			}
			return os.Truncate(p, info.Size()/2)
		}},
		{"garbage", func(p string) error { return os.WriteFile(p, []byte("\x00\x01 garbage\n"), 0o600) }},
		{"missing", os.Remove},
	}
	for _, file := range []struct {
		name, mend string
		begins     string // after this kind of damage, the machine looks as if it had never joined
	}{
		{"node.nk", "tutti node replace", "missing"},
		{"node.x25519", "tutti node replace", ""},
		{"membership.json", "tutti join --again", "missing"},
	} {
		for _, damage := range damages {
			if damage.reason == file.begins {
				continue
			}
			t.Run(file.name+"/"+damage.reason, func(t *testing.T) {
				dir, token := joined(t)
				path := filepath.Join(machine.IdentityDir(dir), file.name)
				if err := damage.spoil(path); err != nil {
					t.Fatal(err)
				}
				before := files(t, dir, func(string) bool { return true })
				_, agentErr := NewAgent(AgentOptions{Dir: dir, Root: dir, Logger: slog.New(slog.DiscardHandler)})
				_, joinErr := machine.Join(t.Context(), machine.JoinOptions{Dir: dir, Token: token, Again: file.name != "membership.json"})
				errs := map[string]error{"agent": agentErr, "join": joinErr}
				if file.name == "membership.json" { // `leave --offline` reads this file, but no keys
					_, errs["leave"] = machine.Leave(t.Context(), machine.LeaveOptions{Dir: dir})
				}
				for what, err := range errs {
					if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), path+": file is ") ||
						!strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(err.Error(), file.mend) {
						t.Errorf("%s with %s %s: %v", what, file.name, damage.reason, err)
					}
				}
				if diff := cmp.Diff(before, files(t, dir, func(string) bool { return true })); diff != "" {
					t.Errorf("files -before +after\n%s", diff)
				}
			})
		}
	}
}
