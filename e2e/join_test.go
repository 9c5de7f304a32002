//go:build e2e

package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/identity"
	node "github.com/tutti-project/tutti/internal/machine"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/wire"
)

// TestJoin tries to join in several forbidden ways, from a machine with a token, against the
// running server.
func TestJoin(t *testing.T) {
	token := func(in api.CreateToken) string {
		t.Helper()
		out, err := fleet.Client.CreateToken(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return out.Text
	}
	join := func(dir, text string, name tutti.NodeName) error {
		_, err := node.Join(t.Context(), node.JoinOptions{Dir: dir, Token: text, Name: name})
		return err
	}
	used := token(api.CreateToken{Name: "ghost*"})
	home := t.TempDir()
	if err := join(home, used, "ghost"); err != nil {
		t.Fatal(err)
	}
	short := token(api.CreateToken{Name: "late", TTL: time.Second})
	made := time.Now()
	eventually(t, "the token has expired", func() bool { return time.Since(made) > 1100*time.Millisecond })
	cases := map[string]struct {
		token string
		name  tutti.NodeName
		code  tutti.Code
		says  string
	}{
		"used by another key": {used, "ghost2", tutti.CodeRefused, "was used by ghost"},
		"expired":             {short, "late", tutti.CodeRefused, "expired at"},
		"altered":             {used[:40] + string(used[40]^1) + used[41:], "ghost3", tutti.CodeInvalid, "altered"},
		"another name":        {token(api.CreateToken{Name: "web-*"}), "db-01", tutti.CodeRefused, "for the name web-*"},
		"existing name":       {token(api.CreateToken{Name: "node-01"}), "node-01", tutti.CodeConflict, "tutti node replace node-01"},
		"another CA":          {otherCA(t, used), "ghost4", tutti.CodeRefused, "the server belongs to another fleet"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := join(t.TempDir(), tc.token, tc.name)
			if tutti.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v, want it to say %q", tutti.CodeOf(err), err, tc.says)
			}
		})
	}
	t.Run("replaced", func(t *testing.T) { replaced(t, home, token(api.CreateToken{Name: "ghost"})) })
}

// otherCA returns the token text with the pin of another CA.
func otherCA(t *testing.T, text string) string {
	t.Helper()
	parsed, err := identity.ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	other, err := identity.Init(t.TempDir()+"/ca", nil)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Pin, parsed.TTL = other.Pin(), time.Hour
	out, _, _, err := identity.NewToken(parsed.TokenParams)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The function `replaced` lets another machine take over the name, and checks the open connection
// of the first machine.
func replaced(t *testing.T, home, second string) {
	old := dial(t, home)
	if _, err := old.Call(t.Context(), wire.OpClaim, []byte("{}")); err != nil {
		t.Fatalf("the node cannot claim before it is replaced: %v", err)
	}
	if err := fleet.Client.ReplaceNode(t.Context(), "ghost"); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Join(t.Context(), node.JoinOptions{Dir: t.TempDir(), Token: second, Name: "ghost"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old key's connection is cut", func() bool { return !old.Connected() })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := old.Call(ctx, wire.OpClaim, []byte("{}")); err == nil {
		t.Error("the old key may still claim")
	}
	if err := fleet.Client.RemoveNode(t.Context(), "ghost"); err != nil {
		t.Error(err)
	}
}

func dial(t *testing.T, home string) *natsbus.Conn {
	t.Helper()
	node, err := identity.LoadNode(home + "/identity")
	if err != nil {
		t.Fatal(err)
	}
	member, err := identity.LoadMembership(home + "/identity")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := natsbus.Dial(t.Context(), natsbus.DialOptions{
		URLs: []string{"nats://" + member.Bus}, JWT: member.JWT, Seed: node.Seed, CA: []byte(member.CA),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	eventually(t, "connected", conn.Connected)
	return conn
}
